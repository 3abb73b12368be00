"""Raw messages: what a task makes of its stretch of the log. Work per Arrow batch and per date, none per message.

Beside the files of messages it writes one *side file* of the whole stretch, with the columns that rates, latencies and
gaps are counted from; it lives until the batch is committed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordercast.spark.lake.files import ParquetFile

_TIME = pa.timestamp("us", tz="UTC")
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
MESSAGES = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", _TIME),
        ("sender", pa.string()),
        ("sender_seq", pa.int64()),
        ("view_id", pa.string()),
        ("service", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
        ("length", pa.int32()),
        ("arrived", _TIME),
    ]
)
SIDE = pa.schema(
    [
        ("offset", pa.int64()),
        ("stamp_us", pa.int64()),
        ("newest_us", pa.int64()),
        ("arrived_us", pa.int64()),
        ("sender", pa.string()),
        ("seq", pa.int64()),
        ("view_id", pa.string()),
        ("safe", pa.bool_()),
        ("length", pa.int32()),
    ]
)
WRITTEN = pa.schema(
    [
        ("what", pa.string()),
        ("path", pa.string()),
        ("date", pa.string()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("rows", pa.int64()),
        ("newest_us", pa.int64()),
        ("value", pa.binary()),
    ]
)
WRITTEN_DDL = (
    "what string, path string, date string, first bigint, last bigint, rows bigint, newest_us bigint, value binary"
)
READ = ("kind", "offset", "timestamp", "sender", "sender_seq", "view_id", "service", "key", "value", "headers")
"""The source's columns that are read; `arrived` comes from the stream."""

_Task = Callable[[Iterable[Any]], Iterator[Any]]


def writer(staging: Path, begin: int) -> _Task:
    """For `mapInArrow` on a batch of the source: messages from offset `begin` on go to files, views are handed on."""

    def write(batches: Iterable[Any]) -> Iterator[Any]:
        part = Part(staging)
        for batch in batches:
            is_view = pc.equal(batch.column("kind"), "view")
            if pc.any(is_view).as_py():
                yield _views(batch.filter(is_view))
                batch = batch.filter(pc.invert(is_view))
            if len(batch) and batch.column("offset")[0].as_py() < begin:
                batch = batch.filter(pc.greater_equal(batch.column("offset"), begin))
            if len(batch):
                part.add(batch)
        yield part.close()

    return write


class Part:
    """The messages of one task, which come in the order of their offsets."""

    def __init__(self, staging: Path) -> None:
        self._staging = staging
        self._files: dict[str, tuple[ParquetFile, int, int, int]] = {}
        self._side: Any = None
        self._side_path = staging / f"{uuid.uuid4().hex}.side"
        self._rows, self._first, self._last = 0, 0, 0
        self._newest = np.int64(0)

    def add(self, batch: Any) -> None:
        messages = _messages(batch)
        stamps = _int64(messages.column("timestamp"))
        for date, piece in _by_date(messages, stamps):
            first, last = piece.column("offset")[0].as_py(), piece.column("offset")[-1].as_py()
            if date not in self._files:
                self._files[date] = (ParquetFile(self._staging, MESSAGES), first, last, 0)
            file, begin, _, rows = self._files[date]
            file.add(piece)
            self._files[date] = (file, begin, last, rows + len(piece))
        self._add_side(messages, stamps)

    def _add_side(self, messages: Any, stamps: np.ndarray) -> None:
        if self._side is None:
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            self._side = pa.ipc.new_file(str(self._side_path), SIDE, options=options)
            self._first = messages.column("offset")[0].as_py()
        newest = np.maximum(np.maximum.accumulate(stamps), self._newest)
        self._newest = newest[-1]
        self._rows += len(messages)
        self._last = messages.column("offset")[-1].as_py()
        columns = [
            messages.column("offset"), pa.array(stamps), pa.array(newest), messages.column("arrived").view(pa.int64()),
            messages.column("sender"), messages.column("sender_seq"), messages.column("view_id"),
            pc.equal(messages.column("service"), "safe"), messages.column("length"),
        ]  # fmt: skip
        self._side.write_batch(pa.record_batch(columns, schema=SIDE))

    def close(self) -> Any:
        """What was written, as rows of WRITTEN."""
        rows: list[dict[str, object]] = [
            {"what": "file", "path": str(file.close()), "date": date, "first": first, "last": last, "rows": rows}
            for date, (file, first, last, rows) in self._files.items()
        ]
        if self._side is not None:
            self._side.close()
            rows.append({
                "what": "side", "path": str(self._side_path), "first": self._first, "last": self._last,
                "rows": self._rows, "newest_us": int(self._newest),
            })  # fmt: skip
        return pa.RecordBatch.from_pylist(rows, schema=WRITTEN)


def _messages(batch: Any) -> Any:
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns["length"] = pc.fill_null(pc.binary_length(columns["value"]), 0)
    return pa.record_batch([columns[field.name].cast(field.type) for field in MESSAGES], schema=MESSAGES)


def _int64(times: Any) -> np.ndarray:
    values: np.ndarray = times.view(pa.int64()).to_numpy(zero_copy_only=False)
    return values


def _by_date(messages: Any, stamps: np.ndarray) -> Iterator[tuple[str, Any]]:
    """Pieces with one date each, of the sender's clock in UTC; each in the order of offsets."""
    days = stamps // 86_400_000_000
    if days[0] == days[-1] and (days == days[0]).all():
        yield date_name(int(days[0])), messages
        return
    for day in np.unique(days):
        yield date_name(int(day)), messages.filter(pa.array(days == day))


def date_name(day: int) -> str:
    return str(np.datetime64(day, "D"))


def _views(batch: Any) -> Any:
    count = len(batch)
    return pa.record_batch(
        [
            pa.repeat("view", count), pa.nulls(count, pa.string()), pa.nulls(count, pa.string()),
            batch.column("offset"), batch.column("offset"), pa.nulls(count, pa.int64()),
            batch.column("timestamp").view(pa.int64()), batch.column("value"),
        ],
        schema=WRITTEN,
    )  # fmt: skip
