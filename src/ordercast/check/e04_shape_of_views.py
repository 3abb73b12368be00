"""E4, shape of views: each process goes from regular to transitional to regular configurations that fit each other.

Violated when

- p delivers a configuration without p;
- an identifier is delivered twice by one node (restarts included) or with two kinds;
- the first configuration after the start or a `recover` is not a regular one of p alone;
- any other regular one does not come directly after a transitional one;
- a transitional one does not come directly after a regular one, or not directly before one unless p crashed, left or
  was closed there (`end` says that the network was whole and quiet, which no process in transition is: no excuse);
- for R1 → T → R2 at p: p ∈ T ⊆ R1 ∩ R2 fails; or a member of T never delivered R1; or a node that installed R2 is in T
  although R1 was not its last regular one, or is not in T although it was, with no `recover` between;
- where `number` is given, it does not grow at a node (restarts included).

Members of T that never installed R2 are legal: a later recovery may have parted them. All of this concerns `conf`
events alone, which are few; the last group is checked once for each distinct (R1, T, R2).
"""

from __future__ import annotations

from itertools import pairwise

from ordercast.check import say
from ordercast.check.model import NOBODY, Life, Model, Node, Visit
from ordercast.check.say import Evidence


def check(model: Model) -> Evidence | None:
    return _identifiers(model) or _sequences(model) or _changes(model)


def _identifiers(model: Model) -> Evidence | None:
    for visit, again in model.repeated:
        return [say.visit(model, visit), f"{say.visit(model, again)}, a second time"]
    for node in model.nodes:
        seen: dict[int, Visit] = {}
        for visit in node.visits():
            if node.index not in visit.members:
                return [f"{say.visit(model, visit)}, of which it is no member"]
            if visit.conf in seen:
                return [say.visit(model, seen[visit.conf]), f"{say.visit(model, visit)}, a second time"]
            seen[visit.conf] = visit
    for visits in model.visits_of.values():
        for visit in visits:
            if visit.regular != visits[0].regular:
                return [say.visit(model, visits[0]), f"{say.visit(model, visit)}, of another kind"]
    return None


def _sequences(model: Model) -> Evidence | None:
    for node in model.nodes:
        for number, life in enumerate(node.lives):
            evidence = _first(model, node, life) or _alternation(model, life) or _last(model, node, number)
            if evidence is not None:
                return evidence
        numbered = [visit for visit in node.visits() if visit.number is not None]
        for before, after in pairwise(numbered):
            if before.number is not None and after.number is not None and after.number <= before.number:
                one, other = say.visit(model, before), say.visit(model, after)
                return [f"{one}, number {before.number}", f"{other}, number {after.number}, which does not grow"]
    return None


def _first(model: Model, node: Node, life: Life) -> Evidence | None:
    if life.visits and not (life.visits[0].regular and life.visits[0].members == {node.index}):
        return [f"{say.visit(model, life.visits[0])}, as the first one: it must be a regular one of {node.name} alone"]
    return None


def _alternation(model: Model, life: Life) -> Evidence | None:
    for before, after in pairwise(life.visits):
        if before.regular == after.regular:
            wanted = "transitional" if after.regular else "regular"
            return [say.visit(model, before), f"{say.visit(model, after)}, not directly after a {wanted} one"]
    return None


def _last(model: Model, node: Node, number: int) -> Evidence | None:
    life = node.lives[number]
    if life.visits and not life.visits[-1].regular and life.ending == "end":
        ending = say.ending(model, node.index, number)
        return [f"{say.visit(model, life.visits[-1])}, directly before no regular one", ending]
    return None


def _changes(model: Model) -> Evidence | None:
    last_regular = _last_regular(model)
    seen: set[tuple[int, int, int, frozenset[int], frozenset[int], frozenset[int]]] = set()
    for node in model.nodes:
        for life in node.lives:
            for old, t, new in zip(life.visits, life.visits[1:], life.visits[2:], strict=False):
                if not old.regular or t.regular or not new.regular:
                    continue
                change = (old.conf, t.conf, new.conf, old.members, t.members, new.members)
                if change in seen:
                    continue
                seen.add(change)
                evidence = _change(model, (old, t, new), last_regular.get(new.conf, []))
                if evidence is not None:
                    return evidence
    return None


def _last_regular(model: Model) -> dict[int, list[tuple[Visit, int]]]:
    """For each regular configuration its visits, each with the regular one before it in that life."""
    found: dict[int, list[tuple[Visit, int]]] = {}
    for node in model.nodes:
        for life in node.lives:
            last = NOBODY
            for visit in life.visits:
                if visit.regular:
                    found.setdefault(visit.conf, []).append((visit, last))
                    last = visit.conf
    return found


def _change(model: Model, change: tuple[Visit, Visit, Visit], installs: list[tuple[Visit, int]]) -> Evidence | None:
    old, t, new = change
    lines = [say.visit(model, visit) for visit in change]
    names = model.names
    outside = t.members - (old.members & new.members)
    if outside:
        return [*lines, f"{names[min(outside)]} is in the transitional one and not in both of the others"]
    for member in sorted(t.members):
        if member not in model.installers[old.conf]:
            return [*lines, f"{names[member]} never delivered {model.confs[old.conf]}"]
    for visit, last in installs:
        if (last == old.conf) != (visit.node in t.members):
            came = model.confs[last] if last != NOBODY else "no configuration"
            belongs = "it is in" if visit.node in t.members else "it is not in"
            return [*lines, f"{say.visit(model, visit)}, coming from {came}; {belongs} {model.confs[t.conf]}"]
    return None
