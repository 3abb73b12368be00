"""E6, self-delivery: p delivers what it sent in c before it leaves com_p(c), unless it crashes.

p leaves com_p(c) when it delivers a configuration that is neither c nor the transitional one directly after it, and
when it leaves on purpose: a leave owes what a live node owes. A trace that is closed with p still in com_p(c) owes
nothing yet (E14 speaks of the end of a quiet trace).

Only a node's sends that it never delivered, or delivered where something does not belong, are looked at one by one;
the others are delivered in com_p(c), and so before p left it.
"""

from __future__ import annotations

from ordercast.check import say
from ordercast.check.model import Life, Model, Node, Visit
from ordercast.check.say import Evidence


def check(model: Model) -> Evidence | None:
    for node in model.nodes:
        suspects = set(node.sent)
        # With a configuration delivered twice (E4) a delivery in it may be the wrong time's, so nothing is settled.
        if not node.returns:
            for visit in node.visits():
                if visit.pure:
                    suspects.difference_update(node.delivered[visit.first : visit.last])
        suspects.update(again.message for again in model.resent)
        if not suspects:
            continue
        first: dict[int, int] = {}
        for nth, message in enumerate(node.delivered):
            if message in suspects:
                first.setdefault(message, nth)
        for message, conf, place in _sends(model, node):
            if message in suspects:
                evidence = _owed(model, node, (message, conf, place), first.get(message))
                if evidence is not None:
                    return evidence
    return None


def _sends(model: Model, node: Node) -> list[tuple[int, int, int]]:
    """Message, configuration and place of each send of the node, those of a message sent before included."""
    messages = model.messages
    first = [
        (message, messages.sent_conf[message], messages.sent_at[message])
        for message in node.sent
        if messages.origin[message] == node.index
    ]
    return first + [(again.message, again.conf, again.program_at) for again in model.resent if again.node == node.index]


def _owed(model: Model, node: Node, sent: tuple[int, int, int], delivered: int | None) -> Evidence | None:
    message, conf, place = sent
    life = next(life for life in reversed(node.lives) if life.program_at <= place)
    of_conf = [number for number, visit in enumerate(life.visits) if visit.conf == conf]
    if not of_conf:
        return None
    # Delivered more than once it is the latest before the send that counts (E4 names the repeat).
    number = max((number for number in of_conf if life.visits[number].program_at < place), default=of_conf[0])
    last = number
    if life.visits[number].regular and number + 1 < len(life.visits) and not life.visits[number + 1].regular:
        last = number + 1
    left_to = life.visits[last + 1] if last + 1 < len(life.visits) else None
    if left_to is None and life.ending != "leave":
        return None
    if left_to is not None and left_to.program_at < place:
        # Sent in a configuration that p had left already: E3 names that, and p cannot leave it once more.
        return None
    if delivered is not None and delivered < life.visits[last].last:
        return None
    leaving = _leaving(model, node, left_to, life)
    sends = f"{say.at(model, node.index, place)}: sends {say.message(model, message)} in {model.confs[conf]}"
    return [sends, f"{leaving}, without having delivered {say.message(model, message)}"]


def _leaving(model: Model, node: Node, left_to: Visit | None, life: Life) -> str:
    if left_to is not None:
        return say.visit(model, left_to)
    return say.ending(model, node.index, node.lives.index(life))
