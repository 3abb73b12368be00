"""E11, safe delivery: what one process delivers as safe, all that it may count on deliver too.

p delivers a safe m (sent in r) in r or in the transitional configuration after it, call it c. Violated if some q ∈ c
that installed r reaches its next regular configuration, or `end`, without delivering m in com_q(r). Only a crash or a
leave before that point excuses q. So p may count on all members of r for what it delivers in r, and on the members of
the transitional configuration for what it delivers in that one.

Again sequences are compared instead of messages. As p only the maximal passages matter, because what a shorter one
delivered stands in a maximal one, in the same configuration; as q all that were completed, each distinct one once.
"""

from __future__ import annotations

from ordercast.check import say
from ordercast.check.model import Model
from ordercast.check.passages import Passage, common_length, maximal, passages_by_conf
from ordercast.check.say import Evidence


def check(model: Model) -> Evidence | None:
    for _, passages in passages_by_conf(model):
        completed = [passage for passage in passages if passage.completed()]
        if not completed:
            continue
        for p in maximal(passages):
            # Members of the two configurations that have been compared, so that equal passages are compared once.
            done: list[tuple[bool, bool, Passage]] = []
            for q in completed:
                counted = _counted_on(p, q)
                if any(counted == (r, t) and q.sequence == other.sequence for r, t, other in done):
                    continue
                done.append((*counted, q))
                missing = _missing(model, p, q)
                if missing is not None:
                    return _evidence(model, p, q, missing)
    return None


def _counted_on(p: Passage, q: Passage) -> tuple[bool, bool]:
    """Whether q is a member of p's regular configuration, and of its transitional one."""
    return q.node in p.regular.members, p.transitional is not None and q.node in p.transitional.members


def _missing(model: Model, p: Passage, q: Passage) -> int | None:
    start = common_length(p.sequence, q.sequence)
    if start == len(p.sequence):
        return None
    in_regular, in_transitional = _counted_on(p, q)
    delivered = set(q.sequence[start:])
    for place in range(start, len(p.sequence)):
        message = p.sequence[place]
        counted = in_regular if place < p.cut else in_transitional
        if counted and model.messages.safe[message] and message not in delivered:
            return message
    return None


def _evidence(model: Model, p: Passage, q: Passage, message: int) -> Evidence:
    where = p.place(p.sequence.index(message))
    name, conf = model.nodes[q.node].name, model.confs[p.conf]
    members = f"{model.confs[where.conf]} {say.nodes(model, where.members)}"
    if q.following is not None:
        reached = say.visit(model, q.following)
    else:
        reached = say.ending(model, q.node, q.regular.life)
    return [
        f"{say.delivery_of(model, p.node, message, p.visits)} as safe, members {say.nodes(model, where.members)}",
        f"{name} is in {members} and installed {conf}",
        f"{reached}, and {name} has not delivered {say.message(model, message)} in {conf} or after it",
    ]
