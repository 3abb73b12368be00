"""C4, yellow: who knows of a primary component has all that was ordered in it, yellow or green, in the same place.

A node orders in primary component n what it orders or marks green between its `primary` event of n (not a learned one)
and what ends its part in it: a regular configuration, another primary component, a crash. The line of n is the last
place that any node ordered in it, the reference the queue of the node that did, up to there.

A node knows of n from its `primary` event of n on, learned or not. What it knows must be kept wherever one of its steps
is over for certain: at regular configurations, at `primary` events, where a life ends. So it is judged there, for the
primary components of which it knew at the last such place: at every place up to their lines its queue must hold what
the reference holds, and hold it yellow or green. A node that is brought up from a snapshot begins to know anew, and
what stands before the beginning of its queue is not asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ordercast.check.corel_model import (
    CLOSE,
    CONF,
    END,
    GREEN,
    LEAVE,
    LEFT,
    ORDER,
    PRIMARY,
    QUEUE,
    RECOVER,
    RED,
    RESTORED,
    WIPED,
    YELLOW,
    CorelModel,
    CorelNode,
)
from ordercast.check.model import NOBODY
from ordercast.check.queue_replay import MOVES, QueueReplay
from ordercast.check.say import Evidence

_BOUNDARIES = (CONF, PRIMARY, RECOVER, LEAVE, END, CLOSE)


@dataclass(slots=True)
class _Line:
    """How far the order has come in a primary component, and at which node."""

    place: int
    node: int
    at: int


def check(model: CorelModel) -> Evidence | None:
    lines: dict[int, _Line] = {}
    marks = [_ordered(model, node, lines) for node in model.nodes]
    if not lines:
        return None
    for node in model.nodes:
        evidence = _Knowing(model, node, lines, marks).run()
        if evidence is not None:
            return evidence
    return None


def _ordered(model: CorelModel, node: CorelNode, lines: dict[int, _Line]) -> dict[int, int]:
    """What the node ordered, by place in its queue. Moves the lines of the primary components in which it did."""
    marks: dict[int, int] = {}
    replay = QueueReplay()
    number: int | None = None
    for at, kind, subject, pos in node.program():
        if kind in MOVES:
            replay.feed(kind, subject, pos)
        if kind in (ORDER, GREEN):
            place = replay.place.get(subject, pos if kind == ORDER else NOBODY)
            if place == NOBODY:
                continue
            marks[place] = subject
            if number is not None and (number not in lines or lines[number].place < place):
                lines[number] = _Line(place, node.index, at)
        elif kind == PRIMARY:
            primary = model.primaries[subject]
            number = None if primary.learned else primary.number
        elif kind in _BOUNDARIES or kind in (WIPED, LEFT):
            number = None
    return marks


class _Knowing:
    """One node, and what it must have for the primary components that it knows of."""

    def __init__(
        self, model: CorelModel, node: CorelNode, lines: dict[int, _Line], marks: list[dict[int, int]]
    ) -> None:
        self.model, self.node, self.lines, self.marks = model, node, lines, marks
        self.replay = QueueReplay()
        self.good = bytearray(len(model.names))
        """Whether each message is yellow or green here."""
        self.queues = QUEUE in node.kinds
        self.forget()

    def forget(self) -> None:
        self.known: _Line | None = None
        """Of the primary components that it knows of, the one whose line is furthest."""
        self.knows_by = NOBODY
        self.pending: int | None = None
        self.touched: set[int] = set()
        """Messages that moved or changed their colour since the last boundary."""
        self.places_of: tuple[int, dict[int, int]] = NOBODY, {}
        """The place of each message in a reference, and whose that is."""

    def run(self) -> Evidence | None:
        last = NOBODY
        for at, kind, subject, pos in self.node.program():
            if kind in _BOUNDARIES:
                evidence = self.judge(last)
                if evidence is not None:
                    return evidence
            if kind in MOVES:
                self.touched.update(self.replay.feed(kind, subject, pos))
            if kind == QUEUE:
                self.touched.add(subject)
            elif kind in (YELLOW, GREEN, ORDER):
                self.good[subject] = 1
            elif kind == RED:
                self.good[subject] = 0
                self.touched.add(subject)
            elif kind == PRIMARY:
                self.pending = at
            elif kind == RESTORED:
                self.forget()
            elif kind == WIPED:
                self.forget()
                self.good = bytearray(len(self.model.names))
            last = at
        return self.judge(last)

    def judge(self, at: int) -> Evidence | None:
        """What it knew of before, at places that have changed; what is new, at all places that this adds."""
        known, touched = self.known, self.touched
        self.touched = set()
        if known is not None and touched:
            of = self._places(known)
            places = (of[message] for message in touched if of.get(message, known.place + 1) <= known.place)
            evidence = self._compare(places, known, at)
            if evidence is not None:
                return evidence
        if self.pending is None:
            return None
        pending, self.pending = self.pending, None
        line = self.lines.get(self.model.primaries[self.node.subjects[pending]].number)
        if line is None or (known is not None and line.place <= known.place):
            return None
        first = 0 if known is None else known.place + 1
        self.known, self.knows_by = line, pending
        return self._compare(range(first, line.place + 1), line, at)

    def _places(self, line: _Line) -> dict[int, int]:
        """Where in the reference each message stands."""
        if self.places_of[0] != line.node:
            self.places_of = line.node, {message: place for place, message in self.marks[line.node].items()}
        return self.places_of[1]

    def _compare(self, places: Iterable[int], line: _Line, at: int) -> Evidence | None:
        reference, replay = self.marks[line.node], self.replay
        base, order = replay.base, replay.order
        for place in places:
            message = reference.get(place)
            if message is None or place < base:
                continue
            if self.good[message] and (not self.queues or order[place - base : place - base + 1] == [message]):
                continue
            return self._evidence(message, line, at, place)
        return None

    def _evidence(self, message: int, line: _Line, at: int, place: int) -> Evidence:
        model, node = self.model, self.node
        name, ordered = model.names[message], model.nodes[line.node]
        last = model.names[ordered.subjects[line.at]]
        lines = [model.say(ordered.index, self._established(ordered, line.at)), model.say(ordered.index, line.at)]
        if ordered.subjects[line.at] != message:
            lines[-1] += f", and before it {name} at place {place}"
        lines.append(model.say(node.index, self.knows_by))
        stands = self.replay.place.get(message)
        if not self.good[message]:
            what = f"does not have {name} yellow or green"
        elif stands is None:
            what = f"does not have {name} in its queue"
        else:
            what = f"has {name} at place {stands} and not {place}"
        after = f" after step {node.steps[at]}" if at >= 0 else ""
        return [*lines, f"{node.name}{after}: {what}" + ("" if name == last else f", before {last}")]

    def _established(self, node: CorelNode, at: int) -> int:
        return max(before for before in range(at) if node.kinds[before] == PRIMARY)
