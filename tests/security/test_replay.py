"""Replays do nothing, across restarts of the sender, of the receiver and of both."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.wire.replay import GAPS_MAX, WINDOW, ReplayWindow

from .samples import KINDS, play, recording
from .world import World, exchange, make_guard, make_pair, remembered


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 5)), max_size=60))
def test_the_window_opens_each_counter_once(tries: list[tuple[int, int]]) -> None:
    window, seen, top = ReplayWindow(1), set[int](), 0
    for first, count in tries:
        wanted = set(range(first, first + count))
        fresh = window.fresh(first, count)
        assert fresh == (not wanted & seen and (first > top or max(wanted) <= top)), "a late train lies in one gap"
        if fresh:
            window.mark(first, count)
            seen |= wanted
            top = max(top, *wanted)


def test_the_window_forgets_towards_refusal() -> None:
    window = ReplayWindow(1)
    for counter in range(2, 4 * GAPS_MAX, 2):
        window.mark(counter)
    assert len(window.gaps) == GAPS_MAX
    assert not window.fresh(1)
    assert window.fresh(4 * GAPS_MAX - 3)
    window.mark(10 * WINDOW)
    assert not window.fresh(9 * WINDOW)
    assert window.fresh(9 * WINDOW + 1)
    for counter in range(9 * WINDOW + 2, 9 * WINDOW + 4 * GAPS_MAX, 2):
        window.mark(counter)
    assert len(window.gaps) <= GAPS_MAX
    assert not any(window.fresh(counter) for counter in range(2, 4 * GAPS_MAX, 2))


def test_order_and_copies_on_the_way_do_no_harm() -> None:
    a, b = make_pair()
    trains = [a.seal(bytes((number,)) * 500, 100) for number in range(50)]
    chance = Random(1)
    arrivals = [train for train in trains for _ in range(3)]
    chance.shuffle(arrivals)
    opened = [train.data for sealed, segment in arrivals for train in b.receive(0, sealed, segment)]
    assert sorted(opened) == [bytes((number,)) * 500 for number in range(50)]
    assert b.counters["replayed"] == 2 * 50 * 5


def test_a_train_whose_packets_came_singly_is_opened_for_the_rest() -> None:
    a, b = make_pair()
    sealed, segment = a.seal(b"0" * 100 + b"1" * 100 + b"2" * 100, 100)
    assert b.receive(0, sealed[segment : 2 * segment], segment)[0].data == b"1" * 100
    assert b.receive(0, sealed, segment)[0].data == b"0" * 100 + b"2" * 100
    assert b.receive(0, sealed, segment) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_replay_to_a_running_group_changes_nothing(kind: str) -> None:
    world = World(networks=2)
    world.form()
    world.submit("a", *[b"%d" % number for number in range(100)])
    world.run(1_000_000)
    play_more(world)
    replayed = [sent for sent in world.sent if sent.kind == kind]
    assert replayed
    world.run(1000)  # what is still on its way arrives for the first time
    for process in world.processes.values():
        told, before = process.told, remembered(process.guard)
        for sent in replayed:
            world.inject(process.name, sent.data, sent.segment)
        assert process.told == told
        assert remembered(process.guard) == before


def play_more(world: World) -> None:
    """Joins, Commit tokens, a wake-up and a leave, in a group that is whole before and after."""
    world.submit("b", b"wake up")
    world.run(100_000)
    world.stored["d"] = {}
    world.start("d")
    world.form()
    world.processes["d"].engine.leave(world.now)
    assert world.run(1_000_000, lambda: world.processes["d"].left)
    world.kill("d")
    assert world.run(2_000_000, world.whole)


def test_a_replayed_hello_proves_nothing() -> None:
    world = World()
    play(world)
    for process in world.processes.values():
        told, proven = process.told, process.guard.proven()
        accepted = process.guard.counters["accepted"]
        for sent in world.kinds()["HELLO"]:
            world.inject(process.name, sent.data, sent.segment)
        assert process.told == told
        assert process.guard.proven() == proven
        assert process.guard.counters["accepted"] == accepted


@pytest.mark.parametrize("restarted", ["a", "abc"], ids=["the receiver", "all"])
def test_a_recording_of_earlier_lives_does_nothing_to_new_ones(restarted: str) -> None:
    """Tokens, Joins, leaves, data, all of them, in a stream that never ends while the processes start."""
    old = World(restarted if restarted == "abc" else "abc")
    play(old)
    tape = [*old.sent]
    if restarted == "a":
        old.kill("a")
        old.run(100_000)
        world, tape = old, [*old.sent]
        newcomer = world.start("a")
    else:
        world = World(seed="later", key=old.key)
        newcomer = world.processes["a"]
    told = 0
    for at, sent in enumerate(tape * 2):
        for name in list(world.processes):
            process = world.processes[name]
            told = process.told
            world.inject(name, sent.data, sent.segment, "attacker")
            assert process.told == told, f"{name} opened a {sent.kind} of an earlier life"
        if at % 10 == 0:
            world.run(200)
    world.form()
    world.submit("b", b"after all that")
    world.run(100_000)
    assert newcomer.delivered[-1:] == [b"after all that"]


def test_what_a_dead_process_sent_stays_shut_for_all_who_come_later() -> None:
    sent = recording()
    latecomer = World("d", seed="latecomer")
    for packet in sent:
        latecomer.inject("d", packet.data, packet.segment)
    assert latecomer.processes["d"].told == 0
    assert latecomer.processes["d"].guard.proven() == frozenset()


def test_packets_sealed_before_the_proof_stay_shut() -> None:
    """The receiver restarts, its peer lives on: what the peer sent between is not for the new life."""
    a, b = make_guard("a"), make_guard("b")
    before = [a.seal(b"%d" % number, 10) for number in range(5)]
    exchange(a, b)
    between = a.seal(b"new", 10)
    assert all(b.receive(0, *train) == [] for train in before)
    assert b.counters["replayed"] == 5
    assert b.receive(0, *between)[0].data == b"new"


def test_a_withheld_answer_does_not_bring_back_a_session_that_was_forgotten() -> None:
    """The attacker keeps the second of two answers that `a` gave to one challenge until `b` has forgotten `a`."""
    a, b = make_guard("a"), make_guard("b")
    answers: list[bytes] = []
    for now in (0, 20_000):
        hello = a.take_packets(now)[0].packet
        b.receive(now, hello, len(hello), "a")
        asks = next(out.packet for out in b.take_packets(now) if out.destination == "a")
        a.receive(now, asks, len(asks), "b")
        answers += [out.packet for out in a.take_packets(now + 1_000) if out.destination == "b"]
    first, kept = answers
    b.receive(now, first, len(first), "a")
    assert b.proven() == {"a"}
    sealed = a.seal(b"once", 10)
    assert len(b.receive(now, *sealed)) == 1
    while b.proven():
        now += 250_000
        b.take_packets(now)
    b.receive(now, kept, len(kept), "a")
    assert b.proven() == frozenset()
    assert b.receive(now, *sealed) == []
    exchange(a, b, now=now)
    assert b.proven() == {"a"}
    assert b.receive(now, *sealed) == []


def test_replayed_hellos_neither_keep_a_dead_process_alive_nor_get_an_answer() -> None:
    a, b = make_guard("a"), make_guard("b")
    tape: list[bytes] = []
    for now in range(0, 2_000_000, 10_000):
        for sender, receiver in ((a, b), (b, a)):
            for out in sender.take_packets(now):
                receiver.receive(now, out.packet, len(out.packet), sender.name)
                tape += [out.packet] if sender is a else []
    assert b.proven() == {"a"}
    answers = b.counters["answers"]
    while b.proven():
        now += 250_000
        assert now < 70_000_000, "replays have kept a dead session alive"
        for packet in tape:
            b.receive(now, packet, len(packet), "a")
        if b.proven():
            b.take_packets(now)
            assert b.counters["answers"] == answers or not b.proven()


def test_the_session_of_an_earlier_life_is_forgotten_once_it_is_silent() -> None:
    a, b = make_pair()
    old = a.seal(b"lost on the way", 20)
    again = make_guard("a", seed="second life")
    now = exchange(again, b, now=1_000_000)
    assert b.counters["accepted"] == 2
    for _ in range(20):
        now += 250_000
        exchange(again, b, now=now, rounds=1)
    assert b.counters["forgotten"] == 1
    assert b.receive(now, *old) == []
    assert b.counters["unproven"] == 1
    assert b.proven() == {"a"}
    assert len(b.receive(now, *again.seal(b"x", 1))) == 1
