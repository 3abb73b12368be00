"""What is durable when: nothing before it was written, everything after it was reported."""

from __future__ import annotations

from random import Random

import pytest
from probe import probe, probe_world

from ordercast.sim.actions import perform
from ordercast.sim.disk import Disk
from ordercast.sim.node import State
from ordercast.sim.world import World


def write(world: World, record: bytes) -> None:
    probe(world, "n1").persist(record)
    perform(world, "send 1 n1")


def test_a_write_takes_its_time_and_is_then_reported_and_durable() -> None:
    world = probe_world("nodes 1")
    perform(world, "disk latency 0.1 0 n1")
    write(world, b"one")
    world.run_until(99_999)
    assert not probe(world, "n1").got("written")
    assert world.nodes[0].disk.records == {}
    world.run_until(100_000)
    assert [entry[2] for entry in probe(world, "n1").got("written")] == [1]
    perform(world, "crash n1")
    perform(world, "restart n1")
    assert probe(world, "n1").stored == {"key": b"one"}


def test_a_crash_during_a_write_leaves_the_old_record_or_the_new_one() -> None:
    outcomes = set()
    for seed in range(20):
        world = probe_world(f"nodes 1\nseed {seed}")
        write(world, b"old")
        world.run_until(10_000)
        perform(world, "disk latency 0.1 0 n1")
        write(world, b"new")
        world.run_until(50_000)
        perform(world, "crash n1")
        world.run_until(500_000)
        outcomes.add(world.nodes[0].disk.records["key"])
    assert outcomes == {b"old", b"new"}


def test_no_later_write_survives_an_earlier_one_that_did_not() -> None:
    for seed in range(50):
        disk = Disk(Random(seed), 100, 0)
        for number in range(4):
            disk.begin(0, number, f"key {number}", b"record")
        disk.power_cut()
        assert list(disk.records) == [f"key {number}" for number in range(len(disk.records))]


@pytest.mark.parametrize("fault", ["lose", "fail"])
def test_a_lost_or_failed_write_is_never_reported_and_ends_in_a_crash(fault: str) -> None:
    world = probe_world("nodes 1")
    write(world, b"old")
    world.run_until(10_000)
    engine = probe(world, "n1")
    perform(world, f"disk {fault} n1")
    write(world, b"new")
    write(world, b"newer")
    world.run_until(1_000_000)
    assert [entry[2] for entry in engine.got("written")] == [1]
    assert world.nodes[0].state is State.DOWN
    perform(world, "restart n1")
    assert probe(world, "n1").stored == {"key": b"old"}


def test_a_torn_write_leaves_a_prefix() -> None:
    lengths = set()
    for seed in range(60):
        world = probe_world(f"nodes 1\nseed {seed}")
        perform(world, "disk tear n1")
        write(world, b"record")
        world.run_until(100_000)
        assert world.nodes[0].state is State.DOWN
        (record,) = world.nodes[0].disk.records.values()
        assert b"record".startswith(record)
        lengths.add(len(record))
        assert world.nodes[0].disk.forgetful
    assert lengths == {0, 1, 2, 3, 4, 5}


def test_a_write_that_is_to_be_torn_waits_for_those_before_it() -> None:
    disk = Disk(Random(0), 100, 0)
    first, second = (disk.begin(0, number, "key", b"record") for number in range(2))
    disk.armed.append("tear")
    torn = disk.begin(1, 2, "key", b"record")
    last = disk.begin(2, 3, "key", b"record")
    assert first.done_at < second.done_at < torn.done_at < last.done_at
    assert torn.done_at == second.done_at + 50, "the power fails in the middle of it"


def test_healing_in_time_keeps_a_write_behind_slow_ones_from_being_torn() -> None:
    world = probe_world("nodes 1")
    perform(world, "disk latency 0.1 0 n1")
    for record in (b"one", b"two", b"three"):
        write(world, record)
    perform(world, "disk tear n1")
    write(world, b"four")
    perform(world, "heal")
    write(world, b"five")
    world.run_until(1_000_000)
    assert [entry[2] for entry in probe(world, "n1").got("written")] == [1, 2, 3, 4, 5]
    assert world.nodes[0].disk.records == {"key": b"five"}


def test_a_wiped_disk_is_empty_and_its_numbers_need_not_grow_any_more() -> None:
    world = probe_world("nodes 1")
    write(world, b"one")
    world.run_until(10_000)
    perform(world, "crash n1")
    perform(world, "reinstall n1")
    assert probe(world, "n1").stored == {}
    assert probe(world, "n1").nonce == 1
    first, _, last = world.traces["n1"]
    assert first.number == 1  # type: ignore[union-attr]
    assert not isinstance(last.number, int)  # type: ignore[union-attr]


def test_a_write_that_completes_in_a_pause_is_reported_after_it() -> None:
    world = probe_world("nodes 1")
    write(world, b"one")
    perform(world, "pause n1")
    world.run_until(100_000)
    assert world.nodes[0].disk.records == {"key": b"one"}
    assert not probe(world, "n1").got("written")
    perform(world, "resume n1")
    world.run_until(100_001)
    assert len(probe(world, "n1").got("written")) == 1


def test_healing_completes_the_writes_that_were_to_fail() -> None:
    world = probe_world("nodes 1")
    perform(world, "disk latency 0.1 0 n1")
    perform(world, "disk fail n1")
    write(world, b"one")
    perform(world, "heal")
    world.run_until(200_000)
    assert world.nodes[0].state is State.RUNNING
    assert len(probe(world, "n1").got("written")) == 1


def test_healing_ends_the_slowness_of_writes_under_way_too() -> None:
    world = probe_world("nodes 1")
    perform(world, "disk latency 1 0 n1")
    for record in (b"one", b"two", b"three"):
        write(world, record)
    world.run_until(999_900)
    perform(world, "heal")
    write(world, b"four")
    world.run_until(1_000_000)
    assert world.nodes[0].disk.records == {"key": b"one"}
    world.run_until(1_004_000)
    assert [entry[2] for entry in probe(world, "n1").got("written")] == [1, 2, 3, 4]
    world.run_until(4_000_000)
    assert len(probe(world, "n1").got("written")) == 4
    assert world.nodes[0].disk.records == {"key": b"four"}
