"""Regular operation: messages into the queue, acknowledgements, Order Rule 1, and what this member sends.

Chunks move as a whole; acknowledgements are places, which cover all that stands before them.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from ordercast.corel.codec import Reader, Writer
from ordercast.corel.journal import NEVER
from ordercast.corel.messages import MessageKind, encode_chunk, encode_number
from ordercast.corel.queue import Item
from ordercast.corel.state import REGULAR, Own, Phase, State
from ordercast.engine.contract import GroupChange, Ordered, Progress, Service, Submission
from ordercast.wire.chunk import LIFE_SHIFT, Body, Chunk, ChunkFlag, make_body
from ordercast.wire.ids import NodeId
from ordercast.wire.layout import Malformed, WireError

BASE_PLACE = 1
"""An acknowledgement of this place says: all of the recovery is on my disk. Deviation K3: it stands for the original
acknowledgements of all that was retransmitted."""
_NUMBER_MASK = (1 << LIFE_SHIFT) - 1


# Receiving


def chunk_received(s: State, chunk: Chunk, place: int) -> None:
    """A regular message is delivered by the engine below."""
    item = Item(chunk)
    if s.phase in REGULAR:
        insert(s, item, place)
    elif s.phase is not Phase.PASSIVE:
        s.buffered.append((item, place))
    elif item.stream == s.stream:
        keep_own(s, item)


def insert(s: State, item: Item, place: int) -> None:
    """At the end of MQ. In a primary component it is yellow as soon as it is durable here: the same entry says so."""
    mq = s.mq
    assert s.plan is not None
    if item.sender not in s.plan.active:
        # It was on its way when the configuration changed. What its sender has in its queue nobody retransmits in this
        # round, and it must not stand here before that (C1). Its sender keeps it, and brings it when it takes part.
        s.counters["not taken"] += 1
        return
    # All who take part had the same of each stream when the recovery ended, and nothing is multicast twice.
    assert mq.follows(item), f"{item} does not follow what its sender sent before"
    mq.append(item)
    s.journal.place = place
    s.journal.put(item.raw, item.count)
    if s.primary_component_bit and not s.transitional:
        # Deviation K4: what is delivered in the transitional configuration stays red.
        mq.yellow = mq.end
        s.journal.yellow = mq.end
    s.placed.append((place, mq.end))
    if item.stream == s.stream:
        take_own(s)


def drop_buffered(s: State) -> None:
    """Deviation K5: what the handler held back is not taken into the queue after all, except by its sender."""
    buffered, s.buffered = s.buffered, []
    for item, _ in buffered:
        if item.stream == s.stream:
            keep_own(s, item)


def keep_own(s: State, item: Item) -> None:
    """What others drop its sender keeps, red, and brings to the next recovery.

    All that it had before it stands before it here, so that it is in its place; and it has one timestamp, wherever it
    was taken at once.
    """
    assert s.mq.follows(item), f"{item} does not follow what I sent before"
    s.mq.append(item)
    s.journal.put(item.raw, item.count)
    take_own(s)


def take_own(s: State) -> None:
    """Own messages that are in the queue are not on their way any more."""
    last = s.mq.last.get(s.stream, 0)
    while s.own and s.own[0].last <= last:
        own = s.own.popleft()
        s.own_bytes -= own.bytes


# Acknowledgements and Order Rule 1


def acknowledged(s: State, sender: NodeId, place: int) -> None:
    """The sender has everything up to this place of this round on its disk."""
    if place <= s.acks.get(sender, 0):
        return
    s.acks[sender] = place
    if s.phase not in REGULAR or not s.placed:
        return
    everywhere = min(s.acks.get(member, 0) for member in s.members)
    position = 0
    while s.placed and s.placed[0][0] <= everywhere:
        position = s.placed.popleft()[1]
    if not position:
        return
    if s.primary_component_bit:
        # Order Rule 1: it was acknowledged by all the members of PM.
        position = min(position, s.mq.yellow)
        if position > s.mq.green:
            mark_green(s, position)
    else:
        stable_to(s, position)


def stable_to(s: State, position: int) -> None:
    """Everything before this position is durable at all members of the component."""
    stable = s.progress.stable
    for end, item in s.mq.ends():
        if end > position:
            break
        if item.stream == s.stream:
            stable = max(stable, item.last & _NUMBER_MASK)
    s.progress = s.progress._replace(stable=stable)


def mark_green(s: State, position: int) -> None:
    """The order of everything before this position is final."""
    end = s.mq.green
    regroup = False
    for item in s.mq.advance_green(position):
        end += item.count
        s.unreported.append((end, item))
        if item.change:
            apply_change(s, item)
            regroup = True
    s.move_lines()
    report_ordered(s)
    if regroup and s.primary_component_bit:
        ask_to_regroup(s)


def report_ordered(s: State) -> None:
    """Hands to the application what is green and durable here (C5)."""
    chunks = []
    offset = -1
    durable = s.journal.durable_end
    while s.unreported and s.unreported[0][0] <= durable:
        end, item = s.unreported.popleft()
        if offset < 0:
            offset = end - item.count
        chunks.append(item.raw)
        if item.stream == s.stream:
            s.progress = s.progress._replace(ordered=item.last & _NUMBER_MASK)
    if chunks:
        s.effects.append(Ordered(offset, chunks))


def note_progress(s: State) -> Progress:
    """As it is now, each count at least the next one."""
    queued = s.mq.last.get(s.stream, 0) & _NUMBER_MASK
    progress = s.progress
    return Progress(max(queued, progress.queued), max(progress.stable, progress.ordered), progress.ordered)


def acknowledge_in_time(s: State) -> None:
    """What became durable is acknowledged by the next message, or alone after a short delay (erratum 18)."""
    if s.phase in REGULAR and s.journal.durable_place > s.acked_place and s.ack_at >= NEVER:
        # Deviation K2.
        s.ack_at = s.now + s.config.ack_delay_us


def ack_timeout_expired(s: State) -> None:
    s.ack_at = NEVER
    if s.phase in REGULAR and s.journal.durable_place > s.acked_place:
        s.send(encode_number(MessageKind.ACK, s.round, take_ack(s)), 0)


def take_ack(s: State) -> int:
    """The acknowledgement that the next message carries."""
    s.acked_place = max(s.acked_place, s.journal.durable_place)
    s.ack_at = NEVER
    return s.acked_place


# Sending


def submit(s: State, submission: Submission) -> None:
    for part in split(submission, s.config.chunk_bytes):
        s.unsent.append(part)
        s.unsent_bytes += sum(map(len, part.bodies))
        s.unsent_messages += len(part.bodies)


def split(submission: Submission, limit: int) -> list[Submission]:
    """Parts of about `limit` bytes; the work per message is a pass in C."""
    bodies = submission.bodies
    if len(bodies) < 2 or submission.whole:
        return [submission] if bodies else []
    ends = list(accumulate(map(len, bodies)))
    if ends[-1] <= limit:
        return [submission]
    parts = []
    low = begin = 0
    while low < len(bodies):
        high = max(low + 1, bisect_right(ends, begin + limit, low))
        keys = None if submission.keys is None else submission.keys[low:high]
        headers = None if submission.headers is None else submission.headers[low:high]
        parts.append(submission._replace(bodies=bodies[low:high], keys=keys, headers=headers))
        low, begin = high, ends[high - 1]
    return parts


def send_regular(s: State, room: int) -> None:
    """Multicasts what waits, as chunks, while the engine below has room for it."""
    while s.phase in REGULAR and room > 0 and s.unsent:
        stamp_us, body = next_body(s)
        first = s.first_bits + s.next_number
        s.next_number += body.messages
        s.own.append(Own(first + body.messages - 1, body.messages, len(body.columns)))
        s.own_bytes += len(body.columns)
        message = encode_chunk(s.round, take_ack(s), first, stamp_us, body)
        room -= len(message)
        s.send(message, body.messages)


def next_body(s: State) -> tuple[int, Body]:
    """The next messages that wait, joined to one chunk where they are alike; and the first one's stamp."""
    first = s.unsent.popleft()
    bodies = list(first.bodies)
    size = sum(map(len, bodies))
    plain = first.keys is None and first.headers is None and not first.whole and not isinstance(first, _Change)
    while plain and s.unsent and size < s.config.chunk_bytes:
        following = s.unsent[0]
        if following.service != first.service or following.keys is not None or following.headers is not None:
            break
        if following.whole or isinstance(following, _Change):
            break
        bodies += s.unsent.popleft().bodies
        size = sum(map(len, bodies))
    body = make_body(bodies, first.keys, first.headers, safe=first.service is Service.SAFE)
    if isinstance(first, _Change):
        body = body._replace(flags=body.flags | int(ChunkFlag.CHANGE))
    s.unsent_bytes -= size
    s.unsent_messages -= len(bodies)
    return first.stamp_us, body


# Changes of the declared group


class _Change(Submission):
    """A submission that holds one change."""

    __slots__ = ()


def change_submission(change: GroupChange, stamp_us: int) -> Submission:
    return _Change([encode_change(change)], Service.AGREED, stamp_us)


def encode_change(change: GroupChange) -> bytes:
    w = Writer()
    w.numbers(change.add)
    w.blobs([name.encode() for name in change.remove])
    return w.take()


def decode_change(raw: bytes) -> GroupChange:
    r = Reader(raw)
    add = r.numbers()
    try:
        change = GroupChange(add, tuple(name.decode() for name in r.blobs()))
    except UnicodeDecodeError:
        raise Malformed("a name that is no text") from None
    r.end()
    return change


def changed(group: dict[str, int], item: Item) -> dict[str, int]:
    """The group behind a change. One that cannot be read, or would leave nobody, changes nothing: at all members."""
    try:
        change = decode_change(item.body())
    except WireError:
        return group
    after = {name: weight for name, weight in group.items() if name not in change.remove}
    after.update(change.add)
    return after if sum(after.values()) > 0 else group


def apply_change(s: State, item: Item) -> None:
    s.record.group = changed(s.record.group, item)
    s.save()


def ask_to_regroup(s: State) -> None:
    """The declared group has changed: the next primary component is to follow it."""
    if s.name == min(s.members):
        send_regroup(s)


def send_regroup(s: State) -> None:
    if not s.regroup_sent:
        s.regroup_sent = True
        s.send(encode_number(MessageKind.REGROUP, s.round, take_ack(s)), 0)
