"""The job: a stream of the log, a commit of the lake for each of its batches; tables from traces."""

from __future__ import annotations

import copy
import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ordercast.check import TraceError
from ordercast.check.trace import node_files, parts
from ordercast.spark.connector.logs import Log, first_offset, not_removed, open_log
from ordercast.spark.connector.options import read_options
from ordercast.spark.errors import SparkError, plain
from ordercast.spark.lake import compact, gaps, rates, raw, traces, views
from ordercast.spark.lake.files import read_parquet, write_parquet
from ordercast.spark.lake.store import Lake, Staged, State, messages_name

BATCH_ROWS = 4_000_000
"""Messages that one commit takes in, at most."""
INTERVAL_S = 5.0
SILENCE_S = 10.0
_POLL_S = 0.2


@dataclass(frozen=True)
class Settings:
    """How a lake is filled. `source` are the options of the source: path or servers, key, insecure and so on."""

    source: Mapping[str, str]
    once: bool = False
    """Up to where the log ends now."""
    interval_s: float = INTERVAL_S
    batch_rows: int = BATCH_ROWS
    silence_us: int = int(SILENCE_S * 1e6)
    small_files: int = compact.SMALL_FILES
    file_bytes: int = compact.FILE_BYTES


Told = Callable[[State], None]
"""Hears of each commit."""


class LogJob:
    """Takes a log into a lake."""

    def __init__(self, spark: SparkSession, lake: Lake, settings: Settings, told: Told = lambda state: None) -> None:
        self._spark = spark
        self._lake = lake
        self._settings = settings
        self._told = told
        self._in_batch = threading.Lock()
        self._failure: Exception | None = None
        self._stopped = threading.Event()
        self._begin()

    def _begin(self) -> None:
        """Sees where the lake goes on. SparkError if it and the log do not belong together."""
        options = read_options(self._settings.source, "stream")
        log = open_log(options)
        state = self._lake.state
        if state.group is not None and state.group != log.group:
            raise SparkError(f"the lake {self._lake.folder} is of the group '{state.group}', the log of '{log.group}'")
        if state.end is None:
            begin = first_offset(log, options) if "startingOffsets" in self._settings.source else log.earliest
            self._lake.state = copy.copy(state)
            self._lake.state.group, self._lake.state.start, self._lake.state.end = log.group, begin, begin
        elif state.end > log.end:
            raise SparkError(
                f"the lake {self._lake.folder} holds offsets up to {state.end - 1}, and the log of '{log.group}' ends "
                f"at {log.end}: it is another log, or an older copy"
            )
        else:
            not_removed(log, state.end, options.fail_on_data_loss)

    @property
    def begin(self) -> int:
        """The next offset that goes into the lake."""
        assert self._lake.state.end is not None
        return self._lake.state.end

    def run(self) -> None:
        """Until the end of the log with `once`, else until `stop`."""
        options = {
            **self._settings.source, "startingOffsets": str(self.begin), "includeViews": "true",
            "includeHeaders": "true", "maxOffsetsPerTrigger": str(self._settings.batch_rows),
        }  # fmt: skip
        stream = self._spark.readStream.format("ordercast").options(**options).load()
        stream = stream.select(*raw.READ).withColumn("arrived", F.current_timestamp())
        with self._lake.staging() as checkpoint:
            # It goes with this run: where the lake stands is in the lake.
            writer = stream.writeStream.foreachBatch(self._batch).option("checkpointLocation", str(checkpoint))
            once = self._settings.once
            trigger = {"availableNow": True} if once else {"processingTime": f"{self._settings.interval_s} seconds"}
            query = writer.trigger(**trigger).start()
            try:
                while not self._stopped.is_set() and not query.awaitTermination(_POLL_S):  # type: ignore[arg-type]
                    pass
            except PySparkException as error:
                raise self._failure or SparkError(plain(error)) from error
            finally:
                query.stop()
        with self._in_batch:
            self._take_views_at_the_end()

    def stop(self) -> None:
        """From a signal's handler."""
        self._stopped.set()

    def _batch(self, frame: DataFrame, number: int) -> None:
        with self._in_batch:
            try:
                self._take(frame)
                self._compact()
            except Exception as error:
                self._failure = error if isinstance(error, SparkError) else SparkError(plain(error))
                raise

    def _take(self, frame: DataFrame) -> None:
        state = copy.deepcopy(self._lake.state)
        assert state.end is not None
        with self._lake.staging() as staging:
            written = frame.mapInArrow(raw.writer(staging, state.end), raw.WRITTEN_DDL).collect()
            sides = sorted((row for row in written if row.what == "side"), key=lambda row: row.first)
            seen = sorted(
                (views.SeenView(row.first, row.newest_us, bytes(row.value)) for row in written if row.what == "view"),
                key=lambda view: view.offset,
            )
            staged = [
                Staged(row.path, messages_name(row.date, row.first, row.last)) for row in written if row.what == "file"
            ]
            tables = _Tables(self._lake, staging)
            if sides:
                self._count(state, state.end, sides, tables)
            self._add_views(state, seen, tables)
            if sides:
                state.end = sides[-1].last + 1
            elif not seen:
                return
            state.views_ahead = {name: at for name, at in state.views_ahead.items() if at >= state.end}
            state.batches += 1
            self._lake.commit(state, staged + tables.staged)
        self._told(self._lake.state)

    def _count(self, state: State, begin: int, sides: Sequence[Any], tables: _Tables) -> None:
        """Rates, latencies and gaps of the parts of a batch, which follow each other."""
        bucket_us, silence_us = state.bucket_us, self._settings.silence_us
        tasks, before_us = [], state.newest_us
        for side in sides:
            tasks.append((side.path, before_us, bucket_us, silence_us))
            before_us = max(before_us, side.newest_us)
        if len(tasks) == 1:
            parts_found = [_count_part(tasks[0])]
        else:
            parts_found = self._spark.sparkContext.parallelize(tasks, len(tasks)).map(_count_part).collect()
        counted = [part[0] for part in parts_found]
        for name, table in rates.add_by_time(counted, bucket_us, tables.old):
            tables.put(name, table)
        name = "view_rates/rates.parquet"
        tables.put(name, rates.add_by_view(counted, tables.old(name, rates.VIEW_RATES)))
        found = [gap for part in parts_found for gap in part[1]]
        expected = begin
        for side in sides:
            if side.first != expected:
                gap_us = int(parts_found[sides.index(side)][3])
                found.append(gaps.offsets_gap(expected - 1, side.first, gap_us))
            expected = side.last + 1
        between, state.senders = gaps.join(state.senders, [part[2] for part in parts_found], silence_us)
        _add_gaps(found + between, tables)
        state.newest_us = before_us

    def _add_views(self, state: State, seen: Sequence[views.SeenView], tables: _Tables) -> None:
        rows, changes = views.view_rows(state, seen)
        if rows:
            tables.append("views/views.parquet", rows, views.VIEWS)
            old = tables.old("view_changes/changes.parquet", views.VIEW_CHANGES)
            new = views.with_causes(pa.Table.from_pylist(changes, schema=views.VIEW_CHANGES), known_causes(self._lake))
            tables.put("view_changes/changes.parquet", pa.concat_tables([old, new]))

    def _take_views_at_the_end(self) -> None:
        """The last views stand behind the last message, and a stream gives them only with the next one."""
        state = copy.deepcopy(self._lake.state)
        log: Log = open_log(read_options(self._settings.source, "stream"))
        assert state.end is not None
        seen = [
            views.SeenView(view.offset, view.time_us, view_value(view)) for view in log.views(state.end, log.end)
        ]  # fmt: skip
        with self._lake.staging() as staging:
            tables = _Tables(self._lake, staging)
            self._add_views(state, seen, tables)
            if tables.staged or state.batches == 0:
                self._lake.commit(state, tables.staged)
                self._told(self._lake.state)

    def _compact(self) -> None:
        settings = self._settings
        merges = list(compact.plan(self._lake.folder, settings.file_bytes, settings.small_files))
        if not merges:
            return
        with self._lake.staging() as staging:
            place = str(staging)
            tasks = self._spark.sparkContext.parallelize(merges, len(merges))
            merged = tasks.map(lambda task: compact.merge(task, place)).collect()
            gone = [os.path.relpath(path, self._lake.folder) for _, _, paths in merged for path in paths]
            self._lake.commit(self._lake.state, [Staged(source, target) for source, target, _ in merged], gone)


class _Tables:
    """What a commit does to tables that are files of few rows: each is written anew."""

    def __init__(self, lake: Lake, staging: Path) -> None:
        self._lake = lake
        self._staging = staging
        self.staged: list[Staged] = []

    def old(self, name: str, schema: Any) -> Any:
        return read_parquet(self._lake.folder / name, schema)

    def put(self, name: str, table: Any) -> None:
        self.staged.append(Staged(write_parquet(self._staging, table), name))

    def append(self, name: str, rows: list[dict[str, Any]], schema: Any) -> None:
        self.put(name, pa.concat_tables([self.old(name, schema), pa.Table.from_pylist(rows, schema=schema)]))


def _count_part(task: tuple[str, int, int, int]) -> tuple[rates.Counted, list[Any], dict[str, Any], int]:
    path, before_us, bucket_us, silence_us = task
    with pa.memory_map(path) as file:
        side = pa.ipc.open_file(file).read_all()
        found, ends = gaps.find(side, silence_us)
        return rates.count(side, before_us, bucket_us), found, ends, side.column("stamp_us")[0].as_py()


def _add_gaps(found: Iterable[dict[str, Any]], tables: _Tables) -> None:
    by_date: dict[str, list[dict[str, Any]]] = {}
    for gap in sorted(found, key=lambda gap: gap["offset"]):
        by_date.setdefault(raw.date_name(gap["time"] // 86_400_000_000), []).append(gap)
    for date, rows in by_date.items():
        tables.append(f"gaps/date={date}/gaps.parquet", rows, gaps.GAPS)


def view_value(view: Any) -> bytes:
    """As the source gives it."""
    return json.dumps(
        {"id": view.id, "members": list(view.members), "primary": view.primary, "number": view.number}
    ).encode()


# Traces


def add_traces(spark: SparkSession, lake: Lake, directories: Sequence[Path]) -> dict[str, int]:
    """Tables of each trace, called by its directory, in place of what the lake had of it; how many views there are."""
    found: dict[str, int] = {}
    for directory in directories:
        name = directory.resolve().name
        nodes = _scan(spark, directory)
        changes = traces.trace_changes(nodes)
        seen = traces.trace_views(nodes)
        with lake.staging() as staging:
            tables = _Tables(lake, staging)
            tables.put(f"trace_views/trace={name}/views.parquet", seen)
            tables.put(f"trace_changes/trace={name}/changes.parquet", changes)
            tables.put(f"trace_rates/trace={name}/rates.parquet", traces.trace_rates(nodes, lake.state.bucket_us))
            old = tables.old("view_changes/changes.parquet", views.VIEW_CHANGES)
            if len(old):
                tables.put("view_changes/changes.parquet", views.with_causes(old, traces.causes(changes)))
            lake.commit(lake.state, tables.staged)
        found[name] = len(seen)
    return found


def known_causes(lake: Lake) -> views.Causes:
    """What the traces in the lake tell."""
    found: dict[tuple[str, str, str], tuple[str, str | None]] = {}
    for path in sorted(lake.folder.glob("trace_changes/trace=*/*.parquet")):
        found |= traces.causes(read_parquet(path, traces.TRACE_CHANGES))
    return found


def _scan(spark: SparkSession, directory: Path) -> dict[str, traces.Scanned]:
    try:
        files = [(node, part) for node, path in node_files(directory).items() for part in parts(path)]
    except TraceError as error:
        raise SparkError(str(error)) from None
    tasks = [(node, stretch) for node, path in files for stretch in traces.cut(path)]
    dealt = spark.sparkContext.parallelize(tasks, max(1, min(len(tasks), 4 * spark.sparkContext.defaultParallelism)))
    try:
        scanned = dealt.map(lambda task: (task[0], traces.scan(*task[1]))).collect()
    except Exception as error:
        raise SparkError(plain(error)) from error
    by_node: dict[str, list[traces.Scanned]] = {}
    for node, stretch in scanned:
        by_node.setdefault(node, []).append(stretch)
    return {node: traces.joined(stretches) for node, stretches in sorted(by_node.items())}
