"""C8, primary components: one number, one membership; majorities; common members go from one to the next.

Violated when

- two `primary` events have one number and different members;
- the members of an established one hold no majority, by weight, of the declared group of the node that establishes it
  (its last `group` event before, else its first), and are no majority of the last primary component before it that
  anybody speaks of either, which is what dynamic voting asks for (of a half, the one with the first of the heaviest
  members is a majority);
- a node establishes one with a number below one of which it knows;
- a node that is alive at the end, and a member of an established one, has established one with a lower number and has
  installed no regular configuration since, although the other was established in another configuration. A member of
  the lower one alone may not know yet that it is over, and gaps in the numbers are legal.
"""

from __future__ import annotations

from ordercast.check.corel_model import (
    CLOSE,
    CONF,
    END,
    GROUP,
    LEFT,
    PRIMARY,
    RECOVER,
    WIPED,
    CorelModel,
    CorelNode,
    braces,
    most_of,
)
from ordercast.check.model import NOBODY
from ordercast.check.say import Evidence

Place = tuple[int, int]
"""A node and an event of its program."""


def check(model: CorelModel) -> Evidence | None:
    if not model.primaries:
        return None
    return _memberships(model) or _majorities(model) or _growth(model) or _leaving(model)


def _memberships(model: CorelModel) -> Evidence | None:
    first: dict[int, Place] = {}
    for node in model.nodes:
        for at, kind, subject, _ in node.program():
            if kind == PRIMARY:
                primary = model.primaries[subject]
                index, other = first.setdefault(primary.number, (node.index, at))
                members = model.primaries[model.nodes[index].subjects[other]].members
                if set(members) != set(primary.members):
                    return [model.say(index, other), model.say(node.index, at)]
    return None


def _majorities(model: CorelModel) -> Evidence | None:
    known = {primary.number: set(primary.members) for primary in model.primaries}
    numbers = sorted(known)
    before = dict(zip(numbers[1:], numbers, strict=False))
    for node in model.nodes:
        groups = [at for at, kind, _, _ in node.program() if kind == GROUP]
        group = groups[0] if groups else NOBODY
        for at, kind, subject, _ in node.program():
            if kind == GROUP:
                group = at
            elif kind == PRIMARY and not model.primaries[subject].learned and group != NOBODY:
                number, members = model.primaries[subject].number, set(model.primaries[subject].members)
                weights = model.groups[node.subjects[group]].weights
                last = known.get(before.get(number, NOBODY), set())
                if _majority(weights, members) or (last and most_of(last, weights, members)):
                    continue
                return [
                    model.say(node.index, group),
                    model.say(node.index, at),
                    *([f"the primary component before it is {before[number]} {braces(tuple(last))}"] if last else []),
                ]
    return None


def _majority(weights: dict[str, int], members: set[str]) -> bool:
    return 2 * sum(weight for name, weight in weights.items() if name in members) > sum(weights.values())


def _growth(model: CorelModel) -> Evidence | None:
    for node in model.nodes:
        highest: int | None = None
        for at, kind, subject, _ in node.program():
            if kind == WIPED:
                highest = None
            if kind != PRIMARY:
                continue
            known = None if highest is None else model.primaries[node.subjects[highest]]
            primary = model.primaries[subject]
            if known is not None and highest is not None and not primary.learned and primary.number < known.number:
                return [model.say(node.index, highest), model.say(node.index, at)]
            if known is None or primary.number > known.number:
                highest = at
    return None


def _leaving(model: CorelModel) -> Evidence | None:
    """Who never left a primary component, although another one that it is a member of was established."""
    stuck = {node.name: (node, at) for node in model.nodes if (at := _stays_in(model, node)) is not None}
    if not stuck:
        return None
    for node in model.nodes:
        conf: str | None = None
        for at, kind, subject, _ in node.program():
            if kind == CONF:
                conf = model.confs[subject].name
            elif kind == RECOVER:
                conf = None
            elif kind == PRIMARY and not model.primaries[subject].learned and conf is not None:
                primary = model.primaries[subject]
                for name in primary.members:
                    other, held = stuck.get(name, (node, at))
                    if model.primaries[other.subjects[held]].number < primary.number and _conf(model, other) != conf:
                        last = model.say(other.index, len(other.kinds) - 1)
                        return [model.say(other.index, held), model.say(node.index, at), last]
    return None


def _stays_in(model: CorelModel, node: CorelNode) -> int | None:
    """The event by which a node that is alive at the end established the primary component that it has not left."""
    if node.kinds[-1:] not in (bytes((END,)), bytes((CLOSE,))):
        return None
    held: int | None = None
    for at, kind, subject, _ in node.program():
        if kind in (CONF, RECOVER, WIPED, LEFT):
            held = None
        elif kind == PRIMARY:
            held = None if model.primaries[subject].learned else at
    return held


def _conf(model: CorelModel, node: CorelNode) -> str | None:
    """The last regular configuration."""
    last = node.kinds.rfind(bytes((CONF,)))
    return model.confs[node.subjects[last]].name if last >= 0 else None
