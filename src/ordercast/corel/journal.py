"""Entries for the durable log: what one turn changes is one atomic step, and what has to wait for it.

Steps of one turn join one entry as long as the log can take them as one: what follows a rewriting of the queue begins
another. Lines that have moved alone wait for the next entry, or for `lines_delay_us`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from ordercast.engine.contract import Append, Component, Effect
from ordercast.wire.chunk import Buffer

NEVER = 2**62
Then = Callable[[], None]


class _Outstanding:
    """An Append that is not durable yet."""

    __slots__ = ("end", "green", "place", "rewind", "then", "write_id")

    def __init__(self, write_id: int, rewind: int | None, end: int, green: int, place: int) -> None:
        self.write_id = write_id
        self.rewind = rewind
        self.end = end
        self.green = green
        self.place = place
        self.then: list[Then] = []


class Journal:
    def __init__(self, green: int, yellow: int, end: int, lines_delay_us: int) -> None:
        self.end = end
        """Of the queue, with what has not been flushed yet."""
        self.green, self.yellow = green, yellow
        self.durable_end = end
        """What stands before this position is on disk, in its place."""
        self.durable_green = green
        self.place = self.durable_place = 0
        """The last place of the present round that was put into the queue, that is on disk."""
        self.lines_at = NEVER
        self._lines_delay_us = lines_delay_us
        self._next_id = -1
        self._outstanding: deque[_Outstanding] = deque()
        self._clear()

    def _clear(self) -> None:
        self._chunks: list[Buffer] = []
        self._rewind: int | None = None
        self._state: bytes | None = None
        self._component: Component | None = None
        self._base: int | None = None
        self._vector: Mapping[str, int] | None = None
        self._dirty = False
        self._then: list[Then] = []
        self.lines_at = NEVER

    # What the next entry holds

    def put(self, chunk: Buffer, count: int) -> None:
        self._chunks.append(chunk)
        self.end += count
        self._dirty = True

    def rewrite(self, effects: list[Effect], position: int, chunks: Sequence[Buffer], end: int) -> None:
        """Other chunks from `position` on."""
        if self._chunks or self._rewind is not None or self._base is not None:
            self.flush(effects)
        self._rewind = position
        self._chunks = list(chunks)
        self.end = end
        self.durable_end = min(self.durable_end, position)
        self._dirty = True
        if self.yellow > end:
            self.yellow = end

    def begin_anew(self, effects: list[Effect], base: int, vector: Mapping[str, int]) -> None:
        """All that the log held is void; it begins at `base`."""
        if self._dirty:
            self.flush(effects)
        self._base, self._vector = base, vector
        self.end = self.green = self.yellow = self.durable_end = base
        self._dirty = True

    def lines(self, now: int, green: int, yellow: int) -> None:
        """The lines move; by themselves they cause no write for a while."""
        if (green, yellow) != (self.green, self.yellow):
            self.green, self.yellow = green, yellow
            self.lines_at = min(self.lines_at, now + self._lines_delay_us)

    def state(self, record: bytes) -> None:
        self._state = record
        self._dirty = True

    def component(self, component: Component) -> None:
        self._component = component
        self._dirty = True

    def after(self, then: Then) -> None:
        """Calls `then` once everything up to now is durable, lines included."""
        if self._dirty or self.lines_at < NEVER:
            self._dirty = True
            self._then.append(then)
        elif self._outstanding:
            self._outstanding[-1].then.append(then)
        else:
            then()

    # Writing

    def flush(self, effects: list[Effect], now: int = -1) -> None:
        """Emits the entry, if there is one."""
        if not self._dirty and now < self.lines_at:
            return
        append = Append(self._next_id, tuple(self._chunks), self._rewind, self.green, self.yellow, self._state,
                        self._component, self._base, self._vector)  # fmt: skip
        void = self._base if self._base is not None else self._rewind
        outstanding = _Outstanding(self._next_id, void, self.end, self.green, self.place)
        outstanding.then = self._then
        self._outstanding.append(outstanding)
        if void is not None:
            self.durable_end = min(self.durable_end, void)
        self._next_id -= 1
        self._clear()
        effects.append(append)

    def written(self, write_id: int) -> list[Then]:
        """All Appends up to this one are durable; returns what has waited for them."""
        then: list[Then] = []
        while self._outstanding and self._outstanding[0].write_id >= write_id:
            done = self._outstanding.popleft()
            self.durable_end = done.end
            self.durable_green = done.green
            self.durable_place = max(self.durable_place, done.place)
            then += done.then
        for later in self._outstanding:
            if later.rewind is not None:
                self.durable_end = min(self.durable_end, later.rewind)
        return then

    def begin_round(self) -> None:
        """Places are those of another configuration now."""
        self.place = self.durable_place = 0
        for outstanding in self._outstanding:
            outstanding.place = 0

    @property
    def idle(self) -> bool:
        """All is on disk, the lines too: who reads the log of a member that has left finds what was ordered."""
        return not self._dirty and not self._outstanding and self.lines_at >= NEVER
