"""E10, agreed delivery without holes: who delivers m′ has delivered what others delivered before m′.

m and m′ sent in the same regular c; p delivers m before m′ in com_p(c); q delivers m′ in a configuration c′ of
com_q(c) and not m before it; and m's sender is in c′, or p delivered both in c′. A crash excuses nobody: not that of
p, which may have delivered m′ and died, nor that of q.

So a hole is legal only in a transitional configuration, for messages of a sender that is not in it, and only against
processes that went another way. Pairs of *sequences* are compared, not pairs of messages: behind their common
beginning, which is found in C, a pointer moves along p's sequence and must get past everything before m′ that q owes.
Where all went well there is one sequence and nothing to compare. With s maximal sequences it takes s * s times the
length of what follows their common beginnings, which in a legal trace is the transitional parts alone.
"""

from __future__ import annotations

from itertools import permutations

from ordercast.check import say
from ordercast.check.model import Model
from ordercast.check.passages import Passage, common_length, delivered_earlier, maximal, passages_by_conf
from ordercast.check.say import Evidence


def check(model: Model) -> Evidence | None:
    for _, passages in passages_by_conf(model):
        for p, q in permutations(maximal(passages), 2):
            found = _hole(model, p, q)
            if found is not None:
                return _evidence(model, p, q, *found)
    return None


def _hole(model: Model, p: Passage, q: Passage) -> tuple[int, int] | None:
    """m and m′ such that p delivered m before m′ and q did not, though it owes m."""
    start = common_length(p.sequence, q.sequence)
    place_at_p = {p.sequence[place]: place for place in range(start, len(p.sequence))}
    delivered: set[int] = set()
    pointer = start
    for position in range(start, len(q.sequence)):
        message = q.sequence[position]
        stop = place_at_p.get(message, 0)
        while pointer < stop:
            hole = p.sequence[pointer]
            if (
                hole not in delivered
                and _owed(model, (p, pointer, stop), (q, position))
                and not delivered_earlier(model, q, hole)
            ):
                return hole, message
            pointer += 1
        delivered.add(message)
    return None


def _owed(model: Model, at_p: tuple[Passage, int, int], at_q: tuple[Passage, int]) -> bool:
    p, first, second = at_p
    q, position = at_q
    here = q.place(position)
    if model.messages.origin[p.sequence[first]] in here.members:
        return True
    return p.place(first).conf == here.conf == p.place(second).conf


def _evidence(model: Model, p: Passage, q: Passage, m: int, later: int) -> Evidence:
    here = q.place(q.sequence.index(later))
    sender = model.messages.origin[m]
    name = model.nodes[q.node].name
    missing = f"{say.delivery_of(model, q.node, later, q.visits)}, and {name} has not delivered {say.message(model, m)}"
    if sender in here.members:
        why = f"its sender {model.names[sender]} is in {model.confs[here.conf]} {say.nodes(model, here.members)}"
    else:
        why = f"{model.nodes[p.node].name} delivered both in {model.confs[here.conf]}"
    return [
        say.delivery_of(model, p.node, m, p.visits),
        f"{say.delivery_of(model, p.node, later, p.visits)}, after it",
        f"{missing} before it",
        why,
    ]
