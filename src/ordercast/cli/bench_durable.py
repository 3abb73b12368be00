"""`ordercast bench durable`: corel, its peers that are installed, and the disk, in turns."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from ordercast.bench.compare import alternate, ratio
from ordercast.bench.durable import SYSTEMS, DurableWork, contestants
from ordercast.bench.durable_peers import MEMBERS, installed
from ordercast.bench.report import machine, table
from ordercast.cli.bench_progress import progress

OUTSTANDING = 1536
REPEAT = 3
"""Runs of each, where nothing else is said."""
_INSTALL = {"etcd": "apt-get install etcd-server", "nats": "apt-get install nats-server", "pysyncobj": "pip install pysyncobj"}  # fmt: skip  # noqa: E501


def measure_durable(args: argparse.Namespace) -> int:
    """Exit status 1 when a run of ours failed."""
    work = DurableWork(
        args.data_dir,
        size=args.size,
        outstanding=max(MEMBERS, args.outstanding),
        together=args.together,
        rate=args.rate,
        seconds=args.seconds,
        warm_s=args.warm_up,
    )
    versions = installed()
    missing = [name for name in _INSTALL if name not in versions]
    for name in missing:
        print(f"{name} is not installed: {_INSTALL[name]}", file=sys.stderr)
    names = [name for name in SYSTEMS if name == "corel" or name in versions]
    repeat = args.repeat or REPEAT
    with progress(repeat * work.length_s * (len(names) + 1)) as tick:
        results = alternate(contestants(work, names, tick), repeat)
    for name, version in versions.items():
        results[name]["version"] = version
    compared = ratios(results, work.rate)
    if args.json:
        head = {
            "members": MEMBERS,
            "size": work.size,
            "outstanding": work.outstanding,
            "together": work.together,
            "rate": work.rate,
        }
        rest = {"seconds": work.seconds, "systems": results, "ratios": compared, "not_installed": missing}
        print(json.dumps(head | rest | {"machine": machine()}))
    else:
        print(durable_table(results, compared, bool(work.rate)))
    for name, figures in results.items():
        for reason in figures["failed"]:
            print(f"{name}: a run failed: {reason}", file=sys.stderr)
    return 0 if results["corel"]["runs"] else 1


def ratios(results: dict[str, dict[str, Any]], rate: float) -> dict[str, float | None]:
    """Ours to theirs: writes when saturated, the 99th percentile of acknowledgements at a fixed rate."""
    ours = results["corel"]

    def figure(of: dict[str, Any]) -> float | None:
        if not of["runs"]:
            return None
        found: float = of["ack_ms"]["p99"] if rate else of["writes_per_s"]
        return found

    return {name: ratio(figure(ours), figure(of)) for name, of in results.items() if name != "corel"}


def durable_table(results: dict[str, dict[str, Any]], compared: dict[str, float | None], rated: bool) -> str:
    rows: list[list[object]] = []
    for name, figures in results.items():
        if figures["runs"]:
            ack = figures["ack_ms"]
            rows.append(
                [name, figures["writes_per_s"], figures["spread_percent"], ack["p50"], ack["p99"], compared.get(name)]
            )
    head = ("medians of the runs", "writes/s", "spread %", "p50 ms", "p99 ms", "ours : p99" if rated else "ours :")
    return table(head, rows)
