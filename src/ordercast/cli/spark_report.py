"""`ordercast spark report`: a page of HTML with the plots of a run or of a set of benchmarks."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ordercast.cli.spark_session import add_session_options, running
from ordercast.errors import GroupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXAMPLE = """\
exit status: 0 written, 2 bad usage, nothing to report, no Spark

examples:
  ordercast spark report LAKE -o report.html                     a run, from the lake's tables
  ordercast spark report --bench bench/results -o bench.html     a set of benchmarks; needs no Spark
  ordercast bench --size 64 --json >> runs.jsonl; ordercast spark report --bench runs.jsonl
"""


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "report",
        help="a page of HTML with the plots of a run or of benchmarks",
        description="Writes one page of HTML that needs nothing else: throughput, latency, views over time and why "
        "they changed, from a lake's tables; throughput, latency and rotation times against size and load, from "
        "results of `ordercast bench --json`.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("lake", metavar="LAKE", nargs="?", type=Path, help="a folder of `ordercast spark lake`")
    parser.add_argument(
        "--bench", action="append", default=[], metavar="FILE", type=Path, help="results, or a folder; repeatable"
    )
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, default=Path("report.html"), help="report.html")
    parser.add_argument("--title", metavar="TEXT", help="of the page")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_session_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.lake is None and not args.bench:
        print("ordercast spark report: name a LAKE, or results with --bench", file=sys.stderr)
        return 2
    try:
        written = _write(args)
    except (GroupError, OSError) as error:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.strerror else error
        print(f"ordercast spark report: {reason}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps({"report": str(args.output.absolute()), "bytes": written}))
    else:
        print(f"{args.output}: {written} bytes")
    return 0


def _write(args: argparse.Namespace) -> int:
    from ordercast.spark.report.bench import bench_sections, read_results
    from ordercast.spark.report.page import write_page

    runs = read_results(args.bench)
    with _session(args) as spark:
        from ordercast.spark.report.run import lake_sections

        sections = [] if args.lake is None else list(lake_sections(spark, args.lake.absolute()))
        sections += bench_sections(runs)
        name = args.title or f"ordercast: {args.lake.resolve().name if args.lake else 'benchmarks'}"
        return write_page(args.output, name, sections)


@contextmanager
def _session(args: argparse.Namespace) -> Iterator[SparkSession | Any]:
    """Only tables need Spark."""
    if args.lake is None:
        yield None
        return
    with running(args, "ordercast report") as spark:
        spark.sparkContext.setLogLevel("OFF")
        yield spark
