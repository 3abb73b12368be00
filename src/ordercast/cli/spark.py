"""`ordercast spark`: the pipeline's jobs, each a module of its own with `add_parser`."""

from __future__ import annotations

import argparse
from typing import Any

from ordercast.cli import spark_campaign, spark_doctor, spark_lake, spark_report

JOBS = (spark_doctor, spark_lake, spark_report, spark_campaign)

_EXAMPLE = """\
exit status: 0 success, 1 a negative result, 2 bad usage, bad input or no Spark

example:
  ordercast spark doctor
"""


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "spark",
        help="the data pipeline's jobs on Apache Spark",
        description="The data pipeline's jobs on Apache Spark: on all cores of this machine, or any --master. "
        "They need `pip install 'ordercast[spark]'` and nothing else.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True)
    for module in JOBS:
        module.add_parser(jobs)
