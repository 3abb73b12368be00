"""Keys rotate without loss or a view change: accept new, send new, retire old."""

from __future__ import annotations

import pytest

from ordercast.wire.guard import PlainGuard
from ordercast.wire.ids import NodeId
from ordercast.wire.keys import GroupKeyError

from .world import World, exchange, make_guard, make_key, make_pair

OLD, NEW = make_key("old"), make_key("new")


class Load:
    """Messages from all members without a pause, and what has to come of them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.sent = 0

    def run(self, duration_us: int) -> None:
        for _ in range(duration_us // 1_000):
            for name in self.world.processes:
                self.world.submit(name, *[b"%s-%d" % (name.encode(), self.sent + at) for at in range(5)])
            self.sent += 5
            self.world.run(1_000)

    def check(self) -> None:
        self.world.run(500_000)
        orders = [process.delivered for process in self.world.processes.values()]
        assert all(order == orders[0] for order in orders)
        for name in self.world.processes:
            mine = [body for body in orders[0] if body.startswith(name.encode())]
            assert mine == [b"%s-%d" % (name.encode(), at) for at in range(self.sent)]


def dropped(world: World) -> int:
    names = ("forged", "unproven", "unknown_key", "replayed")
    return sum(process.guard.counters[name] for process in world.processes.values() for name in names)


def test_rotation_under_load_loses_no_packet_and_changes_no_view() -> None:
    world = World("abcd", key=OLD)
    world.form()
    views = {name: len(process.views) for name, process in world.processes.items()}
    load = Load(world)
    load.run(50_000)
    before = dropped(world)
    for step in ("add_key", "use_key", "retire_key"):
        for process in world.processes.values():
            getattr(process.guard, step)(OLD if step == "retire_key" else NEW)
            load.run(7_000)  # members take the step at different times
        if step == "add_key":
            assert world.run(1_000_000, lambda: all(len(p.guard.proven(NEW)) == 3 for p in world.processes.values()))
        load.run(20_000)
        assert dropped(world) == before + _hellos_of_the_old_key(world)
    load.check()
    assert {name: len(process.views) for name, process in world.processes.items()} == views
    assert all(process.guard.keys == (NEW,) for process in world.processes.values())


def _hellos_of_the_old_key(world: World) -> int:
    """HELLOs under a key that some have already retired, or not yet added, are refused; no packet is."""
    return sum(process.guard.counters["unknown_key"] for process in world.processes.values())


def test_rotation_during_a_partition_ends_in_one_group() -> None:
    """Each half rotates by itself and keeps the old key until the halves have met."""
    world = World("abcd", key=OLD)
    world.form()
    world.drop = lambda sender, receiver: (sender in "ab") != (receiver in "ab")
    halves = (("a", "b"), ("c", "d"))
    assert world.run(3_000_000, lambda: all(p.views[-1] in halves for p in world.processes.values()))
    for name in "ab":
        world.processes[name].guard.add_key(NEW)
    world.run(300_000)
    for name in "ab":
        world.processes[name].guard.use_key(NEW)
    for name in "cd":
        world.processes[name].guard.add_key(NEW)
    world.run(300_000)
    views = [len(process.views) for process in world.processes.values()]
    world.submit("a", b"in the new key")
    world.submit("c", b"in the old key")
    world.run(100_000)
    assert [len(process.views) for process in world.processes.values()] == views
    world.drop = lambda sender, receiver: False
    world.form(20_000_000)
    for name in "cd":
        world.processes[name].guard.use_key(NEW)
    world.run(100_000)
    for process in world.processes.values():
        process.guard.retire_key(OLD)
    world.submit("d", b"together")
    world.run(1_000_000)
    assert all(process.delivered[-1] == b"together" for process in world.processes.values())
    assert world.whole()


def test_a_member_that_missed_the_rotation_is_not_heard_and_can_tell_why() -> None:
    world = World("abc", key=OLD)
    world.form()
    for step, key in (("add_key", NEW), ("use_key", NEW), ("retire_key", OLD)):
        for name in "ab":
            getattr(world.processes[name].guard, step)(key)
        world.run(300_000)
    assert world.run(5_000_000, lambda: world.processes["a"].views[-1] == ("a", "b"))
    guard = world.processes["c"].guard
    assert guard.counters["unknown_key"] > 0
    line = guard.report(world.now)
    assert line is not None
    assert "unknown_key" in line


def test_a_proof_under_one_key_is_none_under_another() -> None:
    a, b = make_pair(OLD)
    for guard in (a, b):
        guard.add_key(NEW)
    assert b.proven(OLD) == {"a"}
    assert b.proven(NEW) == frozenset()
    a.use_key(NEW)
    early = a.seal(b"early", 10)
    assert b.receive(0, *early) == []
    exchange(a, b)
    assert b.receive(0, *early) == []
    assert len(b.receive(0, *a.seal(b"now", 10))) == 1
    assert len(a.receive(0, *b.seal(b"old", 10))) == 1


def test_what_is_retired_stays_shut() -> None:
    a, b = make_pair(OLD, NEW)
    assert b.keys == (OLD, NEW)
    old = a.seal(b"sealed with the old key", 50)
    b.use_key(NEW)
    assert b.keys == (NEW, OLD)
    b.retire_key(OLD)
    assert b.receive(0, *old) == []
    assert b.counters["unknown_key"] == 1
    a.use_key(NEW)
    assert len(b.receive(0, *a.seal(b"x", 1))) == 1
    b.add_key(OLD)
    assert b.receive(0, *old) == []


def test_steps_out_of_order_are_refused() -> None:
    guard = make_guard("a", OLD)
    with pytest.raises(GroupKeyError, match="not been added"):
        guard.use_key(NEW)
    with pytest.raises(GroupKeyError, match="not been added"):
        guard.retire_key(NEW)
    with pytest.raises(GroupKeyError, match="in use"):
        guard.retire_key(OLD)
    with pytest.raises(GroupKeyError, match="not been added"):
        guard.proven(NEW)
    guard.add_key(OLD)
    assert guard.keys == (OLD,)
    plain = PlainGuard("orders", NodeId("a"))
    for step in (plain.add_key, plain.use_key, plain.retire_key):
        with pytest.raises(GroupKeyError, match="without a key"):
            step(OLD)
    assert plain.proven() == frozenset()
    assert plain.keys == ()
