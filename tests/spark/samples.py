"""Logs for tests: what a member would have written, made with the log's own writer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ordercast.events import encode_headers
from ordercast.log import Entry, LogWriter, Retention, ViewRecord
from ordercast.log.files import DiskFiles
from ordercast.wire.chunk import Stamp, make_body, make_chunk

START_US = 1_700_000_000_000_000
"""The first message's clock; each chunk is a millisecond later."""


class SampleLog:
    """A log that grows chunk by chunk; the sender changes with each."""

    def __init__(self, folder: Path, group: str = "orders", segment_bytes: int = 2**16) -> None:
        self.folder = folder
        self.writer = LogWriter(DiskFiles(folder / "log"), group=group, member="n1", segment_bytes=segment_bytes)
        self.sent: list[tuple[str, int, bytes]] = []
        """Sender, its number and the data, by offset."""
        self._next = {"a": 1, "b": 1, "c": 1}
        self._chunks = 0

    def add(
        self,
        bodies: Sequence[bytes],
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Sequence[tuple[str, bytes]] | None] | None = None,
    ) -> None:
        """One chunk, ordered and durable."""
        sender = "abc"[self._chunks % 3]
        encoded = None if headers is None else [None if cell is None else encode_headers(cell) for cell in headers]
        body = make_body(bodies, keys, encoded, safe=self._chunks % 2 == 1)
        stamp_us = START_US + 1000 * self._chunks
        place = Stamp(4, f"{4 + 4 * (self._chunks // 10)}:n1", self._chunks + 1)
        self.writer.append(
            Entry((make_chunk(sender, self._next[sender], stamp_us, place, body),), green=self._end(bodies))
        )
        self.writer.commit()
        self.sent += [(sender, self._next[sender] + number, data) for number, data in enumerate(bodies)]
        self._next[sender] += len(bodies)
        self._chunks += 1

    def add_many(self, chunks: int, each: int, size: int = 24) -> None:
        for _ in range(chunks):
            first = len(self.sent)
            self.add([f"{number} ".encode().ljust(size, b".") for number in range(first, first + each)])

    def add_view(self, members: Sequence[str], number: int) -> None:
        """A view that stands before the next message."""
        self.add_named_view(f"{number}:n1", members, number)

    def add_named_view(self, name: str, members: Sequence[str], number: int = 0) -> None:
        view = ViewRecord(len(self.sent), name, tuple(members), True, number, START_US + 1000 * self._chunks)
        self.writer.append(Entry(view=view))
        self.writer.commit()

    def drop_before(self, offset: int) -> None:
        """What retention does."""
        assert self.writer.retain(Retention(before=offset), 0) > 0

    def close(self) -> Path:
        self.writer.close()
        return self.folder

    def _end(self, bodies: Sequence[bytes]) -> int:
        return len(self.sent) + len(bodies)
