"""C1, causal: a queue keeps the causal order.

Violated when p places a message m of sender s in its queue, and not before it some message c that is a cause of m: s
sent c before m in the same life, or had c in its queue when it sent m. Another life of s is another process, of which
only the queue is left. Of what s sent, only messages that stand in some queue are asked for: the transport has others.

Few causes have to be looked at. If the last message that s sent before m stands before m, its causes do too, by the
same property; so m's own are that one and what came into s's queue since it was sent, of each sender's life the last.
For the first message that s sends in a life it is the last of each sender's life in its whole queue. What a queue does
not hold because the node was brought up from a snapshot, counts as before if it was ordered at such a place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ordercast.check.corel_model import ORDER, QUEUE, CorelModel, CorelNode
from ordercast.check.model import NOBODY
from ordercast.check.queue_replay import MOVES, QueueReplay
from ordercast.check.say import Evidence

Stream = tuple[int, int]
"""A sender and its life; of a message that nobody sent the message itself."""


def check(model: CorelModel) -> Evidence | None:
    ordered: dict[int, int] = {}
    queued = bytearray(len(model.names))
    for node in model.nodes:
        for _, kind, message, pos in node.program():
            if kind == ORDER:
                ordered.setdefault(message, pos)
            elif kind == QUEUE:
                queued[message] = 1
    sent: list[list[tuple[int, int, int]]] = [[] for _ in model.nodes]
    for message, sender in enumerate(model.sender):
        if sender >= 0 and queued[message]:
            sent[sender].append((model.sent_step[message], model.sent_life[message], message))
    causes: dict[int, Sequence[int]] = {}
    for node in model.nodes:
        causes.update(_causes(model, node, sorted(sent[node.index])))
    for node in model.nodes:
        evidence = _placed(model, node, causes, ordered)
        if evidence is not None:
            return evidence
    return None


def _causes(model: CorelModel, node: CorelNode, sent: list[tuple[int, int, int]]) -> dict[int, Sequence[int]]:
    """Of each message that this node sent (step, life, message), what has to stand before it."""
    if not sent:
        return {}
    found: dict[int, Sequence[int]] = {}
    replay = QueueReplay()
    since: list[int] = []
    previous, last_life = NOBODY, NOBODY
    at = 0
    kinds, subjects, places, steps = node.kinds, node.subjects, node.places, node.steps
    for step, life, message in sent:
        while at < len(steps) and steps[at] < step:
            if kinds[at] in MOVES:
                replay.feed(kinds[at], subjects[at], places[at])
            if kinds[at] == QUEUE:
                since.append(subjects[at])
            at += 1
        if life != last_life:
            previous, last_life = NOBODY, life
            since = list(replay.order)
        mine = node.index, life
        news = [cause for stream, cause in _last_of_each(model, since).items() if stream != mine and cause != message]
        found[message] = news if previous == NOBODY else [previous, *news]
        previous, since = message, []
    return found


def _last_of_each(model: CorelModel, messages: Iterable[int]) -> dict[Stream, int]:
    last: dict[Stream, int] = {}
    for message in messages:
        sender = model.sender[message]
        stream = (sender, model.sent_life[message]) if sender >= 0 else (NOBODY, message)
        other = last.get(stream)
        if other is None or model.sent_step[other] < model.sent_step[message]:
            last[stream] = message
    return last


def _placed(
    model: CorelModel, node: CorelNode, causes: dict[int, Sequence[int]], ordered: dict[int, int]
) -> Evidence | None:
    replay = QueueReplay()
    for at, kind, message, pos in node.program():
        if kind in MOVES:
            replay.feed(kind, message, pos)
        if kind != QUEUE:
            continue
        place = replay.place
        for cause in causes.get(message, ()):
            if place.get(cause, pos) >= pos and ordered.get(cause, pos) >= replay.base:
                missing = f"{model.say(node.index, at)}, and not {model.names[cause]} before it"
                return [*_said(model, message, cause), missing]
    return None


def _said(model: CorelModel, message: int, cause: int) -> Evidence:
    """How the sender of a message came by its cause: it sent that one too, or had it in its queue."""
    sender, step = model.sender[message], model.sent_step[message]
    if model.sender[cause] == sender and model.sent_life[cause] == model.sent_life[message]:
        return [model.say_sent(cause), model.say_sent(message)]
    of = model.nodes[sender]
    places = (at for at, kind, subject, _ in of.program() if kind == QUEUE and subject == cause)
    before = [at for at in places if of.steps[at] < step]
    return [*(model.say(sender, at) for at in before[-1:]), model.say_sent(message)]
