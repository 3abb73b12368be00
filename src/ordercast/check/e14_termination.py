"""E14, termination (liveness): at the end of a quiet run, all that was sent in the last configuration is delivered.

Violated when a message sent in the configuration in which its members end is not delivered by all of them. A
configuration counts if every one of its members has its `end` in it; where some do not, E13 has already said what is
wrong, and nobody can expect a delivery that waits for a member that is gone.
"""

from __future__ import annotations

from ordercast.check import say
from ordercast.check.model import Model
from ordercast.check.say import Evidence


def check(model: Model) -> Evidence | None:
    last = {node.index: node.lives[-1].visits[-1] for node in model.nodes if node.ended() and node.lives[-1].visits}
    sent_conf = model.messages.sent_conf
    for conf in sorted({visit.conf for visit in last.values()}):
        visits = [visit for visit in last.values() if visit.conf == conf]
        members = frozenset[int]().union(*(visit.members for visit in visits))
        if not all(member in last and last[member].conf == conf for member in members):
            continue
        sent = [message for message in range(len(model.messages)) if sent_conf[message] == conf]
        for visit in visits:
            undelivered = set(sent).difference(model.nodes[visit.node].delivered)
            if undelivered:
                message = min(undelivered)
                ending = say.ending(model, visit.node, visit.life)
                undone = f"{ending}, and it has not delivered {say.message(model, message)}"
                return [say.sending(model, message), say.visit(model, visit), undone]
    return None
