"""Rows of the log as Arrow: Kafka's columns, then ours. Work per chunk, none per message.

Values and keys are the bytes of the segment, or one copy in C where several chunks make a batch. A column that is
constant within a batch is a slice of an array that was made once; one that is constant within each chunk is made by one
call for the whole batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ordercast.events import Headers, decode_headers
from ordercast.log import LogBatch, ViewRecord
from ordercast.serve.batches import MARK
from ordercast.spark.errors import SparkError

ROWS = 2**15
"""Of one Arrow batch, at most."""
BYTES = 2**23
"""Of values in one Arrow batch; one message more may be in it."""
CONSTANTS_MAX = 4096
"""Arrays of one repeated value that are kept."""
CREATE_TIME = 0
"""Kafka's timestampType: the sender's clock."""

_HEADER = StructType([StructField("key", StringType(), True), StructField("value", BinaryType(), True)])
_KAFKA = [
    StructField("key", BinaryType(), True),
    StructField("value", BinaryType(), True),
    StructField("topic", StringType(), True),
    StructField("partition", IntegerType(), True),
    StructField("offset", LongType(), True),
    StructField("timestamp", TimestampType(), True),
    StructField("timestampType", IntegerType(), True),
]
_OURS = [
    StructField("kind", StringType(), True),
    StructField("sender", StringType(), True),
    StructField("sender_seq", LongType(), True),
    StructField("view_id", StringType(), True),
    StructField("service", StringType(), True),
]


def full_schema(headers: bool) -> StructType:
    """Nullable throughout, as Kafka's: so a schema that a user writes down is equal."""
    extra = [StructField("headers", ArrayType(_HEADER, True), True)] if headers else []
    return StructType([*_KAFKA, *extra, *_OURS])


def check_schema(given: StructType, headers: bool) -> StructType:
    """Accepts columns of the full schema, some or all, in any order: what is not named is not read."""
    known = {field.name: field for field in full_schema(headers)}
    for field in given.fields:
        if field.name not in known:
            hint = ": set the option includeHeaders" if field.name == "headers" else ""
            raise SparkError(f"there is no column '{field.name}'{hint}. Columns: {', '.join(known)}")
        expected = known[field.name].dataType
        if field.dataType != expected:
            raise SparkError(
                f"column '{field.name}' is of type {expected.simpleString()}, not {field.dataType.simpleString()}"
            )
    if not given.fields:
        raise SparkError(f"a schema without columns. Columns: {', '.join(known)}")
    return given


class Rows:
    """Makes Arrow batches with the columns of a schema."""

    def __init__(self, schema: StructType, topic: str) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self.schema = to_arrow_schema(schema, timezone="UTC")
        self.topic = topic
        self._constants: dict[tuple[str, object], Any] = {}

    def of(self, items: Iterable[LogBatch | ViewRecord]) -> Iterator[Any]:
        """Record batches of messages and views, in the order given."""
        waiting: list[LogBatch] = []
        rows = size = 0
        for item in items:
            if isinstance(item, ViewRecord):
                if waiting:
                    yield self._messages(waiting)
                    waiting, rows, size = [], 0, 0
                yield self._view(item)
                continue
            for batch in _pieces(item):
                length = len(batch)
                if waiting and (rows + length > ROWS or size > BYTES):
                    yield self._messages(waiting)
                    waiting, rows, size = [], 0, 0
                waiting.append(batch)
                rows += length
                _, offsets = batch.data()
                size += offsets[-1] - offsets[0]
        if waiting:
            yield self._messages(waiting)

    def _messages(self, batches: list[LogBatch]) -> Any:
        counts = [len(batch) for batch in batches]
        total = sum(counts)
        columns = [_COLUMNS[field.name](self, field.type, batches, counts, total) for field in self.schema]
        return pa.record_batch(columns, schema=self.schema)

    def _view(self, view: ViewRecord) -> Any:
        value = {
            "id": view.id, "members": list(view.members), "primary": view.primary, "number": view.number,
        }  # fmt: skip
        row = {
            "value": json.dumps(value).encode(), "topic": self.topic, "partition": 0, "offset": view.offset,
            "timestamp": view.time_us, "timestampType": CREATE_TIME, "kind": "view", "view_id": view.id,
        }  # fmt: skip
        return pa.record_batch([pa.array([row.get(field.name)], field.type) for field in self.schema],
                               schema=self.schema)  # fmt: skip

    def constant(self, kind: Any, value: object, count: int) -> Any:
        key = (str(kind), value)
        found = self._constants.get(key)
        if found is None:
            if len(self._constants) >= CONSTANTS_MAX:
                self._constants.clear()
            found = pa.nulls(ROWS, kind) if value is None else pa.repeat(pa.scalar(value, kind), ROWS)
            self._constants[key] = found
        return found.slice(0, count)

    def per_chunk(self, kind: Any, values: list[Any], counts: list[int], total: int) -> Any:
        """A column of one value a chunk."""
        if values.count(values[0]) == len(values):
            return self.constant(kind, values[0], total)
        distinct = {value: number for number, value in enumerate(dict.fromkeys(values))}
        codes = np.repeat(np.array([distinct[value] for value in values], np.int32), counts)
        return pa.array(list(distinct), kind).take(pa.array(codes))


def _pieces(batch: LogBatch) -> Iterator[LogBatch]:
    """A large chunk in parts that keep the limits."""
    if len(batch) <= ROWS:
        yield batch
        return
    for start in range(batch.offset, batch.end, ROWS):
        yield batch.slice(start, min(start + ROWS, batch.end))


_Column = Callable[[Rows, Any, list[LogBatch], list[int], int], Any]


def _binary(kind: Any, batch: LogBatch, column: tuple[memoryview | None, memoryview, memoryview]) -> Any:
    validity, offsets, blob = column
    buffers = [None if validity is None else pa.py_buffer(validity), pa.py_buffer(offsets), pa.py_buffer(blob)]
    first, last = batch.bounds
    return pa.Array.from_buffers(kind, batch.chunk.count, buffers).slice(first, last - first)


def _joined(arrays: list[Any]) -> Any:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _value(rows: Rows, kind: Any, batches: list[LogBatch], counts: list[int], total: int) -> Any:
    return _joined([_binary(kind, batch, (None, *batch.chunk.data())) for batch in batches])


def _key(rows: Rows, kind: Any, batches: list[LogBatch], counts: list[int], total: int) -> Any:
    keys = [batch.chunk.keys() for batch in batches]
    if not any(keys):
        return rows.constant(kind, None, total)
    return _joined([
        rows.constant(kind, None, len(batch)) if column is None else _binary(kind, batch, column)
        for batch, column in zip(batches, keys, strict=True)
    ])  # fmt: skip


def _headers(rows: Rows, kind: Any, batches: list[LogBatch], counts: list[int], total: int) -> Any:
    """The one column that takes work per message that has it: headers are kept encoded."""
    columns = [batch.chunk.headers() for batch in batches]
    if not any(columns):
        return rows.constant(kind, None, total)
    cells: list[Any] = []
    for batch in batches:
        cells += [None if cell is None else decode_headers(cell) for _, cell, _ in batch.records()]
    dicts = [None if cell is None else _pairs(cell) for cell in cells]
    return pa.array(dicts, kind)


def _pairs(headers: Headers) -> list[dict[str, object]]:
    return [{"key": key, "value": value} for key, value in headers if key != MARK]


def _offset(rows: Rows, kind: Any, batches: list[LogBatch], counts: list[int], total: int) -> Any:
    if batches[-1].end - batches[0].offset == total:
        return pa.array(np.arange(batches[0].offset, batches[-1].end, dtype=np.int64))
    return pa.array(np.concatenate([np.arange(batch.offset, batch.end, dtype=np.int64) for batch in batches]))


def _sender_seq(rows: Rows, kind: Any, batches: list[LogBatch], counts: list[int], total: int) -> Any:
    places = np.cumsum([0, *counts[:-1]])
    firsts = np.array([batch.seq for batch in batches], np.int64) - places
    return pa.array(np.arange(total, dtype=np.int64) + np.repeat(firsts, counts))


def _timestamp(rows: Rows, kind: Any, batches: list[LogBatch], counts: list[int], total: int) -> Any:
    stamps = np.array([batch.stamp_us for batch in batches], np.int64)
    return pa.array(np.repeat(stamps, counts)).view(kind)


def _per_chunk(get: Callable[[LogBatch], str]) -> _Column:
    def column(rows: Rows, kind: Any, batches: list[LogBatch], counts: list[int], total: int) -> Any:
        return rows.per_chunk(kind, [get(batch) for batch in batches], counts, total)

    return column


def _constant(value: object) -> _Column:
    return lambda rows, kind, batches, counts, total: rows.constant(kind, value, total)


_COLUMNS: dict[str, _Column] = {
    "key": _key,
    "value": _value,
    "topic": lambda rows, kind, batches, counts, total: rows.constant(kind, rows.topic, total),
    "partition": _constant(0),
    "offset": _offset,
    "timestamp": _timestamp,
    "timestampType": _constant(CREATE_TIME),
    "headers": _headers,
    "kind": _constant("message"),
    "sender": _per_chunk(lambda batch: batch.sender),
    "sender_seq": _sender_seq,
    "view_id": _per_chunk(lambda batch: batch.view_id),
    "service": _per_chunk(lambda batch: batch.service),
}
