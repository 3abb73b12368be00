"""C3, agreed green: of the green prefixes of two processes one is a prefix of the other, over the whole history.

Violated when two nodes give one place to two messages: in what they order, whenever in their lives; or in their queues,
with messages that they have marked green there. Places are compared, so a prefix that begins at a snapshot is held
against the part that others have too. What one node contradicts by itself is C2's.
"""

from __future__ import annotations

from ordercast.check.corel_model import GREEN, ORDER, CorelModel
from ordercast.check.queue_replay import MOVES, QueueReplay
from ordercast.check.say import Evidence

Claim = tuple[int, int, int]
"""A message, the node that says that it stands there, and the event that says so."""


class _Places:
    """Who said first what stands at a place; only what contradicts that is kept beside it."""

    def __init__(self) -> None:
        self.first: dict[int, Claim] = {}
        self.others: dict[int, list[Claim]] = {}

    def claim(self, pos: int, claim: Claim) -> Claim | None:
        """Tells of another node that has another message there."""
        first = self.first.setdefault(pos, claim)
        others = self.others.get(pos)
        if first[0] == claim[0] and others is None:
            return None
        known: list[Claim] = [first, *(others or ())]
        for other in known:
            if other[0] != claim[0] and other[1] != claim[1]:
                return other
        if first[0] != claim[0]:
            self.others.setdefault(pos, []).append(claim)
        return None


def check(model: CorelModel) -> Evidence | None:
    orders, queues = _Places(), _Places()
    for node in model.nodes:
        replay = QueueReplay()
        for at, kind, subject, pos in node.program():
            if kind in MOVES:
                replay.feed(kind, subject, pos)
            if kind not in (ORDER, GREEN):
                continue
            claim = subject, node.index, at
            place = replay.place.get(subject)
            other = orders.claim(pos, claim) if kind == ORDER else None
            if other is None and place is not None:
                other = queues.claim(place, claim)
            if other is not None:
                return [_sentence(model, other), _sentence(model, claim)]
    return None


def _sentence(model: CorelModel, claim: Claim) -> str:
    """An order names its place itself; of what is marked green it is the place in the queue."""
    message, node, at = claim
    of, said = model.nodes[node], model.say(node, at)
    if of.kinds[at] == ORDER:
        return said
    replay = QueueReplay()
    for earlier, kind, subject, pos in of.program():
        if earlier == at:
            break
        if kind in MOVES:
            replay.feed(kind, subject, pos)
    return f"{said}, at place {replay.place[message]} of its queue"
