"""Messages as they come out of the log: columns over the bytes of the segment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ordercast.wire.chunk import Chunk


class LogBatch:
    """Consecutive messages of one sender at consecutive offsets. Nothing is copied until a message is taken."""

    __slots__ = ("_chunk", "_from", "_to", "offset")

    def __init__(self, chunk: Chunk, offset: int, first: int = 0, last: int | None = None) -> None:
        """Messages `first` up to but excluding `last` of a chunk whose first message has this offset."""
        self._chunk = chunk
        self._from = first
        self._to = chunk.count if last is None else last
        self.offset = offset + first
        """Of the first message."""

    @property
    def end(self) -> int:
        return self.offset + self._to - self._from

    @property
    def sender(self) -> str:
        return self._chunk.sender

    @property
    def seq(self) -> int:
        """The sender's number of the first message, gap-free in each of its lives."""
        return self._chunk.number + self._from

    @property
    def stamp_us(self) -> int:
        """The sender's clock."""
        return self._chunk.stamp_us

    @property
    def service(self) -> str:
        return "safe" if self._chunk.safe else "agreed"

    @property
    def view_id(self) -> str:
        """Where the transport first delivered them."""
        return self._chunk.place.view

    @property
    def chunk(self) -> Chunk:
        return self._chunk

    def data(self) -> tuple[memoryview, memoryview]:
        """The bytes of all messages, and count + 1 offsets into them, as 32-bit integers."""
        offsets, blob = self._chunk.data()
        return blob, offsets[self._from : self._to + 1]

    def __len__(self) -> int:
        return self._to - self._from

    def __iter__(self) -> Iterator[bytes]:
        """The data of each message."""
        blob, offsets = self.data()
        data, at = bytes(blob), offsets[0]
        for end in offsets[1:]:
            yield data[at:end]
            at = end

    def records(self) -> Iterator[tuple[bytes | None, bytes | None, bytes]]:
        """Key, headers and data of each message."""
        return zip(self._cells(self._chunk.keys()), self._cells(self._chunk.headers()), self, strict=True)

    def _cells(self, column: tuple[memoryview, memoryview, memoryview] | None) -> Iterator[bytes | None]:
        if column is None:
            yield from [None] * len(self)
            return
        validity, offsets, blob = column
        for number in range(self._from, self._to):
            there = validity[number >> 3] >> (number & 7) & 1
            yield bytes(blob[offsets[number] : offsets[number + 1]]) if there else None

    def slice(self, start: int, end: int) -> LogBatch:
        """The messages with offsets from `start` up to but excluding `end`."""
        base = self.offset - self._from
        return LogBatch(self._chunk, base, max(self._from, start - base), min(self._to, end - base))

    def to_arrow(self) -> Any:
        """A pyarrow RecordBatch over the bytes of the segment: no work per message, and nothing is copied.

        Columns: offset, sender, seq, timestamp_us, service, view, key, headers, value.
        """
        from ordercast.log.arrow import record_batch

        return record_batch(self)

    @property
    def bounds(self) -> tuple[int, int]:
        """Which messages of the chunk these are."""
        return self._from, self._to

    def __repr__(self) -> str:
        return f"LogBatch({self.offset}..{self.end - 1} {self.sender}:{self.seq})"
