"""§3.5.2: the recovery procedure from step 3 on, with the retransmission rule of Figure 4."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ordercast.corel import catchup, establish, everyone, regular
from ordercast.corel.messages import Priority, Reference, encode_priority, encode_red
from ordercast.corel.plan import Plan
from ordercast.corel.queue import Item
from ordercast.corel.state import Phase, Reason, State
from ordercast.engine.contract import Fetch
from ordercast.wire.chunk import Buffer, Chunk
from ordercast.wire.ids import NodeId


def begin(s: State, plan: Plan) -> None:
    """Steps 3 and 4, for a member that takes part."""
    s.members = plan.active
    s.shift(Phase.RETRANSMISSION, Reason.ALL_STATES)
    if s.name in plan.representatives:
        agree_on_lines(s, plan)
    catchup.begin_donor(s, plan)
    if s.name == plan.representative and not plan.all_representatives:
        s.journal.after(partial(send_priority, s, plan, plan.priority_from))
    if s.name in plan.representatives:
        retransmit_red(s, plan)


def agree_on_lines(s: State, plan: Plan) -> None:
    """Step 3: the green line of the one who knows most, the yellow line of the one who knows least."""
    if plan.green > s.mq.green:
        regular.mark_green(s, plan.green)
    assert plan.yellow <= s.mq.end, "a representative lacks messages that are yellow for all representatives"
    if s.mq.yellow != plan.yellow:
        s.mq.yellow = plan.yellow
        s.move_lines()


# Step 5


def send_priority(s: State, plan: Plan, position: int) -> None:
    """The representative sends what follows component_ordered, first what it has to read from the log."""
    if s.plan is not plan:
        return
    if position < s.mq.green:
        fetch(s, position, partial(send_fetched, s, plan))
    else:
        send_items(s, plan, position, [(item.stream, item.last, item.raw) for item in s.mq.before(plan.yellow)], True)


def fetch(s: State, position: int, then: partial[None], messages: int = 1) -> None:
    """Reads what so many messages of a retransmission hold."""
    assert position < s.journal.durable_green, "what is read from the log is on disk"
    s.fetches[s.next_fetch] = then
    s.effects.append(Fetch(s.next_fetch, position, messages * s.config.retransmit_bytes))
    s.next_fetch += 1


def send_fetched(s: State, plan: Plan, start: int, chunks: Sequence[Buffer]) -> None:
    if not chunks:
        # Retention has removed it since my State message said that it is there: another round says what is.
        assert start < s.earliest, f"nothing was read at {start}, and the log begins with {s.earliest}"
        regular.send_regroup(s)
        return
    items = [Item(Chunk(raw)) for raw in chunks]
    end = start + sum(item.count for item in items)
    assert start < end <= s.mq.green, "what is read from the log ends at the green line"
    send_items(s, plan, start, [(item.stream, item.last, item.raw) for item in items], False)
    send_priority(s, plan, end)


def send_items(s: State, plan: Plan, start: int, items: list[tuple[str, int, Buffer]], last: bool) -> None:
    """For component_stable messages the header, for the others their data."""
    size = 0
    part: list[bytes | Reference] = []
    for stream, number, raw in items:
        stable = plan.common.get(stream, 0) >= number
        part.append(Reference(stream, number) if stable else bytes(raw))
        size += 0 if stable else len(raw)
        if size >= s.config.retransmit_bytes:
            send_part(s, start, part, False)
            part, size = [], 0
    if part or last:
        send_part(s, start, part, last)


def send_part(s: State, start: int, part: list[bytes | Reference], last: bool) -> None:
    vector, group = (green_vector(s), s.record.group) if last else ({}, {})
    s.send(encode_priority(s.round, regular.take_ack(s), Priority(start, part, last, vector, group)), 0)


def green_vector(s: State) -> dict[str, int]:
    """Of each stream the last message before the green line."""
    vector = {**s.record.base_vector, **s.mq.last}
    for item in reversed(s.mq.tail):
        if item.first & 0xFF_FFFF_FFFF == 1:
            del vector[item.stream]
        else:
            vector[item.stream] = item.first - 1
    return vector


def priority_received(s: State, message: Priority) -> None:
    """Members from other primary components collect them in the order of the retransmission."""
    plan = s.plan
    assert plan is not None
    if s.name in plan.representatives:
        return
    mine = {item.name: item for item in s.mq.tail}
    for entry in message.items:
        if isinstance(entry, Reference):
            item = mine.get((entry.stream, entry.last))
            if item is None:
                continue  # it stands before my green line
        else:
            item = Item(Chunk(entry))
        s.priority.append(item)
    if message.last:
        take_representatives_order(s, plan, message)
        retransmit_red(s, plan)


def take_representatives_order(s: State, plan: Plan, message: Priority) -> None:
    """Step 6, one atomic step: the representative's order, then what else is here by TS; its lines; its primary.

    The declared group is the representative's too: who was brought up has not seen all that made it.
    """
    mq, record = s.mq, s.record
    following = beyond_green(s, plan)
    taken = {item.name for item in following}
    rest = sorted((item for item in mq.tail if item.name not in taken), key=by_ts)
    green = mq.green
    mq.yellow = plan.yellow
    rewrite(s, green, [*following, *rest])
    assert mq.end >= plan.yellow, "the representative's messages are not complete"
    record.last_committed_primary = plan.max_committed
    record.attempts = [attempt for attempt in record.attempts if attempt.number > plan.max_committed.number]
    record.heard = max(record.heard, plan.max_committed.number)
    record.founding = plan.founding
    for stream, last in message.vector.items():
        if mq.last.get(stream, 0) < last:
            record.base_vector[stream] = last
            mq.last[stream] = last
    if plan.green > green:
        regular.mark_green(s, plan.green)
    mq.yellow = plan.yellow
    record.group = dict(message.group)
    s.write_lines()
    primary = plan.max_committed
    s.report("primary", "learned", number=primary.number, members=[name for name, _ in primary.members])
    s.report_group("learned")


def beyond_green(s: State, plan: Plan) -> list[Item]:
    """The priority messages that are not green here."""
    position = plan.yellow
    following: list[Item] = []
    for item in reversed(s.priority):
        if position <= s.mq.green:
            break
        following.append(item)
        position -= item.count
    assert position == s.mq.green, f"the representative's order begins at {position}, the green line is {s.mq.green}"
    following.reverse()
    return following


def by_ts(item: Item) -> tuple[int, str, int]:
    return item.ts.number, item.ts.view, item.ts.nth


def rewrite(s: State, position: int, items: list[Item]) -> None:
    """Other items from `position` on, in the queue and on disk."""
    s.mq.replace(position, items)
    s.journal.rewrite(s.effects, position, [item.raw for item in items], s.mq.end)
    s.move_lines()


# Step 7


def sort_red(s: State) -> None:
    """The red part by TS. Where nobody has to wait for anybody's retransmission, it is sorted already."""
    reds = s.mq.behind(s.mq.yellow)
    ordered = sorted(reds, key=by_ts)
    if reds != ordered:
        rewrite(s, s.mq.yellow, ordered)


def retransmit_red(s: State, plan: Plan) -> None:
    """Messages that not all the members have, each by one of those that have it."""
    sort_red(s)
    for item in s.mq.behind(s.mq.yellow):
        if item.last > plan.common.get(item.stream, 0):
            s.to_send.append((item, plan.responsible[item.stream] == s.name))
    early, s.reds = s.reds, []
    for item in early:
        red_received(s, item)
    send_red(s)
    finish_if_complete(s, plan)


def send_red(s: State) -> None:
    """Figure 4: a message does not leave before those that stand before it in MQ and that others retransmit.

    These need not come in the order of my queue: who sends one may lack what stands before it here.
    """
    part: list[bytes] = []
    size = 0
    while s.to_send and (s.to_send[0][1] or s.to_send[0][0].name in s.arrived):
        item, mine = s.to_send.popleft()
        if not mine:
            continue
        part.append(bytes(item.raw))
        size += len(item.raw)
        if size >= s.config.retransmit_bytes:
            s.send(encode_red(s.round, regular.take_ack(s), part), 0)
            part, size = [], 0
    if part:
        s.send(encode_red(s.round, regular.take_ack(s), part), 0)


def reds_received(s: State, sender: NodeId, items: list[Item]) -> None:
    plan = s.plan
    assert plan is not None
    if sender == s.name:
        return
    if not_ready(s, plan):
        s.reds += items
        return
    for item in items:
        red_received(s, item)
    send_red(s)
    finish_if_complete(s, plan)


def not_ready(s: State, plan: Plan) -> bool:
    """Whether the representative's messages, which come first, are still on their way to me."""
    return s.name not in plan.representatives and s.record.last_committed_primary.number < plan.max_committed.number


def red_received(s: State, item: Item) -> None:
    s.arrived.add(item.name)
    if item.last <= s.mq.last.get(item.stream, 0):
        return
    assert s.mq.follows(item), f"{item} was retransmitted before those that it follows"
    s.mq.append(item)
    s.journal.put(item.raw, item.count)


def finish_if_complete(s: State, plan: Plan) -> None:
    """All retransmissions are here: concurrent ones are interleaved by TS, and the handler goes on."""
    if s.phase is not Phase.RETRANSMISSION or s.to_send or not_ready(s, plan):
        return
    if any(s.mq.last.get(stream, 0) < last for stream, last in plan.highest.items()):
        return
    sort_red(s)
    regular.take_own(s)
    if plan.quorum:
        establish.begin(s, plan)
        return
    s.shift(Phase.COMPONENT, Reason.NO_QUORUM)
    everyone.order_what_all_have(s)
    continue_regular(s)
    s.journal.after(partial(recovery_is_durable, s, s.round))


def recovery_is_durable(s: State, round_: object) -> None:
    if s.round == round_:
        s.journal.durable_place = max(s.journal.durable_place, regular.BASE_PLACE)


def continue_regular(s: State) -> None:
    """Continue handling and sending regular messages."""
    s.placed.append((regular.BASE_PLACE, s.mq.end))
    buffered, s.buffered = s.buffered, []
    for item, place in buffered:
        regular.insert(s, item, place)
