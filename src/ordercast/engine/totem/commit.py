"""Figure 5: the Commit state, in which the Commit token makes its first rotation."""

from __future__ import annotations

from ordercast.engine.contract import Unicast
from ordercast.engine.totem import gather
from ordercast.engine.totem.shifts import forward_commit_token, shift_to_gather, shift_to_recovery, stalled_member
from ordercast.engine.totem.state import Reason, State
from ordercast.wire.totem import CommitToken, Join


def written(s: State, write_id: int) -> None:
    """Deviation D12: the new ring's number is durable, so the Commit token may leave."""
    if write_id == s.pending_write:
        s.pending_write = None
        forward_commit_token(s)


def commit_token_received(s: State, token: CommitToken) -> None:
    """Deviation D10: the whole ring identifier and the rotation are compared (erratum 9)."""
    assert s.new is not None
    mine = next(entry for entry in token.memb_list if entry.name == s.name)
    if token.ring_id != s.new.id or s.pending_write is not None or mine.old_ring != s.ring.id:
        s.counters["stale"] += 1
        return
    if s.new.representative == s.name:
        if token.rotation == 1 and all(entry.filled for entry in token.memb_list):
            token.rotation = 2
            shift_to_recovery(s, token)
    elif token.rotation == 2:
        shift_to_recovery(s, token)


def join_received(s: State, join: Join) -> None:
    """A member has given the new ring up, unless its Join is older than the Commit token."""
    assert s.new is not None
    # Deviation D28: the Join counts once Gather has begun.
    if join.sender in s.new.members and join.ring_seq >= s.new.number:
        shift_to_gather(s, Reason.JOIN)
        gather.join_received(s, join)


def token_loss_timeout_expired(s: State, _event: object = None) -> None:
    gather.count_attempt(s, s.members_wanted(), stalled_member(s))
    shift_to_gather(s, Reason.COMMIT_LOSS)


def token_retransmission_timeout_expired(s: State, _event: object = None) -> None:
    """The Commit token is retransmitted like the regular one."""
    assert s.new is not None
    assert s.commit_packet is not None
    s.counters["token_retransmissions"] += 1
    s.emit(Unicast(s.new.next, s.commit_packet))
    s.token_retransmission_at = s.now + s.config.token_retransmission_timeout_us
