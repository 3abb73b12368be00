"""A million rows published into a group by Spark, each exactly once, under a failure at every step of a batch.

    python bench/spark_sink.py [--rows N] [--batches N] [--failures NAME,…] [--output FILE]

Three members of a durable group (in this process) serve their logs. A streaming job on a real cluster, a master and two
workers, publishes rows through the sink; each row has a number. One failure after another strikes, each a few batches
after the last one; a job that dies of it is started again from its checkpoint, members that died come back. At the end
the rows in each member's log are counted by their numbers, copies apart that the log itself tells to be dead, and Spark
counts them through `servers`. It fails unless each row is there once. Writes bench/results/spark-sink.json.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ordercast.errors import DeliveryUncertain, GroupError
from ordercast.log import Entry, LogReader, LogWriter
from ordercast.log.files import DiskFiles
from ordercast.serve.batches import Batches, without
from ordercast.spark.session import session
from ordercast.wire.chunk import Stamp, make_body, make_chunk
from spark_cost import record

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from durable.party import Party
from spark.cluster import Cluster

SIZE = 64
CHUNK = 500
APART = 2
"""Batches that are published between two failures."""
JOB_TIMEOUT_S = 600.0
AFTER_ANSWER_S = 0.02
QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def log(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def write_source(folder: Path, rows: int) -> None:
    """A log of another group, whose messages are numbers."""
    writer = LogWriter(DiskFiles(folder / "log"), group="source", member="s1")
    pad = bytes(SIZE - 8)
    for first in range(0, rows, CHUNK):
        end = min(first + CHUNK, rows)
        body = make_body([struct.pack("<q", number) + pad for number in range(first, end)])
        chunk = make_chunk("s1", first + 1, 1_700_000_000_000_000 + first, Stamp(4, "4:s1", first + 1), body)
        writer.append(Entry((chunk,), green=end))
    writer.write()
    writer.close()


# The job, in a process of its own


def job(options: dict[str, Any]) -> None:
    marks = Path(options["marks"])

    def die_when_told(batches: Iterator[Any]) -> Iterator[Any]:
        """The Python of a task dies among its rows when there is a mark, once for each."""
        for batch in batches:
            yield batch
            for mark in marks.iterdir():
                try:
                    mark.unlink()
                except FileNotFoundError:
                    continue  # the other task's
                os.kill(os.getpid(), signal.SIGKILL)

    spark = session("sink", master=options["master"], conf={**QUICK, **options["conf"]}, driver_memory="512m")
    stream = spark.readStream.format("ordercast").options(
        path=options["source"], startingOffsets="earliest", maxOffsetsPerTrigger=options["per_batch"], minPartitions=2
    )
    rows = stream.load().select("value").mapInArrow(die_when_told, "value binary")
    query = (
        rows.writeStream.format("ordercast").trigger(availableNow=True)
        .options(servers=options["servers"], checkpointLocation=options["checkpoint"]).start()
    )  # fmt: skip
    query.awaitTermination()


# Failures


class Harness:
    """The group, the cluster and the job, and what can be done to them."""

    def __init__(self, folder: Path, cluster: Cluster, rows: int, batches: int, failures: list[str]) -> None:
        self.folder = folder
        self.cluster = cluster
        self.rows, self.per_batch = rows, -(-rows // batches)
        self.marks = folder / "marks"
        self.marks.mkdir()
        self.party = Party(folder / "group")
        self.ports = dict.fromkeys(("n1", "n2", "n3"), 0)
        self.waiting = failures
        self.told: list[dict[str, Any]] = []
        self.job: subprocess.Popen[bytes] | None = None
        self.runs = self.published = 0
        self._next_at = APART
        self._lose_commit = False
        self._lock = threading.Lock()
        self.bring_members()

    # Members

    def bring_members(self) -> None:
        """All three are there, or back."""
        missing = [name for name in self.ports if name not in self.party.members]
        founders = 3 if not self.runs else 0
        for name, member in zip(missing, self._enter(missing, founders), strict=True):
            server = member._member.server
            assert server is not None
            self.ports[name] = server.address[1]
            self._intercept(member)
        self.party.wait_for_primary()

    def _enter(self, names: list[str], founders: int) -> list[Any]:
        if not names:
            return []
        if not founders:
            return [self.party.join(name, serve=self._place(name), founders=0)[0] for name in names]
        return self.party.join(*names, serve="127.0.0.1:0")

    def _place(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[name]}"

    @property
    def servers(self) -> str:
        return ",".join(map(self._place, self.ports))

    def _intercept(self, member: Any) -> None:
        """Each step of a batch at this member goes by `at`."""
        server = member._member.server
        put, commit, publish = server._stages.put, server._commit, server._publish

        def staged(*arguments: Any) -> None:
            put(*arguments)
            self.at("staged", member)

        def committing(*arguments: Any) -> Any:
            self.at("commit", member)
            answer = commit(*arguments)
            self.at("answer", member)
            return answer

        def publishing(*arguments: Any) -> None:
            self.at("before", member, lambda: publish(*arguments))
            publish(*arguments)
            self.published += 1
            self.at("after", member)

        server._stages.put, server._commit, server._publish = staged, committing, publishing

    # Striking

    def at(self, step: str, member: Any, publish: Callable[[], None] | None = None) -> None:
        """Called in a thread of the member that has come to this step."""
        with self._lock:
            if not self.waiting or self.published < self._next_at:
                return
            name = self.waiting[0]
            wanted, strike = FAILURES[name]
            if wanted != step:
                return
            self.waiting.pop(0)
            self._next_at = self.published + APART
            self.told.append({"failure": name, "at_batch": self.published})
        log(f"batch {self.published}: {name}")
        strike(self, member, publish)

    def kill_driver(self) -> None:
        assert self.job is not None
        with suppress(ProcessLookupError):
            os.killpg(self.job.pid, signal.SIGKILL)

    def kill_member(self, member: Any) -> None:
        """As a crash. The server's thread that calls this goes on, and has nobody to answer."""
        self.party.members.pop(member.name)
        core = member._member
        core.leaving = core.error_shown = True
        core.abandon()
        core.driver.join(60)
        raise GroupError("the member has crashed")

    def kill_worker(self) -> None:
        self.cluster.kill_worker(next(n for n, each in enumerate(self.cluster.workers) if each.poll() is None))
        threading.Thread(target=self.cluster.start_worker).start()

    # Running

    def run(self) -> None:
        """Until the job has come to its end with nothing left to strike."""
        checkpoint = self.folder / "checkpoint"
        options = {
            "source": str(self.folder / "source"), "servers": self.servers, "checkpoint": str(checkpoint),
            "marks": str(self.marks), "per_batch": self.per_batch, "master": self.cluster.url,
            "conf": self.cluster.conf,
        }  # fmt: skip
        while True:
            self.runs += 1
            with (self.folder / f"job-{self.runs}.log").open("wb") as output:
                self.job = subprocess.Popen(
                    [sys.executable, __file__, "--job", json.dumps(options)],
                    stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
            status = self.job.wait(JOB_TIMEOUT_S)
            self.kill_driver()  # whatever it has left behind
            log(f"run {self.runs} of the job has ended with {status} after {self.published} batches")
            self.bring_members()
            if self._lose_commit:
                self._lose_commit = False
                lose_commit(checkpoint)
            elif status == 0:
                if self.waiting:
                    raise RuntimeError(f"the job has ended before {self.waiting}: give it more batches")
                return
            elif status > 0 and not self.told:
                raise RuntimeError((self.folder / f"job-{self.runs}.log").read_text()[-3000:])

    def lose_commit(self) -> None:
        self._lose_commit = True
        self.kill_driver()


def lose_commit(checkpoint: Path) -> None:
    """The last commit of the checkpoint is gone, and the beginning of the batch behind it, of which nothing was ordered
    yet: as after the crash of a machine that had not synced them."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal())
    for name in (f"commits/{last}", f"offsets/{last + 1}"):
        path = checkpoint / name
        path.unlink(missing_ok=True)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    log(f"the commit of batch {last} is gone")


def uncertain(harness: Harness, member: Any, publish: Callable[[], None] | None) -> None:
    """The batch is multicast, and the job is told that nobody knows: it comes again, perhaps before it is ordered."""
    assert publish is not None
    threading.Thread(target=lambda: suppress_errors(publish)).start()
    raise DeliveryUncertain("injected: whether it was ordered cannot be told")


def suppress_errors(work: Callable[[], None]) -> None:
    with suppress(GroupError):
        work()


def minority(harness: Harness, member: Any, publish: Callable[[], None] | None) -> None:
    for name in [name for name in harness.party.members if name != member.name]:
        harness.party.stop(name)
    deadline = time.monotonic() + 60
    while member.view.primary and time.monotonic() < deadline:
        time.sleep(0.01)


def everybody(harness: Harness, member: Any, publish: Callable[[], None] | None) -> None:
    harness.party.stop(*[name for name in harness.party.members if name != member.name])
    harness.kill_member(member)


def later(work: Callable[[], None]) -> None:
    threading.Timer(AFTER_ANSWER_S, work).start()


FAILURES: dict[str, tuple[str, Callable[[Harness, Any, Callable[[], None] | None], None]]] = {
    "a task's Python is killed among its rows": ("after", lambda h, m, p: (h.marks / f"{time.monotonic_ns()}").touch()),
    "an executor's machine is killed while rows are staged": ("staged", lambda h, m, p: h.kill_worker()),
    "an executor's machine is killed while the batch is ordered": ("before", lambda h, m, p: h.kill_worker()),
    "the driver is killed while rows are staged": ("staged", lambda h, m, p: h.kill_driver()),
    "the driver is killed when all is staged": ("commit", lambda h, m, p: h.kill_driver()),
    "the driver is killed before the batch is ordered": ("before", lambda h, m, p: h.kill_driver()),
    "the driver is killed when the batch is ordered": ("after", lambda h, m, p: h.kill_driver()),
    "the driver is killed after the answer": ("answer", lambda h, m, p: later(h.kill_driver)),
    "the last commit is lost": ("staged", lambda h, m, p: h.lose_commit()),
    "the member dies while rows are staged": ("staged", lambda h, m, p: h.kill_member(m)),
    "the member dies before the batch is ordered": ("before", lambda h, m, p: h.kill_member(m)),
    "the member dies when the batch is ordered": ("after", lambda h, m, p: h.kill_member(m)),
    "all members die when the batch is ordered": ("after", everybody),
    "the member is left in a minority": ("commit", minority),
    "nobody knows whether the batch was ordered": ("before", uncertain),
}
"""What strikes, and at which step: `staged` after each stretch of rows, `commit` when the driver asks for the batch,
`before` and `after` it is ordered, `answer` when the driver is about to hear of it."""


# Counting


def count(data_dir: Path, rows: int) -> dict[str, int]:
    """The numbers in a log; raises unless each is there once."""
    reader = LogReader(data_dir)
    fold = Batches()
    fold.advance(reader)
    live = without(reader.read(reader.earliest), fold.dead)
    numbers = np.array([struct.unpack_from("<q", data)[0] for batch in live for data in batch], np.int64)
    times = np.bincount(numbers, minlength=rows)
    if len(times) != rows or (times != 1).any():
        raise AssertionError(f"{data_dir}: {(times == 0).sum()} rows are missing, {(times > 1).sum()} repeated")
    return {"rows": len(numbers), "in_copies": sum(end - start for start, end in fold.dead), "end": reader.end}


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    names = [name for name in FAILURES if not args.failures or any(part in name for part in args.failures)]
    write_source(folder / "source", args.rows)
    began = time.monotonic()
    with Cluster(folder) as cluster:
        harness = Harness(folder, cluster, args.rows, args.batches, [*names])
        try:
            harness.run()
            took = time.monotonic() - began
            until = time.monotonic() + 60
            ends = [LogReader(folder / "group" / name) for name in harness.ports]
            while len({log.refresh() for log in ends}) > 1 and time.monotonic() < until:
                time.sleep(0.05)
            counts = {name: count(folder / "group" / name, args.rows) for name in harness.ports}
            spark = session("count", master="local[2]", driver_memory="512m")
            by_spark = spark.read.format("ordercast").option("servers", harness.servers).load().count()
            spark.stop()
            if by_spark != args.rows:
                raise AssertionError(f"Spark counts {by_spark} rows of {args.rows}")
        finally:
            harness.kill_driver()
            harness.party.close()
    return {
        "rows": args.rows,
        "batches": args.batches,
        "seconds": round(took, 1),
        "runs_of_the_job": harness.runs,
        "failures": harness.told,
        "logs": counts,
        "counted_by_spark": by_spark,
        "lost": 0,
        "repeated": 0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--failures", type=lambda text: text.split(","), help="only those with one of these words")
    parser.add_argument("--directory", type=Path, help="where logs and checkpoint are")
    parser.add_argument("--output", type=Path, help="instead of bench/results/spark-sink.json")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        job(json.loads(args.job))
    else:
        with tempfile.TemporaryDirectory(prefix="ordercast-bench-", dir=args.directory) as folder:
            record("spark-sink", measure(args, Path(folder)), args.output)


if __name__ == "__main__":
    main()
