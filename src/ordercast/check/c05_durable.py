"""C5, durable: nothing is marked yellow or acknowledged before it is on the disk, and what was ordered is never lost.

Violated when a node marks a message yellow, or reports it as ordered, without having said in any life that it is on its
disk; and when a message that was reported as ordered is in the end in nobody's queue, although some had it there, and
the node that reported it has come back from a crash since. A node whose disk was lost takes what it had with it: what
stood in its queue is not asked for.
"""

from __future__ import annotations

from ordercast.check.corel_model import ACKNOWLEDGED, DURABLE, QUEUE, RECOVER, WIPED, YELLOW, CorelModel
from ordercast.check.queue_replay import MOVES, QueueReplay
from ordercast.check.say import Evidence


def check(model: CorelModel) -> Evidence | None:
    return _marked(model) or _lost(model)


def _marked(model: CorelModel) -> Evidence | None:
    for node in model.nodes:
        durable = bytearray(len(model.names))
        for at, kind, message, _ in node.program():
            if kind == DURABLE:
                durable[message] = 1
            elif kind in (YELLOW, ACKNOWLEDGED) and not durable[message]:
                return [f"{model.say(node.index, at)}, which is not on its disk"]
            elif kind == WIPED:
                durable = bytearray(len(model.names))
    return None


def _lost(model: CorelModel) -> Evidence | None:
    queued, held = bytearray(len(model.names)), bytearray(len(model.names))
    reported: dict[int, tuple[int, int]] = {}
    for node in model.nodes:
        replay = QueueReplay()
        acknowledged: dict[int, int] = {}
        recovered = -1
        removed: set[int] = set()
        for at, kind, message, pos in node.program():
            if kind == WIPED:
                for gone in replay.order:
                    held[gone] = 1
            if kind in MOVES:
                removed.update(replay.feed(kind, message, pos))
            if kind == QUEUE:
                queued[message] = 1
            elif kind == ACKNOWLEDGED:
                acknowledged.setdefault(message, at)
            elif kind == RECOVER:
                recovered = at
        for message in replay.order:
            held[message] = 1
        if replay.base:
            # What stands before the beginning of a queue is in a snapshot.
            for message in acknowledged.keys() | removed:
                held[message] = 1
        for message, at in acknowledged.items():
            if at < recovered:
                reported.setdefault(message, (node.index, at))
    for message, (index, at) in reported.items():
        if queued[message] and not held[message]:
            of = model.nodes[index]
            back = next(later for later, kind, _, _ in of.program() if later > at and kind == RECOVER)
            name = model.names[message]
            return [model.say(index, at), model.say(index, back), f"in the end {name} is in nobody's queue"]
    return None
