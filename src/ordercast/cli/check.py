"""`ordercast check`: do traces keep the properties E1 to E14, and C1 to C9 where they tell of corel?"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ordercast.check import TraceError, Verdict, check_trace
from ordercast.check.trace import Progress, node_files, parts
from ordercast.cli.spark_session import add_session_options, running
from ordercast.errors import GroupError

_EXAMPLE = """\
exit status: 0 all properties hold, 1 a property is violated, 2 a trace cannot be read

example:
  ordercast sim --seed 7 --trace /tmp/trace && ordercast check /tmp/trace
  ordercast check --spark /data/trace --scratch /data/scratch
"""


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "check",
        help="check traces for violated properties",
        description="Checks traces: which properties of extended virtual synchrony (E1 to E14), and of "
        "corel (C1 to C9), are violated, each with "
        "the events that show it. A trace is a directory with one file a node, NODE.jsonl or NODE.parquet.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("traces", nargs="+", metavar="TRACE_DIR", help="the directory of a trace")
    parser.add_argument("--spark", action="store_true", help="check on Spark: traces of any size, all in one job")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_session_options(parser)
    parser.add_argument(
        "--scratch", type=Path, metavar="DIR", help="where --spark keeps what it works on (default: a temporary one)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    verdicts: list[tuple[str, Verdict]] = []
    try:
        outcomes = _on_spark(args) if args.spark else map(_here, args.traces)
    except (GroupError, OSError) as error:
        print(f"ordercast check: {_one_line(str(error))}", file=sys.stderr)
        return 2
    for trace, verdict in zip(args.traces, outcomes, strict=True):
        if isinstance(verdict, TraceError):
            print(f"ordercast check: {_one_line(str(verdict))}", file=sys.stderr)
            return 2
        verdicts.append((trace, verdict))
        if not args.json:
            _print_text(trace, verdict)
    if args.json:
        print(json.dumps(_as_object(verdicts)))
    return 0 if all(verdict.ok for _, verdict in verdicts) else 1


def _here(trace: str) -> Verdict | TraceError:
    try:
        with _progress(trace) as progress:
            return check_trace(trace, progress)
    except TraceError as error:
        return error


def _on_spark(args: argparse.Namespace) -> Iterable[Verdict | TraceError]:
    with running(args, "ordercast check") as spark:
        from ordercast.spark.verify.job import check_traces

        return check_traces(spark, args.traces, args.scratch)


def _one_line(message: str) -> str:
    """File names and identifiers are the trace's own; whatever stands in them, the report stays one line."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in message)


def _print_text(trace: str, verdict: Verdict) -> None:
    if verdict.ok:
        print(f"{trace}: ok, {verdict.events} events")
        return
    names = ", ".join(violation.property for violation in verdict.violations)
    print(f"{trace}: violated {names}, {verdict.events} events")
    for violation in verdict.violations:
        print(f"  {violation.property}")
        for line in violation.evidence:
            print(f"    {_one_line(line)}")


def _as_object(verdicts: list[tuple[str, Verdict]]) -> dict[str, object]:
    each = [_of_trace(trace, verdict) for trace, verdict in verdicts]
    if len(each) == 1:
        return {name: value for name, value in each[0].items() if name != "trace"}
    return {
        "verdict": "ok" if all(verdict.ok for _, verdict in verdicts) else "violated",
        "events": sum(verdict.events for _, verdict in verdicts),
        "violations": [
            {"property": violation.property, "evidence": violation.evidence, "trace": trace}
            for trace, verdict in verdicts
            for violation in verdict.violations
        ],
        "traces": each,
    }


def _of_trace(trace: str, verdict: Verdict) -> dict[str, object]:
    return {
        "trace": trace,
        "verdict": "ok" if verdict.ok else "violated",
        "events": verdict.events,
        "violations": [{"property": each.property, "evidence": each.evidence} for each in verdict.violations],
    }


@contextmanager
def _progress(trace: str) -> Iterator[Progress | None]:
    """A bar over the bytes read, on a terminal only."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    files = [part for path in node_files(Path(trace)).values() for part in parts(path)]
    size = sum(path.stat().st_size for path in files if path.is_file())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"reading {trace}", total=size)
        yield lambda count: bar.advance(task, count)
