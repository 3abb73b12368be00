"""The job: traces in, verdicts out. docs/design/spark-check.md says why it is right, and what bounds its memory."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ordercast.check import TraceError, Verdict, Violation
from ordercast.spark.verify import exact, fold, scan
from ordercast.spark.verify.plan import CHUNK_BYTES, Chunk, TraceFiles, cut, find_trace
from ordercast.spark.verify.settle import blocks, by_message, judged, loose, messages, settle, small

_Judge = Callable[[Iterable[pa.RecordBatch], dict[int, tuple[str, ...]]], Iterator[dict[str, Any]]]


def check_traces(
    spark: SparkSession, directories: Sequence[str | Path], scratch: Path | None = None, chunk_bytes: int = CHUNK_BYTES
) -> list[Verdict | TraceError]:
    """The verdict on each directory, equal to the local checker's; a TraceError where it cannot be read.

    Traces and scratch directory are read and written by the executors, under the same paths everywhere.
    """
    found: list[Verdict | TraceError | None] = []
    traces: dict[int, TraceFiles] = {}
    for number, directory in enumerate(directories):
        try:
            traces[number] = find_trace(Path(directory))
            found.append(None)
        except TraceError as error:
            found.append(error)
    if traces:
        with _directory(scratch) as place:
            judged_traces = _Job(spark, traces, place, chunk_bytes).run()
        for number, outcome in judged_traces.items():
            if isinstance(outcome, str):
                found[number] = TraceError(outcome if outcome[0] == "/" else f"{directories[number]}: {outcome}")
            else:
                found[number] = outcome
    return [outcome for outcome in found if outcome is not None]


@contextmanager
def _directory(parent: Path | None) -> Iterator[Path]:
    if parent is not None:
        parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="ordercast-check-", dir=parent)).absolute()
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


class _Job:
    def __init__(self, spark: SparkSession, traces: dict[int, TraceFiles], scratch: Path, chunk_bytes: int) -> None:
        self.spark = spark
        self.traces = traces
        self.scratch = scratch
        self.chunks = list(cut(traces, chunk_bytes))
        self.nodes = {number: trace.nodes for number, trace in traces.items()}

    def run(self) -> dict[int, Verdict | str]:
        for name in ("messages", "corel"):
            (self.scratch / name).mkdir()
        folded = self._stored("folded", self._folded(self._scanned()))
        outcome: dict[int, Verdict | str] = {}
        events = dict.fromkeys(self.traces, 0)
        totals = folded.where(F.col("kind") == fold.TOTAL).groupBy("trace").agg(F.sum("events"))
        events.update((row[0], row[1]) for row in totals.collect())
        outcome.update(self._refused(folded))
        for trace, count in events.items():
            if not count and trace not in outcome:
                outcome[trace] = "an empty trace, there is no event in it"
        violations = self._violations(folded, set(outcome))
        for trace in self.traces:
            outcome.setdefault(trace, Verdict(events[trace], violations.get(trace, [])))
        return outcome

    # Reading

    def _scanned(self) -> DataFrame:
        size = sum(chunk.end - chunk.start for chunk in self.chunks)
        tasks = max(2 * self.spark.sparkContext.defaultParallelism, size // CHUNK_BYTES)
        tasks = max(1, min(len(self.chunks), tasks))
        rows = [(c.trace, c.file, c.node, c.path, c.start, c.end, c.last) for c in self.chunks]
        # Neighbours go to different tasks, so that a node with a long trace is read by all.
        dealt = self.spark.sparkContext.parallelize([rows[first::tasks] for first in range(tasks)], tasks)
        schema = "trace int, file int, node int, path string, start bigint, `end` bigint, last boolean"
        table = self.spark.createDataFrame(dealt.flatMap(lambda some: some), schema)
        return table.mapInArrow(_scanner(self.nodes, self.scratch), scan.CONTROL_SCHEMA)

    def _folded(self, scanned: DataFrame) -> DataFrame:
        order = ["trace", "node", "cid", "place"]
        sorted_rows = scanned.repartition("trace", "node").sortWithinPartitions(*order)
        return sorted_rows.mapInArrow(_by_rows(fold.fold, fold.FOLD_SCHEMA), fold.FOLD_SCHEMA)

    def _refused(self, folded: DataFrame) -> dict[int, str]:
        bad = folded.where(F.col("kind") == fold.ERROR).groupBy("trace").agg(F.min("file"))
        first = {row[0]: row[1] for row in bad.collect()}
        if not first:
            return {}
        tasks: list[tuple[int, tuple[str, ...], list[tuple[str, Path]]]] = []
        for trace, file in first.items():
            start = next(chunk.file for chunk in self.chunks if chunk.trace == trace)
            node = self.traces[trace].files[file - start][0]
            # The node's whole file: what is wrong may be how its parts follow each other.
            tasks.append((trace, self.nodes[trace], [each for each in self.traces[trace].files if each[0] == node]))
        dealt = self.spark.sparkContext.parallelize(tasks, min(len(tasks), 64))
        return dict(dealt.map(lambda task: (task[0], exact.refusal(task[1], task[2]))).collect())

    # Judging

    def _violations(self, folded: DataFrame, refused: set[int]) -> dict[int, list[Violation]]:
        if len(refused) == len(self.traces):
            return {}
        folded = folded.where(~F.col("trace").isin(*refused)) if refused else folded
        controls = folded.where(F.col("kind") == fold.CONTROL)
        found = self._judged(exact.judge, self._parts(folded, controls, refused))
        found += self._judged(exact.judge_corel, corel) if (corel := self._of_corel(controls, refused)) else []
        violations: dict[int, list[Violation]] = {}
        for row in found:
            violations.setdefault(row[0], []).append(Violation(row[1], list(row[2])))
        return violations

    def _judged(self, judge: _Judge, parts: DataFrame) -> list[Row]:
        sliced = parts.repartition("trace").sortWithinPartitions("trace", "node", "step")
        schema = "trace int, property string, evidence array<string>"
        return sliced.mapInArrow(_by_batches(judge, self.nodes, schema), schema).collect()

    def _of_corel(self, controls: DataFrame, refused: set[int]) -> DataFrame | None:
        """Of traces of corel what C1 to C9 speak of: configurations, starts, endings, sends, and what corel does."""
        corel = self._scratch_of("corel", refused)
        if corel is None:
            return None
        spoken = corel.select("trace").distinct()
        parts = controls.select("trace", "node", "step", "raw").unionByName(corel)
        parts = _as_part(parts.select("*", F.lit(0).cast("bigint").alias("block"), *_nothing()), raw=True)
        scanned = self._scratch_of("messages", refused)
        if scanned is not None:
            sends = scanned.where("send").drop("block").withColumn("block", F.lit(0).cast("bigint"))
            parts = parts.unionByName(_as_part(sends))
        return parts.join(spoken, "trace", "left_semi")

    def _scratch_of(self, name: str, refused: set[int]) -> DataFrame | None:
        """What the scan has written of the traces that can be read."""
        if not any((self.scratch / name).glob("*.parquet")):
            return None
        table = self.spark.read.parquet(str(self.scratch / name))
        return table.where(~F.col("trace").isin(*refused)) if refused else table

    def _parts(self, folded: DataFrame, controls: DataFrame, refused: set[int]) -> DataFrame:
        """The slices of all traces."""
        everything = controls.select(
            "trace", F.lit(0).cast("bigint").alias("block"), "node", "step", "raw", *_nothing()
        )
        scanned = self._scratch_of("messages", refused)
        if scanned is None:
            return everything
        carries = folded.where(F.col("kind") == fold.CARRY)
        found = messages(scanned, small(carries, len(self.chunks)))
        of_blocks = self._stored("blocks", blocks(controls))
        count = of_blocks.count()
        each = self._stored("each", judged(by_message(found), small(of_blocks, count)))
        odd = each.where(F.col("odd_msg").isNotNull()).select("trace", F.col("odd_msg").alias("msg"))
        odd_count = odd.count()
        odd_events = found.join(small(odd, odd_count), ["trace", "msg"], "left_semi") if odd_count else None
        touched = (
            odd_events.where(F.col("block").isNotNull()).select("block").distinct()
            if odd_events is not None
            else of_blocks.select("block").limit(0)
        )
        settled = settle(each, of_blocks, touched)
        places = self._stored("places", settled.places)
        sends = self._stored("sends", settled.sends)
        apart = self._stored("apart", loose(found, settled._replace(places=small(places, count), sends=sends)))
        flagged = places.where("whole").select("block").union(self._suspects(controls, apart, places).select("block"))
        flagged = self._stored("flagged", flagged.distinct())
        suspects = apart.join(small(flagged, flagged.count()), "block", "left_semi")
        sliced = everything.unionByName(_as_part(suspects))
        if odd_events is not None:
            rest = odd_events.join(small(flagged, flagged.count()), "block", "left_anti")
            sliced = sliced.unionByName(_as_part(rest))
        return sliced

    def _suspects(self, controls: DataFrame, apart: DataFrame, places: DataFrame) -> DataFrame:
        """Blocks whose messages that are not settled violate something."""
        of_own = controls.where("regular").select(
            "trace", F.xxhash64("trace", "conf").alias("block"), "node", "step", "raw"
        )
        of_previous = controls.where(F.col("previous").isNotNull()).select(
            "trace", F.xxhash64("trace", "previous").alias("block"), "node", "step", "raw"
        )
        open_blocks = apart.where(~F.col("whole")).select("block").distinct()
        passages = of_own.unionByName(of_previous).select("*", *_nothing()).join(open_blocks, "block", "left_semi")
        parts = _as_part(passages, raw=True).unionByName(_as_part(apart.where(~F.col("whole"))))
        sorted_parts = parts.repartition("block").sortWithinPartitions("block", "trace", "node", "step")
        schema = "trace int, block bigint"
        return sorted_parts.mapInArrow(_by_batches(exact.suspect, self.nodes, schema), schema)

    def _stored(self, name: str, table: DataFrame) -> DataFrame:
        """Written and read again: what is used more than once is made once, on disk, and its size is known."""
        path = str(self.scratch / name)
        table.write.parquet(path)
        return self.spark.read.schema(table.schema).parquet(path)


def _nothing() -> list[Any]:
    """The columns of messages, for rows that are none."""
    kinds = {"send": "boolean", "msg": "string", "conf": "string", "sender": "string", "safe": "boolean"}
    return [F.lit(None).cast(kind).alias(name) for name, kind in kinds.items()]


def _as_part(table: DataFrame, raw: bool = False) -> DataFrame:
    with_raw = table if raw else table.withColumn("raw", F.lit(None).cast("binary"))
    return with_raw.select(*exact.PART_COLUMNS)


# What the tasks call. They are made here, so that a task carries these functions and no job.

_Batches = Iterable[pa.RecordBatch]


def _arrow(schema: str) -> pa.Schema:
    parsed = StructType.fromDDL(schema)
    assert isinstance(parsed, StructType)
    return to_arrow_schema(parsed)


def _scanner(nodes: Mapping[int, tuple[str, ...]], scratch: Path) -> Callable[[_Batches], Iterator[pa.RecordBatch]]:
    schema = _arrow(scan.CONTROL_SCHEMA)

    def rows(batches: _Batches) -> Iterator[dict[str, Any]]:
        writer, corel = scan.Writer(scratch / "messages"), scan.Writer(scratch / "corel")
        for batch in batches:
            for row in batch.to_pylist():
                chunk = Chunk(**row)
                yield from scan.scan(chunk, nodes[chunk.trace], writer, corel)
        writer.close()
        corel.close()

    def scanned(batches: _Batches) -> Iterator[pa.RecordBatch]:
        return scan.as_batches(rows(batches), schema)

    return scanned


def _by_rows(
    work: Callable[[Iterable[dict[str, Any]]], Iterator[dict[str, Any]]], out: str
) -> Callable[[_Batches], Iterator[pa.RecordBatch]]:
    schema = _arrow(out)

    def mapped(batches: _Batches) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in batch.to_pylist())
        yield from scan.as_batches(work(rows), schema)

    return mapped


def _by_batches(
    work: Callable[[_Batches, dict[int, tuple[str, ...]]], Iterator[dict[str, Any]]],
    nodes: dict[int, tuple[str, ...]],
    out: str,
) -> Callable[[_Batches], Iterator[pa.RecordBatch]]:
    schema = _arrow(out)

    def mapped(batches: _Batches) -> Iterator[pa.RecordBatch]:
        yield from scan.as_batches(work(batches, nodes), schema)

    return mapped
