"""C9, one place: every ordered message was sent, and has one place.

Violated when a message is ordered that no node sent, or one message at two places, be it by two nodes.
"""

from __future__ import annotations

from ordercast.check.corel_model import ORDER, CorelModel
from ordercast.check.say import Evidence


def check(model: CorelModel) -> Evidence | None:
    places: dict[int, tuple[int, int, int]] = {}
    for node in model.nodes:
        for at, kind, message, pos in node.program():
            if kind != ORDER:
                continue
            if model.sender[message] < 0:
                return [f"{model.say(node.index, at)}, which nobody sent"]
            place, index, first = places.setdefault(message, (pos, node.index, at))
            if place != pos:
                return [model.say(index, first), model.say(node.index, at)]
    return None
