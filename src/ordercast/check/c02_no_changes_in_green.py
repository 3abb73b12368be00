"""C2, no changes in green: the green prefix at a process grows at its end and never changes, across restarts too.

Violated when a node

- orders a message at a place at which it has ordered another, in this life or an earlier one;
- orders a message at a place beyond the next one. Repeating places identically is legal, and so is going on where its
  queue began anew (a snapshot), and beginning anywhere;
- marks a message red that it has marked green or ordered, or yellow in the same life. (After a crash the mark may have
  to be found again: it was not on the disk, and the place cannot change);
- gives the place in its queue at which such a message stands to another, or that message another place.
"""

from __future__ import annotations

from ordercast.check.corel_model import GREEN, ORDER, QUEUE, RECOVER, RED, WIPED, YELLOW, CorelModel, CorelNode
from ordercast.check.queue_replay import MOVES, QueueReplay
from ordercast.check.say import Evidence


def check(model: CorelModel) -> Evidence | None:
    for node in model.nodes:
        found = _Green(node).run()
        if found is not None:
            before, at, said = found
            return [*(model.say(node.index, before) for before in before), model.say(node.index, at) + said]
    return None


Found = tuple[list[int], int, str]
"""Events that show what was green, the one that changes it, and what is wrong with it."""


class _Green:
    """What is green at one node. Values are places in its program, so that evidence can name them."""

    def __init__(self, node: CorelNode) -> None:
        self.node = node
        self.replay = QueueReplay()
        self.forget()

    def forget(self) -> None:
        self.ordered: dict[int, int] = {}
        self.last = -1
        self.marked: dict[int, int] = {}
        """Of each green message the event that says so, the last one."""
        self.stands: dict[int, int] = {}
        """Of each place in the queue the green message there."""
        self.place_of: dict[int, int] = {}
        self.life_began = 0

    def run(self) -> Found | None:
        for at, kind, subject, pos in self.node.program():
            found = None
            if kind in MOVES:
                self.replay.feed(kind, subject, pos)
            if kind == ORDER:
                found = self.order(at, subject, pos) or self.mark(at, subject)
            elif kind == GREEN:
                found = self.mark(at, subject)
            elif kind == QUEUE:
                found = self.queue(at, subject, pos)
            elif kind in (RED, YELLOW):
                since = self.marked.get(subject)
                if since is not None and (kind == RED or since >= self.life_began):
                    found = [since], at, ", which is green here"
            elif kind == RECOVER:
                self.life_began = at
            elif kind == WIPED:
                self.forget()
                self.life_began = at
            if found is not None:
                return found
        return None

    def order(self, at: int, message: int, pos: int) -> Found | None:
        before = self.ordered.get(pos)
        if before is not None:
            return None if self.node.subjects[before] == message else ([before], at, ", where another stands")
        if self.ordered and pos > self.last + 1 and pos != self.replay.base:
            last = self.ordered[self.last]
            return [last], at, f", and nothing at place {self.last + 1}"
        self.ordered[pos] = at
        self.last = max(self.last, pos)
        return None

    def mark(self, at: int, message: int) -> Found | None:
        self.marked[message] = at
        place = self.replay.place.get(message)
        if place is None:
            return None
        other = self.stands.setdefault(place, message)
        self.place_of.setdefault(message, place)
        if other != message:
            return [self.marked[other]], at, f", at place {place} of its queue, where another green one stood"
        return None

    def queue(self, at: int, message: int, pos: int) -> Found | None:
        stands = self.stands.get(pos)
        if stands is not None and stands != message:
            return [self.marked[stands]], at, ", the place of a green message"
        if self.place_of.get(message, pos) != pos:
            return [self.marked[message]], at, ", and it was green at another place"
        return None
