"""What all jobs of `ordercast spark` share: the options of a session, and its life around a job."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ordercast.spark.session import DRIVER_MEMORY, MASTER, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def add_session_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master", default=MASTER, metavar="URL", help=f"local[N], spark://HOST:PORT, … (default {MASTER})"
    )
    group.add_argument(
        "--driver-memory", default=DRIVER_MEMORY, metavar="SIZE", type=_size, help=f"default {DRIVER_MEMORY}"
    )
    group.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", type=_setting, help="any setting of Spark's"
    )


@contextmanager
def running(args: argparse.Namespace, app: str, **conf: str | int | bool) -> Iterator[SparkSession]:
    """A session as the options say, which ends with the job. SparkError if there can be none."""
    spark = session(app, master=args.master, driver_memory=args.driver_memory, conf={**conf, **dict(args.conf)})
    try:
        yield spark
    finally:
        spark.stop()


def _size(text: str) -> str:
    if not text[:-1].isdecimal() or text[-1] not in "kmgKMG":
        raise argparse.ArgumentTypeError(f"'{text}' is not a size such as 2g or 512m")
    return text


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise argparse.ArgumentTypeError(f"'{text}' is not of the form spark.NAME=VALUE")
    return name, value
