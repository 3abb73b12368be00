"""What a trace says of corel, in compact form: each node's events of the layer, and the confs and endings between them.

Kept beside the model of E1 to E14, because the two ask different things: there a message is what the transport
delivers, here it is what stands in a queue. A trace without events of corel costs nothing here.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ordercast.check.events import (
    Acknowledged,
    Close,
    Colour,
    Conf,
    Durable,
    End,
    Event,
    Extra,
    Group,
    Leave,
    Order,
    Primary,
    Queue,
    Recover,
)
from ordercast.check.model import NOBODY, Model

QUEUE, ORDER, RED, YELLOW, GREEN, DURABLE, ACKNOWLEDGED = range(7)
PRIMARY, GROUP, CONF, RECOVER, LEAVE, END, CLOSE, WIPED, RESTORED, LEFT, COMMITTED = range(7, 18)
_OF_MESSAGE: dict[type, int] = {Queue: QUEUE, Order: ORDER, Durable: DURABLE, Acknowledged: ACKNOWLEDGED}
_COLOURS = {"red": RED, "yellow": YELLOW, "green": GREEN}
_ENDINGS: dict[type, int] = {Recover: RECOVER, Leave: LEAVE, End: END, Close: CLOSE}
OF_COREL = frozenset((*_OF_MESSAGE, Colour, Primary, Group))
WIPED_EVENT = "x-wiped"
"""Says that the node's disk was lost: what it does from here on is another process with the same name."""
RESTORED_EVENT = "x-restored"
"""Says that the node's queue begins anew, at the place that it names."""
LEFT_EVENT = "x-left"
"""Says that the node has left its primary component without leaving the configuration."""
COMMITTED_EVENT = "x-committed"
"""Says that the node has committed to a primary component, which others may build on if it is never established."""


CorelEvent = tuple[int, int, int, int]
"""An event of a program: where it stands, its kind, its subject, its place. The subject is a message, or where what the
event says stands in a list of the model."""


@dataclass(slots=True, eq=False)
class CorelNode:
    name: str
    index: int
    kinds: bytearray = field(default_factory=bytearray)
    subjects: array[int] = field(default_factory=lambda: array("i"))
    places: array[int] = field(default_factory=lambda: array("q"))
    steps: array[int] = field(default_factory=lambda: array("q"))

    def add(self, kind: int, subject: int, pos: int, step: int) -> None:
        self.kinds.append(kind)
        self.subjects.append(subject)
        self.places.append(pos)
        self.steps.append(step)

    def program(self) -> Iterator[CorelEvent]:
        return zip(range(len(self.kinds)), self.kinds, self.subjects, self.places, strict=True)


class Declared(NamedTuple):
    """The members of a declared group with their weights."""

    weights: dict[str, int]


class Established(NamedTuple):
    """What a `primary` event says."""

    number: int
    members: tuple[str, ...]
    learned: bool


class Configuration(NamedTuple):
    """A regular configuration, by name."""

    name: str
    members: tuple[str, ...]


class CorelModel:
    def __init__(self, names: list[str]) -> None:
        self.nodes = [CorelNode(name, index) for index, name in enumerate(names)]
        self.ids: dict[str, int] = {}
        self.names: list[str] = []
        self.confs: list[Configuration] = []
        self.groups: list[Declared] = []
        self.primaries: list[Established] = []
        self.spoken = False
        """Whether there is any event of corel."""
        # Of each message: who sent it first, in which life of his, at which step. NOBODY where nobody did.
        self.sender: array[int] = array("i")
        self.sent_life: array[int] = array("i")
        self.sent_step: array[int] = array("q")

    def note(self, node: int, event: Event | Extra) -> str | None:
        """Takes an event that is neither a send nor a delivery; tells what is wrong with it."""
        of, kind = self.nodes[node], _OF_MESSAGE.get(type(event))
        if kind is not None:
            assert isinstance(event, Queue | Order | Durable | Acknowledged)
            self.spoken = True
            pos = 0
            if isinstance(event, Queue | Order):
                pos = event.pos
                if pos < 0:
                    return f"place {pos} is below 0"
            of.add(kind, self._message(event.msg), pos, event.step)
        elif isinstance(event, Colour):
            self.spoken = True
            of.add(_COLOURS[event.colour], self._message(event.msg), 0, event.step)
        elif isinstance(event, Conf):
            if event.kind == "regular":
                of.add(CONF, len(self.confs), 0, event.step)
                self.confs.append(Configuration(event.conf, tuple(event.members)))
        elif isinstance(event, Primary):
            self.spoken = True
            of.add(PRIMARY, len(self.primaries), 0, event.step)
            self.primaries.append(Established(event.number, tuple(event.members), event.learned))
        elif isinstance(event, Group):
            self.spoken = True
            if event.weights and len(event.weights) != len(event.members):
                return f"{len(event.weights)} weights of {len(event.members)} members"
            weights = event.weights or (1,) * len(event.members)
            of.add(GROUP, len(self.groups), 0, event.step)
            self.groups.append(Declared(dict(zip(event.members, weights, strict=True))))
        elif type(event) in _ENDINGS:
            of.add(_ENDINGS[type(event)], 0, 0, event.step)
        elif isinstance(event, Extra):
            self._extra(of, event)
        return None

    def _extra(self, of: CorelNode, event: Extra) -> None:
        """What is not as expected is another engine's own event."""
        if event.event == WIPED_EVENT:
            of.add(WIPED, 0, 0, event.step)
        elif event.event == LEFT_EVENT:
            of.add(LEFT, 0, 0, event.step)
        elif event.event == RESTORED_EVENT and type(event.pos) is int and event.pos >= 0:
            of.add(RESTORED, 0, event.pos, event.step)
        elif event.event == COMMITTED_EVENT and type(event.number) is int and isinstance(event.members, list | tuple):
            of.add(COMMITTED, len(self.primaries), 0, event.step)
            self.primaries.append(Established(event.number, tuple(map(str, event.members)), True))

    def _message(self, name: str) -> int:
        number = self.ids.get(name)
        if number is None:
            number = self.ids[name] = len(self.names)
            self.names.append(name)
        return number

    def finish(self, model: Model) -> None:
        """Who sent which message stands in the transport's part of the trace."""
        messages = model.messages
        starts = [[life.program_at for life in node.lives] for node in model.nodes]
        for name in self.names:
            number = messages.ids.get(name, NOBODY)
            sender = messages.origin[number] if number >= 0 else NOBODY
            place = messages.sent_at[number] if sender >= 0 else 0
            self.sender.append(sender)
            self.sent_life.append(bisect_right(starts[sender], place) - 1 if sender >= 0 else 0)
            self.sent_step.append(model.nodes[sender].steps[place] if sender >= 0 else 0)

    # Sentences

    def say(self, node: int, at: int) -> str:
        """An event of a node's program, as a sentence of evidence."""
        of = self.nodes[node]
        kind, subject = of.kinds[at], of.subjects[at]
        where = f"{of.name} step {of.steps[at]}: "
        if kind <= ACKNOWLEDGED:
            act = ("has {} at place {} of its queue", "orders {} at place {}", "marks {} red", "marks {} yellow",
                   "marks {} green", "has {} on its disk", "reports {} as ordered")[kind]  # fmt: skip
            return where + act.format(self.names[subject], of.places[at])
        if kind == PRIMARY:
            primary = self.primaries[subject]
            act = "learns of" if primary.learned else "establishes"
            return f"{where}{act} primary component {primary.number} {braces(primary.members)}"
        if kind == GROUP:
            return f"{where}the declared group is {braces(self.groups[subject].weights)}"
        if kind == CONF:
            return f"{where}installs regular {self.confs[subject].name} {braces(self.confs[subject].members)}"
        plain = "recovers", "leave", "end", "close", "has lost its disk", "begins anew", "leaves", "commits"
        return where + plain[kind - RECOVER]

    def say_sent(self, message: int) -> str:
        sender = self.nodes[self.sender[message]].name
        return f"{sender} step {self.sent_step[message]}: sends {self.names[message]}"


def most_of(last: set[str], weights: dict[str, int], members: set[str]) -> bool:
    """A majority of a primary component: by weight, where the declared group says so, or by count."""
    of = {name: weights.get(name, 1) for name in last}
    present, total = sum(weight for name, weight in of.items() if name in members), sum(of.values())
    first = min(of, key=lambda name: (-of[name], name))
    return 2 * present > total or (2 * present == total and first in members)


_NAMES_MAX = 12


def braces(names: tuple[str, ...] | dict[str, int]) -> str:
    shown = sorted(names)
    more = [f"and {len(shown) - _NAMES_MAX} more"] if len(shown) > _NAMES_MAX else []
    return "{" + ", ".join(shown[:_NAMES_MAX] + more) + "}"
