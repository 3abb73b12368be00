"""What paper 003 claims of COReL, a test a claim, on simulated groups. Its two rounds are counted in
`tests/simulation/test_corel_rounds.py`, its invariants (§3.4) are `ordercast check`'s, on every seed."""

from __future__ import annotations

import pytest

from corel_world import durable, founded, node, ordered, run, settled, until
from ordercast.check.events import Colour, Deliver, Order, Primary, Send
from ordercast.corel import Phase
from ordercast.corel.messages import MessageKind, decode_head, decode_red
from ordercast.corel.queue import Item
from ordercast.engine.contract import Originated, Transport
from ordercast.sim.corel_record import CorelLog
from ordercast.sim.world import World

FAR = 0.9
"""Seconds within which a partition has been noticed, and whoever may has become primary."""


def colours(world: World, name: str) -> dict[str, str]:
    """What each message is at a node now."""
    return {event.msg: event.colour for event in world.traces[name] if isinstance(event, Colour)}


def kinds(world: World, name: str) -> str:
    """The queue's zones: g, y and r for each message."""
    one = node(world, name)
    now = colours(world, name)
    return "".join(now[message][0] for message in one.corel_log.queue)


def phase(world: World, name: str) -> Phase:
    return node(world, name).corel.state.phase


def tail(world: World, name: str) -> list[Item]:
    return list(node(world, name).corel.state.mq.tail)


def primaries(world: World, name: str) -> list[tuple[int, tuple[str, ...]]]:
    found = [event for event in world.traces[name] if isinstance(event, Primary) and not event.learned]
    return [(event.number, event.members) for event in found]


# Section 1


def test_003_1_members_of_a_minority_initiate_messages() -> None:
    world = founded(3)
    run(world, "partition n1 | n2 n3", seconds=FAR)
    run(world, "send 2 n1", seconds=0.2)
    assert kinds(world, "n1") == "rr"
    assert node(world, "n1").progress.stable == 2


def test_003_1_a_message_is_ordered_although_its_initiator_is_never_in_a_majority() -> None:
    world = founded(5)
    run(world, "partition n1 n2 | n3 n4 n5", seconds=FAR)
    run(world, "send 1 n1", seconds=0.2)
    run(world, "crash n1", "partition n1 | n2 n3 n4 n5", seconds=FAR)
    assert ordered(world, "n3") == ordered(world, "n2") == ["n1.1:1"]
    settled(world)


def test_003_1_a_connected_majority_orders_whatever_happened_before() -> None:
    world = founded(3)
    run(world, "send 1 *", seconds=0.2)
    run(world, "crash n1 n2 n3", "restart n2 n3", seconds=FAR)
    run(world, "send 1 n2", seconds=0.5)
    assert len(ordered(world, "n2")) == len(ordered(world, "n3")) == 4
    settled(world)


# Section 3.1


def test_003_3_1_a_message_is_acknowledged_after_it_is_on_stable_storage() -> None:
    world = founded(3)
    run(world, "disk latency 0.5 0 n3", "send 1 n1", seconds=0.4)
    assert ordered(world, "n1") == []
    assert kinds(world, "n1") == "y"
    run(world, seconds=0.3)
    assert ordered(world, "n1") == ["n1.1:1"]


def test_erratum_18_an_acknowledgement_travels_alone_when_there_is_nothing_to_ride_on() -> None:
    world = founded(3)
    run(world, seconds=1)
    run(world, "send 1 n1", seconds=0.3)
    assert all(ordered(world, one.name) == ["n1.1:1"] for one in durable(world))


def test_003_3_1_members_keep_messages_for_those_who_are_away() -> None:
    world = founded(3)
    run(world, "crash n3", seconds=FAR)
    run(world, "send 5 n1", seconds=0.3)
    run(world, "restart n3", seconds=FAR)
    assert ordered(world, "n3") == ordered(world, "n1")
    assert len(ordered(world, "n3")) == 5


# Section 3.2


def test_003_3_2_within_a_primary_component_the_order_is_the_transports() -> None:
    world = founded(3)
    run(world, "send 4 *", "send 3 n2", seconds=0.5)
    delivered = [event.msg for event in world.traces["n3"] if isinstance(event, Deliver) and "@" not in event.msg]
    assert ordered(world, "n1") == delivered[: len(ordered(world, "n1"))]
    assert len(delivered) == 15


def test_003_3_2_a_retransmitted_message_keeps_its_original_timestamp() -> None:
    world = founded(3)
    run(world, "partition n1 | n2 | n3", seconds=FAR)
    run(world, "send 1 n1", seconds=0.2)
    (there,) = tail(world, "n1")
    run(world, "partition n1 n2 | n3", "crash n3", seconds=FAR)
    stored = {chunk.sender: chunk.place for _, chunk in node(world, "n2").log_disk.stored()}
    assert stored["n1"] == there.ts


def test_003_order_rule_1_a_message_waits_for_all_members_of_the_primary_component() -> None:
    world = founded(3)
    run(world, "disk latency 0.6 0 n2", "send 1 n1", seconds=0.5)
    assert [kinds(world, name) for name in ("n1", "n3")] == ["y", "y"]
    until(world, lambda: ordered(world, "n3") == ["n1.1:1"])
    assert ordered(world, "n1") == ["n1.1:1"]


def test_003_3_2_a_majority_goes_before_concurrent_messages_of_a_minority() -> None:
    """Although the minority's were sent first, and some have lower timestamps."""
    world = founded(3)
    run(world, "partition n1 | n2 n3", seconds=FAR)
    run(world, "send 1 n1", seconds=0.2)
    run(world, "send 1 n2", seconds=0.2)
    run(world, "merge", seconds=FAR)
    assert ordered(world, "n1") == ["n2.1:1", "n1.1:1"]
    settled(world)


# Section 3.2.1


def test_003_3_2_1_the_queue_is_green_then_yellow_then_red() -> None:
    world = founded(3)
    run(world, "send 1 n1", seconds=0.3)
    run(world, "disk latency 1 0 n3", "send 1 n2", seconds=0.2)
    run(world, "partition n1 | n2 n3", seconds=0.7)
    run(world, "send 1 n1", seconds=0.3)
    assert kinds(world, "n1") == "gyr"


def test_003_3_2_1_the_next_primary_component_has_what_may_be_green_elsewhere() -> None:
    """n1 alone has seen the last acknowledgement, and is gone; the others have the message yellow, and order it."""
    world = founded(3)
    run(world, "cut n3 -> n2", "send 1 n1", seconds=0.02)
    run(world, "crash n1", "mend n3 -> n2", seconds=FAR)
    run(world, "send 1 n2", seconds=0.4)
    assert ordered(world, "n2") == ["n1.1:1", "n2.1:1"]
    settled(world)


# Section 3.5


def test_003_figure_2_regular_messages_are_not_sent_while_the_handler_runs() -> None:
    world = founded(3)
    run(world, "disk latency 0.3 0 n2", "partition n1 n2 | n3")
    until(world, lambda: phase(world, "n1") is Phase.EXCHANGE)
    before = len(world.traces["n1"])
    run(world, "send 1 n1", seconds=0.05)
    assert phase(world, "n1") not in (Phase.PRIMARY, Phase.COMPONENT)
    assert not [event for event in world.traces["n1"][before:] if isinstance(event, Send) and "@" not in event.msg]
    run(world, seconds=3)
    assert ordered(world, "n1") == ["n1.1:1"]


def test_003_3_5_concurrent_red_messages_are_interleaved_by_their_timestamps() -> None:
    world = founded(4)
    run(world, "partition n1 | n2 | n3 n4", seconds=FAR)
    run(world, "send 1 n2", seconds=0.1)
    run(world, "send 1 n1", "send 1 n3", seconds=0.2)
    places = {item.stream: item.ts for name in ("n1", "n2", "n3") for item in tail(world, name)}
    run(world, "merge", seconds=1.5)
    streams = [name.partition(".")[0] for name in ordered(world, "n4")]
    by_ts = sorted(places, key=lambda stream: (places[stream].number, places[stream].view, places[stream].nth))
    assert streams == [stream.partition(" ")[0] for stream in by_ts]
    assert len(streams) == 3


def test_003_3_5_the_new_green_line_is_the_highest() -> None:
    world = founded(3)
    run(world, "partition n1 | n2 n3", seconds=FAR)
    run(world, "send 3 n2", seconds=0.3)
    run(world, "crash n3", "merge", seconds=FAR)
    assert kinds(world, "n1")[:3] == "ggg"
    assert ordered(world, "n1") == ordered(world, "n2")


def test_003_3_5_2_yellow_messages_that_nobody_ordered_turn_red_and_stand_by_timestamp() -> None:
    """n1 has a message yellow that did not reach the others; they make the next primary component without it."""
    world = founded(3)
    run(world, "cut n1 -> *", "send 1 n1", seconds=0.003)
    run(world, "partition n1 | n2 n3", "mend n1 -> *", seconds=FAR)
    run(world, "send 1 n2", seconds=0.3)
    assert ordered(world, "n2") == ["n2.1:1"]
    run(world, "merge", seconds=FAR)
    assert ordered(world, "n1") == ["n2.1:1", "n1.1:1"]
    settled(world)


# Section 3.5.1


def test_003_3_5_1_only_a_majority_becomes_primary() -> None:
    world = founded(5)
    run(world, "partition n1 n2 | n3 n4 n5", seconds=FAR)
    assert phase(world, "n1") is phase(world, "n2") is Phase.COMPONENT
    assert phase(world, "n3") is Phase.PRIMARY
    assert primaries(world, "n3")[-1][1] == ("n3", "n4", "n5")


def test_003_3_5_1_half_is_no_majority() -> None:
    world = founded(4)
    run(world, "partition n1 n2 | n3 n4", seconds=FAR)
    assert {phase(world, one.name) for one in durable(world)} == {Phase.COMPONENT}


def test_003_3_5_1_primary_components_are_numbered_one_after_the_other() -> None:
    world = founded(3)
    run(world, "crash n3", seconds=FAR)
    run(world, "restart n3", seconds=FAR)
    numbers = [number for number, _ in primaries(world, "n1")]
    assert numbers == sorted(set(numbers))
    assert len(numbers) >= 3


def test_003_figure_3_an_establishing_that_is_aborted_leaves_nothing_to_undo() -> None:
    """The network changes at many moments on the way to a primary component; the group always finds the next one."""
    reached = set()
    for step in range(14):
        world = founded(3)
        run(world, "send 1 n1", "disk latency 0.02 0 *", "partition n1 | n2 n3", seconds=0.42 + step * 0.015)
        reached.add(phase(world, "n2"))
        run(world, "partition n1 n2 | n3", seconds=FAR)
        assert phase(world, "n1") is Phase.PRIMARY
        settled(world)
    assert len(reached) >= 3, reached


def test_003_figure_3_the_primary_bit_needs_commits_of_all_members() -> None:
    world = founded(3)
    run(world, "crash n1", "disk latency 0.2 0 n3")
    until(world, lambda: phase(world, "n2") is Phase.COMMIT)
    assert phase(world, "n3") in (Phase.ATTEMPT, Phase.COMMIT)
    until(world, lambda: phase(world, "n2") is Phase.PRIMARY)
    assert node(world, "n3").corel.state.record.last_committed_primary.number == primaries(world, "n2")[-1][0]


def test_003_3_5_1_what_was_committed_to_is_on_stable_storage() -> None:
    world = founded(3)
    number = primaries(world, "n1")[-1][0]
    run(world, "crash n1 n2 n3", "restart n1", seconds=0.01)
    record = node(world, "n1").corel.state.record
    assert record.last_committed_primary.number == number
    assert record.last_attempted_primary == number


# Section 3.5.2


def test_003_figure_4_what_stands_before_a_message_is_retransmitted_before_it() -> None:
    """A chain of causes through three components, in all of which somebody else keeps the beginning."""
    world = founded(5)
    run(world, "partition n1 n2 | n3 | n4 n5", seconds=FAR)
    run(world, "send 1 n1", seconds=0.2)
    run(world, "partition n1 | n2 n3 | n4 n5", seconds=FAR)
    run(world, "send 1 n3", seconds=0.2)
    run(world, "partition n1 n2 | n3 n4 | n5", seconds=FAR)
    run(world, "send 1 n4", seconds=0.2)
    run(world, "merge", seconds=1.5)
    assert ordered(world, "n5") == ["n1.1:1", "n3.1:1", "n4.1:1"]
    settled(world)


def test_003_figure_4_messages_of_others_may_come_in_another_order_than_they_stand_here() -> None:
    """n1 has the second message alone, and does not wait for the first, which n2 retransmits to it."""
    world = founded(7)
    run(world, "partition n1 n4 | n2 | n3 | n5 n6 | n7", seconds=FAR)
    run(world, "send 1 n2", seconds=0.1)
    run(world, "partition n1 n3 n4 | n2 | n5 n6 | n7", seconds=FAR)
    run(world, "send 1 n1", seconds=0.1)
    run(world, "partition n2 n4 | n1 n3 | n5 n6 | n7", seconds=FAR)
    assert [item.sender for item in node(world, "n4").corel.state.mq.tail] == ["n2", "n1"]
    assert [item.sender for item in node(world, "n1").corel.state.mq.tail] == ["n1"]
    run(world, "cost 0.003 n2", "merge", seconds=3)
    assert all(node.corel.state.primary_component_bit for node in durable(world))
    settled(world)


def test_003_3_5_2_the_recovery_runs_again_when_the_configuration_changes_under_it() -> None:
    world = founded(5)
    run(world, "partition n1 n2 | n3 n4 n5", seconds=FAR)
    run(world, "send 9 n1", "send 9 n3", seconds=0.3)
    for groups in ("n1 n2 n3 | n4 n5", "n1 | n2 n3 n4 n5", "n1 n5 | n2 n3 n4"):
        run(world, f"partition {groups}", seconds=0.45)
    settled(world)
    assert len(ordered(world, "n1")) >= 18


def test_003_3_5_a_message_that_the_handler_held_back_has_one_timestamp() -> None:
    """Others of that configuration may have come to take it: its sender keeps it, and does not send it again."""
    world = founded(3)
    run(world, "partition n1 n2 | n3", seconds=0.03)
    run(world, "send 1 n2")
    state = node(world, "n2").corel.state
    until(world, lambda: bool(state.buffered))
    (held,) = [item for item, _ in state.buffered]
    run(world, "partition n1 | n2 | n3", seconds=FAR)
    assert [(item.name, item.ts) for item in state.mq.tail] == [(held.name, held.ts)]
    settled(world)
    sent = [event for event in world.traces["n2"] if isinstance(event, Send) and event.msg.startswith("n2.1:1")]
    assert len(sent) == 1
    for one in durable(world):
        (chunk,) = [chunk for _, chunk in one.log_disk.stored() if chunk.sender == "n2" and chunk.number == 1]
        assert chunk.place == held.ts


def test_003_3_5_2_each_message_is_retransmitted_by_one_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """n1 and n2 have the message; the other two get it once."""
    sent: list[str] = []
    noted = CorelLog.transport

    def transport(log: CorelLog, effect: Transport) -> None:
        if isinstance(effect.effect, Originated):
            reds = (body for body in effect.bodies if decode_head(body).kind is MessageKind.RED)
            sent.extend(chunk.stream for body in reds for chunk in decode_red(body))
        noted(log, effect)

    monkeypatch.setattr(CorelLog, "transport", transport)
    world = founded(4)
    run(world, "partition n1 n2 | n3 n4", seconds=FAR)
    run(world, "send 1 n1", seconds=0.3)
    run(world, "merge", seconds=FAR)
    assert len(sent) == 1
    assert all(ordered(world, one.name) == ["n1.1:1"] for one in durable(world))


# Section 4


def test_003_4_dynamic_voting_goes_on_with_a_majority_of_the_last_primary_component() -> None:
    world = founded(5, "config dynamic_voting=1")
    run(world, "partition n1 n2 n3 | n4 n5", seconds=FAR)
    run(world, "partition n1 n2 | n3 | n4 n5", seconds=FAR)
    assert [phase(world, name) for name in ("n1", "n2", "n4")] == [Phase.PRIMARY, Phase.PRIMARY, Phase.COMPONENT]
    run(world, "partition n1 n2 | n3 n4 n5", seconds=FAR)
    assert phase(world, "n3") is Phase.COMPONENT, "three of five are no majority of the last primary component"
    settled(world)


def test_003_4_without_dynamic_voting_it_takes_a_majority_of_all() -> None:
    world = founded(5)
    run(world, "partition n1 n2 n3 | n4 n5", seconds=FAR)
    run(world, "partition n1 n2 | n3 n4 n5", seconds=FAR)
    assert phase(world, "n1") is Phase.COMPONENT
    assert phase(world, "n3") is Phase.PRIMARY
    settled(world)


def test_003_4_everyone_is_also_who_was_removed_and_still_votes() -> None:
    world = founded(2, "config dynamic_voting=1 order_without_primary=1")
    run(world, "propose remove n1 at n2", seconds=0.5)
    run(world, "partition n1 | n2", seconds=FAR)
    run(world, "send 1 n1", "send 1 n2", seconds=0.3)
    run(world, "crash n2", "restart n2", seconds=FAR)
    assert node(world, "n1").corel.state.primary_component_bit
    assert node(world, "n2").corel.state.record.group == {"n2": 1}
    assert "n2.1:1" not in ordered(world, "n2")
    settled(world)
    assert ordered(world, "n2")[1:3] == ["n1.1:1", "n2.1:1"]


def test_003_4_messages_that_have_reached_everyone_are_ordered_without_a_primary_component() -> None:
    """n1 and n2 never meet, so there is no majority after the message; n3 carries what each knows to the other."""
    world = founded(4, "config order_without_primary=1")
    run(world, "partition n1 n2 | n3 n4", seconds=FAR)
    run(world, "send 1 n1", seconds=0.2)
    for pair in ("n2 n3", "n3 n4", "n1 n3", "n2 n4", "n1 n4", "n2 n3", "n1 n2", "n3 n4", "n1 n3", "n2 n4"):
        run(world, f"partition {pair} | {' '.join(sorted({'n1', 'n2', 'n3', 'n4'} - set(pair.split())))}", seconds=FAR)
    told = [event for event in world.traces["n1"] if isinstance(event, Order)]
    assert [event.msg for event in told] == ["n1.1:1"]
    assert len(primaries(world, "n1")) <= 2, "there was no primary component in between"
    settled(world)
