"""E2, no duplication: a message is sent once, and delivered at most once by each process.

'Once' is over the whole trace: a second delivery in a later view or after a restart counts. The model knows which nodes
repeat something from comparing the number of deliveries with the size of their set, so a trace without repeats is free.
"""

from __future__ import annotations

from ordercast.check import say
from ordercast.check.model import Model
from ordercast.check.say import Evidence


def check(model: Model) -> Evidence | None:
    for again in model.resent:
        where = say.at(model, again.node, again.program_at)
        return [say.sending(model, again.message), f"{where}: sends {say.message(model, again.message)} again"]
    for node in model.nodes:
        if not node.repeats:
            continue
        first: dict[int, int] = {}
        for nth, message in enumerate(node.delivered):
            if message in first:
                return [
                    say.delivery(model, node.index, first[message]),
                    f"{say.delivery(model, node.index, nth)}, a second time",
                ]
            first[message] = nth
    return None
