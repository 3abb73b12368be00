"""The end of `ordercast demo`: the pipeline on Spark over the traces that it recorded, and a report of them."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from ordercast.errors import GroupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2]"
BUCKET_US = 200_000
"""The demo takes seconds, so its rates are those of fifths of one."""
CONF: dict[str, str | int | bool] = {
    "spark.sql.shuffle.partitions": 2,
    # A short job: what a JVM spends on its optimising compiler does not come back.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def run_pipeline(traces: Path, lake: Path, report: Path, console: Console) -> bool:
    """Tells what it does in a few lines; False if there is no Spark here or it fails, in one line."""
    if find_spec("pyspark") is None:
        console.print("No report: it is made on Spark, which is not installed (pip install 'ordercast[spark]').",
                      markup=False)  # fmt: skip
        return False
    from ordercast.spark.session import session

    begun = time.monotonic()
    console.print("\n[bold]Spark reads the traces: it checks them too, and makes tables and a report of them.[/]")
    try:
        spark = session("ordercast demo", master=MASTER, conf=CONF, driver_memory="512m")
        try:
            spark.sparkContext.setLogLevel("OFF")
            told = make_report(spark, traces, lake, report)
        finally:
            spark.stop()
    except (GroupError, OSError) as error:
        console.print(f"No report: {error}", markup=False)
        return False
    console.print(f"         {escape(told)}, after {time.monotonic() - begun:.1f} s")
    console.print(f"[bold]The report, views over time and why they changed, is {escape(str(report))}[/]")
    return True


def make_report(spark: SparkSession, traces: Path, folder: Path, report: Path) -> str:
    """The page, by way of a lake; what was found, in one line."""
    from ordercast.check import TraceError
    from ordercast.spark.lake.job import add_traces
    from ordercast.spark.lake.store import Lake
    from ordercast.spark.report.page import write_page
    from ordercast.spark.report.run import lake_sections
    from ordercast.spark.verify.job import check_traces

    with Lake(folder) as lake:
        lake.state.bucket_us = BUCKET_US
        (views,) = add_traces(spark, lake, [traces]).values()
    (verdict,) = check_traces(spark, [traces])
    write_page(report, "ordercast demo", list(lake_sections(spark, folder)))
    if isinstance(verdict, TraceError):
        raise GroupError(str(verdict))
    found = "no violation" if verdict.ok else ", ".join(violation.property for violation in verdict.violations)
    return f"{verdict.events} events, {views} views, {found}"
