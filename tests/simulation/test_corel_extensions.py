"""What corel does beyond its paper's algorithm: weights, changes of the group, lost disks, snapshots."""

from __future__ import annotations

from corel_world import durable, founded, node, ordered, run, settled, until
from ordercast.check.events import Extra, Group
from ordercast.corel import Phase
from ordercast.corel.messages import StateMessage
from ordercast.corel.plan import Rules, make_plan
from ordercast.corel.record import Primary
from ordercast.sim.world import World
from ordercast.wire.ids import NodeId

FAR = 0.9
"""Seconds within which a partition has been noticed, and whoever may has become primary."""


def phase(world: World, name: str) -> Phase:
    return node(world, name).corel.state.phase


def group(world: World, name: str) -> dict[str, int]:
    return node(world, name).corel.state.record.group


def members(world: World, name: str) -> list[str]:
    state = node(world, name).corel.state
    return [member for member, _ in state.record.last_committed_primary.members]


def test_weights_decide_which_side_is_primary() -> None:
    world = founded(3)
    run(world, "propose add n1 3 at n2", seconds=0.5)
    assert [group(world, one.name)["n1"] for one in durable(world)] == [3, 3, 3]
    run(world, "partition n1 | n2 n3", seconds=FAR)
    assert phase(world, "n1") is Phase.PRIMARY
    assert phase(world, "n2") is phase(world, "n3") is Phase.COMPONENT
    settled(world)


def test_a_change_of_the_group_is_ordered_like_a_message() -> None:
    world = founded(3)
    run(world, "send 1 n1", "propose remove n3 at n2", "send 1 n1", seconds=0.5)
    orders = [ordered(world, name) for name in ("n1", "n2")]
    assert orders[0] == orders[1]
    assert sum("change" in name for name in orders[0]) == 1


def test_a_member_that_is_removed_does_not_hold_up_the_others() -> None:
    world = founded(3)
    run(world, "propose remove n3 at n1", seconds=0.5)
    assert members(world, "n1") == ["n1", "n2"]
    run(world, "crash n3", seconds=FAR)
    run(world, "send 1 n1", seconds=0.3)
    assert ordered(world, "n1")[-1] == ordered(world, "n2")[-1] == "n1.1:1"
    run(world, "restart n3", seconds=FAR)
    assert phase(world, "n3") is Phase.PASSIVE
    settled(world)


def test_a_member_is_added_again_and_has_everything() -> None:
    world = founded(3)
    run(world, "propose remove n3 at n1", seconds=0.5)
    run(world, "send 30 n1", seconds=0.5)
    run(world, "propose add n3 1 at n2", seconds=FAR)
    assert sorted(members(world, "n1")) == ["n1", "n2", "n3"]
    assert ordered(world, "n3") == ordered(world, "n1")
    settled(world)


def test_two_of_five_go_on_once_the_others_have_been_removed() -> None:
    world = founded(5)
    for name in ("n5", "n4", "n3"):
        run(world, f"propose remove {name} at n1", seconds=0.5)
    run(world, "crash n3 n4 n5", seconds=FAR)
    run(world, "send 1 n2", seconds=0.4)
    assert ordered(world, "n1")[-1] == "n2.1:1"
    settled(world)


def test_who_was_removed_makes_no_second_primary_component_with_the_one_left() -> None:
    """Under dynamic voting a removed member, which remembers nothing of what it votes for, has no vote."""
    world = founded(3, "config dynamic_voting=1")
    run(world, "partition n1 n2 | n3", seconds=FAR)
    run(world, "propose remove n2 at n3", seconds=0.2)
    run(world, "merge")
    records = [one.corel.state.record for one in durable(world)]
    until(world, lambda: all("n2" not in record.group for record in records))
    assert "n2" in members(world, "n1")
    run(world, "partition n1 n2 | n3", seconds=FAR)
    run(world, "send 2 n1", seconds=0.4)
    run(world, "partition n1 | n2 n3", seconds=FAR)
    run(world, "send 2 n3", seconds=0.4)
    assert phase(world, "n1") is not Phase.PRIMARY or phase(world, "n3") is not Phase.PRIMARY
    settled(world)


def test_a_lost_disk_is_brought_up_while_the_group_goes_on() -> None:
    world = founded(3, "config lag_max=10")
    run(world, "send 40 n1", "send 40 n2", seconds=1)
    run(world, "crash n3", seconds=FAR)
    run(world, "reinstall n3", seconds=0.1)
    for _ in range(10):
        run(world, "send 5 n1", seconds=0.1)
    until(world, lambda: phase(world, "n3") is Phase.PRIMARY)
    run(world, seconds=0.5)
    assert node(world, "n3").corel.state.mq.green == node(world, "n1").corel.state.mq.green == 130
    settled(world)


def test_a_lost_disk_knows_the_declared_group_again() -> None:
    """It must not count the changes of the group from nothing: the next primary component would be its idea of it."""
    world = founded(3, "config lag_max=10")
    run(world, "send 40 n1", "propose add n2 2 at n1", seconds=1)
    run(world, "crash n3", seconds=FAR)
    run(world, "reinstall n3", seconds=2)
    assert group(world, "n3") == group(world, "n1") == {"n1": 1, "n2": 2, "n3": 1}
    states = [one.corel.state.record.last_committed_primary for one in durable(world)]
    assert states[0] == states[1] == states[2]
    settled(world)


def test_members_that_lost_their_disks_do_not_count_towards_a_majority() -> None:
    world = founded(3)
    run(world, "send 3 n1", seconds=0.3)
    run(world, "crash n1 n2 n3", "reinstall n2 n3", seconds=FAR)
    assert phase(world, "n2") is not Phase.PRIMARY
    run(world, "restart n1", seconds=2)
    assert ordered(world, "n1") == ["n1.1:1", "n1.1:2", "n1.1:3"]


def test_a_new_disk_is_brought_up_from_a_snapshot() -> None:
    world = founded(3, "config lag_max=10")
    for _ in range(6):
        run(world, "send 50 n1 size=200..300", seconds=0.5)
    run(world, "snapshot *", "crash n3", seconds=FAR)
    run(world, "reinstall n3", "send 5 n2", seconds=2)
    restored = node(world, "n3").restored
    assert restored is not None
    assert restored.snapshot == b"state as of %d" % restored.offset
    assert node(world, "n3").corel.status()["earliest"] == restored.offset == 300
    assert any(isinstance(event, Extra) and event.event == "x-restored" for event in world.traces["n3"])


def test_a_member_that_lags_keeps_its_own_messages() -> None:
    world = founded(3, "config lag_max=3")
    run(world, "partition n1 n2 | n3", seconds=FAR)
    run(world, "send 20 n1", "send 2 n3", seconds=0.5)
    run(world, "merge", seconds=2)
    assert {"n3.1:1", "n3.1:2"} <= set(ordered(world, "n1"))
    assert ordered(world, "n3") == ordered(world, "n1")
    settled(world)


def test_who_is_brought_up_hears_of_the_primary_component_that_orders_meanwhile() -> None:
    """Its donor has established another one since the round began; who was not in that cannot speak for the pupil."""
    world = founded(3)
    run(world, "propose remove n1 at n2", seconds=0.5)
    run(world, "propose remove n3 at n2", seconds=0.5)
    run(world, "send 20 n2", seconds=0.5)
    assert members(world, "n2") == ["n2"]
    established = node(world, "n2").corel.state.record.last_committed_primary.number
    pupil, removed = node(world, "n1").corel.state, node(world, "n3").corel.state
    assert pupil.mq.green == node(world, "n2").corel.state.mq.green > removed.mq.green
    assert removed.record.heard < pupil.record.heard == established
    run(world, "partition n1 n3 | n2", seconds=FAR)
    assert pupil.plan is not None
    assert pupil.plan.stranded == ("n1",)
    run(world, "crash n1", "restart n1", seconds=FAR)
    assert node(world, "n1").corel.state.record.heard == established
    settled(world)


def test_what_a_pupil_sends_does_not_come_before_what_it_had() -> None:
    """C1: its message was on its way when the configuration changed; nobody retransmits what stands before it there."""
    world = founded(5, "config lag_max=3 retransmit_bytes=300")
    run(world, "partition n1 n2 n3 | n4 n5", seconds=FAR)
    for _ in range(10):
        run(world, "send 20 n1 size=200..300", seconds=0.1)
    run(world, "send 1 n4", seconds=0.4)
    run(world, "partition n1 n2 n3 n5 | n4", "send 1 n5", seconds=0.03)
    run(world, "send 2 n5")
    until(world, lambda: "n5" in members(world, "n1"))
    run(world, seconds=0.5)
    assert ordered(world, "n1")[-3:] == ["n5.1:1", "n5.1:2", "n5.1:3"]
    assert "n4.1:1" in ordered(world, "n1")
    assert node(world, "n1").corel.state.counters["not taken"] > 0
    settled(world)


def test_retention_removes_what_a_state_message_said_is_there() -> None:
    """The representative finds nothing where its Priority messages were to begin, and asks for another round."""
    world = founded(3)
    run(world, "partition n1 n2 | n3", seconds=FAR)
    for _ in range(6):
        run(world, "send 50 n1 size=200..300", seconds=0.5)
    run(world, "send 1 n3", "merge")
    state = node(world, "n1").corel.state
    until(world, lambda: state.phase is Phase.EXCHANGE and state.states)
    run(world, "snapshot n1", "snapshot n2", seconds=2)
    restored = node(world, "n3").restored
    assert restored is not None
    assert restored.offset == 300
    assert ordered(world, "n3")[-1] == ordered(world, "n1")[-1] == "n3.1:1"
    settled(world)


def test_retention_removes_what_a_pupil_needs_next() -> None:
    world = founded(3, "config lag_max=10 retransmit_bytes=1000")
    run(world, "crash n3", seconds=FAR)
    for _ in range(10):
        run(world, "send 50 n1 size=200..300", seconds=0.5)
    run(world, "restart n3")
    donor = node(world, "n1").corel.state
    until(world, lambda: 0 < donor.catch_at < 450)
    run(world, "snapshot n1", seconds=2)
    restored = node(world, "n3").restored
    assert restored is not None
    assert restored.offset == 500
    assert phase(world, "n3") is Phase.PRIMARY
    settled(world)


def test_priority_messages_begin_where_somebody_lacks_them() -> None:
    """A representative whose green line was lost in a crash has all of it: it is told the line, not the messages.

    The log of the one who would send them may begin behind that line.
    """
    group = {"n1": 1, "n2": 1, "n3": 1}
    first, second = (Primary(number, tuple(group.items()), tuple(group.items())) for number in (1, 2))

    def state(committed: Primary, green: int, yellow: int, earliest: int) -> StateMessage:
        number = committed.number
        return StateMessage(
            committed, number, {"n1": yellow}, green, yellow, [], number, "4:n1", group, earliest=earliest
        )

    states = {
        NodeId("n1"): state(second, 100, 100, 90),
        NodeId("n2"): state(second, 40, 100, 95),
        NodeId("n3"): state(first, 95, 95, 0),
    }
    plan = make_plan(states, Rules(3, False, 20_000))
    assert plan is not None
    assert plan.representatives == ("n1", "n2")
    assert plan.active == ("n1", "n2", "n3")
    assert plan.representative == "n1"
    assert plan.priority_from == 95


def test_a_group_that_was_committed_to_is_told_though_it_was_not_established() -> None:
    """The next primary component is judged by it (C8), also by members that were in this one as far as that alone."""
    world = founded(3)
    run(world, "propose add n1 3 at n2")
    state = node(world, "n3").corel.state
    until(world, lambda: state.phase is Phase.COMMIT and state.journal.idle)
    run(world, "partition n3 | n1 n2", seconds=FAR)
    groups = [event for event in world.traces["n3"] if isinstance(event, Group)]
    assert [event.weights for event in groups] == [(1, 1, 1), (3, 1, 1)]
    settled(world)


def test_no_disk_is_lost_that_is_the_last_to_remember_the_group() -> None:
    world = founded(3)
    run(world, "send 3 n1", seconds=0.3)
    run(world, "crash *", "reinstall *", seconds=FAR)
    assert world.faults["wipe"] == 2
    assert [phase(world, one.name) is Phase.PRIMARY for one in durable(world)] == [False] * 3
    assert len(ordered(world, "n3")) == 3
