"""Bringing up a member that is far behind, new, or has lost its disk, while the group goes on.

The representative of the round is the donor. It reads the ordered messages from its log and multicasts them in
Catchup messages, a few at a time; each pupil says how far it has come (Pace). When it is near, it asks for a new
round, in which it takes part. What its own tail holds is kept, red.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ordercast.corel import recovery, regular
from ordercast.corel.messages import Catchup, MessageKind, encode_catchup, encode_number
from ordercast.corel.plan import Plan
from ordercast.corel.queue import Item
from ordercast.corel.record import Primary
from ordercast.corel.state import Phase, State
from ordercast.engine.contract import Restored
from ordercast.wire.chunk import Buffer, Chunk
from ordercast.wire.ids import NodeId

RETRANSMISSIONS = 4
"""What a Catchup message holds, in messages of a retransmission: each waits for a read, a rotation and a sync."""


def forget(s: State) -> None:
    s.pupils.clear()
    s.sent_catchups.clear()
    s.catching = False


# The pupil


def enter(s: State, plan: Plan) -> None:
    """Deviation K7, one atomic step: it knows of a primary component whose messages it lacks, and votes for no other.

    Its yellow marks, which speak of an older one, stay until the order that it is told contradicts them: what they
    protect stands there in the same place.
    """
    record = s.record
    record.hear(plan.max_committed.number)
    record.last_committed_primary = Primary()
    record.founding = plan.founding
    record.group = dict(plan.group)
    s.write_lines()


def catchup_received(s: State, message: Catchup) -> None:
    """Ordered messages for those who are being brought up."""
    plan = s.plan
    if plan is None or s.name not in plan.pupils:
        return
    if message.primary > s.record.heard:
        # The group has gone on to another primary component meanwhile, and what it ordered there I am about to have.
        # Who has not been in that one cannot speak for me: it would take my green line for one of its own order.
        s.record.hear(message.primary)
        s.save()
    if message.base and s.mq.green < message.start:
        begin_anew(s, message)
    position = message.start
    news: list[Item] = []
    for raw in message.chunks:
        item = Item(Chunk(raw))
        if position >= s.mq.green:
            news.append(item)
        position += item.count
    if news and position - sum(item.count for item in news) == s.mq.green:
        take_ordered(s, news)
    s.journal.after(partial(send_pace, s, s.round, message.green))


def take_ordered(s: State, news: list[Item]) -> None:
    """The ordered messages, then what else is here; one atomic step. What stands in its place already stays."""
    green = position = s.mq.green
    tail = list(s.mq.tail)
    same = 0
    while same < min(len(news), len(tail)) and news[same].name == tail[same].name:
        position += news[same].count
        same += 1
    if same < len(news):
        s.mq.yellow = min(s.mq.yellow, position)
        taken = {item.name for item in news}
        rest = [item for item in tail[same:] if item.name not in taken]
        if len(tail) > same:
            recovery.rewrite(s, position, [*news[same:], *rest])
        else:
            for item in news[same:]:
                s.mq.append(item)
                s.journal.put(item.raw, item.count)
    regular.mark_green(s, green + sum(item.count for item in news))


def begin_anew(s: State, message: Catchup) -> None:
    """The donor's log does not reach back to my green line: mine begins where it does."""
    kept = [item for item in s.mq.tail if item.last > message.vector.get(item.stream, 0)]
    base = message.start
    s.unreported.clear()
    s.mq.green = s.mq.yellow = s.mq.end = base
    s.mq.tail.clear()
    s.mq.last.clear()
    s.earliest = base
    s.journal.begin_anew(s.effects, base, {})
    for item in kept:
        s.mq.append(item)
        s.journal.put(item.raw, item.count)
    s.save()
    s.effects.append(Restored(base, message.snapshot))


def send_pace(s: State, round_: object, donor_green: int) -> None:
    """What was received is on the disk: it is time for more, or to take part."""
    plan = s.plan
    if s.round != round_ or plan is None or s.phase is not Phase.PASSIVE:
        return
    eligible = s.name in plan.group or s.name in dict(plan.max_committed.group)
    if eligible and donor_green - s.mq.green <= s.config.lag_max // 2 and not s.regroup_sent:
        s.regroup_sent = True
        s.send(encode_number(MessageKind.REGROUP, s.round, 0), 0)
    else:
        s.send(encode_number(MessageKind.PACE, s.round, 0, s.mq.green), 0)


# The donor


def begin_donor(s: State, plan: Plan) -> None:
    if s.name != plan.representative or not plan.pupils:
        return
    s.pupils = {name: s.states[name].green for name in plan.pupils}
    begin_pupils(s)


def begin_pupils(s: State) -> None:
    """The first message, from where the slowest of them is, or from a snapshot if the log no longer reaches back."""
    s.catch_at = min(s.pupils.values())
    if s.catch_at < s.earliest:
        offset, snapshot = s.snapshot if s.snapshot is not None else (s.earliest, b"")
        if offset < s.earliest:
            offset, snapshot = s.earliest, b""
        s.catch_at = offset
        message = Catchup(offset, s.mq.green, primary(s), [], True, snapshot, recovery.green_vector(s))
        send_catchup(s, message, offset)
    else:
        # Even with nothing to send the pupil must hear that it is near.
        send_catchup(s, Catchup(s.catch_at, s.mq.green, primary(s), []), s.catch_at)


def primary(s: State) -> int:
    """The primary component that has ordered what is green here. One that is not established has ordered nothing yet,
    and its number may be lost with the disks' last entries: who has heard of it would wait for it in vain."""
    assert s.plan is not None
    return (s.record.last_committed_primary if s.primary_component_bit else s.plan.max_committed).number


def send_catchup(s: State, message: Catchup, end: int) -> None:
    s.sent_catchups.append(end)
    s.send(encode_catchup(s.round, regular.take_ack(s), message), 0)


def pace_received(s: State, sender: NodeId, position: int) -> None:
    if sender not in s.pupils:
        return
    s.pupils[sender] = max(s.pupils[sender], position)
    slowest = min(s.pupils.values())
    while s.sent_catchups and s.sent_catchups[0] <= slowest:
        s.sent_catchups.popleft()
    send_more(s)


def send_more(s: State) -> None:
    """Reads and sends the next ordered messages, if the pupils have room and there are any on disk."""
    if s.catching or not s.pupils or len(s.sent_catchups) >= s.config.catchup_outstanding:
        return
    if s.catch_at < s.journal.durable_green:
        s.catching = True
        recovery.fetch(s, s.catch_at, partial(fetched, s, s.round), RETRANSMISSIONS)


def fetched(s: State, round_: object, start: int, chunks: Sequence[Buffer]) -> None:
    if s.round != round_:
        return
    s.catching = False
    if not chunks:
        # Retention has removed what they need next.
        assert start < s.earliest, f"nothing was read at {start}, and the log begins with {s.earliest}"
        s.sent_catchups.clear()
        begin_pupils(s)
        return
    s.catch_at = start + sum(Chunk(raw).count for raw in chunks)
    send_catchup(s, Catchup(start, s.mq.green, primary(s), [bytes(raw) for raw in chunks]), s.catch_at)
    send_more(s)
