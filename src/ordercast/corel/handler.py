"""Figure 2: the configuration change handler, up to the point at which all State messages are here."""

from __future__ import annotations

from functools import partial

from ordercast.corel import catchup, everyone, recovery, regular
from ordercast.corel.journal import NEVER
from ordercast.corel.messages import Round, StateMessage, encode_state
from ordercast.corel.plan import Plan, Rules, make_plan
from ordercast.corel.state import Phase, Reason, State
from ordercast.wire.ids import NodeId


def configuration_changed(s: State) -> None:
    """The engine below has delivered a regular configuration."""
    assert s.view is not None
    reason = Reason.START if s.round.view == 0 else Reason.CONFIGURATION_CHANGE
    begin_round(s, Round(s.view.number, 0), reason)


def regroup_received(s: State) -> None:
    """Deviation K9: the handler runs again in this configuration, for a member that can take part now, or no more."""
    if s.primary_component_bit:
        primary = s.record.last_committed_primary
        s.report("primary", "left", number=primary.number, members=[name for name, _ in primary.members])
    begin_round(s, Round(s.round.view, s.round.epoch + 1), Reason.REGROUP)


def begin_round(s: State, round_: Round, reason: Reason) -> None:
    """Unset the primary component bit, stop handling and sending regular messages, run the recovery procedure.

    Deviation K1: the recovery is run at every change, also when nobody is new.
    """
    regular.drop_buffered(s)
    s.round = round_
    s.states.clear()
    s.plan = None
    s.members = ()
    s.priority.clear()
    s.reds.clear()
    s.to_send.clear()
    s.arrived.clear()
    s.attempted.clear()
    s.committed.clear()
    s.acks.clear()
    s.placed.clear()
    s.fetches.clear()
    catchup.forget(s)
    s.regroup_sent = False
    s.acked_place, s.ack_at = 0, NEVER
    s.journal.begin_round()
    s.shift(Phase.EXCHANGE, reason)
    # What a State message says is on the disk.
    s.journal.after(partial(send_state, s, round_))


def send_state(s: State, round_: Round) -> None:
    """Step 1."""
    if s.round != round_ or s.phase is not Phase.EXCHANGE:
        return
    record = s.record
    if record.last_committed_primary.number > s.group_told:
        # The round or the life in which it was committed to ended before it was established.
        s.report_group("committed")
    state = StateMessage(
        record.last_committed_primary,
        record.last_attempted_primary,
        {**record.base_vector, **s.mq.last},
        s.mq.green,
        s.mq.yellow,
        record.attempts,
        record.heard,
        record.founding,
        record.group,
        s.earliest,
        s.known,
    )
    s.send(encode_state(round_, 0, state), 0)


def state_received(s: State, sender: NodeId, state: StateMessage) -> None:
    """Step 2: wait for the State messages of all."""
    assert s.view is not None
    s.states[sender] = state
    everyone.learn(s, sender, state)
    if len(s.states) < len(s.view.members):
        return
    rules = Rules(s.config.founders, s.config.dynamic_voting, s.config.lag_max)
    s.plan = plan = make_plan(s.states, rules)
    if plan is None or s.name not in plan.active:
        be_passive(s, plan)
    else:
        recovery.begin(s, plan)


def be_passive(s: State, plan: Plan | None) -> None:
    regular.drop_buffered(s)
    if plan is None or s.name in plan.stranded:
        s.shift(Phase.PASSIVE, Reason.HEARD_OF_MORE)
    elif s.name in plan.foreign:
        s.shift(Phase.PASSIVE, Reason.ANOTHER_GROUP)
    else:
        eligible = s.name in plan.group or s.name in dict(plan.max_committed.group)
        s.shift(Phase.PASSIVE, Reason.BEHIND if eligible else Reason.NOT_DECLARED)
        catchup.enter(s, plan)
