"""E8, causal delivery: who delivers m′ in com_r(c) has delivered all that precedes it causally in c.

m precedes m′ if both were sent in c and the sender of m′ had sent m in c, or delivered m in c, before it sent m′; and
so on through others. Only these *direct* predecessors need looking at: if each message that r delivers comes after its
direct predecessors, it comes after theirs as well, by induction along r's sequence.

A direct predecessor is the sender's message before (`previous`), or one of the first k deliveries of the sender's
passage through c. So what r must have delivered is always a beginning of some other process's sequence, and a pointer
into that sequence, which only moves forward, is all that must be kept for r. Sequences that begin one another share
one pointer; where r's own sequence is the longer one, the pointer is r's own position and the test is `k <= position`.

Without faults all sequences in c begin one longest one, which alone is walked: linear in its length. With s sequences
of which none begins another (s is about the number of components into which c broke), s * s times their length.
"""

from __future__ import annotations

from typing import NamedTuple

from ordercast.check import say
from ordercast.check.model import NOBODY, Model
from ordercast.check.passages import Passage, begins_with, delivered_earlier, maximal, passages_by_conf
from ordercast.check.say import Evidence


class Senders(NamedTuple):
    """For each node its passage through c, and the number of the chain that its deliveries in c begin."""

    passages: dict[int, Passage]
    chain: dict[int, int]


def check(model: Model) -> Evidence | None:
    for _, passages in passages_by_conf(model):
        chains: list[Passage] = []
        for passage in maximal(passages):
            if passage.stray or not any(
                begins_with(chain.sequence, passage.sequence) for chain in chains if not chain.stray
            ):
                chains.append(passage)
        group = _senders(passages, chains)
        for number, chain in enumerate(chains):
            found = _walk(model, number, chains, group)
            if found is not None:
                return _evidence(model, chain, group, *found)
    return None


def _senders(passages: list[Passage], chains: list[Passage]) -> Senders:
    group = Senders({}, {})
    for passage in passages:
        if passage.node not in group.passages:
            beginning = passage.sequence if passage.cut == len(passage.sequence) else passage.sequence[: passage.cut]
            group.passages[passage.node] = passage
            group.chain[passage.node] = next(
                number for number, chain in enumerate(chains) if begins_with(chain.sequence, beginning)
            )
    return group


def _walk(model: Model, own: int, chains: list[Passage], group: Senders) -> tuple[int, int] | None:
    """A message of this chain's sequence and one that precedes it directly and was not delivered before it."""
    messages, passage = model.messages, chains[own]
    origin, previous, sent_after = messages.origin, messages.previous, messages.sent_after
    # What had been delivered when each sender of this chain entered c, if nothing had to be left out: the usual case.
    base = {
        node: sender.regular.first
        for node, sender in group.passages.items()
        if group.chain[node] == own and sender.kept is None
    }
    delivered: set[int] = set()
    pointers = [0] * len(chains)
    for position, message in enumerate(passage.sequence):
        before = previous[message]
        node = origin[message]
        in_order = before == NOBODY or before in delivered
        # Before the test: that a message is delivered before it is sent is E9's to name.
        delivered.add(message)
        if in_order and node in base and sent_after[message] - base[node] <= position:
            continue
        found = _missing(model, message, passage, delivered, (chains, pointers, group))
        if found is not None:
            return found
    return None


def _missing(
    model: Model,
    message: int,
    passage: Passage,
    delivered: set[int],
    others: tuple[list[Passage], list[int], Senders],
) -> tuple[int, int] | None:
    chains, pointers, group = others
    # A predecessor that r delivered before c (E1 names that) is in no walk of its own, so its own are looked at here.
    pending, looked_at = [message], {message}
    while pending:
        later = pending.pop()
        direct = [model.messages.previous[later]]
        sender = group.passages.get(model.messages.origin[later])
        if sender is not None:
            chain = group.chain[sender.node]
            needed = sender.delivered_before_send(model, later)
            direct += chains[chain].sequence[pointers[chain] : needed]
            pointers[chain] = max(pointers[chain], needed)
        for before in direct:
            if before == NOBODY or before in delivered or before in looked_at:
                continue
            if not delivered_earlier(model, passage, before):
                return later, before
            looked_at.add(before)
            pending.append(before)
    return None


def _evidence(model: Model, passage: Passage, group: Senders, message: int, before: int) -> Evidence:
    origin = model.messages.origin[message]
    if model.messages.origin[before] == origin:
        cause = say.sending(model, before)
    else:
        cause = say.delivery_of(model, origin, before, [group.passages[origin].regular])
    name = model.nodes[passage.node].name
    delivers = say.delivery_of(model, passage.node, message, passage.visits)
    lines = [
        cause,
        f"{say.sending(model, message)}, after it",
        f"{delivers}, and {name} has not delivered {say.message(model, before)} before it",
    ]
    return (
        [*lines, f"{say.delivery_of(model, passage.node, before, passage.visits)}, too late"]
        if before in passage.sequence
        else lines
    )
