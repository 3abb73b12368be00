"""Figure 3: the Operational state, and with it the total ordering protocol of §5.2.

`on_token` and `on_message` also serve the Recovery state, which the paper describes as "same as in Operational state
except": the two differences, where packets come from and what happens before the token is forwarded, are parameters.
"""

from __future__ import annotations

from collections.abc import Callable

from ordercast.engine.contract import Broadcast, Deliver, Left, Originated, Run, Unicast
from ordercast.engine.totem import gather, links
from ordercast.engine.totem.flow import transmits_allowed
from ordercast.engine.totem.shifts import set_phase, shift_to_gather
from ordercast.engine.totem.state import NEVER, Phase, Reason, Ring, State
from ordercast.wire.ids import NO_NODE, NodeId
from ordercast.wire.layout import MEMBERS_MAX
from ordercast.wire.pack import Burst
from ordercast.wire.totem import RTR_RANGES_MAX, Join, Leave, Token, Wake
from ordercast.wire.train import KEPT, Train

Source = Callable[[State, Ring, Token, int], list[Broadcast]]
"""Takes up to so many new packets off a queue, gives them their numbers and keeps my copies; what is to be sent."""
BeforeForward = Callable[[State, Ring, Token], None]

STALL_PACE_FROM = 5
"""Rotations with an unchanged aru after which the representative slows the ring down."""


def regular_token_received(s: State, token: Token) -> None:
    ring = s.ring
    if not accept_token(s, ring, token):
        return
    if rest_with_token(s, ring, token):
        return
    handle_token(s, ring, token, new_messages, _nothing_before_forward)


def accept_token(s: State, ring: Ring, token: Token) -> bool:
    """The first guard of Figure 3, and the timers of an accepted token."""
    if not ring.holds(token) or token.token_seq <= ring.my_token_seq:
        s.counters["redundant_tokens"] += 1
        return False
    ring.my_token_seq = token.token_seq
    ring.heard_us = s.now
    s.token_retransmission_at = NEVER
    s.token_loss_at = s.now + s.config.token_loss_timeout_us
    return True


def rest_with_token(s: State, ring: Ring, token: Token) -> bool:
    """Holds the token of an idle ring back for a while, and that of a stalled ring for a moment.

    Only the representative rests, so that everyone knows whom to wake. It rests only when two rotations have shown
    that everything is received by all, so that nobody waits for a third, and when all have forwarded the token as
    idle, so that nobody takes the rest for a loss.
    """
    if ring.representative != s.name:
        return False
    # Deviation D18: the idle ring's token rests here.
    idle = (
        token.idle
        and token.aru == token.seq == ring.forwarded_aru == ring.previous_aru
        and not s.wake_pending
        and not s.new_message_queue.messages
        and not token.backlog
        and not s.leaving
    )
    # Deviation D19: a ring that stands still is slowed down.
    stalled = ring.my_aru_count >= STALL_PACE_FROM or s.throttled or token.fcc - ring.my_trc > ring.window
    if not idle and not stalled:
        # Whoever asked for the token is served by this rotation.
        s.wake_pending = False
        return False
    s.held = token
    s.hold_is_pace = not idle
    s.hold_at = s.now + (s.config.token_hold_us if idle else s.config.stall_pace_us)
    return True


def release_token(s: State, _event: object = None) -> None:
    """The rest is over: process the token as if it had come now."""
    token, s.held, s.hold_at = s.held, None, NEVER
    if token is not None:
        s.wake_pending = False
        s.ring.heard_us = s.now
        s.token_loss_at = s.now + s.config.token_loss_timeout_us
        handle_token(s, s.ring, token, new_messages, _nothing_before_forward)


def handle_token(s: State, ring: Ring, token: Token, source: Source, before_forward: BeforeForward) -> None:
    """Figure 3, "Regular token received", from the guard on."""
    retransmitted = broadcast_requested_retransmissions(s, ring, token)
    allowed = transmits_allowed(
        max_messages=s.config.max_messages,
        window_size=ring.window,
        fcc=token.fcc,
        my_trc=ring.my_trc,
        backlog=token.backlog,
        my_pbl=ring.my_pbl,
        my_tbl=0 if s.throttled and s.phase is Phase.OPERATIONAL else packets_waiting(s),
        # Deviation D30: a member that lags is waited for.
        above_aru=token.seq - token.aru,
    )
    # Deviation D29: the token goes ahead of many new messages, and nobody asks for what is on its way.
    due = ring.forwarded_seq if s.phase is Phase.OPERATIONAL else token.seq
    seq_before = token.seq
    own = source(s, ring, token, max(allowed - retransmitted, 0))
    sent = token.seq - seq_before
    ahead = s.phase is Phase.OPERATIONAL and 0 < s.config.ahead_from <= sent
    if not ahead:
        s.effects += own

    if ring.my_aru < token.aru or token.aru_id in (s.key, NO_NODE):
        token.aru = ring.my_aru
        token.aru_id = NO_NODE if token.aru == token.seq else s.key
    stalled = token.aru == ring.forwarded_aru and token.aru_id != NO_NODE
    ring.my_aru_count = ring.my_aru_count + 1 if stalled else 0
    ring.stall_owner = token.aru_id
    if ring.my_aru_count > s.config.fail_to_rcv_const and token.aru_id != s.key and ring.my_aru > token.aru:
        # Deviation D1: the member to fail is the one that set the aru, and not I (erratum 1).
        if ahead:
            s.effects += own
        _fail_to_receive(s, ring, token)
        return

    request_missing(ring, token, due)
    my_tbl = packets_waiting(s)
    used = sent + retransmitted
    if s.throttled and s.phase is Phase.OPERATIONAL:
        # Deviation D25: my application lags. More than a whole window counts as sent, so that for one rotation nobody
        # has any left.
        used += ring.window + 1
    token.fcc = max(token.fcc - ring.my_trc, 0) + used
    token.backlog = max(token.backlog - ring.my_pbl, 0) + my_tbl
    ring.my_trc, ring.my_pbl = used, my_tbl
    token.idle = _is_idle(s, ring, token, sent + retransmitted)
    # Deviation D13: the arus of the last two tokens, as I forward them (erratum 11).
    ring.previous_aru, ring.forwarded_aru = ring.forwarded_aru, token.aru
    ring.safe_seq = max(ring.safe_seq, min(ring.previous_aru, ring.forwarded_aru))
    before_forward(s, ring, token)
    forward_token(s, ring, token)
    if ahead:
        s.effects += own
    if s.phase is Phase.OPERATIONAL:
        deliver(s, ring)
        ring.discard_safe()
        if s.leaving:
            _leave_if_done(s, ring)


def packets_waiting(s: State) -> int:
    """my_tbl: what this state may broadcast, messages of the application or of the old ring."""
    if s.retrans_packer is not None:
        return len(s.retrans_message_queue) + s.retrans_packer.packets_waiting()
    return s.new_message_queue.packets_waiting()


def broadcast_requested_retransmissions(s: State, ring: Ring, token: Token) -> int:
    """Broadcasts what others ask for and I have, as whole stretches of trains, and takes it off the list."""
    if not token.rtr:
        return 0
    # The retransmissions of a rotation fit the receive buffers beside its new messages (deviation D24).
    budget = most = min(s.config.max_messages, max(ring.window // ring.size, 1))
    left: list[tuple[int, int]] = []
    for first, length in token.rtr:
        seq, end = first, first + length
        while seq < end:
            train = ring.received.get(seq)
            if train is None or not budget:
                last = seq
                while last + 1 < end and (not budget or last + 1 not in ring.received):
                    last += 1
                left.append((seq, last - seq + 1))
            else:
                last = min(train.last_seq, end - 1, seq + budget - 1)
                s.emit(Broadcast(train.packets(seq, last), train.segment))
                budget -= last - seq + 1
            seq = last + 1
    token.rtr = left[:RTR_RANGES_MAX]
    done = most - budget
    s.counters["retransmissions"] += done
    return done


def new_messages(s: State, ring: Ring, token: Token, allowed: int) -> list[Broadcast]:
    """Gives the next messages of new_message_queue their places in the order."""
    if not allowed or not s.new_message_queue.messages:
        return []
    first = token.seq + 1
    burst = s.new_message_queue.burst(ring.prefix, first, allowed)
    if burst.finished:
        s.emit(Originated(ring.text, burst.first, burst.finished))
    token.seq += burst.count
    ring.last_own_seq = token.seq
    return keep_own(s, ring, burst, first)


def keep_own(s: State, ring: Ring, burst: Burst, seq: int) -> list[Broadcast]:
    """My own copies of what I broadcast, numbered from `seq` on."""
    own = []
    for data, marks in zip(burst.stretches, burst.marks, strict=True):
        segment = min(s.config.packet_bytes, len(data))
        ring.add(Train(data, segment, marks, seq, s.key, marks[0] & KEPT))
        own.append(Broadcast(data, segment))
        seq += len(marks)
    return own


def request_missing(ring: Ring, token: Token, up_to: int) -> None:
    """Adds what I have not received to the token's rtr, as far as it has been sent before the token came to me."""
    if ring.my_aru >= up_to:
        return
    missing = ring.missing(up_to, RTR_RANGES_MAX)
    token.rtr = merge_ranges(token.rtr, missing)[:RTR_RANGES_MAX] if token.rtr else missing


def would_request(ring: Ring, asked: list[tuple[int, int]], up_to: int) -> bool:
    """Whether I miss anything that a token with these requests does not ask for yet."""
    missing = ring.missing(up_to, RTR_RANGES_MAX)
    return merge_ranges(asked, missing) != merge_ranges(asked, [])


def merge_ranges(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The union of two lists of ranges, ascending and apart."""
    merged: list[tuple[int, int]] = []
    for first, length in sorted(a + b):
        if merged and first <= merged[-1][0] + merged[-1][1]:
            start, known = merged[-1]
            merged[-1] = (start, max(known, first + length - start))
        else:
            merged.append((first, length))
    return merged


def forward_token(s: State, ring: Ring, token: Token) -> None:
    """Increments token_seq, sends the token on and starts the two token timers."""
    token.token_seq += 1
    # In a ring of one nobody else increments token_seq before the token comes back.
    ring.my_token_seq = token.token_seq if ring.size > 1 else token.token_seq - 1
    ring.forwarded = token.encode()
    ring.forwarded_seq = token.seq
    ring.forwarded_idle = token.idle
    s.emit(Unicast(ring.next, ring.forwarded))
    s.wake_sent = False
    s.token_loss_at = s.now + s.config.token_loss_timeout_us
    arm_token_retransmission(s, ring)


def arm_token_retransmission(s: State, ring: Ring) -> None:
    """While the representative may rest with the token, silence is no sign of its loss."""
    rest = s.config.token_hold_us if ring.forwarded_idle else 0
    s.token_retransmission_at = s.now + s.config.token_retransmission_timeout_us + rest


def _is_idle(s: State, ring: Ring, token: Token, sent: int) -> bool:
    """Only the representative finds the ring idle, after two rotations with nothing to do; anyone may object."""
    if s.phase is not Phase.OPERATIONAL or s.leaving or sent or s.new_message_queue.messages:
        return False
    quiet = token.aru == token.seq and not token.backlog
    if ring.representative == s.name:
        return quiet and ring.forwarded_aru == token.aru
    return quiet and token.idle


def _nothing_before_forward(_s: State, _ring: Ring, _token: Token) -> None:
    pass


def _fail_to_receive(s: State, ring: Ring, token: Token) -> None:
    culprit = ring.keys.get(token.aru_id)
    if culprit is not None:
        s.my_fail_set.add(culprit)
    shift_to_gather(s, Reason.FAIL_TO_RECEIVE)


def regular_message_received(s: State, train: Train) -> None:
    """Figure 3, "Regular message received"."""
    ring = s.ring
    if not ring.add(train):
        s.counters["duplicates"] += 1
        return
    ring.heard_us = s.now
    if train.last_seq > ring.forwarded_seq and s.phase is Phase.OPERATIONAL:
        # Deviation D15: only a message sent after my token shows that the token arrived (erratum 13).
        s.token_retransmission_at = NEVER
    if train.direct and ring.my_aru == train.last_seq and ring.delivered == train.first_seq - 1:
        # The common case: the train is all that can be delivered now.
        ring.delivered = train.last_seq
        s.effects.append(Deliver(ring.text, [Run(train, 0, train.count)]))
    else:
        deliver(s, ring)


def deliver(s: State, ring: Ring) -> None:
    """Delivers messages that satisfy their delivery criteria."""
    if ring.delivered < ring.my_aru:
        runs = ring.take_deliverable()
        if runs:
            s.emit(Deliver(ring.text, runs))


def token_loss_timeout_expired(s: State, _event: object = None) -> None:
    """Figure 3; a ring whose messages still come is not lost (§6.2.1; Deviation D15)."""
    late = s.ring.heard_us + s.config.token_loss_timeout_us
    if s.now < late:
        s.token_loss_at = late
        return
    shift_to_gather(s, Reason.TOKEN_LOSS)


def token_retransmission_timeout_expired(s: State, _event: object = None) -> None:
    ring = s.active
    assert ring.forwarded is not None, "a token timer runs only after a token was forwarded"
    s.counters["token_retransmissions"] += 1
    s.emit(Unicast(ring.next, ring.forwarded))
    if ring.forwarded_idle and s.new_message_queue.messages:
        _wake_representative(s, ring)
    arm_token_retransmission(s, ring)


def foreign_message_received(s: State, sender: NodeId) -> None:
    # Deviation D20: no merge that would be in vain.
    if links.is_suspect(s, sender) or links.must_wait(s, sender) or len(s.my_proc_set) >= MEMBERS_MAX:
        return
    s.my_proc_set.add(sender)
    s.heard_us.setdefault(sender, s.now)
    shift_to_gather(s, Reason.FOREIGN_MESSAGE)


def join_received(s: State, join: Join) -> None:
    """Figure 3 with erratum 7: a Join that is stale, or whose sender has given me up, does not break the ring.

    Deviation D7; and deviation D28: it counts once Gather has begun.
    """
    if s.name in join.fail_set:
        return
    if join.sender in s.ring.members:
        if join.ring_seq < s.ring.number:
            s.counters["stale"] += 1
            return
    elif links.is_suspect(s, join.sender):
        return
    if len(s.my_proc_set | join.proc_set) > MEMBERS_MAX:
        s.report("refused", "a Join would make the ring too large", sender=join.sender)
        return
    gather.merge_join(s, join)
    shift_to_gather(s, Reason.JOIN)
    gather.note_consensus(s, join)


def leave_received(s: State, leave: Leave) -> None:
    """A member of my ring goes: form the next ring without waiting for its silence."""
    if leave.sender in s.ring.members and leave.ring_digest == s.ring.digest:
        gather.believe_leave(s, leave)


def wake_received(s: State, wake: Wake) -> None:
    if wake.ring_digest == s.ring.digest and wake.ring_number == s.ring.number:
        wake_token(s)


def wake_token(s: State) -> None:
    """Ends the representative's rest, or forbids the next one if the token is still on its way to it."""
    if s.held is None:
        s.wake_pending = True
    elif not s.hold_is_pace:
        release_token(s)


def submitted(s: State, _event: object = None) -> None:
    """New messages wait: an idle ring has to move at once."""
    ring = s.ring
    if ring.representative == s.name:
        wake_token(s)
    elif ring.forwarded_idle and not s.wake_sent:
        _wake_representative(s, ring)
        if s.token_retransmission_at != NEVER:
            s.token_retransmission_at = s.now + s.config.token_retransmission_timeout_us


def _wake_representative(s: State, ring: Ring) -> None:
    s.wake_sent = True
    s.emit(Unicast(ring.representative, Wake(ring.number, ring.digest, s.key).encode()))


def _leave_if_done(s: State, ring: Ring) -> None:
    """Goes once every message of mine is safe: all members have it, so my departure costs nobody anything.

    Deviation D21.
    """
    if s.new_message_queue.messages or min(ring.safe_seq, ring.delivered) < ring.last_own_seq:
        return
    leave = Leave(ring.number, ring.digest, s.name).encode()
    for _ in range(s.config.leave_copies):
        s.emit(Broadcast(leave, len(leave)))
    s.token_loss_at = s.token_retransmission_at = s.hold_at = s.beacon_at = NEVER
    set_phase(s, Phase.STOPPED, Reason.LEFT)
    s.emit(Left())
