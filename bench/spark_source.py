"""How fast Spark reads a log: a count and a sum over the payload length, beside the limit and Parquet.

Three sources of the same rows: this one, from log files; a bare Python data source that yields Arrow batches which it
has had in memory since before (the limit of that interface); Spark's own Parquet reader, which reads only the column
that is asked for, something that the interface does not offer. They take turns, and another one begins each round, so
that what else happens on the machine meets all of them. Seconds are medians; processor seconds are those of the driver,
the JVM and the Python workers, and disturbed less by other work.

    python bench/spark_source.py [--messages N] [--rounds N] [--output FILE]

Writes bench/results/spark-source.json.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ordercast.log import Entry, LogReader, LogWriter
from ordercast.log.files import DiskFiles
from ordercast.spark.session import session
from ordercast.wire.chunk import Stamp, make_body, make_chunk
from spark_cost import Watch, record

SENDERS = ("n1", "n2", "n3", "n4")
ENTRY_CHUNKS = 16
BODIES = 250
"""Different chunks' worth of random bytes."""


def write_log(folder: Path, messages: int, size: int, per_chunk: int) -> None:
    """A log as four busy members leave it: chunks of theirs in turn."""
    writer = LogWriter(DiskFiles(folder / "log"), group="bench", member="n1")
    random = Random(0)
    bodies = [make_body([random.randbytes(size) for _ in range(per_chunk)]) for _ in range(BODIES)]
    seqs = dict.fromkeys(SENDERS, 1)
    end = 0
    for start in range(0, messages // per_chunk, ENTRY_CHUNKS):
        chunks = []
        for number in range(start, min(start + ENTRY_CHUNKS, messages // per_chunk)):
            sender = SENDERS[number % 4]
            place = Stamp(4, "4:n1", number + 1)
            chunks.append(
                make_chunk(sender, seqs[sender], 1_700_000_000_000_000 + number * 1000, place, bodies[number % BODIES])
            )
            seqs[sender] += per_chunk
            end += per_chunk
        writer.append(Entry(tuple(chunks), green=end))
        writer.write()
    writer.close()


class Bare(DataSource):
    """The limit: every task yields the same prebuilt batches again and again until it has its rows."""

    @classmethod
    def name(cls) -> str:
        return "bare"

    def schema(self) -> StructType:
        from ordercast.spark.connector.columns import full_schema

        return full_schema(False)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BareReader(schema, dict(self.options))


class BareReader(DataSourceReader):
    def __init__(self, schema: StructType, options: dict[str, str]) -> None:
        self._schema, self._options = schema, options

    def partitions(self) -> list[InputPartition]:
        count = int(self._options["partitions"])
        total = int(self._options["messages"])
        return [InputPartition(total * (n + 1) // count - total * n // count) for n in range(count)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        batches = prebuilt(self._options["path"], self._schema)
        left = partition.value
        for batch in cycle(batches):
            if left < batch.num_rows:
                break
            left -= batch.num_rows
            yield batch
        if left:
            yield batches[0].slice(0, left)


def prebuilt(path: str, schema: StructType) -> list[Any]:
    """The first batches of the log, with all buffers of their own, kept in the worker's memory."""
    from ordercast.spark.connector.columns import Rows

    # This file is the main program, so what it holds travels with each task; `sys` is the worker's own.
    built: list[Any] = sys.__dict__.setdefault("_ordercast_bench", [])
    if not built:
        reader = LogReader(path)
        batches = islice(Rows(schema, "bench").of(reader.read(0)), 32)
        import pyarrow as pa

        for batch in batches:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            built.extend(pa.ipc.open_stream(sink.getvalue()))
    return built


def total(frame: DataFrame) -> tuple[int, int]:
    row = frame.agg(F.count("*"), F.sum(F.length("value"))).first()
    return (row[0], row[1])


def time_of(work: Callable[[], tuple[int, int]], expected: tuple[int, int]) -> tuple[float, float]:
    """Seconds, and processor seconds."""
    with Watch(os.getpid(), memory=False) as cost:
        began = time.perf_counter()
        found = work()
        taken = time.perf_counter() - began
    assert found == expected, f"{found} rows and bytes, not {expected}"
    return taken, cost.cpu_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=20_000_000)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--chunk", type=int, default=1000, help="messages a chunk")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="where log and Parquet are kept; a temporary one without it")
    parser.add_argument("--output", type=Path, help="instead of bench/results/spark-source.json")
    args = parser.parse_args()
    folder = args.folder or Path(tempfile.mkdtemp(prefix="ordercast-bench-"))
    try:
        record("spark-source", measure(folder, args), args.output)
    finally:
        if args.folder is None:
            shutil.rmtree(folder)


def measure(folder: Path, args: argparse.Namespace) -> dict[str, object]:
    if not (folder / "log").exists():
        write_log(folder, args.messages, args.size, args.chunk)
    spark: SparkSession = session("bench", master="local[2]", driver_memory="3g")
    spark.dataSource.register(Bare)
    source = spark.read.format("ordercast").load(str(folder))
    if not (folder / "parquet" / "_SUCCESS").exists():
        source.write.parquet(str(folder / "parquet"))
    partitions = source.rdd.getNumPartitions()
    bare = spark.read.format("bare").options(path=str(folder), messages=args.messages, partitions=partitions).load()
    parquet = spark.read.parquet(str(folder / "parquet"))
    rows = args.messages // args.chunk * args.chunk
    expected = (rows, rows * args.size)
    kinds = {"ordercast": source, "bare": bare, "parquet": parquet}
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    cpu_s: dict[str, list[float]] = {name: [] for name in kinds}
    names = [*kinds]
    for round_ in range(args.rounds + 1):
        for name in names[round_ % 3 :] + names[: round_ % 3]:
            taken, spent = time_of(lambda frame=kinds[name]: total(frame), expected)
            print(f"{name} {taken:.2f} s{' (warming up)' if not round_ else ''}", file=sys.stderr)
            if round_:
                seconds[name].append(round(taken, 3))
                cpu_s[name].append(spent)
    spark.stop()
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    return {
        "messages": rows,
        "size": args.size,
        "chunk": args.chunk,
        "partitions": partitions,
        "seconds": seconds,
        "cpu_s": cpu_s,
        "messages_per_s": {name: round(rows / median) for name, median in medians.items()},
        "of_the_limit": round(medians["bare"] / medians["ordercast"], 3),
        "of_the_limit_by_cpu": round(statistics.median(cpu_s["bare"]) / statistics.median(cpu_s["ordercast"]), 3),
    }


if __name__ == "__main__":
    main()
