"""C7, minorities (liveness): what a member of a majority has is ordered, whoever sent it and wherever.

Asked at the end of a quiet run. Violated when a node whose trace ends with `end` is in a primary component (it has
established one since its last regular configuration, as one of its members) and has a message in its queue that it has
not ordered; and when all of the declared group end in one configuration, agreed on what the group is, none of them has
ever lost its disk, and one has such a message. If the last primary component that one of them speaks of has others too,
a majority of it must be here as well, which is what dynamic voting asks for: a removed member whose disk was lost may
have taken the last word with it.
"""

from __future__ import annotations

from ordercast.check.corel_model import (
    COMMITTED,
    CONF,
    END,
    GREEN,
    GROUP,
    LEFT,
    ORDER,
    PRIMARY,
    RECOVER,
    WIPED,
    CorelModel,
    CorelNode,
    most_of,
)
from ordercast.check.model import NOBODY
from ordercast.check.queue_replay import MOVES, QueueReplay
from ordercast.check.say import Evidence


class _End:
    """How a node's trace ended."""

    def __init__(self, node: CorelNode) -> None:
        self.node = node
        self.conf = self.primary = self.group = NOBODY
        """Events: its last regular configuration, primary component in that, declared group."""
        self.last = NOBODY
        """The latest primary component that it has spoken of, as the model numbers them."""
        self.wiped = False
        self.ordered: set[int] = set()
        self.replay = QueueReplay()
        for at, kind, subject, pos in node.program():
            if kind in MOVES:
                self.replay.feed(kind, subject, pos)
            if kind in (PRIMARY, COMMITTED):
                self.last = subject
            if kind in (ORDER, GREEN):
                self.ordered.add(subject)
            elif kind in (CONF, RECOVER):
                self.conf, self.primary = at, NOBODY
            elif kind == PRIMARY:
                self.primary = at
            elif kind == LEFT:
                self.primary = NOBODY
            elif kind == GROUP:
                self.group = at
            elif kind == WIPED:
                self.wiped = True


def check(model: CorelModel) -> Evidence | None:
    ends = {node.name: _End(node) for node in model.nodes if node.kinds[-1:] == bytes((END,))}
    for end in ends.values():
        reached = _primary(model, end)
        if reached is None and _whole(model, ends, end):
            reached = end.conf
        if reached is None:
            continue
        node = end.node
        for message in end.replay.order:
            if message not in end.ordered:
                has = f"{node.name} has {model.names[message]} at place {end.replay.place[message]} of its queue"
                last = model.say(node.index, len(node.kinds) - 1)
                return [model.say(node.index, reached), f"{has} and has not ordered it", last]
    return None


def _primary(model: CorelModel, end: _End) -> int | None:
    """The event by which the node is in a primary component at its end."""
    if end.primary == NOBODY:
        return None
    primary = model.primaries[end.node.subjects[end.primary]]
    return end.primary if not primary.learned and end.node.name in primary.members else None


def _whole(model: CorelModel, ends: dict[str, _End], end: _End) -> bool:
    """Whether all of the declared group end in the configuration of this node, agreed on what the group is.

    None of them may ever have lost its disk: a member without memory does not count towards a majority.
    """
    where, group = _conf(model, end), _group(model, end)
    return (
        where is not None
        and group is not None
        and end.node.name in group
        and all(
            name in ends
            and not ends[name].wiped
            and _conf(model, ends[name]) == where
            and _group(model, ends[name]) == group
            for name in group
        )
        and _follows(model, ends, end, group)
    )


def _follows(model: CorelModel, ends: dict[str, _End], end: _End, group: dict[str, int]) -> bool:
    """Whether most of the last primary component that anybody of the group speaks of are here, with their disks."""
    spoken = [model.primaries[ends[name].last] for name in group if ends[name].last != NOBODY]
    if not spoken:
        return True
    last = max(spoken, key=lambda primary: primary.number)
    where = _conf(model, end)
    here = {
        name for name in last.members if name in ends and not ends[name].wiped and _conf(model, ends[name]) == where
    }
    return most_of(set(last.members), group, here)


def _group(model: CorelModel, end: _End) -> dict[str, int] | None:
    return None if end.group == NOBODY else model.groups[end.node.subjects[end.group]].weights


def _conf(model: CorelModel, end: _End) -> str | None:
    node = end.node
    if end.conf == NOBODY or node.kinds[end.conf] != CONF:
        return None
    return model.confs[node.subjects[end.conf]].name
