"""E9, agreed delivery: one total order. This is the core of the specification.

One graph: all `conf` events of one configuration are one point, all `deliver` events of one message are one point,
each send is a point; the edges are each node's program order (restarts included) and send(m) → deliver(m). It must be
acyclic. Comparing pairs of processes is not enough, a cycle can pass through three (paper 000, footnote 4).

The graph is never built. Kahn's algorithm runs over the programs themselves: each node walks along its own until it
comes to a point that other nodes, or the sender, have not reached yet, and goes on when the last of them arrives.
Every event is looked at once, so it is linear in the events. If all programs are walked to their ends there is a
total order; otherwise each node that is stuck waits for some point that another stuck node has further ahead. Those
waits are edges between the points at which nodes are stuck, and a shortest cycle among them is the evidence: no longer
than the number of nodes, and each step of it is one node's own order.

A repeat directly behind itself (E2, E4) is no edge, as contraction leaves none. One with something between is a cycle.
"""

from __future__ import annotations

from array import array
from collections import deque
from typing import NamedTuple

from ordercast.check import say
from ordercast.check.model import CONF_BASE, Model, Node
from ordercast.check.say import Evidence

# Stands in a copy of a program for a repeat that is no edge, so that places stay what they are.
_NOTHING = 2 * CONF_BASE - 1
# A shortest cycle is looked for from this many points at most: with hundreds of stuck nodes any short one will do.
_STARTS = 64


class Link(NamedTuple):
    """In this node's program the point `source` stands at `place`, and before `target` or the send of `target`."""

    node: int
    place: int
    target_place: int
    source: int
    target: int


def check(model: Model) -> Evidence | None:
    waits_for = model.messages.uses[: len(model.messages)]
    waits_for.extend(len(model.visits_of.get(conf, ())) for conf in range(len(model.confs)))
    for visit, _ in model.repeated:
        waits_for[len(model.messages) + visit.conf] += 1
    shift = CONF_BASE - len(model.messages)
    programs = [
        _without_repeats(node, waits_for, shift) if node.repeats or node.returns else node.program
        for node in model.nodes
    ]
    at = _walk(programs, waits_for, shift)
    if all(place == len(program) for place, program in zip(at, programs, strict=True)):
        return None
    return _evidence(model, _shortest_cycle(_links(programs, at)))


def _without_repeats(node: Node, waits_for: array[int], shift: int) -> array[int]:
    program = node.program[:]
    for place in range(1, len(program)):
        code = node.program[place]
        if code >= 0 and code == node.program[place - 1]:
            program[place] = _NOTHING
            waits_for[code if code < CONF_BASE else code - shift] -= 1
    return program


def _walk(programs: list[array[int]], waits_for: array[int], shift: int) -> list[int]:
    """Walk all programs as far as they go; where each stopped. This is the loop over all events."""
    at = [0] * len(programs)
    ready = list(range(len(programs)))
    blocked: dict[int, list[int]] = {}
    while ready:
        node = ready.pop()
        program = programs[node]
        stop = len(program)
        for place in range(at[node], stop):
            point = program[place]
            if point < 0:
                sent = True
                point = ~point
            else:
                sent = False
                if point >= CONF_BASE:
                    if point == _NOTHING:
                        continue
                    point -= shift
            left = waits_for[point] = waits_for[point] - 1
            if not left:
                if point in blocked:
                    woken = blocked.pop(point)
                    for other in woken:
                        at[other] += 1
                    ready += woken
            elif not sent:
                at[node] = place
                if point in blocked:
                    blocked[point].append(node)
                else:
                    blocked[point] = [node]
                break
        else:
            at[node] = stop
    return at


def _links(programs: list[array[int]], at: list[int]) -> list[Link]:
    """For each stuck node, which of the points that others are stuck at it still has ahead."""
    stuck = [node for node, program in enumerate(programs) if at[node] < len(program)]
    heads = {programs[node][at[node]] for node in stuck}
    links: list[Link] = []
    for node in stuck:
        program, found = programs[node], set[int]()
        for place in range(at[node] + 1, len(program)):
            code = program[place]
            target = ~code if code < 0 else code
            if target in heads and target not in found:
                found.add(target)
                links.append(Link(node, at[node], place, program[at[node]], target))
    return links


def _shortest_cycle(links: list[Link]) -> list[Link]:
    out: dict[int, list[Link]] = {}
    for link in links:
        out.setdefault(link.source, []).append(link)
    best: list[Link] = []
    for start in list(out)[:_STARTS]:
        cycle = _cycle_from(start, out)
        if cycle and (not best or len(cycle) < len(best)):
            best = cycle
    # Points further on in `out` are searched only if those before lie on no cycle.
    for start in list(out)[_STARTS:]:
        if best:
            break
        best = _cycle_from(start, out)
    assert best, "programs that are stuck wait for one another in a circle"
    return best


def _cycle_from(start: int, out: dict[int, list[Link]]) -> list[Link]:
    """A shortest cycle through this point, by breadth-first search; empty if there is none."""
    came: dict[int, Link] = {}
    queue = deque([start])
    while queue:
        for link in out.get(queue.popleft(), ()):
            if link.target in came:
                continue
            came[link.target] = link
            if link.target == start:
                cycle = [link]
                while cycle[-1].source != start:
                    cycle.append(came[cycle[-1].source])
                return cycle[::-1]
            queue.append(link.target)
    return []


def _evidence(model: Model, cycle: list[Link]) -> Evidence:
    lines = []
    for link in cycle:
        program = model.nodes[link.node].program
        before, after = program[link.place], program[link.target_place]
        line = f"{say.at(model, link.node, link.place)}: {say.act(model, before)}, "
        line += f"before it {say.act(model, after)} in step {model.nodes[link.node].steps[link.target_place]}"
        if after < 0:
            line += ", and no node may deliver it before that"
        lines.append(line)
    names = [_point(model, link.source) for link in [*cycle, cycle[0]]]
    return [*lines, f"no single order has {' before '.join(names)}"]


def _point(model: Model, code: int) -> str:
    return say.message(model, code) if code < CONF_BASE else model.confs[code - CONF_BASE]
