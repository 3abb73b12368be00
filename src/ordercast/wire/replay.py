"""The replay window: which counters of one session have been opened.

It keeps what is *missing* and not what is there. In order, without loss, that is nothing: a train is one comparison
and one addition. A counter ahead of `next` leaves a gap behind it; a late train takes its part out of the gap. So the
window may be long, as it must be (a token overtakes thousands of packets that wait in the buffer of another socket),
and costs nothing while the network keeps order.
"""

from __future__ import annotations

WINDOW = 2**16
"""How far behind the newest counter a packet may come and still be opened."""
GAPS_MAX = 256
"""Gaps that are remembered; what is missing in an older one is missing for good."""


class ReplayWindow:
    """Counters below `next` have been opened, are lost for good, or lie in one of `gaps` (ascending, apart)."""

    __slots__ = ("gaps", "next")

    def __init__(self, first: int) -> None:
        self.next = first
        self.gaps: list[tuple[int, int]] = []
        """[low, high): counters that have not been opened yet."""

    def fresh(self, first: int, count: int = 1) -> bool:
        """Whether none of `count` counters from `first` has been opened and all still may be."""
        return first >= self.next or self._gap(first, first + count) >= 0

    def mark(self, first: int, count: int = 1) -> None:
        """Counters for which `fresh` has just said yes have been opened."""
        end = first + count
        if first >= self.next:
            if first > self.next:
                self._miss(self.next, first)
            self.next = end
            return
        at = self._gap(first, end)
        assert at >= 0, "a counter is marked that was not fresh"
        low, high = self.gaps[at]
        self.gaps[at : at + 1] = [part for part in ((low, first), (end, high)) if part[0] < part[1]]
        if len(self.gaps) > GAPS_MAX:
            del self.gaps[0]

    def _gap(self, first: int, end: int) -> int:
        """The index of the gap that holds all of [first, end), or -1. What is late is late by little: from behind."""
        if first + WINDOW < self.next:
            return -1
        gaps = self.gaps
        for at in range(len(gaps) - 1, -1, -1):
            low, high = gaps[at]
            if first >= low:
                return at if end <= high else -1
        return -1

    def _miss(self, low: int, high: int) -> None:
        gaps = self.gaps
        gaps.append((max(low, high - WINDOW), high))
        if len(gaps) > GAPS_MAX or gaps[0][1] + WINDOW < high:
            del gaps[0]
