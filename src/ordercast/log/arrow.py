"""Log batches as Arrow: the columns are the segment's bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from ordercast.log.batch import LogBatch

SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("sender", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("timestamp_us", pa.int64(), nullable=False),
        pa.field("service", pa.string(), nullable=False),
        pa.field("view", pa.string(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("headers", pa.binary()),
        pa.field("value", pa.binary(), nullable=False),
    ]
)
ROWS = 2**16
BYTES = 2**24


def record_batch(batch: LogBatch) -> Any:
    count = len(batch)
    first = batch.bounds[0]
    chunk = batch.chunk
    offsets, blob = chunk.data()
    value = _binary(chunk.count, None, offsets, blob).slice(first, count)
    columns = []
    for column in (chunk.keys(), chunk.headers()):
        if column is None:
            columns.append(pa.nulls(count, pa.binary()))
        else:
            columns.append(_binary(chunk.count, *column).slice(first, count))
    return pa.record_batch(
        [
            _range(batch.offset, count),
            pa.repeat(batch.sender, count),
            _range(batch.seq, count),
            pa.repeat(pa.scalar(batch.stamp_us, pa.int64()), count),
            pa.repeat(batch.service, count),
            pa.repeat(batch.view_id, count),
            *columns,
            value,
        ],
        schema=SCHEMA,
    )


def record_batches(batches: Iterable[LogBatch], rows: int = ROWS, max_bytes: int = BYTES) -> Iterator[Any]:
    """Larger ones, joined from several where chunks are small."""
    waiting: list[Any] = []
    count = size = 0
    for batch in batches:
        waiting.append(record_batch(batch))
        count += len(batch)
        size += len(batch.data()[0])
        if count >= rows or size >= max_bytes:
            yield _join(waiting)
            waiting, count, size = [], 0, 0
    if waiting:
        yield _join(waiting)


def _join(batches: list[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches, SCHEMA).combine_chunks().to_batches()[0]


def _binary(count: int, validity: memoryview | None, offsets: memoryview, blob: memoryview) -> Any:
    buffers = [None if validity is None else pa.py_buffer(validity), pa.py_buffer(offsets), pa.py_buffer(blob)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


_arange = getattr(pa, "arange", None)


def _range(start: int, count: int) -> Any:
    if _arange is not None:
        return _arange(start, start + count)
    return pa.array(range(start, start + count), pa.int64())
