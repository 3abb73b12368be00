"""A node's message queue as its `queue` events tell of it.

- The next place: the queue grows. A place further on, or before its beginning: the queue begins anew there, because the
  node was brought up from a snapshot, and what stands before it is the global order, which others tell of. `x-restored`
  says the same without a message.
- A place that is taken by the same message: nothing changes.
- A place that is taken by another message: that one and all behind it stand there no more; they are placed again, or
  have gone. That is how queues are rewritten when components merge.
- The first place that is told after `recover` is where the queue ended: what stands there and behind it counts only
  once it is repeated. Without such an event the queue is as the crash left it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.check.corel_model import QUEUE, RECOVER, RESTORED, WIPED

MOVES = frozenset((QUEUE, RECOVER, RESTORED, WIPED))
"""The kinds of events that it listens to; callers ask first, because a call for every event costs."""


class QueueReplay:
    __slots__ = ("_fresh", "base", "order", "place")

    def __init__(self) -> None:
        self.base = 0
        """Where the queue begins."""
        self.order: list[int] = []
        """The messages from `base` on."""
        self.place: dict[int, int] = {}
        """The place of each message of the queue."""
        self._fresh = False

    @property
    def end(self) -> int:
        return self.base + len(self.order)

    def feed(self, kind: int, message: int, pos: int) -> Sequence[int]:
        """Takes an event of the node's program; tells which messages it has removed from where they stood."""
        if kind == QUEUE:
            return self.put(message, pos)
        if kind == RECOVER:
            self._fresh = True
        elif kind == WIPED:
            return self._begin_at(0)
        elif kind == RESTORED:
            return self._begin_at(pos)
        return ()

    def put(self, message: int, pos: int) -> Sequence[int]:
        removed: Sequence[int] = ()
        order, base = self.order, self.base
        end = base + len(order)
        if self._fresh:
            self._fresh = False
            if base <= pos < end:
                removed = self._cut(pos)
                end = pos
        if pos == end:
            pass
        elif not base <= pos < end:
            removed = [*removed, *self._begin_at(pos)]
        elif order[pos - base] == message:
            return removed
        else:
            removed = self._cut(pos)
        self.order.append(message)
        self.place[message] = pos
        return removed

    def _cut(self, pos: int) -> list[int]:
        keep = pos - self.base
        removed = self.order[keep:]
        del self.order[keep:]
        for offset, message in enumerate(removed, pos):
            if self.place.get(message) == offset:
                del self.place[message]
        return removed

    def _begin_at(self, pos: int) -> list[int]:
        removed, self.order, self.base = self.order, [], pos
        self.place.clear()
        return removed
