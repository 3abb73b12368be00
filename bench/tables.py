"""The tables of docs/performance.md in Markdown, from the data in `bench/results`: `tables.py [NAME …]`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
NAMES = {
    "ordercast": "batches",
    "events": "single events",
    "64B": "64 B, batches",
    "safe": "safe",
    "limit": "bare ring",
    "corosync-udp": "Corosync udp",
    "corosync-knet": "Corosync knet",
    "jgroups": "JGroups",
    "pysyncobj": "PySyncObj",
    "rated": "rated",
}


def _rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    for line in [head, ["---"] * len(head), *rows]:
        print(f"| {' | '.join(line)} |")
    print()


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _sweep(recorded: Any, key: str, systems: Sequence[str], cell: Callable[[Any, Any], str]) -> None:
    rows = []
    for point in recorded["points"].values():
        cells = [f"{point[key]:,}"]
        for system in systems:
            figures = point["systems"].get(system)
            cells.append(cell(figures, point) if figures and figures["runs"] else "–")
        rows.append(cells)
    _rows([key, *(NAMES[system] for system in systems)], rows)


def _rate(figures: Any, _point: Any) -> str:
    return _count(figures["delivered_per_s"])


def _latency(figures: Any, point: Any) -> str:
    if figures["delivered_per_s"] < 0.95 * 4 * point["rate"]:
        return f"falls behind ({_count(figures['delivered_per_s'])}/s)"
    latency = figures["latency_ms"]
    return f"{latency['p50']:.2f} / {latency['p99']:.2f}"


def sizes(recorded: Any) -> None:
    _sweep(recorded, "size", ("ordercast", "events", "corosync-udp", "corosync-knet", "limit"), _rate)


def peers(recorded: Any) -> None:
    _sweep(recorded, "size", ("ordercast", "jgroups", "pysyncobj"), _rate)


def loads(recorded: Any) -> None:
    _sweep(recorded, "rate", ("ordercast", "safe", "corosync-udp", "corosync-knet"), _latency)


def nodes(recorded: Any) -> None:
    _sweep(recorded, "nodes", ("ordercast", "64B", "corosync-udp", "limit"), _rate)
    rotations = lambda of, _: f"{1000 / of['rotations_per_s']:.2f}" if of.get("rotations_per_s") else "–"  # noqa: E731
    _sweep(recorded, "nodes", ("ordercast", "64B", "limit"), rotations)


def model(recorded: Any) -> None:
    print(recorded["costs_us"])
    for size in sorted({run["size"] for run in recorded["runs"]}):
        rows = []
        for run in recorded["runs"]:
            if run["size"] != size:
                continue
            here, hosts, real = run["two_cores"], run["hosts"], run.get("measured")
            rotation = None if real is None else 1000 / real["rotations_per_s"]
            off = "–" if real is None else f"{100 * (here['delivered_per_s'] / real['delivered_per_s'] - 1):+.0f} %"
            rows.append(
                [
                    f"{run['nodes']}",
                    _count(None if real is None else real["delivered_per_s"]),
                    _count(here["delivered_per_s"]),
                    off,
                    "–" if rotation is None else f"{rotation:.2f}",
                    f"{here['rotation_ms']:.2f}",
                    _count(hosts["delivered_per_s"]),
                    f"{hosts['rotation_ms']:.2f}",
                ]
            )
        print(f"{size} B")
        head = ["nodes", "measured", "model", "off", "rotation ms", "model ms", "hosts of their own", "rotation ms"]
        _rows(head, rows)


def where(recorded: Any) -> None:
    bars = recorded["bars"]
    rows = [[part, *(f"{bars[bar][part]:.2f}" for bar in bars)] for part in recorded["parts"]]
    total = ["together", *(f"{sum(of.values()):.2f}" for of in bars.values())]
    _rows(["µs a packet", *bars], [*rows, total])


TABLES = {"sizes": sizes, "peers": peers, "loads": loads, "nodes": nodes, "model": model, "where": where}


def main() -> int:
    for name in sys.argv[1:] or TABLES:
        path = RESULTS / f"{name}.json"
        if name not in TABLES or not path.exists():
            print(f"there is no {path}", file=sys.stderr)
            continue
        print(f"## {name}\n")
        TABLES[name](json.loads(path.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
