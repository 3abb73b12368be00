"""A stream from a live group on Spark: whether it keeps up, how late messages are at the end, what restarts do to that.

    python bench/spark_stream.py [--rate N] [--seconds S] [--members N] [--restarts S,S,…] [--kills S,S,…]
                                 [--directory D] [--output FILE]

Members of a durable group, a process each, send messages of 64 bytes on a fixed schedule, together `--rate` a second,
and serve their log. A query on local[2] reads the group through `servers` and looks into every message. At the times of
`--restarts` the query is stopped and started again from its checkpoint; at those of `--kills` driver, JVM and workers
are killed, and a new driver goes on. A message carries the time at which it was due, its sender and its number. It has
arrived when the result of its batch is on disk under the batch's number, so its latency has everything in it: the
sender's delay, ordering on the disks of all members, the read, the batch, and whatever restart came between.

At the end the results of all batches are put together: offsets without hole or overlap from the first message to the
last, and of each sender every number once; else it fails. Latencies are given of all messages after the warm-up, and
apart from it of those that were due while no restart was being made good (from the stop until a batch is less than
2 s behind again). Writes bench/results/spark-stream.json.
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

from ordercast import sync
from ordercast.durable import Retention
from ordercast.errors import GroupError
from spark_cost import Watch, cpu_of, record

SIZE = 64
TICK_S = 0.005
HEAD = "<qqi"
"""When it was due (µs), its number, its sender."""
HEAD_BYTES = struct.calcsize(HEAD)
BEHIND_S = 2.0
WARM_BATCHES = 3
DEADLINE_S = 180.0
KEPT_BYTES = 2**30
"""Of each log: longer than any restart takes."""


def log(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


# A member, in a process of its own


def member(options: dict[str, Any]) -> None:
    """Joins, says where it serves, and sends as it is told: one line of JSON each."""
    group = sync.join(
        options["group"], name=f"n{options['number']}", engine="corel", data_dir=options["data_dir"],
        min_members=options["members"], serve="127.0.0.1:0", retention=Retention(max_bytes=KEPT_BYTES),
    )  # fmt: skip

    def read() -> None:
        try:
            for _ in group.batches():
                pass
        except GroupError as error:
            log(f"n{options['number']}: {error}")

    threading.Thread(target=read, daemon=True).start()
    while not group.view.primary:
        time.sleep(0.02)
    print(json.dumps({"serves": group.status()["serves"]}), flush=True)
    for line in sys.stdin:
        print(json.dumps(send(group, options["number"], **json.loads(line))), flush=True)
    group.leave()


def send(group: sync.Group, number: int, first: int, begin_s: float, seconds: float, rate: float) -> dict[str, Any]:
    """On a schedule that does not wait: what could not be sent in time was due all the same."""
    pad = bytes(SIZE - HEAD_BYTES)
    sent, late_s, ticket = 0, 0.0, None
    for tick in range(round(seconds / TICK_S)):
        due_s = begin_s + tick * TICK_S
        wait_s = due_s - time.time()
        if wait_s > 0:
            time.sleep(wait_s)
        late_s = max(late_s, -wait_s)
        count = round(rate * TICK_S * (tick + 1)) - sent
        due_us = int(due_s * 1e6)
        ticket = group.send_many(
            [struct.pack(HEAD, due_us, each, number) + pad for each in range(first + sent, first + sent + count)]
        )
        sent += count
    if ticket is not None:
        ticket.wait(DEADLINE_S)
    return {"sent": sent, "late_max_s": round(late_s, 3)}


# The driver, in a process of its own


def driver(options: dict[str, Any]) -> None:
    """Runs the query until it is told to end; a line that says `restart` stops it and starts it again."""
    from pyspark.sql import DataFrame

    from ordercast.spark.session import session

    results = Path(options["results"])
    spark = session("stream", master="local[2]", driver_memory="2g")

    def take(frame: DataFrame, batch: int) -> None:
        parts = [
            json.loads(row.part) for row in frame.select("offset", "value").mapInArrow(look, "part string").collect()
        ]
        path = results / f"{batch}.json"
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps({"batch": batch, "parts": parts, "seen_us": time.time_ns() // 1000}))
        temporary.replace(path)

    def start() -> Any:
        stream = spark.readStream.format("ordercast").options(
            servers=options["servers"], startingOffsets="earliest", minPartitions="2"
        )
        return stream.load().writeStream.foreachBatch(take).option("checkpointLocation", options["checkpoint"]).start()

    query = start()
    threading.Thread(target=fall_with, args=(lambda: query,), daemon=True).start()
    print("started", flush=True)
    for _ in sys.stdin:
        query.stop()
        query = start()
        print("started", flush=True)


def fall_with(query: Callable[[], Any]) -> None:
    """A query that fails takes the process along, and does not keep others waiting."""
    while True:
        error = query().exception()
        if error is not None:
            log(str(error))
            os._exit(1)
        time.sleep(0.5)


def look(batches: Iterator[Any]) -> Iterator[Any]:
    """Every message of a task's stretch: which offsets, which numbers of which sender, and how many were due when."""
    import pyarrow as pa

    for batch in batches:
        if not batch.num_rows:
            continue
        values = batch.column("value")
        ends = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
        assert (np.diff(ends) == SIZE).all()
        kind = np.dtype([("due", "<i8"), ("number", "<i8"), ("sender", "<i4"), ("pad", f"V{SIZE - HEAD_BYTES}")])
        rows = np.frombuffer(values.buffers()[2], kind, len(values), offset=int(ends[0]))
        offsets = batch.column("offset").to_numpy()
        assert (np.diff(offsets) == 1).all()
        due, counts = np.unique(rows["due"], return_counts=True)
        numbers = {}
        for sender in np.unique(rows["sender"]):
            mine = rows["number"][rows["sender"] == sender]
            assert (np.diff(mine) == 1).all()
            numbers[int(sender)] = [int(mine[0]), int(mine[-1]) + 1]
        part = {"offsets": [int(offsets[0]), int(offsets[-1]) + 1], "numbers": numbers,
                "due": due.tolist(), "counts": counts.tolist()}  # fmt: skip
        yield pa.record_batch([pa.array([json.dumps(part)])], ["part"])


# The measurement


class Child:
    """A process of this program, with a line to say and lines to hear."""

    def __init__(self, kind: str, options: dict[str, Any], folder: Path) -> None:
        self._errors = (folder / f"{kind}-{time.monotonic_ns()}.log").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, __file__, f"--{kind}", json.dumps(options)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._errors, text=True, start_new_session=True,
        )  # fmt: skip

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a process has ended: {Path(self._errors.name).read_text()[-3000:]}")
        return line

    def check(self) -> None:
        if self.process.poll() is not None:
            raise RuntimeError(f"a process has ended: {Path(self._errors.name).read_text()[-3000:]}")

    def end(self) -> None:
        """The process and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    results, checkpoint = folder / "results", folder / "checkpoint"
    results.mkdir()
    group = f"stream {os.urandom(6).hex()}"
    members = [
        Child("member", {"group": group, "number": number, "members": args.members,
                         "data_dir": str(folder / f"n{number}")}, folder)
        for number in range(args.members)
    ]  # fmt: skip
    children = [*members]
    try:
        servers = ",".join(json.loads(each.hear())["serves"] for each in members)
        options = {"servers": servers, "results": str(results), "checkpoint": str(checkpoint)}
        stream = Child("driver", options, folder)
        children.append(stream)
        stream.hear()
        log("the stream has started")

        def order(begin_s: float, seconds: float, first: int) -> None:
            each_s = args.rate / args.members
            for each in members:
                each.say(json.dumps({"first": first, "begin_s": begin_s, "seconds": seconds, "rate": each_s}))

        def answers() -> list[dict[str, Any]]:
            return [json.loads(each.hear()) for each in members]

        # A first batch loads half of Spark; it is no measure of anything.
        first = 0
        for _ in range(WARM_BATCHES):
            order(time.time(), 1.0, first)
            first += answers()[0]["sent"]
            wait_for(stream, results, first * args.members)
        log("the stream is warm")
        warm = args.warmup
        begin_s = time.time() + 1.0
        events = sorted([(at, "restart") for at in args.restarts] + [(at, "kill") for at in args.kills])
        told: list[dict[str, Any]] = []
        before = sum(cpu_of(each.process.pid) for each in members)
        with Watch(os.getpid()) as cost:
            order(begin_s, warm + args.seconds, first)
            for at, what in events:
                time.sleep(max(0.0, begin_s + warm + at - time.time()))
                log(f"{what} at {at:g} s")
                told.append({"what": what, "at_s": at, "stopped_us": time.time_ns() // 1000})
                if what == "restart":
                    stream.say("restart")
                else:
                    stream.end()
                    stream = Child("driver", options, folder)
                    children.append(stream)
                stream.hear()
            sent = answers()
            log(f"sent: {sent}")
            total = sum(first + each["sent"] for each in sent)
            parts = wait_for(stream, results, total)
        spent = sum(cpu_of(each.process.pid) for each in members) - before
        return {
            "rate": args.rate,
            "members": args.members,
            "seconds": args.seconds,
            "warmup_s": warm,
            "messages": total,
            "sent_late_max_s": max(each["late_max_s"] for each in sent),
            "batches": len({part["batch"] for part in parts}),
            **judge(parts, [first + each["sent"] for each in sent], told, begin_s + warm),
            "cpu_s": cost.cpu_s,
            "cpu_of_members_s": round(spent, 2),
            "memory_max_mb": cost.memory_max_mb,
        }
    finally:
        for each in children:
            each.end()


def wait_for(stream: Child, results: Path, total: int) -> list[dict[str, Any]]:
    """Until so many messages have arrived; the parts."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        stream.check()
        parts = read_results(results)
        place = parts[-1]["offsets"][1] if parts else 0
        if place >= total:
            return parts
        if time.monotonic() > deadline:
            raise RuntimeError(f"the stream is at {place} of {total}")
        time.sleep(0.2)


def read_results(folder: Path) -> list[dict[str, Any]]:
    """The parts of all batches that have a result, by their offsets."""
    parts = []
    for path in folder.glob("*.json"):
        batch = json.loads(path.read_text())
        parts += [{**part, "batch": batch["batch"], "seen_us": batch["seen_us"]} for part in batch["parts"]]
    return sorted(parts, key=lambda part: part["offsets"])


def judge(parts: list[dict[str, Any]], sent: list[int], told: list[dict[str, Any]], from_s: float) -> dict[str, Any]:
    """Raises if anything is lost or repeated; latencies otherwise."""
    place = 0
    numbers = [0] * len(sent)
    for part in parts:
        low, high = part["offsets"]
        if low != place:
            raise AssertionError(f"batch {part['batch']} begins at {low}, and {place} was next: lost or repeated")
        place = high
        for sender, (first, end) in part["numbers"].items():
            if first != numbers[int(sender)]:
                raise AssertionError(f"of sender {sender} {first} follows {numbers[int(sender)] - 1}")
            numbers[int(sender)] = end
    if numbers != sent:
        raise AssertionError(f"{numbers} messages have arrived of {sent}")
    due = np.concatenate([np.array(part["due"]) for part in parts])
    counts = np.concatenate([np.array(part["counts"]) for part in parts])
    seen = np.concatenate([np.full(len(part["due"]), part["seen_us"]) for part in parts])
    latency = (seen - due) / 1e6
    counted = due >= from_s * 1e6
    calm = counted.copy()
    for each in told:
        stopped = each.pop("stopped_us")
        # Until all that is due at some time arrives less than BEHIND_S later: from then on it is made good.
        after = due >= stopped - BEHIND_S * 1e6
        late = after & (latency >= BEHIND_S)
        until = due[late & (due < stopped + 120e6)].max(initial=stopped)
        each["first_result_s"] = round((seen[seen > stopped].min(initial=2**62) - stopped) / 1e6, 2)
        each["made_good_s"] = round((until - stopped) / 1e6 + BEHIND_S, 2) if late.any() else 0.0
        each["latency_max_s"] = round(float(latency[after & (due <= until + 1)].max(initial=0.0)), 2)
        calm &= (due < stopped - BEHIND_S * 1e6) | (due > max(until, each["first_result_s"] * 1e6 + stopped))
    return {
        "lost": 0,
        "repeated": 0,
        "latency_s": percentiles(latency[counted], counts[counted]),
        "latency_between_restarts_s": percentiles(latency[calm], counts[calm]),
        "restarts": told,
    }


def percentiles(latency: Any, counts: Any) -> dict[str, float]:
    if not len(latency):
        return {}
    order = np.argsort(latency)
    ranks = np.cumsum(counts[order])
    found = {
        name: round(float(latency[order][np.searchsorted(ranks, share * ranks[-1])]), 3)
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999))
    }
    return {**found, "max": round(float(latency.max()), 3), "messages": int(ranks[-1])}


def times(text: str) -> list[float]:
    return [float(each) for each in text.split(",") if each]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=100_000, help="messages a second, of all members together")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--warmup", type=float, default=10.0, help="seconds before that, which do not count")
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--restarts", type=times, default=[60.0, 180.0, 240.0], help="seconds, by commas")
    parser.add_argument("--kills", type=times, default=[120.0])
    parser.add_argument("--directory", type=Path, help="where logs and checkpoint are")
    parser.add_argument("--output", type=Path, help="instead of bench/results/spark-stream.json")
    parser.add_argument("--member", help=argparse.SUPPRESS)
    parser.add_argument("--driver", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.member:
        member(json.loads(args.member))
    elif args.driver:
        driver(json.loads(args.driver))
    else:
        with tempfile.TemporaryDirectory(prefix="ordercast-bench-", dir=args.directory) as folder:
            record("spark-stream", measure(args, Path(folder)), args.output)


if __name__ == "__main__":
    main()
