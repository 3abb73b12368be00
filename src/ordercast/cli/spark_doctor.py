"""`ordercast spark doctor`: what Spark would run on, and a tiny job on it."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from ordercast.cli.spark_session import add_session_options, running
from ordercast.errors import GroupError

_EXAMPLE = """\
exit status: 0 all is well, 1 the job ran but something is wrong, 2 there is no Java, no PySpark or no such master

example:
  ordercast spark doctor
"""


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "doctor",
        help="say what Spark runs on here, and run a tiny job",
        description="Says which Java, PySpark and Python are used, and runs a tiny job through all of them.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_session_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from ordercast.spark.doctor import examine

    try:
        with running(args, "ordercast doctor") as spark:
            found = examine(spark)
    except GroupError as error:
        print(f"ordercast spark doctor: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps({**asdict(found), "problems": found.problems}))
    else:
        versions = ", ".join(f"{name} {version}" for name, version in found.packages.items())
        print(f"packages  {versions}")
        print(f"java      {found.java}, {found.java_origin}: {found.java_program}")
        print(f"master    {found.master}, {found.cores} cores")
        for worker in found.workers:
            print(f"worker    {worker.host}, Python {worker.python}: {worker.program}")
        print(f"job       {found.rows} rows to Python and back in {found.seconds:.1f} s")
        for problem in found.problems:
            print(f"problem   {problem}")
    return 1 if found.problems else 0
