"""The writing side of the log: appends entries, syncs them in groups, rolls segments, recovers after a crash.

One process writes a log, in one thread at a time. After an error of the file system nothing is known of what is on
disk: the writer is broken then, and says so to every later call; a failed sync is never tried again.

Recovery cuts off only a tail that was never synced. How that is told from damage: each frame says how much of its
segment was synced when it was written (`segment.check_tail`). A sealed segment must be sound to its seal, which is
looked at when the log is opened, and its frames when they are read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import msgspec

from ordercast.errors import GroupError, LogCorrupt
from ordercast.log.entry import Entry
from ordercast.log.files import File, Files
from ordercast.log.frame import FRAME_BYTES, HEADER_BYTES, MORE, REWIND, Frame, FrameKind, make_frame, read_frame
from ordercast.log.index import Index
from ordercast.log.segment import (
    FORMAT_VERSION,
    META_BYTES_MAX,
    TEMPORARY,
    Meta,
    check_tail,
    scan,
    scan_meta,
    segment_bases,
    segment_name,
)
from ordercast.wire.chunk import HEAD, Buffer, Chunk, read_chunks

SEGMENT_BYTES = 64 * 2**20
SEGMENT_BYTES_MIN = 4096
SEGMENT_BYTES_LIMIT = 2**32 - 2**30
"""Places in a segment are 32-bit numbers; what is not green yet goes over into the next segment whole."""


@dataclass(slots=True)
class Recovered:
    """What a log held when it was opened."""

    earliest: int = 0
    """The first offset that is still there."""
    end: int = 0
    green: int = 0
    yellow: int = 0
    state: bytes | None = None
    vector: dict[str, int] = field(default_factory=dict)
    """Of each stream (a life of a sender) the last message before the green line."""
    tail: list[Chunk] = field(default_factory=list)
    """What is not green, in its order."""
    cut: int = 0
    """Bytes of an unsynced tail that were cut off."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What may be removed: whole segments from the front, when any of these limits is passed. None: no limit."""

    max_bytes: int | None = None
    max_age_us: int | None = None
    """Of the newest message in the segment."""
    before: int | None = None
    """Segments wholly below this offset, which a snapshot covers; without one, None, nothing is kept back for it."""


class LogWriter:
    """A log that is open for appending. `recovered` is what it held."""

    def __init__(
        self, files: Files, *, group: str = "", member: str = "", segment_bytes: int = SEGMENT_BYTES, now_us: int = 0
    ) -> None:
        if not SEGMENT_BYTES_MIN <= segment_bytes <= SEGMENT_BYTES_LIMIT:
            raise ValueError(f"segments of {segment_bytes} bytes")
        self.files = files
        self.group, self.member = group, member
        self.segment_bytes = segment_bytes
        self.vector: dict[str, int] = {}
        """Of each stream (a life of a sender) the last message before the green line."""
        self.broken: Exception | None = None
        self.synced = 0
        self._tail: deque[tuple[int, str, int]] = deque()
        """End position, stream and last message of each chunk that is not green."""
        self._state: bytes | None = None
        self._bases: list[int] = []
        self._buffers: list[Buffer] = []
        self._buffered = 0
        self._file: File
        self._index: Index
        self._now_us = now_us
        try:
            self.recovered = self._open()
        except OSError as error:
            files.close()
            raise GroupError(f"the log cannot be opened: {error.strerror or error}") from error
        except BaseException:
            # A log that is refused has no owner who could close it.
            files.close()
            raise

    @property
    def end(self) -> int:
        return self._index.end

    @property
    def green(self) -> int:
        return self._index.green

    @property
    def earliest(self) -> int:
        return self._bases[0]

    # Opening

    def _open(self) -> Recovered:
        for name in self.files.names():
            if name.endswith(TEMPORARY):
                self.files.remove(name)  # a segment that was never put in its place
        self._bases = segment_bases(self.files.names())
        if not self._bases:
            self._create(0, {}, 0)
            return Recovered()
        base = self._bases[-1]
        if len(self._bases) > 1 and self._begins_anew(base):
            self._drop_before(base)
        self._check_seals()
        name = segment_name(base)
        self._file = self.files.open(name)
        try:
            return self._recover(base, name)
        except BaseException:
            self._file.close()
            raise

    def _recover(self, base: int, name: str) -> Recovered:
        """What the last segment holds, without a tail that was never synced."""
        raw = self._file.read(0, self._file.size)
        found = scan(raw, base, name)
        self._refuse_another_s(found.meta, name)
        index, sound = found.index, found.sound
        self._index, self.vector = index, dict(found.meta.vector)
        cut = 0
        if sound < len(raw) or index.complete < sound:
            check_tail(raw, index, name)
            cut = len(raw) - index.complete
            if not index.complete:
                raise LogCorrupt(f"{name}: damaged at byte 0, its metadata is not whole")
            self._file.truncate(index.complete)
            self._file.sync()
            self._index = index = scan(raw[: index.complete], base, name).index
        self.synced = index.complete
        tail = self._read_tail(raw, index)
        if index.state is not None:
            self._state = bytes(raw[index.state.payload])
        if index.seal is not None:
            self._next_segment()
        index = self._index
        return Recovered(
            self._bases[0], index.end, index.green, index.yellow, self._state, dict(self.vector), tail, cut
        )

    def _refuse_another_s(self, meta: Meta, where: str) -> None:
        """A member that took another one's log for its own would acknowledge what it does not have."""
        for what, mine, its in (("group", self.group, meta.group), ("member", self.member, meta.member)):
            if mine and its and mine != its:
                raise GroupError(f"{where}: the log of {what} {its!r}, not of {mine!r}")

    def _check_seals(self) -> None:
        """Every segment but the last must end with a seal that leads to the next."""
        for base, following in zip(self._bases, self._bases[1:], strict=False):
            name = segment_name(base)
            with closing(self.files.open(name)) as file:
                raw = file.read(max(0, file.size - HEADER_BYTES), HEADER_BYTES)
            seal = read_frame(raw, 0)
            if seal is None or seal.kind != FrameKind.SEAL:
                raise LogCorrupt(f"{name}: damaged at its end, where a seal should be")
            if seal.offset != following:
                raise LogCorrupt(f"{name}: a segment is missing behind it, from offset {seal.offset} to {following}")

    def _read_tail(self, raw: bytes, index: Index) -> list[Chunk]:
        """Completes `vector` with what is green; returns, and notes, what is not."""
        tail: list[Chunk] = []
        for position, place, end in zip(index.offsets, index.places, index.ends, strict=True):
            frame = read_frame(raw, place, verify=False)
            assert frame is not None
            for chunk in read_chunks(memoryview(raw)[frame.payload]):
                if position >= end:
                    break
                position += chunk.count
                if position <= index.green:
                    self.vector[chunk.stream] = chunk.last
                else:
                    tail.append(chunk)
                    self._tail.append((position, chunk.stream, chunk.last))
        return tail

    # Appending

    def append(self, entry: Entry) -> None:
        """Takes an entry in. It is on its way to the disk after `write`, and durable after `commit`."""
        self._refuse_if_broken()
        index = self._index
        if index.complete >= self.segment_bytes and index.green > index.base:
            self._roll()
            index = self._index
        rewind = entry.rewind
        start = index.end if rewind is None else rewind
        count = sum(HEAD.unpack_from(chunk)[6] for chunk in entry.chunks)
        end = start + count
        green = index.green if entry.green is None else entry.green
        yellow = max(index.yellow, green) if entry.yellow is None else entry.yellow
        if not index.green <= min(start, green) or not green <= min(yellow, end) or yellow > end:
            raise ValueError(f"an entry from {start} to {end} with lines {green} and {yellow} behind {index.green}")
        payloads = _payloads(entry)
        for number, (kind, payload, messages) in enumerate(payloads):
            flags = (MORE if number < len(payloads) - 1 else 0) | (REWIND if rewind is not None and not number else 0)
            self._add_frame(kind, flags, start, messages, green, yellow, payload)
            start += messages
        if entry.state is not None:
            self._state = entry.state
        self._note_chunks(entry.chunks, rewind, end - count, green)

    def _note_chunks(self, chunks: Sequence[Buffer], rewind: int | None, position: int, green: int) -> None:
        tail = self._tail
        if rewind is not None:
            while tail and tail[-1][0] > rewind:
                tail.pop()
        for raw in chunks:
            chunk = Chunk(raw)
            position += chunk.count
            tail.append((position, chunk.stream, chunk.last))
        while tail and tail[0][0] <= green:
            _, stream, last = tail.popleft()
            self.vector[stream] = last

    def _add_frame(
        self, kind: FrameKind, flags: int, offset: int, count: int, green: int, yellow: int, payload: list[Buffer]
    ) -> None:
        index = self._index
        time_us = index.time_us
        if kind is FrameKind.CHUNKS:
            time_us = max(time_us, *(HEAD.unpack_from(chunk)[5] for chunk in payload))
        parts = make_frame(kind, flags, index.sequence + 1, offset, count, self.synced, green, yellow, time_us, payload)
        size = sum(map(len, parts))
        at = self._file.size + self._buffered
        padding = size - HEADER_BYTES - sum(map(len, payload))
        number = index.sequence + 1
        index.add(Frame(at, size, kind, flags, padding, number, offset, count, self.synced, green, yellow, time_us))
        self._buffers += parts
        self._buffered += size

    def write(self) -> None:
        """Hands what was appended to the system."""
        self._refuse_if_broken()
        if not self._buffers:
            return
        buffers, self._buffers, self._buffered = self._buffers, [], 0
        try:
            self._file.append(buffers)
        except OSError as error:
            raise self._break(error) from error

    def commit(self) -> None:
        """Everything that was appended is durable when this returns. Any error is final."""
        self.write()
        if self.synced == self._file.size:
            return
        try:
            self._file.sync()
        except OSError as error:
            raise self._break(error) from error
        self.synced = self._file.size

    def _break(self, error: OSError) -> GroupError:
        self.broken = error
        return GroupError(f"the log cannot be written: {error.strerror or error}")

    def _refuse_if_broken(self) -> None:
        if self.broken is not None:
            raise GroupError(f"the log has failed before: {self.broken}")

    def close(self) -> None:
        """Commits, and says in the log that it did, so that damage to its end is not taken for an unsynced tail."""
        try:
            if self.broken is None:
                self.commit()
                if self._index.sequence > 0:
                    self.append(Entry())
                    self.commit()
        finally:
            self._file.close()
            self.files.close()

    def begin_anew(self, base: int, vector: Mapping[str, int], entry: Entry) -> None:
        """All that the log holds is void: it begins at `base` with the entry, in one step, durable at once.

        `base` is not below the green line, so that no offset ever stands for another message.
        """
        self._refuse_if_broken()
        if base < self.green:
            raise ValueError(f"a log that is green up to {self.green} cannot begin anew at {base}")
        sequence = self._index.sequence + 1
        old = self._file
        try:
            self._buffers, self._buffered = [], 0
            self._tail.clear()
            self._state = None
            self.vector = dict(vector)
            self._file, self._index = self._begin(base, self.vector, sequence, anew=True)
            with closing(old):
                self.synced = 0
                self.append(entry)
                self.write()
                self._place(base)
            self._drop_before(base)
        except OSError as error:
            raise self._break(error) from error

    def _begins_anew(self, base: int) -> bool:
        with closing(self.files.open(segment_name(base))) as file:
            size = min(file.size, META_BYTES_MAX)
            return scan_meta(file.read(0, size), base, segment_name(base)).anew

    def _drop_before(self, base: int) -> None:
        for old in [each for each in self._bases if each < base]:
            self.files.remove(segment_name(old))
        self._bases = [base]
        self.files.sync()

    # Segments

    def _create(self, base: int, vector: dict[str, int], sequence: int) -> None:
        """An empty segment in its place."""
        self._file, self._index = self._begin(base, vector, sequence)
        try:
            self._place(base)
        except BaseException:
            self._file.close()
            raise

    def _begin(self, base: int, vector: dict[str, int], sequence: int, anew: bool = False) -> tuple[File, Index]:
        """A segment under a temporary name, with its metadata appended."""
        file = self.files.open(segment_name(base) + TEMPORARY, create=True)
        meta = Meta(FORMAT_VERSION, base, self.group, self.member, self._now_us, dict(sorted(vector.items())), anew)
        parts = make_frame(FrameKind.META, 0, sequence, base, 0, 0, base, base, 0, [msgspec.json.encode(meta)])
        try:
            file.append(parts)
        except BaseException:
            file.close()
            raise
        index = Index(base)
        frame = read_frame(b"".join(parts), 0)
        assert frame is not None
        index.add(frame)
        return file, index

    def _place(self, base: int) -> None:
        self._file.sync()
        name = segment_name(base)
        self.files.rename(name + TEMPORARY, name)
        self.files.sync()
        self._bases.append(base)
        self.synced = self._file.size

    def _roll(self) -> None:
        """Seals the segment and begins the next one, with what is not green.

        While all of a segment waits for its place in the order it is not rolled, but grows.
        """
        index = self._index
        self._add_frame(FrameKind.SEAL, 0, index.green, 0, index.green, index.yellow, [])
        self.commit()
        try:
            self._next_segment()
        except OSError as error:
            raise self._break(error) from error

    def _next_segment(self) -> None:
        old, index = self._file, self._index
        assert index.seal is not None
        base = index.seal.offset
        tail = self._copy_tail(old, index, base)
        views = [old.read(frame.payload.start, frame.payload.stop - frame.payload.start)
                 for frame in index.views if frame.offset >= base]  # fmt: skip
        self._file, self._index = self._begin(base, self.vector, index.sequence + 1)
        with closing(old):
            self._index.time_us = index.time_us
            self.synced = 0
            entry = Entry(tuple(tail), yellow=index.yellow, state=self._state)
            payloads = _payloads(entry)
            start = base
            for number, (kind, payload, messages) in enumerate(payloads):
                more = MORE if number < len(payloads) - 1 else 0
                self._add_frame(kind, more, start, messages, base, index.yellow, payload)
                start += messages
            for view in views:
                self._add_frame(FrameKind.VIEW, 0, self._index.end, 0, base, index.yellow, [view])
            self.write()
            self._place(base)

    def _copy_tail(self, old: File, index: Index, base: int) -> list[bytes]:
        tail: list[bytes] = []
        first = max(0, index.find(base))
        for number in range(first, len(index.offsets)):
            head = old.read(index.places[number], HEADER_BYTES)
            size = int.from_bytes(head[4:8], "little")
            raw = old.read(index.places[number], size)
            frame = read_frame(raw, 0)
            if frame is None:
                raise self._break(OSError(f"a frame at byte {index.places[number]} reads back damaged"))
            position = index.offsets[number]
            for chunk in read_chunks(memoryview(raw)[frame.payload]):
                if base <= position < index.ends[number]:
                    tail.append(bytes(chunk.raw))
                position += chunk.count
        return tail

    # Retention

    def retain(self, limits: Retention, now_us: int) -> int:
        """Removes segments from the front as the limits allow; the last one stays. Tells how many."""
        removed = 0
        while len(self._bases) > 1 and self._may_go(limits, now_us):
            self.files.remove(segment_name(self._bases.pop(0)))
            removed += 1
        if removed:
            self.files.sync()
        return removed

    def _may_go(self, limits: Retention, now_us: int) -> bool:
        if limits.before is not None and self._bases[1] <= limits.before:
            return True
        if limits.max_age_us is None and limits.max_bytes is None:
            return False
        if limits.max_bytes is not None and self._total_bytes() > limits.max_bytes:
            return True
        return limits.max_age_us is not None and now_us - self._newest_us(self._bases[0]) > limits.max_age_us

    def _total_bytes(self) -> int:
        total = 0
        for base in self._bases[:-1]:
            with closing(self.files.open(segment_name(base))) as file:
                total += file.size
        return total + self._file.size

    def _newest_us(self, base: int) -> int:
        with closing(self.files.open(segment_name(base))) as file:
            raw = file.read(max(0, file.size - HEADER_BYTES), HEADER_BYTES)
        seal = read_frame(raw, 0)
        return 2**63 if seal is None else seal.time_us


def _payloads(entry: Entry) -> list[tuple[FrameKind, list[Buffer], int]]:
    """The frames of an entry: chunks together up to FRAME_BYTES, then state and view, or the lines alone."""
    frames: list[tuple[FrameKind, list[Buffer], int]] = []
    parts: list[Buffer] = []
    size = count = 0
    for chunk in entry.chunks:
        parts.append(chunk)
        size += len(chunk)
        count += HEAD.unpack_from(chunk)[6]
        if size >= FRAME_BYTES:
            frames.append((FrameKind.CHUNKS, parts, count))
            parts, size, count = [], 0, 0
    if parts:
        frames.append((FrameKind.CHUNKS, parts, count))
    if entry.state is not None:
        frames.append((FrameKind.STATE, [entry.state], 0))
    if entry.view is not None:
        frames.append((FrameKind.VIEW, [msgspec.json.encode(entry.view)], 0))
    return frames or [(FrameKind.LINES, [], 0)]
