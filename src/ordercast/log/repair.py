"""Repair of a damaged log with the log of another member, or a copy of it.

Members agree on every message below their green lines, offset by offset, so what is damaged there can be taken from
another. What is above it, and the state of the protocol, is this member's own: it may have promised the others to keep
it. Messages there are taken from another member if the damaged frame's checksum shows that they are the same
(`mend.py`). Otherwise the log is not repaired, since a member that forgets what it acknowledged could make the group
lose it; such a member is added to the group as a new one.

A damaged segment is written anew under a temporary name and synced; the old one is linked under another name; then the
new one takes its place.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import msgspec

from ordercast.errors import GroupError, LogCorrupt
from ordercast.log.frame import FRAME_BYTES, HEADER_BYTES, Frame, FrameKind, make_frame, read_frame
from ordercast.log.mend import Known
from ordercast.log.reader import LogReader, find_log
from ordercast.log.remains import Remains, collect
from ordercast.log.segment import FORMAT_VERSION, TEMPORARY, Meta, check_tail, scan, segment_bases, segment_name
from ordercast.wire.chunk import Buffer, read_chunks

DAMAGED = ".damaged"


class Repaired(NamedTuple):
    segment: str
    bytes: int
    """That were not sound."""
    messages: int
    """That were taken from the other log."""
    kept: str
    """The damaged segment's new name."""


def repair(directory: str | PathLike[str], other: str | PathLike[str]) -> list[Repaired]:
    """Repairs each damaged segment of a log that nobody has open; LogCorrupt if one cannot be."""
    folder = find_log(directory)
    lock = _lock(folder.parent / "lock")
    source: LogReader | None = None
    try:
        bases = segment_bases(os.listdir(folder))
        metas = [meta for base in bases if (meta := _meta(folder / segment_name(base))) is not None]
        done: list[Repaired] = []
        for base, following in zip(bases, [*bases[1:], None], strict=True):
            path = folder / segment_name(base)
            raw = memoryview(path.read_bytes())
            if not is_sound(raw, base, following, str(path)):
                source = source or LogReader(other)
                for meta in metas:
                    if meta.group != source.meta.group:
                        raise GroupError(f"{other} is of group {source.meta.group!r}, not of {meta.group!r}")
                done.append(_Rebuild(path, base, following, raw, source, metas[-1] if metas else source.meta).run())
        return done
    finally:
        if lock is not None:
            os.close(lock)


def _lock(path: Path) -> int | None:
    """That of the member's data_dir, if the log stands in one."""
    if not path.exists():
        return None
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise GroupError(f"{path.parent} is in use by a member that runs; stop it first") from None
    return handle


def is_sound(raw: Buffer, base: int, following: int | None, where: str) -> bool:
    try:
        found = scan(raw, base, where)
        if following is None:
            check_tail(raw, found.index, where)
            return True
        seal = found.index.seal
        return found.sound == len(raw) and seal is not None and seal.offset == following
    except LogCorrupt:
        return False


def _meta(path: Path) -> Meta | None:
    with path.open("rb") as file:
        head = file.read(HEADER_BYTES)
        frame = read_frame(head + bytes(FRAME_BYTES), 0, verify=False)
        raw = head + file.read(frame.size - HEADER_BYTES if frame is not None else 0)
    frame = read_frame(raw, 0)
    if frame is None or frame.kind != FrameKind.META:
        return None
    return msgspec.json.decode(raw[frame.payload], type=Meta)


class _Rebuild:
    """One damaged segment."""

    def __init__(
        self, path: Path, base: int, following: int | None, raw: memoryview, source: LogReader, like: Meta
    ) -> None:
        self.path, self.base, self.following, self.raw, self.source, self.like = (
            path,
            base,
            following,
            raw,
            source,
            like,
        )

    def run(self) -> Repaired:
        remains = collect(self.raw, self.base)
        green = self._green(remains)
        lost_bytes, mended = remains.lost_bytes, 0
        if self.following is None:
            mended = self._mend(remains, green)
            if mended:
                remains = collect(self.raw, self.base)
            self._check_tail(remains, green)
        self._check_source(green)
        segment = b"".join(self._frames(remains, green))
        found = scan(segment, self.base, str(self.path))
        assert found.sound == len(segment)
        return self._put(segment, lost_bytes, green - self.base + mended)

    def _refuse(self, why: str) -> LogCorrupt:
        return LogCorrupt(f"{self.path}: cannot be repaired: {why}")

    def _green(self, remains: Remains) -> int:
        if self.following is not None:
            return self.following
        if remains.last is None:
            raise self._refuse("no frame of it is sound")
        return remains.last.green

    def _mend(self, remains: Remains, green: int) -> int:
        """Makes damaged frames sound that the green order does not make good; tells how many messages it took."""
        waiting = [frame for frame in remains.damaged if frame.count and frame.offset + frame.count > green]
        if not waiting:
            return 0
        known = Known(self.source, min(green, *(frame.offset for frame in waiting)))
        raw = bytearray(self.raw)
        mended = [frame for frame in waiting if known.mend(raw, frame)]
        self.raw = memoryview(bytes(raw))
        return sum(frame.offset + frame.count - max(green, frame.offset) for frame in mended)

    def _check_tail(self, remains: Remains, green: int) -> None:
        """What this member alone may know must be sound: the state, and the messages above the green line."""
        if remains.state_lost:
            raise self._refuse("the damage may have hit the state of the protocol; add this member as a new one")
        position = green
        for start, end, frame in remains.spans:
            if end > green and frame is None:
                raise self._refuse(
                    f"the damage has hit messages that wait for their place in the order, from offset {start} on, and "
                    f"{self.source.directory} does not have them; try another member's log, or add this member as a "
                    f"new one"
                )
            position = max(position, end)
        if remains.last is not None and position < remains.last.offset + remains.last.count:
            raise self._refuse(f"messages from offset {position} on are missing; add this member as a new one")

    def _check_source(self, green: int) -> None:
        source = self.source
        if source.earliest > self.base or source.end < green:
            raise self._refuse(
                f"it needs offsets {self.base} to {green}, and {source.directory} has {source.earliest} to {source.end}"
            )

    def _frames(self, remains: Remains, green: int) -> Iterator[Buffer]:
        """The segment anew: metadata, state, what is green with the views among it, what is not."""
        base, first = self.base, remains.first
        meta = Meta(FORMAT_VERSION, base, self.like.group, self.like.member, self.like.created_us,
                    dict(sorted(self.source.vector(base).items())))  # fmt: skip
        sequence = 0 if first is None else max(0, first.sequence - 1)
        time_us = 0

        def frame(
            kind: FrameKind, offset: int, count: int, lines: tuple[int, int], parts: list[Buffer]
        ) -> list[Buffer]:
            nonlocal sequence
            sequence += 1
            return make_frame(kind, 0, sequence, offset, count, 0, *lines, time_us, parts)

        yield from frame(FrameKind.META, base, 0, (base, base), [msgspec.json.encode(meta)])
        if remains.state is not None:
            yield from frame(FrameKind.STATE, base, 0, (base, base), [self.raw[remains.state.payload]])
        views = [view for view in remains.views if view.offset <= green]
        for batch in self.source.read(base, green):
            if len(batch) != batch.chunk.count:
                raise self._refuse(f"{self.source.directory} has other chunks at offset {batch.offset}")
            while views and views[0].offset <= batch.offset:
                at = batch.offset
                yield from frame(FrameKind.VIEW, at, 0, (at, at), [self.raw[views.pop(0).payload]])
            time_us = max(time_us, batch.stamp_us)
            lines = (batch.end, batch.end)
            yield from frame(FrameKind.CHUNKS, batch.offset, len(batch), lines, [batch.chunk.raw])
        for view in views:
            yield from frame(FrameKind.VIEW, green, 0, (green, green), [self.raw[view.payload]])
        if self.following is not None:
            yield from frame(FrameKind.SEAL, green, 0, (green, green), [])
            return
        assert remains.last is not None
        for start, end, held in remains.spans:
            if held is not None and end > green:
                parts = self._own(held, max(start, green), end)
                time_us = max(time_us, held.time_us)
                yield from frame(FrameKind.CHUNKS, max(start, green), end - max(start, green), (green, green), parts)
        end = max([green, *(end for _, end, _ in remains.spans)])
        yield from frame(FrameKind.LINES, end, 0, (green, min(remains.last.yellow, end)), [])

    def _own(self, frame: Frame, start: int, end: int) -> list[Buffer]:
        """The chunks of a sound frame from `start` up to `end`."""
        parts: list[Buffer] = []
        position = frame.offset
        for chunk in read_chunks(self.raw[frame.payload]):
            if start <= position < end:
                parts.append(chunk.raw)
            position += chunk.count
        return parts

    def _put(self, segment: bytes, lost_bytes: int, messages: int) -> Repaired:
        kept = self.path.with_name(self.path.name + DAMAGED)
        temporary = self.path.with_name(self.path.name + TEMPORARY)
        with temporary.open("wb") as file:
            file.write(segment)
            file.flush()
            os.fsync(file.fileno())
        kept.unlink(missing_ok=True)
        os.link(self.path, kept)
        temporary.rename(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return Repaired(self.path.name, lost_bytes, messages, kept.name)
