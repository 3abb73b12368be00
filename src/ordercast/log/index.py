"""Which frames of a segment hold which offsets, now that some have been rewound."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from ordercast.log.frame import MORE, REWIND, Frame, FrameKind
from ordercast.wire.layout import Malformed


class Index:
    """The live CHUNKS frames of a segment as columns, in the order of their offsets, and what else it said.

    Frames are taken in with `add`, in order; those of an entry that is not complete yet change nothing.
    """

    def __init__(self, base: int, sequence: int = -1) -> None:
        self.base = base
        self.offsets = array("Q")
        self.ends = array("Q")
        self.places = array("Q")
        self.times = array("Q")
        self.views: list[Frame] = []
        self.state: Frame | None = None
        self.seal: Frame | None = None
        self.end = base
        self.green = self.yellow = base
        self.time_us = 0
        self.sequence = sequence
        """Of the last frame; -1: none yet."""
        self.scanned = 0
        """Bytes that have been taken in."""
        self.complete = 0
        """Bytes up to the end of the last complete entry."""
        self._pending: list[Frame] = []

    def add(self, frame: Frame) -> None:
        """The next frame. Malformed if it cannot stand here."""
        if self.sequence >= 0 and frame.sequence != self.sequence + 1:
            raise Malformed(f"frame {frame.sequence} behind frame {self.sequence}")
        self.sequence = frame.sequence
        self.scanned = frame.end
        self._pending.append(frame)
        if frame.flags & MORE:
            return
        for part in self._pending:
            self._apply(part)
        self._pending.clear()
        if not self.green <= frame.green <= frame.yellow <= self.end:
            raise Malformed(f"lines {frame.green} and {frame.yellow} between {self.green} and {self.end}")
        self.green, self.yellow = frame.green, frame.yellow
        self.complete = frame.end

    def _apply(self, frame: Frame) -> None:
        self.time_us = max(self.time_us, frame.time_us)
        if frame.flags & REWIND:
            self._rewind(frame.offset)
        if frame.kind == FrameKind.CHUNKS:
            if frame.offset != self.end:
                raise Malformed(f"messages from {frame.offset} on where {self.end} is next")
            self.offsets.append(frame.offset)
            self.end += frame.count
            self.ends.append(self.end)
            self.places.append(frame.at)
            self.times.append(self.time_us)
        elif frame.kind == FrameKind.STATE:
            self.state = frame
        elif frame.kind == FrameKind.VIEW:
            self.views.append(frame)
        elif frame.kind == FrameKind.SEAL:
            self.seal = frame

    def _rewind(self, offset: int) -> None:
        if not self.green <= offset <= self.end:
            raise Malformed(f"a step back to {offset} between {self.green} and {self.end}")
        while self.offsets and self.offsets[-1] >= offset:
            self.offsets.pop(), self.ends.pop(), self.places.pop(), self.times.pop()
        if self.ends and self.ends[-1] > offset:
            self.ends[-1] = offset
        self.end = offset

    def drop_incomplete(self) -> None:
        """The entry at the end is not going to be completed."""
        self._pending.clear()

    def find(self, offset: int) -> int:
        """The number of the live frame that holds the offset."""
        return bisect_right(self.offsets, offset) - 1

    def find_time(self, time_us: int) -> int:
        """The number of the first live frame that may hold a message of this time or later."""
        return bisect_left(self.times, time_us)

    def limit(self, end: int) -> None:
        """Only offsets below `end` are live: the next segment begins there."""
        keep = bisect_left(self.offsets, end)
        for column in (self.offsets, self.ends, self.places, self.times):
            del column[keep:]
        if self.ends and self.ends[-1] > end:
            self.ends[-1] = end
        self.end = min(self.end, end)
