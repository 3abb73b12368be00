"""A standalone cluster of Spark on this machine: a master and workers in processes of their own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType

import pyspark

from ordercast.spark.session import prepare

START_TIMEOUT_S = 120
_LOG4J = """\
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


class Cluster:
    """`with Cluster(folder) as cluster: session(master=cluster.url, conf=cluster.conf)`."""

    conf = {"spark.executor.memory": "512m", "spark.executor.cores": 1, "spark.cores.max": 2}  # noqa: RUF012

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder = folder
        self.url = ""
        self._count = workers
        self._master: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Cluster:
        prepare()
        (self.folder / "log4j2.properties").write_text(_LOG4J)
        try:
            self._master = self._start("master", "org.apache.spark.deploy.master.Master", "--port", "0")
            self.url = self._wait(self._master, "master", r"Starting Spark master at (spark://\S+)")
            for _ in range(self._count):
                self.workers.append(self._start_worker())
            for number, worker in enumerate(self.workers):
                self._wait(worker, f"worker{number}", "(Successfully registered) with master")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def kill_worker(self, number: int) -> None:
        """The worker and its executors, without a chance to say goodbye."""
        _end(self.workers[number])

    def start_worker(self) -> None:
        """One more."""
        self.workers.append(self._start_worker())
        self._wait(self.workers[-1], f"worker{len(self.workers) - 1}", "(Successfully registered) with master")

    def close(self) -> None:
        for process in (*self.workers, self._master):
            if process is not None:
                _end(process)

    def _start_worker(self) -> subprocess.Popen[bytes]:
        number = len(self.workers)
        return self._start(
            f"worker{number}", "org.apache.spark.deploy.worker.Worker",
            "--cores", "1", "--memory", "512m", "--work-dir", str(self.folder / f"work{number}"), self.url,
        )  # fmt: skip

    def _start(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        log4j = self.folder / "log4j2.properties"
        environment = {
            **os.environ,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"-Dlog4j2.configurationFile={log4j} -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
        }
        with (self.folder / f"{name}.log").open("wb") as log:
            # In a process group of its own, which the executors of a worker share.
            return subprocess.Popen(
                [program, main, "--host", "127.0.0.1", "--webui-port", "0", *arguments],
                stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment, start_new_session=True,
            )  # fmt: skip

    def _wait(self, process: subprocess.Popen[bytes], name: str, sign: str) -> str:
        """Until the process has logged what shows that it is up."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and process.poll() is None:
            if found := re.search(sign, (self.folder / f"{name}.log").read_text(errors="replace")):
                return found[1]
            time.sleep(0.05)
        raise AssertionError(f"{name} did not start:\n{(self.folder / f'{name}.log').read_text(errors='replace')}")


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
