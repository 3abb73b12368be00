"""One JVM for all tests of the pipeline: they are one group of pytest-xdist, and share a session a master.

A process holds one session at a time, so tests on the cluster come after those on `local[2]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ordercast.spark.session import session
from spark.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mine = [item for item in items if HERE in item.path.parents]
    for item in mine:
        item.add_marker(pytest.mark.xdist_group("spark"))
    mine.sort(key=_place)
    ordered = iter(mine)
    items[:] = [next(ordered) if HERE in item.path.parents else item for item in items]


def _place(item: pytest.Item) -> int:
    names = getattr(item, "fixturenames", ())
    return 2 if "cluster" in names else 1 if "spark" in names else 0


QUICK = {
    "spark.sql.shuffle.partitions": 2,
    # Short jobs: what a JVM spends on its optimising compiler does not come back.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


class Sessions:
    """The session of this process; it is stopped when another master is wanted."""

    def __init__(self) -> None:
        self._spark: SparkSession | None = None
        self._master = ""

    def get(self, master: str, **conf: str | int | bool) -> SparkSession:
        if self._spark is None or self._master != master or self._spark.sparkContext._jsc is None:
            self.stop()
            self._spark, self._master = session("tests", master=master, conf=conf, driver_memory="1g"), master
        return self._spark

    def stop(self) -> None:
        if self._spark is not None:
            self._spark.stop()
        self._spark = None


@pytest.fixture(scope="session")
def sessions() -> Iterator[Sessions]:
    found = Sessions()
    yield found
    found.stop()


@pytest.fixture
def spark(sessions: Sessions) -> SparkSession:
    """On two threads of this process."""
    return sessions.get("local[2]", **QUICK)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers, as processes. A test that kills one starts another."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster_spark(sessions: Sessions, cluster: Cluster) -> SparkSession:
    return sessions.get(cluster.url, **QUICK, **cluster.conf)
