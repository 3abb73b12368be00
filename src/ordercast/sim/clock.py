"""A node's local clock: it is set wrong, runs fast or slow, and jumps. Virtual time itself does neither."""

from __future__ import annotations

_MILLION = 1_000_000


class Clock:
    """Local time as a function of virtual time, both in integer microseconds.

    The clock is a straight line from the last change on: its reading then, and how many parts in a million it gains.
    """

    __slots__ = ("_reading", "_since", "drift_ppm")

    def __init__(self, reading_us: int) -> None:
        self._reading = reading_us
        self._since = 0
        self.drift_ppm = 0

    def local(self, now: int) -> int:
        elapsed = now - self._since
        return self._reading + elapsed + elapsed * self.drift_ppm // _MILLION

    def due(self, local: int) -> int:
        """The first virtual time at which the clock shows `local` or more, if nothing changes; may be in the past."""
        at = self._since + -(-(local - self._reading) * _MILLION // (_MILLION + self.drift_ppm))
        # Two roundings may leave the quotient one off.
        while self.local(at) < local:
            at += 1
        return at

    def drift(self, now: int, ppm: int) -> None:
        if ppm <= -_MILLION:
            raise ValueError(f"a clock that gains {ppm} parts in a million stands still or runs backwards")
        self._reading = self.local(now)
        self._since = now
        self.drift_ppm = ppm

    def jump(self, now: int, by_us: int) -> None:
        self._reading = self.local(now) + by_us
        self._since = now
