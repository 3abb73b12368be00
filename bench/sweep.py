"""Throughput and latency against message size, load and number of nodes, beside the peers: the data of the plots.

    python bench/sweep.py sizes|loads|nodes|peers [--repeat N] [--seconds S] [--only VALUE,VALUE] [--no-save]

    sizes   saturated, 4 nodes: ours in batches and in single events, Corosync by udp and knet, the bare ring
    peers   the same three sizes beside JGroups and PySyncObj
    loads   so many messages a second of 1 KB at each of 4 nodes: agreed, safe, Corosync by udp and knet
    nodes   saturated, 2 to 8 nodes: 64 B and 1 KB, Corosync by udp, the bare ring; and what the cost model is made from

Needs root. In turns, so many rounds of each; writes `bench/results/WHAT.json`, over the values that were measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ordercast.bench.compare import Contestant, alternate, prepared
from ordercast.bench.hosts import HostsError, Place
from ordercast.bench.limit import run_limit
from ordercast.bench.peers import PEERS
from ordercast.bench.report import machine
from ordercast.bench.run import Work, places, run_group
from ordercast.net.udp import HEADER_BYTES

RESULTS = Path(__file__).parent / "results"
MTU = 1500
BASE = Work(hosts="netns", mtu=MTU, nodes=4)
SIZES = (64, 256, 1024, 4096, 16_384, 65_536)
PEER_SIZES = (64, 1024, 16_384)
LOADS = (100, 500, 1000, 2000, 4000, 8000)
NODES = (2, 3, 4, 6, 8)
CALIBRATED_ON = (2, 4)
CALIBRATION_RATE = 200.0

Others = Callable[[Work, Sequence[Place]], dict[str, Contestant]]


def round_of(work: Work, peers: Sequence[str], others: Others, repeat: int) -> dict[str, dict[str, Any]]:
    """Ours, the peers that are installed and others, in turns."""
    there = [PEERS[name] for name in peers if not PEERS[name].missing()]
    for name in peers:
        if PEERS[name] not in there:
            print(f"{name} is not installed: {PEERS[name].install}", file=sys.stderr)
    with places(work) as at, prepared(there, work, at, lambda: None) as found:
        return alternate(dict(found) | others(work, at), repeat)


def _limit(work: Work, at: Sequence[Place]) -> Contestant:
    return partial(run_limit, work, at, MTU - HEADER_BYTES, accelerated=False)


def sizes(value: int, seconds: float, repeat: int) -> dict[str, Any]:
    def others(work: Work, at: Sequence[Place]) -> dict[str, Contestant]:
        return {"events": partial(run_group, replace(work, take="events"), at), "limit": _limit(work, at)}

    work = replace(BASE, size=value, seconds=seconds)
    return {"size": value, "systems": round_of(work, ("corosync-udp", "corosync-knet"), others, repeat)}


def peers(value: int, seconds: float, repeat: int) -> dict[str, Any]:
    work = replace(BASE, size=value, seconds=seconds)
    return {"size": value, "systems": round_of(work, ("jgroups", "pysyncobj"), lambda *_: {}, repeat)}


def loads(value: int, seconds: float, repeat: int) -> dict[str, Any]:
    def others(work: Work, at: Sequence[Place]) -> dict[str, Contestant]:
        return {"safe": partial(run_group, replace(work, service="safe"), at)}

    work = replace(BASE, rate=float(value), seconds=seconds)
    return {"rate": value, "systems": round_of(work, ("corosync-udp", "corosync-knet"), others, repeat)}


def nodes(value: int, seconds: float, repeat: int) -> dict[str, Any]:
    def others(work: Work, at: Sequence[Place]) -> dict[str, Contestant]:
        found = {"64B": partial(run_group, replace(work, size=64), at), "limit": _limit(work, at)}
        if value in CALIBRATED_ON:
            found["rated"] = partial(run_group, replace(work, rate=CALIBRATION_RATE), at)
        return found

    work = replace(BASE, nodes=value, seconds=seconds)
    return {"nodes": value, "seconds": seconds, "systems": round_of(work, ("corosync-udp",), others, repeat)}


SWEEPS: Mapping[str, tuple[Callable[[int, float, int], dict[str, Any]], tuple[int, ...]]] = {
    "sizes": (sizes, SIZES),
    "peers": (peers, PEER_SIZES),
    "loads": (loads, LOADS),
    "nodes": (nodes, NODES),
}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", choices=[*SWEEPS])
    options.add_argument("--repeat", type=int, default=3)
    options.add_argument("--seconds", type=float, default=1.5)
    options.add_argument("--only", metavar="VALUE,VALUE", help="of the sizes, loads or numbers of nodes")
    options.add_argument("--no-save", action="store_true")
    args = options.parse_args()
    measure, values = SWEEPS[args.what]
    path = RESULTS / f"{args.what}.json"
    recorded = json.loads(path.read_text()) if path.exists() else {"bench": args.what, "points": {}}
    try:
        for value in [int(word) for word in args.only.split(",")] if args.only else values:
            found = measure(value, args.seconds, args.repeat)
            recorded["points"][str(value)] = found | {"machine": machine()}
            recorded["points"] = dict(sorted(recorded["points"].items(), key=lambda point: int(point[0])))
            if not args.no_save:
                path.write_text(json.dumps(recorded, indent=1) + "\n")
            for system, figures in found["systems"].items():
                latency = (figures.get("latency_ms") or {}) if figures["runs"] else {}
                rate, p50 = figures.get("delivered_per_s", "–"), latency.get("p50")
                print(
                    args.what, value, system, rate, "" if p50 is None else f"p50 {p50} p99 {latency['p99']}", flush=True
                )
                for reason in figures["failed"]:
                    print(f"{system}: a run failed: {reason}", file=sys.stderr)
    except HostsError as error:
        print(f"bench/sweep.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
