"""The reading side of the log: by offset, by time, in parts, following its end; and its verification.

A reader may run beside the writer, in any number of processes. It sees the green part alone: what has its place in
the global order for good. Frames are checked when they are first read; a damaged one raises LogCorrupt with its
place. Segments are mapped, so batches are views of the page cache.
"""

from __future__ import annotations

import mmap
import os
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ordercast.errors import GroupError, LogCorrupt
from ordercast.log.batch import LogBatch
from ordercast.log.entry import ViewRecord
from ordercast.log.frame import HEADER_BYTES, FrameKind, read_frame
from ordercast.log.index import Index
from ordercast.log.segment import Meta, check_tail, scan, segment_bases, segment_name, walk
from ordercast.wire.chunk import HEAD_BYTES, Chunk, ChunkFlag, read_chunks
from ordercast.wire.layout import WireError

__all__ = ["LogBatch", "LogReader", "Part", "find_log"]

FOLLOW_POLL_S = 0.02
"""How often a follower looks at the end of the log."""


class Part(NamedTuple):
    """A stretch of offsets, from `start` up to but excluding `end`."""

    start: int
    end: int


class SegmentInfo(NamedTuple):
    """A segment, for people."""

    name: str
    base: int
    end: int
    bytes: int
    sealed: bool
    newest_us: int


def find_log(directory: str | PathLike[str]) -> Path:
    """The folder with the segments: what is named, or its `log`, as in a member's data_dir."""
    path = Path(directory)
    for folder in (path, path / "log"):
        if folder.is_dir() and segment_bases(os.listdir(folder)):
            return folder
    raise GroupError(f"{directory}: there is no log here")


class _Segment:
    """One segment, mapped as far as it was written when it was last looked at."""

    def __init__(self, path: Path, base: int) -> None:
        self.path = path
        self.base = base
        self.raw = memoryview(b"")
        self.checked: set[int] = set()
        self._map()
        found = scan(self.raw, base, str(path), verify=False)
        self.meta: Meta = found.meta
        self.index: Index = found.index

    def _map(self) -> None:
        with self.path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            # The old mapping lives on for as long as batches look into it.
            self.raw = memoryview(mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ))
        self.size = size

    @property
    def sealed(self) -> bool:
        return self.index.seal is not None

    def refresh(self) -> None:
        """Takes in what was appended; frames that are still being written wait."""
        if self.sealed:
            return
        if self.path.stat().st_size != self.size:
            self._map()
        walk(self.raw, self.index, str(self.path), verify=True)

    def has_headers(self, number: int) -> bool:
        """Whether a live frame holds a chunk with headers: a look at where chunks begin, without comparing anything."""
        at = self.index.places[number] + HEADER_BYTES
        end = self.index.places[number] + int.from_bytes(
            self.raw[at - HEADER_BYTES + 4 : at - HEADER_BYTES + 8], "little"
        )
        while at + HEAD_BYTES <= end:
            size = int.from_bytes(self.raw[at : at + 4], "little")
            if self.raw[at + 4] & ChunkFlag.HEADERS or size < HEAD_BYTES:
                return True
            at += size
        return False

    def chunks(self, number: int) -> Iterator[Chunk]:
        """Those of a live frame, after its checksum has been compared."""
        at = self.index.places[number]
        frame = read_frame(self.raw, at, verify=at not in self.checked)
        if frame is None:
            raise LogCorrupt(f"{self.path}: damaged at byte {at} (offset {self.index.offsets[number]})")
        self.checked.add(at)
        try:
            yield from read_chunks(self.raw[frame.payload])
        except WireError as error:
            raise LogCorrupt(f"{self.path}: damaged at byte {at} ({error})") from None


class LogReader:
    """A log that is open for reading.

    reader = LogReader("data")
    for batch in reader.read(reader.earliest):
        for message in batch: ...
    """

    def __init__(self, directory: str | PathLike[str]) -> None:
        self.directory = find_log(directory)
        self._segments: dict[int, _Segment] = {}
        self._bases: list[int] = []
        self._end = 0
        self.refresh()

    def refresh(self) -> int:
        """Looks for what was appended; returns the new end."""
        self._bases = segment_bases(os.listdir(self.directory))
        if not self._bases:
            raise GroupError(f"{self.directory}: there is no log here")
        for base in list(self._segments):
            if base not in self._bases:
                del self._segments[base]
        last = self._segment(self._bases[-1])
        last.refresh()
        if last.meta.anew:
            self._bases = self._bases[-1:]  # those before it are void, and about to be removed
        if self._end > last.index.green and last.index.green >= last.base:
            # After a crash the line may stand lower for a while; what is green stays green.
            return self._end
        self._end = last.index.green
        return self._end

    def extend(self, end: int) -> None:
        """Looks for what was appended, and takes the caller's word that what lies before `end` has its final place.

        The member that writes the log knows that before its green line is on the disk.
        """
        self.refresh()
        self._end = max(self._end, end)

    @property
    def earliest(self) -> int:
        """The first offset that is still there."""
        return self._bases[0]

    @property
    def end(self) -> int:
        """One behind the last offset that can be read, when this was last looked at."""
        return self._end

    @property
    def state(self) -> bytes | None:
        """The last state of the protocol that wrote the log."""
        segment = self._segment(self._bases[-1])
        frame = segment.index.state
        return None if frame is None else bytes(segment.raw[frame.payload])

    @property
    def meta(self) -> Meta:
        return self._segment(self._bases[-1]).meta

    @property
    def waiting(self) -> int:
        """Messages that the member has and whose place in the order is not known yet."""
        return self._segment(self._bases[-1]).index.end - self._end

    @property
    def newest_us(self) -> int:
        """The highest stamp of any message; 0: there is none."""
        return self._segment(self._bases[-1]).index.time_us

    def vector(self, offset: int) -> dict[str, int]:
        """Of each stream the last message before this offset; streams without any are left out."""
        number = max(0, bisect_right(self._bases, offset) - 1)
        base = self._bases[number]
        last = dict(self._segment(base).meta.vector)
        for batch in self.read(base, offset):
            last[batch.chunk.stream] = batch.chunk.last
        return last

    def last_view(self) -> ViewRecord | None:
        """The last change of membership that the log still holds."""
        for number in reversed(range(len(self._bases))):
            if self._span(number)[0].index.views:
                return [*self.views(self._bases[number])][-1]
        return None

    def _segment(self, base: int) -> _Segment:
        segment = self._segments.get(base)
        if segment is None:
            try:
                segment = _Segment(self.directory / segment_name(base), base)
            except FileNotFoundError:
                raise GroupError(f"{self.directory}: offset {base} was removed while it was read") from None
            self._segments[base] = segment
        if not segment.sealed:
            segment.refresh()
        return segment

    def _span(self, number: int) -> tuple[_Segment, int]:
        """A segment and where the next one begins."""
        segment = self._segment(self._bases[number])
        if number + 1 == len(self._bases):
            return segment, self._end
        following = self._bases[number + 1]
        if segment.index.seal is None or segment.index.seal.offset != following:
            at = segment.index.scanned
            raise LogCorrupt(
                f"{segment.path}: damaged at byte {at} (offset {segment.index.end}), or a segment is missing"
            )
        return segment, following

    def read(self, start: int, end: int | None = None) -> Iterator[LogBatch]:
        """Messages from offset `start` up to but excluding `end`, or the end of the log as it is now."""
        end = self._end if end is None else min(end, self._end)
        if start < self.earliest:
            raise GroupError(f"offset {start} is no longer in the log, which begins with {self.earliest}")
        number = bisect_right(self._bases, start) - 1
        while start < end and number < len(self._bases):
            segment, stop = self._span(number)
            for batch in self._read_segment(segment, start, min(end, stop)):
                yield batch
                start = batch.end
            if start < min(end, stop):
                raise LogCorrupt(f"{segment.path}: damaged at byte {segment.index.scanned}, offset {start} is missing")
            number += 1

    def _read_segment(self, segment: _Segment, start: int, end: int) -> Iterator[LogBatch]:
        index = segment.index
        number = max(0, index.find(start))
        while number < len(index.offsets) and index.offsets[number] < end:
            position, limit = index.offsets[number], min(end, index.ends[number])
            for chunk in segment.chunks(number):
                following = position + chunk.count
                if position >= limit:
                    break
                if following > start:
                    batch = LogBatch(chunk, position)
                    yield batch if start <= position and following <= limit else batch.slice(start, limit)
                position = following
            number += 1

    def read_with_headers(self, start: int, end: int) -> Iterator[LogBatch]:
        """The whole chunks with headers that begin in a stretch. What has none is passed over, and is not checked."""
        number = max(0, bisect_right(self._bases, start) - 1)
        while number < len(self._bases) and self._bases[number] < end:
            segment, stop = self._span(number)
            index = segment.index
            for frame in range(max(0, index.find(start)), len(index.offsets)):
                position, limit = index.offsets[frame], min(end, stop, index.ends[frame])
                if position >= limit:
                    break
                for chunk in segment.chunks(frame) if segment.has_headers(frame) else ():
                    if start <= position < limit and chunk.headers() is not None:
                        yield LogBatch(chunk, position)
                    position += chunk.count
            number += 1

    def views(self, start: int = 0, end: int | None = None) -> Iterator[ViewRecord]:
        """Changes of membership that stand before a message from `start` up to and including `end`."""
        end = self._end if end is None else end
        number = max(0, bisect_right(self._bases, start) - 1)
        while number < len(self._bases) and self._bases[number] <= end:
            segment, stop = self._span(number)
            last = number + 1 == len(self._bases)
            for frame in segment.index.views:
                if read_frame(segment.raw, frame.at) is None:
                    raise LogCorrupt(f"{segment.path}: damaged at byte {frame.at} (a view)")
                view = msgspec.json.decode(bytes(segment.raw[frame.payload]), type=ViewRecord)
                if start <= view.offset <= end and (last or view.offset < stop):
                    yield view
            number += 1

    def arrow(self, start: int, end: int | None = None, rows: int = 2**16) -> Iterator[Any]:
        """The same as pyarrow RecordBatches of about `rows` rows."""
        from ordercast.log.arrow import record_batches

        return record_batches(self.read(start, end), rows)

    def follow(self, start: int, *, stop: Callable[[], bool] | None = None) -> Iterator[LogBatch]:
        """Messages from `start` on, and then each as soon as it is ordered; ends when `stop` says so."""
        self.refresh()
        while True:
            for batch in self.read(start):
                yield batch
                start = batch.end
            if stop is not None and stop():
                return
            if self.refresh() <= start:
                time.sleep(FOLLOW_POLL_S)

    def offset_of_time(self, time_us: int) -> int:
        """The offset of the first message with this stamp or a later one; the end if there is none."""
        first = bisect_left(range(len(self._bases) - 1), time_us, key=self._newest_us)
        for number in range(first, len(self._bases)):
            segment, stop = self._span(number)
            index = segment.index
            for frame in range(index.find_time(time_us), len(index.offsets)):
                position = index.offsets[frame]
                for chunk in segment.chunks(frame):
                    if chunk.stamp_us >= time_us and position < stop:
                        return position
                    position += chunk.count
        return self._end

    def _newest_us(self, number: int) -> int:
        """The highest stamp up to the end of a sealed segment: its seal has it, so the segment need not be walked."""
        base = self._bases[number]
        if base in self._segments:
            return self._segments[base].index.time_us
        path = self.directory / segment_name(base)
        with path.open("rb") as file:
            file.seek(-HEADER_BYTES, os.SEEK_END)
            seal = read_frame(file.read(HEADER_BYTES), 0)
        if seal is None or seal.kind != FrameKind.SEAL:
            raise LogCorrupt(f"{path}: damaged at its end, where a seal should be")
        return seal.time_us

    def parts(self, start: int, end: int, target_bytes: int = 32 * 2**20) -> list[Part]:
        """Stretches of about so many bytes each, cut between frames, that cover `start` to `end`."""
        cuts = [start]
        size = 0
        number = max(0, bisect_right(self._bases, start) - 1)
        while number < len(self._bases) and self._bases[number] < end:
            segment, stop = self._span(number)
            index = segment.index
            places = [*index.places, index.scanned]
            for at, offset in enumerate(index.offsets):
                if offset >= min(end, stop):
                    break
                if index.ends[at] <= start:
                    continue
                if size >= target_bytes and offset > cuts[-1]:
                    cuts.append(offset)
                    size = 0
                size += places[at + 1] - places[at]
            number += 1
        return [Part(low, high) for low, high in zip(cuts, [*cuts[1:], end], strict=True) if low < high]

    def segments(self) -> Iterator[SegmentInfo]:
        for number, base in enumerate(self._bases):
            segment = self._segment(base)
            last = number + 1 == len(self._bases)
            end = self._end if last else self._bases[number + 1]
            yield SegmentInfo(segment.path.name, base, end, segment.size, segment.sealed, segment.index.time_us)

    def verify(self, progress: Callable[[int], None] | None = None) -> Iterator[str]:
        """Reads every byte; yields a line for each place that is damaged."""
        for number, base in enumerate(self._bases):
            try:
                self._verify_segment(number, base)
            except (LogCorrupt, WireError) as error:
                yield str(error)
            segment = self._segments.get(base)
            if progress is not None and segment is not None:
                progress(segment.size)

    def _verify_segment(self, number: int, base: int) -> None:
        path = self.directory / segment_name(base)
        raw = memoryview(path.read_bytes())
        found = scan(raw, base, str(path))
        index, sound = found.index, found.sound
        if number + 1 < len(self._bases):
            if index.seal is None or sound != len(raw):
                raise LogCorrupt(f"{path}: damaged at byte {sound} (offset {index.end})")
            if index.seal.offset != self._bases[number + 1]:
                raise LogCorrupt(f"{path}: a segment is missing behind offset {index.seal.offset}")
        elif sound < len(raw):
            check_tail(raw, index, str(path))
        for at in index.places:
            frame = read_frame(raw, at, verify=False)
            assert frame is not None
            position = frame.offset
            for chunk in read_chunks(raw[frame.payload]):
                chunk.check_columns()
                position += chunk.count
            if position != frame.offset + frame.count:
                raise LogCorrupt(f"{path}: damaged at byte {at}, it does not hold the {frame.count} messages it names")

    def close(self) -> None:
        self._segments.clear()


assert HEADER_BYTES % 8 == 0
