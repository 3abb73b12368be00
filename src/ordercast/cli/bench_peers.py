"""`ordercast bench peers`: ours and the peers that are installed, on the same hosts, in turns."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from ordercast.bench.compare import OURS, alternate, peers_for, prepared, ratios
from ordercast.bench.peers import PEERS
from ordercast.bench.report import machine, table
from ordercast.bench.run import Work, places
from ordercast.cli.bench_progress import progress

REPEAT = 5
"""Runs of each, where nothing else is said."""


def measure_peers(args: argparse.Namespace, work: Work) -> int:
    """Exit status 1 when there is nobody to compare with."""
    wanted = peers_for(work.encrypt, args.peer)
    missing = {peer.name: (peer.missing(), peer.install) for peer in wanted if peer.missing()}
    there = [peer for peer in wanted if peer.name not in missing]
    for name, (what, install) in missing.items():
        print(f"{name} is not installed ({', '.join(what)}): {install}", file=sys.stderr)
    if not there:
        print("ordercast bench peers: no peer is installed here", file=sys.stderr)
        return 1
    repeat = args.repeat or REPEAT
    length_s = work.length_s + sum(max(work.warm_s, peer.warm_s) + work.seconds for peer in there)
    with (
        places(work) as at,
        progress(repeat * length_s) as tick,
        prepared(there, work, at, tick) as contestants,
    ):
        results = alternate(contestants, repeat)
    for peer in there:
        results[peer.name]["version"] = peer.version()
    compared = ratios(results, work.rate)
    if args.json:
        head = {"nodes": work.nodes, "size": work.size, "rate": work.rate, "service": work.service, "take": work.take}
        rest = {"mtu": work.mtu, "encrypt": work.encrypt, "systems": results, "ratios": compared}
        absent = {name: {"missing": what, "install": install} for name, (what, install) in missing.items()}
        print(json.dumps(head | rest | {"not_installed": absent, "machine": machine()}))
    else:
        print(peers_table(results, compared, bool(work.rate)))
    for name, figures in results.items():
        for reason in figures["failed"]:
            print(f"{name}: a run failed: {reason}", file=sys.stderr)
    return 0 if compared else 1


def peers_table(results: dict[str, dict[str, Any]], compared: dict[str, dict[str, Any]], rated: bool) -> str:
    """One line a system. Ratios are ours to theirs: above 1 is more messages, below 1 is less latency."""
    shares = ("p50", "p99", "p999")
    if rated:
        head = ["medians of the runs", "messages/s", "p50 ms", "p99 ms", "p99.9 ms", "ours : p50", "ours : p99"]
    else:
        head = ["medians of the runs", "messages/s", "MB/s", "spread %", "ours :"]
    rows: list[list[object]] = []
    for name, figures in results.items():
        against = compared.get(name, {})
        if not figures["runs"]:
            rows.append([name, *[None] * (len(head) - 1)])
        elif rated:
            latency = [figures["latency_ms"][share] for share in shares]
            rows.append([name, figures["delivered_per_s"], *latency, against.get("p50"), against.get("p99")])
        else:
            shown = [figures[key] for key in ("delivered_per_s", "mb_per_s", "spread_percent")]
            rows.append([name, *shown, against.get("delivered_per_s")])
    return table(head, rows)


def peer_name(text: str) -> str:
    if text not in PEERS:
        raise argparse.ArgumentTypeError(f"there is no peer {text!r}; there are {', '.join(PEERS)}")
    return text


__all__ = ["OURS", "measure_peers", "peer_name", "peers_table"]
