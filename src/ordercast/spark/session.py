"""A Spark session that needs no setting up: Java found, the running interpreter everywhere, quiet, UTC, Arrow."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING

from ordercast.spark.errors import NoSpark, SparkError
from ordercast.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[*]"
DRIVER_MEMORY = "2g"
_LOCAL = re.compile(r"local(\[(\*|[1-9]\d*)(,\s*\d+)?\])?")
_REMOTE = re.compile(r"(spark)://([^:/,]+):(\d+)|(k8s)://\S+|(yarn)")
_CONNECT_TIMEOUT_S = 5


def session(
    app: str = "ordercast",
    *,
    master: str | None = None,
    conf: Mapping[str, str | int | bool] | None = None,
    driver_memory: str = DRIVER_MEMORY,
) -> SparkSession:
    """The session of this process, made if there is none.

    What `conf` says goes before everything that is set here; only options of Java's are added to those that are.
    There is one session a process: a running one with another master is an error. Stop it first.
    """
    master = MASTER if master is None else master
    check_master(master)
    prepare()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None and active.sparkContext.master != master:
        raise SparkError(f"a session on {active.sparkContext.master} is running in this process: stop it first")
    builder = SparkSession.builder.appName(app).master(master)
    settings = _defaults(master, driver_memory)
    for name, value in (conf or {}).items():
        settings[name] = f"{settings[name]} {value}" if name.endswith(".extraJavaOptions") else value
    for name, value in settings.items():
        builder = builder.config(name, str(value).lower() if isinstance(value, bool) else str(value))
    try:
        return builder.getOrCreate()
    except PySparkException as error:
        raise SparkError(f"Spark does not start: {_first_line(error)} (see `ordercast spark doctor`)") from error


def check_master(master: str) -> None:
    """Refuses what cannot be a master, and one that does not answer, before Spark tries for a minute."""
    if _LOCAL.fullmatch(master):
        return
    found = _REMOTE.fullmatch(master)
    if found is None:
        raise SparkError(f"'{master}' is not a master: it is local[N], local[*], spark://HOST:PORT, k8s://… or yarn")
    if found[1]:
        try:
            socket.create_connection((found[2], int(found[3])), _CONNECT_TIMEOUT_S).close()
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise SparkError(f"the master {master} cannot be reached: {reason}. Is it running?") from None


def prepare() -> None:
    """What a JVM that this process starts will find in its environment. Raises NoSpark or NoJava."""
    try:
        import pyspark
    except ImportError:
        raise NoSpark("PySpark is not installed: `pip install 'ordercast[spark]'`") from None
    os.environ["JAVA_HOME"] = str(find_java().home)
    # A SPARK_HOME of another version would be started with this version's Python half.
    os.environ["SPARK_HOME"] = os.path.dirname(pyspark.__file__)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


def _defaults(master: str, driver_memory: str) -> dict[str, str | int | bool]:
    options = f"-Dlog4j2.configurationFile={files('ordercast.spark') / 'log4j2.properties'} -Duser.timezone=UTC"
    conf: dict[str, str | int | bool] = {
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        "spark.driver.memory": driver_memory,
        "spark.driver.extraJavaOptions": options,
        "spark.executor.extraJavaOptions": options,
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": sys.stderr.isatty(),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": True,
        "spark.sql.execution.arrow.maxRecordsPerBatch": 65_536,
        # The source pushes filters only where its option `pushFilters` asks for it; without this it would raise.
        "spark.sql.python.filterPushdown.enabled": True,
    }
    if _LOCAL.fullmatch(master):
        # The default of 200 partitions is for clusters.
        conf["spark.sql.shuffle.partitions"] = 2 * (os.cpu_count() or 1)
    if _LOCAL.fullmatch(master) or re.match(r"spark://(127\.|localhost)", master):
        # The machine's own name may resolve to nothing, or to a network that is down.
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return conf


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
