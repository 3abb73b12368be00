"""`ordercast spark lake`: from a log and from traces to tables of Parquet."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ordercast.cli.spark_session import add_session_options, running
from ordercast.errors import GroupError

if TYPE_CHECKING:
    from ordercast.spark.lake.store import Lake, State

_EXAMPLE = """\
exit status: 0 done, or ended by a signal; 2 bad usage, the log or the traces cannot be read, no Spark

examples:
  ordercast spark lake LAKE --path data --once            what is in the log of a member's data_dir by now
  ordercast spark lake LAKE --servers 127.0.0.1:7500      from running members, until Ctrl-C
  ordercast spark lake LAKE --path data --once --traces all   with the causes of view changes, from traces

Start it again as often as you like: it goes on where the lake ends. The tables are described in docs/spark.md.
"""


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "lake",
        help="tables of Parquet from the ordered log, and from traces",
        description="Takes the ordered log of a group into tables of Parquet: raw messages, views and why they "
        "changed, rates, latencies, gaps. Goes on as messages come, or with --once up to the log's present end.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "lake", metavar="LAKE", type=Path, help="the tables' folder, on a disk that all executors share"
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--path", metavar="DIR", help="a log's folder, or the data_dir that it is in")
    source.add_argument("--servers", metavar="HOST:PORT,…", help="members that serve their log")
    parser.add_argument("--key", metavar="FILE", help="the group's secret, with --servers")
    parser.add_argument("--insecure", action="store_true", help="go without a secret off loopback")
    parser.add_argument("--traces", action="append", default=[], metavar="DIR", type=Path, help="a trace; repeatable")
    parser.add_argument("--once", action="store_true", help="end where the log ends now")
    parser.add_argument("--from", dest="start", metavar="OFFSET", help="where a new lake begins (earliest)")
    parser.add_argument("--interval", type=_positive, metavar="S", default=5.0, help="seconds between commits (5)")
    parser.add_argument(
        "--batch", type=_count, metavar="N", default=4_000_000, help="messages in one commit, at most (4000000)"
    )
    parser.add_argument("--bucket", type=_positive, metavar="S", help="a new lake: time slots of rates (1)")
    parser.add_argument(
        "--silence", type=_positive, metavar="S", default=10.0, help="a sender's silence that counts as a gap (10)"
    )
    parser.add_argument("--allow-data-loss", action="store_true", help="skip what retention has removed")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    add_session_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.path is None and args.servers is None and not args.traces:
        print("ordercast spark lake: say --path, --servers or --traces", file=sys.stderr)
        return 2
    from ordercast.spark.lake.store import Lake

    try:
        with Lake(args.lake) as lake:
            set_bucket(lake, args.bucket)
            report = _fill(args, lake)
    except GroupError as error:
        print(f"ordercast spark lake: {error}", file=sys.stderr)
        return 2
    print(json.dumps(report) if args.json else _text(report))
    return 0


def set_bucket(lake: Lake, seconds: float | None) -> None:
    """SparkError if the lake has other slots."""
    from ordercast.spark.errors import SparkError

    if seconds is None:
        return
    bucket_us = max(1, round(seconds * 1e6))
    state = lake.state
    if bucket_us == state.bucket_us:
        return
    if state.batches or any(lake.folder.glob("trace_rates/*")):
        raise SparkError(f"the lake {lake.folder} has time slots of {state.bucket_us / 1e6:g} s, not of {seconds:g} s")
    if 3_600_000_000 % bucket_us:
        raise SparkError(f"--bucket {seconds:g}: an hour is not a whole number of these")
    state.bucket_us = bucket_us


def _fill(args: argparse.Namespace, lake: Lake) -> dict[str, Any]:
    from ordercast.spark.lake.job import LogJob, Settings, add_traces

    before = lake.state.end
    views: dict[str, int] = {}
    with running(args, "ordercast lake") as spark:
        # What goes wrong is told in one line; Spark would print the stacks of three processes before it.
        spark.sparkContext.setLogLevel("OFF")
        if args.traces:
            views = add_traces(spark, lake, args.traces)
        if args.path or args.servers:
            settings = Settings(
                _source(args), args.once, args.interval, args.batch, silence_us=round(args.silence * 1e6)
            )
            job = LogJob(spark, lake, settings, _progress)
            before = job.begin if before is None else before
            _until_signal(job)
            job.run()
    state = lake.state
    return {
        "lake": str(args.lake), "group": state.group, "start": state.start, "end": state.end,
        "messages": 0 if before is None or state.end is None else state.end - before, "commits": state.batches,
        "traces": views,
    }  # fmt: skip


def _source(args: argparse.Namespace) -> dict[str, str]:
    # An executor has another working directory.
    path = None if args.path is None else os.path.abspath(args.path)
    given = {"path": path, "servers": args.servers, "key": args.key, "startingOffsets": args.start}
    options = {name: value for name, value in given.items() if value is not None}
    if args.insecure:
        options["insecure"] = "true"
    if args.allow_data_loss:
        options["failOnDataLoss"] = "false"
    return options


def _until_signal(job: Any) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: job.stop())


def _progress(state: State) -> None:
    if sys.stderr.isatty():
        print(f"\rcommit {state.batches}: offsets up to {state.end}", end="", file=sys.stderr, flush=True)


def _text(report: dict[str, Any]) -> str:
    lines = []
    if report["group"] is not None:
        offsets = f"offsets {report['start']} to {report['end']} (excluded)"
        lines.append(f"{report['lake']}: group {report['group']}, {offsets}, {report['messages']} of them new")
    lines += [f"{report['lake']}: trace {name}, {views} views" for name, views in report["traces"].items()]
    return "\n".join(lines)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds")
    return value


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1 on")
    return int(text)
