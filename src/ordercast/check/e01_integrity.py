"""E1, integrity: what is delivered was sent, by that sender, with that service, and is delivered where it belongs.

Violated by a delivery of a message that nobody sent, or with another sender or service than it was sent with; or whose
`conf` is not the latest configuration delivered there; or in a configuration that is neither the one it was sent in
nor the transitional one that follows that one at p.

A node's file is read before the senders' files are known, so the reader compares each delivery with the *first* claim
that it read about the message and keeps only those that differ; here the first claim itself is held against the send.
Where a delivery belongs is known for whole configurations at once (`Visit.pure`); only the others are walked through.
"""

from __future__ import annotations

from ordercast.check import say
from ordercast.check.model import NOBODY, Model, Node, Visit
from ordercast.check.say import Evidence


def check(model: Model) -> Evidence | None:
    return _mislabelled(model) or _never_sent(model) or _contradicted(model) or _misplaced(model)


def _mislabelled(model: Model) -> Evidence | None:
    for found in model.mislabelled:
        claimed = f"its conf field says {found.conf!r}"
        if found.latest is None:
            return [say.delivery(model, found.node, found.nth), claimed, "no configuration had been delivered there"]
        latest = say.visit(model, found.latest)
        return [f"{latest}, the latest one", say.delivery(model, found.node, found.nth), claimed]
    return None


def _never_sent(model: Model) -> Evidence | None:
    messages = model.messages
    # A message enters the table by a send or by a delivery: without an origin it was delivered and never sent.
    unsent = messages.origin[: len(messages)]
    if NOBODY not in unsent:
        return None
    node, nth = _first_delivery(model, unsent.index(NOBODY))
    return [say.delivery(model, node, nth), "no node ever sent it"]


def _contradicted(model: Model) -> Evidence | None:
    messages = model.messages
    count = len(messages)
    others = {(found.node, found.nth): found for found in model.contradictions}
    for found in model.contradictions:
        if not _as_sent(model, found.message, found.claim):
            return _other_claim(model, found.node, found.nth, found.claim)
    truth = [2 * origin + safe for origin, safe in zip(messages.origin[:count], messages.safe[:count], strict=True)]
    for message, (claim, sent) in enumerate(zip(messages.claim[:count], truth, strict=True)):
        if claim != sent and claim != NOBODY and not _as_sent(model, message, claim):
            for node in model.nodes:
                for nth, delivered in enumerate(node.delivered):
                    if delivered == message and (node.index, nth) not in others:
                        return _other_claim(model, node.index, nth, claim)
    return None


def _as_sent(model: Model, message: int, claim: int) -> bool:
    sender, safe = divmod(claim, 2)
    if (model.messages.origin[message], model.messages.safe[message]) == (sender, safe):
        return True
    return any((again.message, again.node, again.safe) == (message, sender, safe) for again in model.resent)


def _other_claim(model: Model, node: int, nth: int, claim: int) -> Evidence:
    sender, safe = divmod(claim, 2)
    claimed = f"{say.delivery(model, node, nth)} as {model.names[sender]}'s, {'safe' if safe else 'agreed'}"
    return [say.sending(model, model.nodes[node].delivered[nth]), claimed]


def _misplaced(model: Model) -> Evidence | None:
    for node in model.nodes:
        for visit in node.visits():
            if not visit.pure:
                evidence = _misplaced_in(model, node, visit)
                if evidence is not None:
                    return evidence
    return None


def _misplaced_in(model: Model, node: Node, visit: Visit) -> Evidence | None:
    for nth in range(visit.first, visit.last):
        message = node.delivered[nth]
        if not any(belongs(model, visit, conf) for conf in _confs_sent_in(model, message)):
            return [
                say.sending(model, message),
                say.visit(model, visit),
                f"{say.delivery(model, node.index, nth)}, where it does not belong",
            ]
    return None


def belongs(model: Model, visit: Visit, sent_conf: int) -> bool:
    """A message sent in that configuration may be delivered in this visit."""
    if visit.conf == sent_conf:
        return True
    visits = model.nodes[visit.node].lives[visit.life].visits
    place = visits.index(visit)
    return not visit.regular and place > 0 and visits[place - 1].conf == sent_conf


def _confs_sent_in(model: Model, message: int) -> list[int]:
    again = [resent.conf for resent in model.resent if resent.message == message]
    return [model.messages.sent_conf[message], *again]


def _first_delivery(model: Model, message: int) -> tuple[int, int]:
    for node in model.nodes:
        if message in node.delivered:
            return node.index, node.delivered.index(message)
    raise AssertionError("a message of the table that was neither sent nor delivered")
