"""E13, membership precision (liveness): at the end of a quiet run, those who are alive are together.

Violated when there are `end` events, and the nodes that have one are not all in one configuration of exactly those
nodes. `end` says that the network was whole and quiet, so the group had every chance to find together. A node's last
life counts: what came after an `end` is a new one.
"""

from __future__ import annotations

from ordercast.check import say
from ordercast.check.model import Model
from ordercast.check.say import Evidence


def check(model: Model) -> Evidence | None:
    alive = {node.index for node in model.nodes if node.ended()}
    last = {index: next(reversed(model.nodes[index].lives[-1].visits), None) for index in alive}
    confs = {None if visit is None else visit.conf for visit in last.values()}
    if len(confs) <= 1 and all(visit is not None and visit.members == alive for visit in last.values()):
        return None
    lines: Evidence = []
    shown: set[int | None] = set()
    for index, visit in sorted(last.items()):
        conf = None if visit is None else visit.conf
        if conf in shown:
            continue
        shown.add(conf)
        if visit is None:
            lines.append(f"{say.ending(model, index, len(model.nodes[index].lives) - 1)}, in no configuration")
        else:
            lines.append(f"{say.visit(model, visit)}, its last one")
        # Two that differ say it; with one for all, its members are what is wrong.
        if len(lines) == 2:
            break
    return [*lines, f"end at {say.nodes(model, alive)}: they must be in one configuration of exactly these"]
