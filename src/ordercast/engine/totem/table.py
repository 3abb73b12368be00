"""The state × event table: one line per cell, nothing dispatched elsewhere.

A cell is a handler, `ignored` with the reason, or `impossible`, which asserts. The rows are the four states of §6.2.2
and the two ends of a life; the columns are the events of §6.2.1 and, after them, our own. The beacon is no column:
in every state it is noted (see `links`), and one of another ring becomes the event FOREIGN_MESSAGE.
"""

from __future__ import annotations

from ordercast.engine.contract import Install
from ordercast.engine.totem import commit, gather, operational, recovery
from ordercast.engine.totem.shifts import become_member, regular_view, shift_to_gather
from ordercast.engine.totem.state import Event, Handler, Phase, Reason, Ring, Rows, State
from ordercast.wire.ids import RingId


def ignored(why: str) -> Handler:
    def ignore(_s: State, _event: object) -> None:
        pass

    ignore.__doc__ = why
    return ignore


def impossible(why: str) -> Handler:
    def refuse(s: State, event: object) -> None:
        raise AssertionError(f"impossible in {s.phase.name}: {why} ({event!r})")

    refuse.__doc__ = why
    return refuse


def singleton_number_written(s: State, write_id: int) -> None:
    """§6.2.2: a process that starts installs a ring of its own, then looks for others."""
    if write_id != s.pending_write:
        return
    s.pending_write = None
    ring = Ring(RingId(s.highest_number, s.name, s.nonce), (s.name,), s.name, s.config.window_size)
    s.emit(Install(regular_view(ring)))
    become_member(s, ring)
    s.past_rings.clear()
    s.beacon_at = s.now + s.key % s.config.beacon_interval_us
    shift_to_gather(s, Reason.START)


_no_timer = impossible("this timer does not run here")
_not_mine = ignored("no part in any ring yet")
_gone = ignored("it has left")
_no_ring = ignored("no token moves the messages now: they wait in new_message_queue")
_late_write = ignored("a write of an attempt that was given up")

_OPERATIONAL: dict[Event, Handler] = {
    Event.REGULAR_TOKEN: operational.regular_token_received,
    Event.REGULAR_MESSAGE: operational.regular_message_received,
    Event.FOREIGN_MESSAGE: operational.foreign_message_received,
    Event.JOIN: operational.join_received,
    Event.COMMIT_TOKEN: ignored("Figure 3: a Commit token of a ring that is installed or given up"),
    Event.TOKEN_LOSS_TIMEOUT: operational.token_loss_timeout_expired,
    Event.TOKEN_RETRANSMISSION_TIMEOUT: operational.token_retransmission_timeout_expired,
    Event.JOIN_TIMEOUT: _no_timer,
    Event.CONSENSUS_TIMEOUT: _no_timer,
    Event.LEAVE: operational.leave_received,
    Event.WAKE: operational.wake_received,
    Event.HOLD_TIMEOUT: operational.release_token,
    Event.WRITTEN: _late_write,
    Event.SUBMIT: operational.submitted,
}

_GATHER: dict[Event, Handler] = {
    # Deviation D3: no token counts here.
    Event.REGULAR_TOKEN: ignored("erratum 3: regular tokens count again in Recovery"),
    Event.REGULAR_MESSAGE: gather.regular_message_received,
    Event.FOREIGN_MESSAGE: gather.foreign_message_received,
    Event.JOIN: gather.join_received,
    Event.COMMIT_TOKEN: gather.commit_token_received,
    Event.TOKEN_LOSS_TIMEOUT: gather.token_loss_timeout_expired,
    Event.TOKEN_RETRANSMISSION_TIMEOUT: _no_timer,
    Event.JOIN_TIMEOUT: gather.join_timeout_expired,
    Event.CONSENSUS_TIMEOUT: gather.consensus_timeout_expired,
    Event.LEAVE: gather.leave_received,
    Event.WAKE: ignored("there is no token to wake"),
    Event.HOLD_TIMEOUT: _no_timer,
    Event.WRITTEN: _late_write,
    Event.SUBMIT: _no_ring,
}

_COMMIT: dict[Event, Handler] = {
    Event.REGULAR_TOKEN: ignored("Figure 5: discarded"),
    Event.REGULAR_MESSAGE: gather.regular_message_received,
    Event.FOREIGN_MESSAGE: ignored("Figure 5: discarded"),
    Event.JOIN: commit.join_received,
    Event.COMMIT_TOKEN: commit.commit_token_received,
    Event.TOKEN_LOSS_TIMEOUT: commit.token_loss_timeout_expired,
    Event.TOKEN_RETRANSMISSION_TIMEOUT: commit.token_retransmission_timeout_expired,
    Event.JOIN_TIMEOUT: _no_timer,
    Event.CONSENSUS_TIMEOUT: _no_timer,
    Event.LEAVE: gather.leave_received,
    Event.WAKE: ignored("there is no token to wake"),
    Event.HOLD_TIMEOUT: _no_timer,
    Event.WRITTEN: commit.written,
    Event.SUBMIT: _no_ring,
}

_RECOVERY: dict[Event, Handler] = {
    Event.REGULAR_TOKEN: recovery.regular_token_received,
    Event.REGULAR_MESSAGE: recovery.regular_message_received,
    Event.FOREIGN_MESSAGE: ignored("Figure 6: discarded"),
    Event.JOIN: recovery.join_received,
    Event.COMMIT_TOKEN: recovery.commit_token_received,
    Event.TOKEN_LOSS_TIMEOUT: recovery.token_loss_timeout_expired,
    Event.TOKEN_RETRANSMISSION_TIMEOUT: recovery.token_retransmission_timeout_expired,
    Event.JOIN_TIMEOUT: _no_timer,
    Event.CONSENSUS_TIMEOUT: _no_timer,
    Event.LEAVE: gather.leave_received,
    Event.WAKE: ignored("nobody rests with the token in Recovery"),
    Event.HOLD_TIMEOUT: _no_timer,
    Event.WRITTEN: _late_write,
    Event.SUBMIT: _no_ring,
}

_STARTING: dict[Event, Handler] = dict.fromkeys(Event, _not_mine) | {
    Event.TOKEN_LOSS_TIMEOUT: _no_timer,
    Event.TOKEN_RETRANSMISSION_TIMEOUT: _no_timer,
    Event.JOIN_TIMEOUT: _no_timer,
    Event.CONSENSUS_TIMEOUT: _no_timer,
    Event.HOLD_TIMEOUT: _no_timer,
    Event.WRITTEN: singleton_number_written,
    Event.SUBMIT: _no_ring,
}

_TIMERS = (
    Event.TOKEN_LOSS_TIMEOUT,
    Event.TOKEN_RETRANSMISSION_TIMEOUT,
    Event.JOIN_TIMEOUT,
    Event.CONSENSUS_TIMEOUT,
    Event.HOLD_TIMEOUT,
)

_STOPPED: dict[Event, Handler] = dict.fromkeys(Event, _gone) | dict.fromkeys(_TIMERS, _no_timer)

TABLE: dict[Phase, dict[Event, Handler]] = {
    Phase.OPERATIONAL: _OPERATIONAL,
    Phase.GATHER: _GATHER,
    Phase.COMMIT: _COMMIT,
    Phase.RECOVERY: _RECOVERY,
    Phase.STARTING: _STARTING,
    Phase.STOPPED: _STOPPED,
}


def rows() -> Rows:
    return {phase: tuple(cells[event] for event in Event) for phase, cells in TABLE.items()}
