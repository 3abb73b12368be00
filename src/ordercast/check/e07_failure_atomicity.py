"""E7, failure atomicity (virtual synchrony): who goes together delivered the same.

Violated when p and q go from c to the same next configuration and delivered different sets of messages in c. c may be
regular or transitional: what is compared is the deliveries between the two `conf` events, whatever was sent where.

Visits are grouped by c and the configuration after it. Equal sequences, the usual case, are found equal in C; only
where they differ are sets made. Order is E9's matter.
"""

from __future__ import annotations

from array import array
from itertools import pairwise

from ordercast.check import say
from ordercast.check.model import Model, Visit
from ordercast.check.say import Evidence


def check(model: Model) -> Evidence | None:
    first: dict[tuple[int, int], tuple[Visit, Visit]] = {}
    for node in model.nodes:
        for life in node.lives:
            for visit, following in pairwise(life.visits):
                other, _ = first.setdefault((visit.conf, following.conf), (visit, following))
                if other.node == visit.node:
                    continue
                mine, theirs = _delivered(model, visit), _delivered(model, other)
                if mine != theirs and set(mine) != set(theirs):
                    return _difference(model, (other, theirs), (visit, mine), following)
    return None


def _delivered(model: Model, visit: Visit) -> array[int]:
    return model.nodes[visit.node].delivered[visit.first : visit.last]


def _difference(
    model: Model, one: tuple[Visit, array[int]], other: tuple[Visit, array[int]], following: Visit
) -> Evidence:
    (visit, more), (without, less) = (one, other) if set(one[1]) - set(other[1]) else (other, one)
    missing = set(less)
    message = next(message for message in more if message not in missing)
    nodes = model.nodes[visit.node].name, model.nodes[without.node].name
    conf = model.confs[visit.conf]
    return [
        say.delivery_of(model, visit.node, message, [visit]),
        f"{nodes[1]} does not deliver {say.message(model, message)} in {conf}",
        f"both {nodes[0]} and {nodes[1]} go from {conf} to {model.confs[following.conf]}",
    ]
