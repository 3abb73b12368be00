"""§3.5.1, Figure 3: establishing a new primary component in three phases."""

from __future__ import annotations

from functools import partial

from ordercast.corel import recovery, regular
from ordercast.corel.messages import MessageKind, Round, encode_number
from ordercast.corel.plan import Plan, weights
from ordercast.corel.quorum import quorum
from ordercast.corel.record import Primary
from ordercast.corel.state import Phase, Reason, State
from ordercast.engine.contract import Component
from ordercast.wire.ids import NodeId


def begin(s: State, plan: Plan) -> None:
    """All members of the component have the same queue: attempt to establish it."""
    primary = new_primary(s, plan)
    s.members = tuple(NodeId(name) for name, _ in primary.members)
    if s.name not in s.members:
        # It was removed: the others go on without it.
        regular.drop_buffered(s)
        s.shift(Phase.PASSIVE, Reason.NOT_DECLARED)
        return
    s.shift(Phase.ATTEMPT, Reason.RECOVERED)
    s.record.last_attempted_primary = plan.number
    s.record.attempts.append(primary)
    s.save()
    s.journal.after(partial(send_phase, s, s.round, MessageKind.ATTEMPT, plan.number))


def new_primary(s: State, plan: Plan) -> Primary:
    """Those who take part and are of the declared group, before or after the changes that are in the queue.

    A vote binds those who cast it, so they are members. Under dynamic voting it may take members that were removed to
    outnumber the last primary component: these stay until it does not.
    """
    if plan.founds:
        members = dict.fromkeys(map(str, plan.active), 1)
        return Primary(plan.number, weights(members), weights(members))
    group = dict(s.record.group)
    for item in s.mq.tail:
        if item.change:
            group = regular.changed(group, item)
    eligible = {**dict(plan.max_committed.group), **group}
    names = [name for name in plan.active if name in eligible]
    bound = [name for name in plan.voters if name in eligible]
    if not quorum(plan.basis, bound, dynamic=s.config.dynamic_voting):
        names = [name for name in plan.active if name in eligible or name in plan.voters]
    return Primary(plan.number, weights({str(name): eligible.get(name, 1) for name in names}), weights(group))


def send_phase(s: State, round_: Round, kind: MessageKind, number: int) -> None:
    """What the message says is on the disk."""
    if s.round == round_:
        s.send(encode_number(kind, round_, regular.take_ack(s), number), 0)


def attempt_received(s: State, sender: NodeId, number: int) -> None:
    plan = s.plan
    assert plan is not None
    assert number == plan.number, "members of one configuration attempt different numbers"
    s.attempted.add(sender)
    commit_if_all_attempted(s, plan)


def commit_if_all_attempted(s: State, plan: Plan) -> None:
    """One atomic step: commit to the configuration, and mark as yellow all messages that are not green."""
    if s.phase is not Phase.ATTEMPT or not s.attempted.issuperset(s.members):
        return
    s.shift(Phase.COMMIT, Reason.ALL_ATTEMPTED)
    record = s.record
    record.last_committed_primary = record.attempts[-1]
    record.attempts = []
    record.heard = max(record.heard, plan.number)
    if plan.founds:
        assert s.view is not None
        record.founding = s.view.id
        record.group = dict(record.last_committed_primary.group)
    s.mq.yellow = s.mq.end
    s.write_lines()
    primary = record.last_committed_primary
    s.report("primary", "committed", number=primary.number, members=[name for name, _ in primary.members])
    s.journal.after(partial(send_phase, s, s.round, MessageKind.COMMIT, plan.number))


def commit_received(s: State, sender: NodeId, number: int) -> None:
    plan = s.plan
    assert plan is not None
    assert number == plan.number, "members of one configuration commit to different numbers"
    s.committed.add(sender)
    establish_if_all_committed(s, plan)


def establish_if_all_committed(s: State, plan: Plan) -> None:
    """Set the primary component bit; all messages in MQ are green."""
    if s.phase is not Phase.COMMIT or not s.committed.issuperset(s.members):
        return
    s.shift(Phase.PRIMARY, Reason.ALL_COMMITTED)
    primary = s.record.last_committed_primary
    s.report("primary", "established", number=primary.number, members=[name for name, _ in primary.members])
    s.report_group("established")
    assert s.view is not None
    component = Component(s.view, primary.number)
    regular.mark_green(s, s.mq.end)
    s.journal.component(component)
    s.effects.append(component)
    declared = [name for name in s.members if name in dict(primary.group)]
    if len(declared) < len(s.members) and quorum([primary], declared, dynamic=s.config.dynamic_voting):
        # Those who were removed are not needed any more.
        regular.ask_to_regroup(s)
    recovery.continue_regular(s)
