"""Each kind of fault does what it says, and no more."""

from __future__ import annotations

import pytest
from probe import probe, probe_world

from ordercast.sim.actions import perform
from ordercast.sim.node import State
from ordercast.sim.world import World


def do(world: World, *actions: str, until: int | None = None) -> None:
    for action in actions:
        perform(world, action)
    if until is not None:
        world.run_until(until)


def numbers(world: World, name: str) -> list[int]:
    """The counters of the messages that a probe received, in the order of their arrival."""
    return [int(packet.split(b":")[1].split()[0]) for packet in probe(world, name).packets()]


def test_a_train_without_faults_arrives_in_one_piece_at_everybody_else() -> None:
    world = probe_world("nodes 3")
    do(world, "send 10 n1 size=50", until=100_000)
    for name in ("n2", "n3"):
        assert [(len(data), segment) for _, _, data, segment in probe(world, name).got("receive")] == [(500, 50)]
    assert not probe(world, "n1").got("receive")
    assert world.delivered == 20


def test_loss_takes_single_packets_out_of_trains_and_receivers_lose_independently() -> None:
    world = probe_world("nodes 3\nseed 5")
    do(world, "loss 0.1")
    for _ in range(100):
        do(world, "send 10 n1 size=50", until=world.now + 10_000)
    got = [set(numbers(world, name)) for name in ("n2", "n3")]
    for received in got:
        assert 850 < len(received) < 950
    assert got[0] != got[1]
    assert world.faults["loss"] == 2_000 - len(got[0]) - len(got[1])
    assert numbers(world, "n2") == sorted(numbers(world, "n2")), "a link keeps its order"


def test_duplication_adds_late_copies() -> None:
    world = probe_world("nodes 2\nseed 1")
    do(world, "duplication 0.2 by 0.05")
    for _ in range(50):
        do(world, "send 4 n1 size=40", until=world.now + 10_000)
    world.run_until(world.now + 100_000)
    received = numbers(world, "n2")
    assert set(received) == set(range(1, 201))
    assert len(received) == 200 + world.faults["duplication"]
    assert world.faults["duplication"] > 10


def test_reordering_delays_packets_past_those_behind_them() -> None:
    world = probe_world("nodes 2\nseed 1")
    do(world, "reordering 0.2 by 0.05")
    for _ in range(50):
        do(world, "send 4 n1 size=40", until=world.now + 1_000)
    world.run_until(world.now + 100_000)
    received = numbers(world, "n2")
    assert sorted(received) == list(range(1, 201))
    assert received != sorted(received)


def test_spikes_delay_everything_behind_them_in_order() -> None:
    world = probe_world("nodes 2\nseed 1")
    do(world, "spikes 0.05 by 0.2")
    for _ in range(50):
        do(world, "send 4 n1 size=40", until=world.now + 1_000)
    assert len(numbers(world, "n2")) < 200
    world.run_until(world.now + 5_000_000)
    assert numbers(world, "n2") == list(range(1, 201))


def test_corruption_only_ever_shortens_packets() -> None:
    world = probe_world("nodes 2\nseed 1")
    do(world, "corruption 0.3")
    for _ in range(50):
        do(world, "send 4 n1 size=40", until=world.now + 10_000)
    packets = probe(world, "n2").packets()
    assert sum(len(packet) == 40 for packet in packets) == 200 - world.faults["corruption"]
    assert all(packet == packet[:40] for packet in packets)


def test_packets_above_the_mtu_do_not_pass_and_shorter_ones_behind_them_do() -> None:
    world = probe_world("nodes 3")
    do(world, "mtu 60")
    do(world, "send 4 n1 size=60", until=world.now + 10_000)
    do(world, "send 4 n1 size=61", until=world.now + 10_000)
    world.network.send(world.nodes[0].links, bytes(61 + 61 + 9), 61, world.now)
    world.run_until(world.now + 10_000)
    assert [(len(data), segment) for _, _, data, segment in probe(world, "n2").got("receive")] == [(240, 60), (9, 9)]
    assert world.faults["too long"] == 6


def test_a_cut_has_one_direction_and_mending_ends_it() -> None:
    world = probe_world("nodes 3")
    do(world, "cut n1 -> n2", "send 1 n1", "send 1 n2", until=50_000)
    assert [len(probe(world, name).packets()) for name in ("n1", "n2", "n3")] == [1, 0, 2]
    do(world, "mend n1 -> n2", "cut n3 <-> n1", "send 1 n1", "send 1 n3", until=100_000)
    assert [len(probe(world, name).packets()) for name in ("n1", "n2", "n3")] == [1, 2, 2]
    do(world, "mend * -> *", "cut * -> n3", "send 1 n1", until=150_000)
    assert [len(probe(world, name).packets()) for name in ("n1", "n2", "n3")] == [1, 3, 2]


def test_a_partition_parts_groups_and_those_not_named_are_together() -> None:
    world = probe_world("nodes 4")
    do(world, "partition n1 n2", *(f"send 1 n{i}" for i in range(1, 5)), until=50_000)
    assert [len(probe(world, f"n{i}").packets()) for i in range(1, 5)] == [1, 1, 1, 1]
    do(world, "merge", "send 1 n1", until=100_000)
    assert [len(probe(world, f"n{i}").packets()) for i in range(1, 5)] == [1, 2, 2, 2]


def test_a_cut_survives_the_end_of_a_partition() -> None:
    world = probe_world("nodes 2")
    do(world, "cut n1 -> n2", "partition n1 | n2", "merge", "send 1 n1", until=50_000)
    assert not probe(world, "n2").packets()


def test_hooks_take_the_next_packets_of_a_kind() -> None:
    world = probe_world("nodes 2")
    # The fourth byte of "n1.1:..." is its life: kind "data" of the probe is life 1.
    do(world, "drop 2 data n1 -> n2", "send 1 n1", "send 3 n1 size=20", until=50_000)
    assert numbers(world, "n2") == [3, 4]
    do(world, "duplicate 1 * n1 -> n2", "send 2 n1 size=20", until=100_000)
    assert numbers(world, "n2") == [3, 4, 5, 5, 6]
    do(world, "delay 1 49 n1 -> n2 by 0.01", "send 2 n1 size=20", until=200_000)
    assert numbers(world, "n2")[-2:] == [8, 7]
    do(world, "drop 1 7 n1 -> n2", "send 1 n1", until=300_000)
    assert numbers(world, "n2")[-1] == 9, "a hook for another kind lets it pass"


def test_a_paused_node_does_nothing_then_takes_packets_before_timers() -> None:
    world = probe_world("nodes 2")
    engine = probe(world, "n2")
    do(world, "send 1 n1", until=10_000)
    engine.deadline = int(str(engine.told[-1][1])) + 50_000
    do(world, "send 1 n1", until=20_000)  # any input makes the host look at the deadline
    seen = len(engine.told)
    do(world, "pause n2", "send 5 n1 size=30", until=500_000)
    do(world, "send 1 n2")
    assert len(engine.told) == seen
    do(world, "resume n2", until=510_000)
    assert [entry[0] for entry in engine.told[seen:]] == ["receive", "timer"]


def test_a_queue_holds_so_many_packets_and_no_more() -> None:
    world = probe_world("nodes 2")
    do(world, "queue 7 n2", "pause n2", "send 5 n1 size=30", "send 5 n1 size=30", until=50_000)
    do(world, "resume n2", until=100_000)
    assert numbers(world, "n2") == [1, 2, 3, 4, 5, 6, 7]
    assert world.faults["overflow"] == 3


def test_a_slow_node_works_through_its_queue_in_its_own_time() -> None:
    world = probe_world("nodes 2")
    do(world, "cost 0.01 n2", "latency 0.001 0")
    for _ in range(5):
        do(world, "send 2 n1 size=30", until=world.now + 100)
    world.run_until(15_000)
    assert numbers(world, "n2") == [1, 2]
    world.run_until(200_000)
    assert numbers(world, "n2") == list(range(1, 11))


@pytest.mark.parametrize(("by", "expected"), [("+3", 0), ("-1", 1_050_000)])
def test_a_clock_jump_moves_timers(by: str, expected: int) -> None:
    world = probe_world("nodes 2")
    engine = probe(world, "n2")
    local = world.named("n2")[0].clock.local(0)
    engine.deadline = local + 50_000
    do(world, "send 1 n1", until=2_000)
    do(world, f"jump {by} n2", until=3_000_000)
    ((_, at),) = engine.got("timer")
    assert isinstance(at, int)
    jumped = int(float(by) * 1_000_000)
    assert at - local == (2_000 + jumped if expected == 0 else 50_000)


def test_a_drifting_clock_keeps_its_reading_and_changes_its_pace() -> None:
    world = probe_world("nodes 1")
    clock = world.nodes[0].clock
    world.run_until(1_000_000)
    before = clock.local(world.now)
    do(world, "drift 10000 n1")
    assert clock.local(world.now) == before
    assert clock.local(world.now + 1_000_000) == before + 1_010_000
    for deadline in range(before, before + 500, 7):
        due = clock.due(deadline)
        assert clock.local(due) >= deadline > clock.local(due - 1)


def test_a_crashed_node_is_deaf_and_comes_back_with_its_disk_and_a_new_life() -> None:
    world = probe_world("nodes 2")
    do(world, "crash n2", "send 1 n1", until=50_000)
    assert world.named("n2")[0].state is State.DOWN
    do(world, "restart n2", "restart n2", until=100_000)
    assert probe(world, "n2").nonce == 1
    assert not probe(world, "n2").packets()
    assert [type(event).__name__ for event in world.traces["n2"]] == ["Conf", "Recover", "Conf"]
    assert world.faults == {"crash": 1, "restart": 1}


def test_messages_of_another_life_have_other_names() -> None:
    world = probe_world("nodes 2")
    do(world, "send 2 n1", "crash n1", "reinstall n1", "send 2 n1", until=50_000)
    assert sorted(world.messages.names.values()) == ["n1.1:1", "n1.1:2", "n1.2:1", "n1.2:2"]


def test_a_fuse_burns_through_effects_and_crashes_amid_them() -> None:
    world = probe_world("nodes 2")
    engine = probe(world, "n1")
    engine.persist(b"one")
    engine.persist(b"two")
    do(world, "fuse n1 after 1", "send 1 n1", until=50_000)
    assert world.named("n1")[0].state is State.DOWN
    assert world.named("n1")[0].disk.records in ({}, {"key": b"one"})
    assert not probe(world, "n2").packets(), "the effects behind the crash never happened"


def test_an_announced_leave_ends_the_trace_and_the_node() -> None:
    world = probe_world("nodes 2")
    do(world, "leave n2", until=50_000)
    assert world.named("n2")[0].state is State.GONE
    assert type(world.traces["n2"][-1]).__name__ == "Leave"
    do(world, "restart n2", until=100_000)
    assert [type(event).__name__ for event in world.traces["n2"]][-2:] == ["Recover", "Conf"]


def test_garbage_is_not_what_anybody_sent() -> None:
    world = probe_world("nodes 2\nseed 3")
    do(world, "send 1 n1 size=60", until=50_000)
    do(world, "garbage 50 n2", until=100_000)
    received = probe(world, "n2").got("receive")
    assert len(received) == 51
    assert all(data not in world.messages.names for _, _, data, _ in received[1:])


def test_healing_ends_every_fault_and_leaves_the_dead_alone() -> None:
    world = probe_world("nodes 3")
    do(world, "loss 1", "cut n1 -> n2", "partition n1 | n2 n3", "pause n1", "crash n3", "drop 9 * n1 -> *",
       "disk fail n1", "cost 1 n2", "queue 1 n2", "drift 1000 n2", until=10_000)  # fmt: skip
    do(world, "heal", "send 3 n1 size=30", until=100_000)
    assert numbers(world, "n2") == [1, 2, 3]
    assert world.named("n3")[0].state is State.DOWN
    assert not world.named("n1")[0].disk.armed
    assert world.named("n2")[0].clock.drift_ppm == 0


def test_healing_leaves_a_packet_late_that_a_script_has_delayed() -> None:
    world = probe_world("nodes 2")
    do(world, "delay 1 * n1 -> n2 by 0.5", "send 2 n1 size=20", "heal", until=400_000)
    assert numbers(world, "n2") == [2]
    world.run_until(600_000)
    assert numbers(world, "n2") == [2, 1]


def test_healing_lets_go_of_what_stalled_links_hold_back() -> None:
    world = probe_world("nodes 3\nseed 1")
    do(world, "latency 0.001 0.0005", "spikes 0.2 by 0.5")
    for _ in range(50):
        do(world, "send 4 n1 size=40", until=world.now + 1_000)
    assert max(link.last for link in world.nodes[0].links) > world.now + 5_000_000
    do(world, "heal", "send 1 n1 size=40", until=world.now + 10_000)
    for name in ("n2", "n3"):
        assert numbers(world, name) == list(range(1, 202)), "in their order, and none twice"
