"""The plots of docs/performance.md, from the data in `bench/results`: `make plots`.

The same data gives the same bytes: no date, no random identifiers, text as text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.ticker import ScalarFormatter

RESULTS = Path(__file__).parent / "results"
PLOTS = Path(__file__).parent.parent / "docs" / "plots"
STYLE = {
    "svg.hashsalt": "ordercast",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "figure.figsize": (7.5, 4.2),
    "lines.markersize": 4,
}
LOOKS: dict[str, tuple[str, str, str]] = {
    # name in the data: what the legend says, colour, line
    "ordercast": ("ordercast, batches", "#1f4e9c", "-"),
    "events": ("ordercast, single events", "#1f4e9c", "--"),
    "64B": ("ordercast, 64 B", "#5b8fd9", "-"),
    "safe": ("ordercast, safe", "#5b8fd9", "--"),
    "limit": ("bare ring", "#555555", ":"),
    "corosync-udp": ("Corosync, udp", "#b3401f", "-"),
    "corosync-knet": ("Corosync, knet", "#e0884f", "-"),
    "jgroups": ("JGroups, SEQUENCER", "#4d8c3f", "-"),
    "pysyncobj": ("PySyncObj", "#8a5fb0", "-"),
}
Point = tuple[float, float]


def _read(name: str) -> Any:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def _points(recorded: Any, key: str, system: str, figure: Callable[[Any], float | None]) -> list[Point]:
    """(value of the key, figure) of a system over all points that have it."""
    found = []
    for point in recorded["points"].values():
        figures = point["systems"].get(system)
        if figures and figures["runs"]:
            value = figure(figures)
            if value is not None:
                found.append((float(point[key]), value))
    return found


def _line(axes: Axes, system: str, points: Sequence[Point], **more: Any) -> None:
    if points:
        label, colour, line = LOOKS[system]
        shown = {"label": label, "color": colour, "linestyle": line, "marker": "o"} | more
        axes.plot([x for x, _ in points], [y for _, y in points], **shown)


def _finish(axes: Axes, name: str, x: str, y: str, ticks: Sequence[float]) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(list(ticks))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.minorticks_off()
    axes.legend(fontsize=8)
    figure = axes.get_figure()
    assert figure is not None
    PLOTS.mkdir(exist_ok=True)
    figure.savefig(PLOTS / f"{name}.svg", metadata={"Date": None, "Creator": None}, bbox_inches="tight")  # type: ignore[union-attr]
    pyplot.close("all")
    print(PLOTS / f"{name}.svg")


def _new() -> Axes:
    _figure, axes = pyplot.subplots()
    return axes


def by_size() -> None:
    recorded, beside = _read("sizes"), _read("peers")
    for name, label, figure in (
        ("throughput-size", "messages a second at the slowest node", lambda of: of["delivered_per_s"]),
        ("bytes-size", "MB a second at the slowest node", lambda of: of["mb_per_s"]),
    ):
        axes = _new()
        for system in ("limit", "ordercast", "events", "corosync-udp", "corosync-knet"):
            _line(axes, system, _points(recorded, "size", system, figure))
        for system in ("jgroups", "pysyncobj"):
            _line(axes, system, [] if beside is None else _points(beside, "size", system, figure))
        _finish(axes, name, "bytes of a message", label, [point["size"] for point in recorded["points"].values()])


def by_load() -> None:
    recorded = _read("loads")
    axes = _new()
    systems = ("ordercast", "safe", "corosync-udp", "corosync-knet")
    for system in systems:
        kept = {
            point["rate"]
            for point in recorded["points"].values()
            # What cannot keep up has no latency: its queues grow for as long as one measures.
            if point["systems"].get(system, {}).get("delivered_per_s", 0) > 0.95 * 4 * point["rate"]
        }
        for share, line in (("p50", "-"), ("p99", ":")):
            points = _points(recorded, "rate", system, lambda of, share=share: of["latency_ms"][share])  # type: ignore[misc]
            shown = [(4 * rate, latency) for rate, latency in points if rate in kept]
            _line(axes, system, shown, linestyle=line, label=f"{LOOKS[system][0].replace(', batches', '')} {share}")
    ticks = [4 * point["rate"] for point in recorded["points"].values()]
    _finish(axes, "latency-load", "messages of 1 KB a second, all four nodes together", "ms from the due time", ticks)


def by_nodes() -> None:
    recorded, model = _read("nodes"), _read("model")
    for name, label, figure, of_model in (
        (
            "throughput-nodes",
            "messages a second at the slowest node",
            lambda of: of["delivered_per_s"],
            lambda of: of["delivered_per_s"],
        ),
        (
            "rotation-nodes",
            "ms of a rotation of the token",
            lambda of: 1000 / of["rotations_per_s"] if of.get("rotations_per_s") else None,
            lambda of: of["rotation_ms"],
        ),
    ):
        axes = _new()
        ticks = {point["nodes"] for point in recorded["points"].values()}
        systems = ("limit", "ordercast", "64B", "corosync-udp")
        for system in systems:
            shown = {"label": "ordercast, 1 KB"} if system == "ordercast" else {}
            _line(axes, system, _points(recorded, "nodes", system, figure), **shown)
        for run_size, system in ((1024, "ordercast"), (64, "64B")):
            for place, line, marker in (("two_cores", ":", "x"), ("hosts", "-.", "^")):
                lines = [] if model is None else [run for run in model["runs"] if run["size"] == run_size]
                ticks |= {run["nodes"] for run in lines}
                where = "2 cores" if place == "two_cores" else "a core each, 10 Gbit/s"
                points = [(run["nodes"], of_model(run[place])) for run in lines if run[place]]
                label_of = f"model, {run_size} B, {where}"
                _line(axes, system, points, label=label_of, linestyle=line, marker=marker, linewidth=1)
        _finish(axes, name, "nodes, all sending", label, sorted(ticks))


def where() -> None:
    """What a message, or a packet, costs on its way, as stacked bars."""
    recorded = _read("where")
    if recorded is None:
        return
    axes = _new()
    parts = list(recorded["parts"])
    bars = list(recorded["bars"])
    base = [0.0] * len(bars)
    colours = ("#1f4e9c", "#5b8fd9", "#a9c4ea", "#e0884f", "#b3401f", "#4d8c3f", "#999999")
    for part, colour in zip(parts, colours, strict=False):
        widths = [recorded["bars"][bar].get(part, 0.0) for bar in bars]
        axes.barh(bars, widths, left=base, color=colour, label=part)
        base = [at + width for at, width in zip(base, widths, strict=True)]
    axes.set_xlabel("µs of processor time a packet of 1,472 bytes, at one node")
    axes.legend(fontsize=8)
    figure = axes.get_figure()
    assert figure is not None
    figure.savefig(PLOTS / "where.svg", metadata={"Date": None, "Creator": None}, bbox_inches="tight")  # type: ignore[union-attr]
    pyplot.close("all")
    print(PLOTS / "where.svg")


NETWORK_STYLES = {
    "none": ("one network", "#555555"),
    "active": ("active, two networks", "#1f4e9c"),
    "passive": ("passive, two networks", "#4d8c3f"),
    "active-passive": ("active-passive, two of three", "#b3401f"),
}
PAPER_AT_1_KB = {"none": (9_000, 9_000), "active": (7_500, 8_000), "passive": (10_950, 12_900)}
"""Messages a second, as far as the text of paper 001 tells: more than 9,000; up to 1,000 to 1,500 less; 2,000 to 4,000
KB/s more."""


def networks() -> None:
    """Figures 6 to 9 of paper 001: styles of replication over networks of 100 Mbit/s."""
    runs = _read("networks-figures")["runs"].values()
    for nodes in sorted({run["nodes"] for run in runs}):
        sizes = sorted({run["size"] for run in runs if run["nodes"] == nodes})
        for name, label, unit in (
            (f"networks-messages-{nodes}", "messages a second at the slowest node", 1.0),
            (f"networks-bytes-{nodes}", "KB a second at the slowest node", 1e-3),
        ):
            axes = _new()
            for style, (says, colour) in NETWORK_STYLES.items():
                found = {run["size"]: run for run in runs if (run["nodes"], run["style"]) == (nodes, style)}
                points = [(at, found[at]["delivered_per_s"] * (at * unit if unit < 1 else 1)) for at in sorted(found)]
                axes.plot([x for x, _ in points], [y for _, y in points], color=colour, marker="o", label=says)
                if style in PAPER_AT_1_KB:
                    low, high = (rate * (1_024 * unit if unit < 1 else 1) for rate in PAPER_AT_1_KB[style])
                    bar = ((low + high) / 2, (high - low) / 2)
                    axes.errorbar([1_024], [bar[0]], [bar[1]], color=colour, marker="x", capsize=6, linestyle="none",
                                  markersize=8, label=f"the paper's text, {says.split(',')[0]}")  # fmt: skip
            _finish(axes, name, f"bytes of a message; {nodes} nodes, networks of 100 Mbit/s", label, sizes)


def main() -> int:
    matplotlib.rcParams.update(STYLE)
    plots = {"sizes": by_size, "loads": by_load, "nodes": by_nodes, "where": where, "networks-figures": networks}
    for name, plot in plots.items():
        if _read(name) is None:
            print(f"bench/results/{name}.json is not there: no plots of it", file=sys.stderr)
            continue
        plot()
    return 0


if __name__ == "__main__":
    sys.exit(main())
