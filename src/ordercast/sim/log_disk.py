"""The durable log of a simulated node: the real writer over files in memory, with syncs that take time and fail."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from random import Random

from ordercast.engine.contract import Append, Stored
from ordercast.log.entry import Entry, ViewRecord
from ordercast.log.frame import read_frame
from ordercast.log.segment import scan, segment_bases, segment_name
from ordercast.log.writer import LogWriter, Retention
from ordercast.sim.log_files import MemoryFiles
from ordercast.wire.chunk import Buffer, Chunk, read_chunks

SEGMENT_BYTES = 8_192
"""Small, so that runs go through many segments."""


class LogDisk:
    """One node's log through all its lives. Its owner says when a sync is over and when the power fails."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.files = MemoryFiles()
        self.writer: LogWriter | None = None
        self.waiting: deque[Append] = deque()
        """Appended, and not reported as durable yet."""
        self.syncing: int | None = None
        """The last Append that the sync under way covers."""

    def open(self) -> Stored:
        """Begins a life with what the disk holds."""
        self.waiting.clear()
        self.syncing = None
        self.writer = LogWriter(self.files, segment_bytes=SEGMENT_BYTES)
        found = self.writer.recovered
        return Stored(
            found.earliest,
            found.green,
            found.yellow,
            found.state,
            found.vector,
            [bytes(chunk.raw) for chunk in found.tail],
        )

    def append(self, effect: Append) -> None:
        """The entry is on its way to the disk."""
        assert self.writer is not None
        view = None
        if effect.component is not None:
            seen = effect.component
            green = self.writer.green if effect.green is None else effect.green
            view = ViewRecord(green, seen.view.id, seen.view.members, seen.number > 0, seen.number)
        entry = Entry(tuple(effect.chunks), effect.rewind, effect.green, effect.yellow, effect.state, view)
        if effect.base is None:
            self.writer.append(entry)
            self.writer.write()
        else:
            self.writer.begin_anew(effect.base, effect.vector or {}, entry)
        self.waiting.append(effect)

    def begin_sync(self) -> None:
        self.syncing = self.waiting[-1].write_id

    def end_sync(self) -> list[Append]:
        """The sync is over: what it covers is durable."""
        assert self.writer is not None
        assert self.syncing is not None
        self.writer.commit()
        done: list[Append] = []
        while self.waiting and self.waiting[0].write_id >= self.syncing:
            done.append(self.waiting.popleft())
        self.syncing = None
        return done

    def power_cut(self) -> None:
        self.writer = None
        self.waiting.clear()
        self.syncing = None
        self.files.power_cut(self.rng)

    def wipe(self) -> None:
        self.files = MemoryFiles()

    def read(self, start: int, limit_bytes: int) -> list[Buffer]:
        """Chunks from a position below the green line on, as a `Fetch` asks for them; none if they were removed."""
        assert self.writer is not None
        if start < self.writer.earliest:
            return []
        chunks: list[Buffer] = []
        size = 0
        for position, chunk in self.stored(start):
            if position >= self.writer.green or size >= limit_bytes:
                break
            assert chunks or position == start, f"no chunk begins at {start}"
            chunks.append(bytes(chunk.raw))
            size += chunk.size
        assert chunks, f"nothing is to be read at {start}"
        return chunks

    def stored(self, start: int = 0) -> Iterator[tuple[int, Chunk]]:
        """The chunks of the log from a position on, in their order, each with its position."""
        bases = segment_bases(self.files.names())
        for number, base in enumerate(bases):
            end = bases[number + 1] if number + 1 < len(bases) else None
            if end is not None and end <= start:
                continue
            raw = self.files.blobs[segment_name(base)].data
            index = scan(raw, base, segment_name(base), verify=False).index
            if end is not None:
                index.limit(end)
            for position, place, stop in zip(index.offsets, index.places, index.ends, strict=True):
                frame = read_frame(raw, place, verify=False)
                assert frame is not None
                at = position
                for chunk in read_chunks(memoryview(raw)[frame.payload]):
                    if at >= stop:
                        break
                    if at + chunk.count > start:
                        yield at, chunk
                    at += chunk.count

    def state(self) -> bytes | None:
        """The last state of the protocol that is sound there now, synced or not."""
        bases = segment_bases(self.files.names())
        if not bases:
            return None
        raw = self.files.blobs[segment_name(bases[-1])].data
        frame = scan(raw, bases[-1], segment_name(bases[-1])).index.state
        return None if frame is None else raw[frame.payload]

    def retain(self, before: int) -> int:
        """Removes segments wholly below an offset; tells where the log begins now."""
        assert self.writer is not None
        self.writer.retain(Retention(before=before), 0)
        return self.writer.earliest
