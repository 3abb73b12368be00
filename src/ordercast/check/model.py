"""A whole trace in compact form, built once and read by every property.

Names become small integers and events become entries of `array`s: ten million events fit in well under a gigabyte.
Each node has its *program*, the events that matter to order, and beside it the messages it delivered, so that the
deliveries of one configuration are one slice, which can be compared with another node's in C.

A node's file is cut into *lives* ('crashed' is per incarnation) and a life into *visits*, one for each configuration
that it delivered. 'Delivered in c' means: by a delivery event between the `conf` event of c and the next. That is
where it happened; the event's own `conf` field is a claim, and E1 compares the two. 'Sent in c' is the send event's
`conf` field, as the contract defines it; E3 holds that field against the latest configuration.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

CONF_BASE = 1 << 30
"""A program entry is a message (delivered), its complement (sent), or this plus a configuration."""

NOBODY = -1


@dataclass(slots=True, eq=False)
class Visit:
    """One configuration delivered in one life: its deliveries are `delivered[first:last]` of the node."""

    node: int
    life: int
    conf: int
    regular: bool
    members: frozenset[int]
    number: int | None
    program_at: int
    first: int
    last: int = -1
    # False if some message delivered here was not sent in this configuration, or for a transitional one in the
    # regular one before it. Set when the trace is complete.
    pure: bool = True


@dataclass(slots=True)
class Life:
    """What a node did between a start or `recover` and the crash, leave or closing that ended it."""

    # Where in the node's program it begins, and what is behind it.
    program_at: int
    program_end: int = -1
    visits: list[Visit] = field(default_factory=list)
    ending: str = "crash"
    ending_step: int | None = None


@dataclass(slots=True, eq=False)
class Node:
    name: str
    index: int
    program: array[int] = field(default_factory=lambda: array("i"))
    steps: array[int] = field(default_factory=lambda: array("q"))
    delivered: array[int] = field(default_factory=lambda: array("i"))
    sent: array[int] = field(default_factory=lambda: array("i"))
    lives: list[Life] = field(default_factory=list)
    # A delivery that repeats a message breaks the shortcuts that rest on there being one of each.
    repeats: bool = False
    # It delivered some configuration more than once, be it in another life.
    returns: bool = False
    # Some visit is not pure.
    strays: bool = False

    def visits(self) -> Iterator[Visit]:
        for life in self.lives:
            yield from life.visits

    def ended(self) -> bool:
        return bool(self.lives) and self.lives[-1].ending == "end"

    def place_of_delivery(self, nth: int) -> int:
        """Where in the program the n-th delivery stands. A scan, for evidence only."""
        start, seen = 0, 0
        for visit in self.visits():
            if visit.first > nth:
                break
            start, seen = visit.program_at, visit.first
        program = self.program
        deliveries = (place for place in range(start, len(program)) if 0 <= program[place] < CONF_BASE)
        return next(islice(deliveries, nth - seen, None))


class Messages:
    """What is known of each message, by its number. Columns grow in blocks, which is cheaper than one append each."""

    BLOCK = 1 << 12

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.capacity = 0
        self.origin: array[int] = array("i")
        self.sent_conf: array[int] = array("i")
        # How many deliveries the sender had made, and where in its program the send stands.
        self.sent_after: array[int] = array("i")
        self.sent_at: array[int] = array("i")
        # The message that the same life sent in the same configuration before this one.
        self.previous: array[int] = array("i")
        # What the first delivery that was read said of sender and service: 2 * sender + safe.
        self.claim: array[int] = array("i")
        # Events of the order graph that must happen at or before the delivery: its sends and all its deliveries.
        self.uses: array[int] = array("i")
        self.safe = bytearray()

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, name: str) -> int:
        number = self.ids[name] = len(self.ids)
        if number == self.capacity:
            size = max(self.BLOCK, number // 4)
            nobody = array("i", [NOBODY]) * size
            for column in (self.origin, self.sent_conf, self.previous, self.claim):
                column.extend(nobody)
            zero = array("i", [0]) * size
            for column in (self.sent_after, self.sent_at, self.uses):
                column.extend(zero)
            self.safe.extend(bytes(size))
            self.capacity += size
        return number

    def name(self, number: int) -> str:
        return next(islice(self.ids, number, None))


class Resent(NamedTuple):
    """A send of a message that had been sent before."""

    message: int
    node: int
    conf: int
    safe: int
    program_at: int


class StraySend(NamedTuple):
    """A send whose `conf` is not the latest configuration there, or is not regular."""

    node: int
    program_at: int
    conf: int
    latest: Visit | None


class Mislabelled(NamedTuple):
    """A delivery whose `conf` is not the latest configuration there."""

    node: int
    nth: int
    conf: str
    latest: Visit | None


class Contradiction(NamedTuple):
    """A delivery that names another sender or service than the first delivery that was read."""

    node: int
    nth: int
    message: int
    claim: int


class Model:
    """The trace. `nodes` are those with a file; `names` also holds senders that only deliveries mention."""

    def __init__(self, nodes: list[str]) -> None:
        self.names = list(nodes)
        self.nodes = [Node(name, index) for index, name in enumerate(nodes)]
        self.confs: list[str] = []
        self.messages = Messages()
        self.events = 0
        self.resent: list[Resent] = []
        self.stray_sends: list[StraySend] = []
        # A configuration that was delivered directly behind itself: the visit, and what it would have begun.
        self.repeated: list[tuple[Visit, Visit]] = []
        self.mislabelled: list[Mislabelled] = []
        self.contradictions: list[Contradiction] = []
        # Visits of each configuration, and the indices of the nodes that delivered it.
        self.visits_of: dict[int, list[Visit]] = {}
        self.installers: dict[int, set[int]] = {}

    def finish(self) -> None:
        """Derive what needs all files: who delivered which configuration, and which visits are pure."""
        for node in self.nodes:
            node.repeats = len(set(node.delivered)) != len(node.delivered)
            confs = [visit.conf for visit in node.visits()]
            node.returns = len(set(confs)) != len(confs)
            for life in node.lives:
                base = NOBODY
                for number, visit in enumerate(life.visits):
                    self.visits_of.setdefault(visit.conf, []).append(visit)
                    self.installers.setdefault(visit.conf, set()).add(visit.node)
                    if visit.regular or not number or not life.visits[number - 1].regular:
                        base = visit.conf
                    visit.pure = self._all_sent_in(node, visit, base)
                    node.strays |= not visit.pure
        for visit, _ in self.repeated:
            self.nodes[visit.node].returns = True

    def _all_sent_in(self, node: Node, visit: Visit, conf: int) -> bool:
        slice_ = node.delivered[visit.first : visit.last]
        return {conf}.issuperset(map(self.messages.sent_conf.__getitem__, slice_))
