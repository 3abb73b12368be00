"""The table of what ordercast is to reach beside its peers and the machine's limit, in turns on the same hosts.

    python bench/acceptance.py [ROW ...] [--seconds S] [--repeat N] [--ring-limit FILE] [--no-save]
    python bench/acceptance.py --show

Needs root (hosts are network namespaces, four of them, MTU 1500). Without rows it measures all; each row takes one to
two minutes with 5 runs, and is written to `bench/results/acceptance.json`, over what stood there for it. Exit status 1
when a goal is missed. `--ring-limit` is another bare ring, a script with the arguments NODE NODES SIZE SECONDS PACKET
VISIT classic, which our own limit is compared with. `--show` prints the table in Markdown from what was recorded.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ordercast.bench.compare import Contestant, alternate, prepared, ratio
from ordercast.bench.hosts import HostsError, Place, set_loss
from ordercast.bench.limit import VISIT_PACKETS, run_limit
from ordercast.bench.peers import PEERS
from ordercast.bench.processes import RunFailed
from ordercast.bench.report import machine, table
from ordercast.bench.run import Work, places, run_group
from ordercast.net.udp import HEADER_BYTES

RESULTS = Path(__file__).parent / "results" / "acceptance.json"
MTU = 1500
PACKET_BYTES = MTU - HEADER_BYTES
LIMIT, RING = "limit", "ring_limit"
Results = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Goal:
    """A figure of a row, and what it has to be."""

    what: str
    figure: Callable[[Results], float | None]
    most: bool
    """The figure may be at most the bound; at least it otherwise."""
    bound: float

    def met(self, value: float | None) -> bool:
        return value is not None and (value <= self.bound if self.most else value >= self.bound)


@dataclass(frozen=True)
class Row:
    """One line of the table: who runs, and what is wanted."""

    title: str
    work: Work
    others: Mapping[str, Work]
    """More of ours, by the name of their column."""
    peers: tuple[str, ...]
    limit: bool
    goals: tuple[Goal, ...]


def _ratio(name: str, other: str, *path: str) -> Callable[[Results], float | None]:
    def figure(results: Results) -> float | None:
        return ratio(_get(results, name, path), _get(results, other, path))

    return figure


def _get(results: Results, name: str, path: Sequence[str]) -> float | None:
    found: Any = results.get(name, {})
    for step in path:
        found = None if found is None else found.get(step)
    return found


def _at_least(times: float, other: str, what: str = "delivered_per_s", name: str = "ordercast") -> Goal:
    return Goal(f"{name} : {other}", _ratio(name, other, what), False, times)


def _at_most(times: float, name: str, other: str, share: str) -> Goal:
    return Goal(f"{name} : {other}, {share}", _ratio(name, other, "latency_ms", share), True, times)


def _none(figure: str) -> Goal:
    return Goal(figure.replace("_", " "), lambda results: _get(results, "ordercast", (figure,)), True, 0)


BASE = Work(hosts="netns", mtu=MTU, nodes=4)


def _rows() -> dict[str, Row]:
    def of(size: int, **more: Any) -> Work:
        return replace(BASE, size=size, **more)

    mb = "mb_per_s"
    rated = of(1024, rate=1000.0)
    lossy = of(1024, single_packets=True)
    return {
        "64B-batches": Row(
            "64-byte messages, batches",
            of(64),
            {},
            ("corosync-udp",),
            True,
            (_at_least(25, "corosync-udp"), _at_least(0.9, LIMIT), _at_least(0.95, RING, name=LIMIT)),
        ),
        "64B-events": Row(
            "64-byte messages, single events",
            of(64, take="events"),
            {},
            ("corosync-udp",),
            False,
            (_at_least(6, "corosync-udp"),),
        ),
        "1KB-batches": Row(
            "1 KB, batches",
            of(1024),
            {},
            ("corosync-udp",),
            True,
            (
                _at_least(10, "corosync-udp"),
                _at_least(0.9, LIMIT),
                _at_least(0.95, RING, name=LIMIT),
                _none("retransmissions"),
            ),
        ),
        "16KB": Row(
            "16 KB",
            of(16_384),
            {},
            ("corosync-knet",),
            True,
            (_at_least(7, "corosync-knet", mb), _at_least(0.9, LIMIT, mb), _at_least(0.95, RING, mb, name=LIMIT)),
        ),
        "1MB": Row("1 MB", of(1_000_000), {}, (), True, (_at_least(0.5, LIMIT, mb),)),
        "encrypted": Row(
            "all packets encrypted, 1 KB",
            of(1024, encrypt=True),
            {},
            ("corosync-knet-aes256",),
            False,
            (_at_least(5, "corosync-knet-aes256"),),
        ),
        "latency": Row(
            "4 × 1000 messages a second of 1 KB",
            rated,
            {"safe": replace(rated, service="safe")},
            ("corosync-udp",),
            False,
            (
                _at_most(1, "ordercast", "corosync-udp", "p50"),
                _at_most(1, "ordercast", "corosync-udp", "p99"),
                _at_most(4, "safe", "ordercast", "p50"),
            ),
        ),
        "safe": Row(
            "safe instead of agreed, 1 KB",
            of(1024, service="safe"),
            {"agreed": of(1024)},
            (),
            False,
            (_at_least(0.85, "agreed"),),
        ),
        "loss": Row(
            "random loss by packet, 1 KB",
            lossy,
            {"loss 1 %": replace(lossy, loss_percent=1.0), "loss 5 %": replace(lossy, loss_percent=5.0)},
            (),
            False,
            (
                _at_least(0.5, "ordercast", name="loss 1 %"),
                _at_least(0.2, "ordercast", name="loss 5 %"),
                _none("retransmissions"),
            ),
        ),
    }


ROWS = _rows()


def run_ours(work: Work, at: Sequence[Place]) -> dict[str, Any]:
    """One run of ours; whatever loss the hosts have had before."""
    if work.single_packets:
        set_loss(at, work.loss_percent)
    return run_group(work, at)


def run_ring(script: Path, work: Work, at: Sequence[Place]) -> dict[str, Any]:
    """One run of another bare ring, with the packets and the visits of ours."""
    words = [str(len(at)), str(work.size), f"{work.seconds:g}", str(PACKET_BYTES), str(VISIT_PACKETS), "classic"]
    processes = [
        place.popen([sys.executable, str(script), str(number), *words], stdout=-1) for number, place in enumerate(at, 1)
    ]
    rates, megabytes = [], []
    for process in processes:
        output, _ = process.communicate(timeout=work.seconds + 30)
        found = re.search(r"([\d.]+) msg/s ([\d.]+) MB/s", output)
        if found is None:
            raise RunFailed(f"{script.name}: it gave no figures")
        rates.append(float(found[1]))
        megabytes.append(float(found[2]))
    return {"delivered_per_s": round(min(rates)), "mb_per_s": min(megabytes)}


@contextmanager
def contestants(row: Row, ring: Path | None) -> Iterator[dict[str, Contestant]]:
    peers = [PEERS[name] for name in row.peers]
    work = row.work
    with places(work) as at, prepared(peers, work, at, lambda: None) as found:
        found = dict(found) | {"ordercast": partial(run_ours, work, at)}
        found |= {name: partial(run_ours, other, at) for name, other in row.others.items()}
        if row.limit:
            found[LIMIT] = partial(run_limit, work, at, PACKET_BYTES, accelerated=False)
            if ring is not None:
                found[RING] = partial(run_ring, ring, work, at)
        yield found


def measure(row: Row, seconds: float, repeat: int, ring: Path | None) -> dict[str, Any]:
    row = replace(
        row,
        work=replace(row.work, seconds=seconds),
        others={name: replace(work, seconds=seconds) for name, work in row.others.items()},
    )
    with contestants(row, ring) as found:
        results = alternate(found, repeat)
    goals = []
    for goal in row.goals:
        if RING in goal.what and ring is None:
            continue
        value = goal.figure(results)
        goals.append(
            {"what": goal.what, "value": value, "bound": goal.bound, "most": goal.most, "met": goal.met(value)}
        )
    return {"title": row.title, "size": row.work.size, "goals": goals, "systems": results, "machine": machine()}


def save(name: str, found: dict[str, Any]) -> None:
    recorded = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"bench": "acceptance", "rows": {}}
    recorded["rows"][name] = found
    RESULTS.write_text(json.dumps(recorded, indent=1) + "\n")


def show_row(name: str, found: dict[str, Any]) -> None:
    print(f"{name}: {found['title']}")
    rows = []
    for system, figures in found["systems"].items():
        latency = figures.get("latency_ms") or {}
        shown = [figures.get(key) for key in ("delivered_per_s", "mb_per_s", "spread_percent")]
        rows.append([system, *shown, latency.get("p50"), latency.get("p99"), figures.get("retransmissions")])
    print(table(("", "messages/s", "MB/s", "spread %", "p50 ms", "p99 ms", "retransmissions"), rows))
    for goal in found["goals"]:
        bound = f"{'at most' if goal['most'] else 'at least'} {goal['bound']:g}"
        print(f"  {goal['what']}: {goal['value']} ({bound}): {'met' if goal['met'] else 'MISSED'}")
    for system, figures in found["systems"].items():
        for reason in figures["failed"]:
            print(f"  {system}: a run failed: {reason}")
    print(flush=True)


def show_table(recorded: dict[str, Any]) -> None:
    """The docs' table."""
    print("| work | figures | ratio | goal | |\n| --- | --- | --- | --- | --- |")
    for name in ROWS:
        found = recorded["rows"].get(name)
        if found is None:
            continue
        figures = []
        for system, of in found["systems"].items():
            if not of["runs"]:
                continue
            latency = of.get("latency_ms") or {}
            if latency.get("p50") is not None:
                figures.append(f"{system} {latency['p50']:.2f} / {latency['p99']:.2f} ms")
            elif found["size"] > 4096:
                figures.append(f"{system} {of['mb_per_s']:.0f} MB/s")
            else:
                figures.append(f"{system} {of['delivered_per_s']:,}")
        for number, goal in enumerate(found["goals"]):
            head = (found["title"], ", ".join(figures)) if not number else ("", "")
            bound = f"{'at most' if goal['most'] else 'at least'} {goal['bound']:g}"
            value = "–" if goal["value"] is None else f"{goal['value']:.3g}"
            met = "met" if goal["met"] else "**missed**"
            print(f"| {head[0]} | {head[1]} | {goal['what']}: {value} | {bound} | {met} |")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("rows", nargs="*", choices=[[], *ROWS], metavar="ROW", help=", ".join(ROWS))
    options.add_argument("--seconds", type=float, default=2.0, help="of a run")
    options.add_argument("--repeat", type=int, default=5)
    options.add_argument("--ring-limit", type=Path, metavar="FILE")
    options.add_argument("--no-save", action="store_true")
    options.add_argument("--show", action="store_true", help="print what was recorded, and measure nothing")
    args = options.parse_args()
    if args.show:
        show_table(json.loads(RESULTS.read_text()))
        return 0
    met = True
    try:
        for name in args.rows or ROWS:
            missing = [what for peer in ROWS[name].peers for what in PEERS[peer].missing()]
            if missing:
                print(f"{name} is not measured: {', '.join(missing)} is not installed", file=sys.stderr)
                met = False
                continue
            found = measure(ROWS[name], args.seconds, args.repeat, args.ring_limit)
            if not args.no_save:
                save(name, found)
            show_row(name, found)
            met &= all(goal["met"] for goal in found["goals"])
    except HostsError as error:
        print(f"bench/acceptance.py: {error}", file=sys.stderr)
        return 2
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
