"""HELLOs: sessions prove that they are live, quickly, under loss, in numbers, and within limits."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest

from ordercast.wire.guard import ANSWERS_MAX, HELLO_INTERVAL_US_MAX, SESSIONS_MAX, Guard
from ordercast.wire.ids import NodeId
from ordercast.wire.seal import HELLO_BYTES_MAX

from .world import World, exchange, make_guard, make_key, make_pair


def test_two_processes_accept_each_other_within_three_packets() -> None:
    a, b = make_guard("a"), make_guard("b")
    b.take_packets(0)
    (hello,) = a.take_packets(0)
    assert hello.destination is None
    b.receive(1, hello.packet, len(hello.packet), "a")
    (asks,) = b.take_packets(1)
    assert asks.destination == "a"
    a.receive(2, asks.packet, len(asks.packet), "b")
    assert a.proven() == {"b"}
    (answers,) = a.take_packets(2)
    assert answers.destination == "b"
    b.receive(3, answers.packet, len(answers.packet), "a")
    assert b.proven() == {"a"}
    assert b.take_packets(3) == []


def test_over_several_networks_each_brings_a_hello_of_its_own_and_takes_the_answer_back() -> None:
    a, b = (Guard("g", NodeId(name), (make_key(),), Random(name).randbytes, networks=3) for name in "ab")
    b.take_packets(0)
    hellos = a.take_packets(0)
    assert [hello.via for hello in hellos] == [0, 1, 2]
    assert len({hello.packet for hello in hellos}) == 3
    for hello in hellos:
        b.receive(1, hello.packet, len(hello.packet), f"a on {hello.via}", hello.via)
    asks = b.take_packets(b.deadline)
    asks += b.take_packets(b.deadline)
    assert [(ask.destination, ask.via) for ask in asks][:3] == [("a on 0", 0), ("a on 1", 1), ("a on 2", 2)]
    # Whichever network brings one of them is enough, and what the slower ones bring later is no replay.
    for ask in reversed(asks[:3]):
        a.receive(2, ask.packet, len(ask.packet), "b", ask.via)
    assert a.proven() == {"b"}
    assert a.counters["replayed"] == 0
    assert a.counters["late_hellos"] == 2


def test_what_several_networks_bring_in_another_order_is_opened_once_each() -> None:
    a, b = (Guard("g", NodeId(name), (make_key(),), Random(name).randbytes, networks=2) for name in "ab")
    exchange(a, b)
    trains = [a.seal(bytes([n]) * 3_000, 1_000) for n in range(40)]
    arrived = [b.receive(0, *train, "a", n % 2) for n, train in sorted(enumerate(trains), key=lambda each: each[0] % 2)]
    assert sorted(opened.data[0] for (opened,) in arrived) == list(range(40))
    assert [b.receive(0, *train, "a", 1) for train in trains] == [[]] * 40


def test_those_who_know_each_other_say_only_hello() -> None:
    guards = [make_guard(name) for name in "abcde"]
    now = exchange(*guards)
    for _ in range(8):
        now += HELLO_INTERVAL_US_MAX
        for guard in guards:
            packets = guard.take_packets(now)
            assert [out.destination for out in packets] == [None]
            assert now < guard.deadline <= now + HELLO_INTERVAL_US_MAX
            for other in guards:
                other.receive(now, packets[0].packet, len(packets[0].packet), guard.name)
    assert all(len(guard.proven()) == 4 for guard in guards)


@pytest.mark.parametrize("seed", range(5))
def test_half_of_all_packets_lost_only_delays_the_proof(seed: int) -> None:
    chance = Random(seed)
    world = World("abcd", seed=seed)
    world.drop = lambda sender, receiver: chance.random() < 0.5
    everyone = {"a", "b", "c", "d"}
    assert world.run(
        5_000_000,
        lambda: all(process.guard.proven() == everyone - {name} for name, process in world.processes.items()),
    )


def test_a_large_group_that_starts_together_is_soon_complete() -> None:
    guards = [make_guard(f"n{number}") for number in range(40)]
    now = 0
    sent = 0
    boxes: dict[str, list[tuple[bytes, str]]] = {guard.name: [] for guard in guards}
    while not all(len(guard.proven()) == 39 for guard in guards):
        assert now < 1_000_000
        for guard in guards:
            inbox, boxes[guard.name] = boxes[guard.name], []
            for packet, source in inbox:
                guard.receive(now, packet, len(packet), source)
        for guard in guards:
            for destination, packet, _ in guard.take_packets(now):
                sent += 1
                for other in [destination] if destination else [guard.name for guard in guards]:
                    boxes[str(other)].append((packet, guard.name))
        now += 1_000
    assert now <= 200_000
    assert sent < 40 * 39 * 4


def test_the_deadline_tells_when_there_is_something_to_send() -> None:
    a, b = make_guard("a"), make_guard("b")
    now = 0
    for _ in range(40):
        (hello, *_) = a.take_packets(a.deadline)
        now = max(now, a.deadline)
        assert a.take_packets(a.deadline - 1) == []
        b.receive(now, hello.packet, len(hello.packet), "a")
        if b.deadline > now:
            assert b.take_packets(b.deadline - 1) == []
        assert b.take_packets(b.deadline)


def test_a_clock_that_goes_back_does_not_silence_a_guard() -> None:
    a, b = make_guard("a"), make_guard("b")
    late = 10**12
    for _ in range(5):
        late += HELLO_INTERVAL_US_MAX
        a.take_packets(late)
        b.take_packets(late)
    exchange(a, b, now=1_000)
    assert a.proven() == {"b"}


def test_a_clock_that_leaps_forward_forgets_nobody() -> None:
    a, b = make_pair()
    for now in (10**9, 10**12, 10**15):
        a.take_packets(now)
    assert a.proven() == {"b"}
    assert len(a.receive(10**15, *b.seal(b"x", 1))) == 1


def test_two_processes_with_one_name_are_both_heard() -> None:
    """A second process with a name that is taken must not cut off the first; the engine tells it to go."""
    a, b, twin = make_guard("a"), make_guard("b"), make_guard("a", seed="twin")
    now = exchange(a, b, twin)
    for _ in range(40):
        now += HELLO_INTERVAL_US_MAX
        exchange(a, b, twin, now=now, rounds=1)
        for guard in (a, twin):
            assert len(b.receive(now, *guard.seal(b"x", 1))) == 1
        assert len(twin.receive(now, *a.seal(b"x", 1))) == 1
    assert b.counters["forgotten"] == 0


def test_sessions_that_come_and_go_are_bounded() -> None:
    b = make_guard("b")
    now = exchange(b)
    first = make_guard("n0")
    for number in range(SESSIONS_MAX + 50):
        now = exchange(b, make_guard(f"n{number}"), now=now, rounds=3)
        now += 1000
    assert len(b.proven()) <= SESSIONS_MAX
    assert b.counters["accepted"] == SESSIONS_MAX + 50
    assert first.name not in b.proven()


def test_whoever_is_silent_for_a_minute_is_forgotten() -> None:
    b = make_guard("b")
    now = exchange(b, *[make_guard(f"n{number}") for number in range(20)])
    assert len(b.proven()) == 20
    while b.proven():
        now += HELLO_INTERVAL_US_MAX
        b.take_packets(now)
    assert now < 65_000_000
    assert b.counters["forgotten"] == 20


def test_replayed_hellos_are_answered_rarely_and_with_no_more_than_they_are() -> None:
    """All that an attacker without the key can get an answer to: HELLOs of processes that b does not know."""
    dead = [make_guard(f"dead{number}", seed=number) for number in range(3)]
    hellos = [out.packet for guard in dead for out in guard.take_packets(0)]
    b = make_guard("b")
    b.take_packets(0)
    received = answered = answers = 0
    for now in range(0, 100_000, 100):
        for hello in hellos:
            b.receive(now, hello, len(hello), "victim")
            received += len(hello)
        sent = [out for out in b.take_packets(now) if out.destination is not None]
        answers += len(sent)
        answered += sum(len(out.packet) for out in sent)
    assert answers <= 3 * 11
    assert answered < received / 50
    assert all(len(out.packet) <= HELLO_BYTES_MAX for out in b.take_packets(10**6))


def test_a_flood_of_different_replayed_hellos_is_bounded_and_lets_newcomers_in() -> None:
    tape = [out.packet for number in range(2 * ANSWERS_MAX) for out in make_guard(f"d{number}").take_packets(0)]
    b, newcomer = make_guard("b"), make_guard("new")
    b.take_packets(0)
    tracemalloc.start()
    answers = 0
    for round_ in range(3):
        for at, packet in enumerate(tape):
            now = 1_000_000 * round_ + at * 100
            b.receive(now, packet, len(packet), "x")
            answers += sum(out.destination == "x" for out in b.take_packets(now))
    assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    tracemalloc.stop()
    assert answers <= 4_000
    assert b.proven() == frozenset()
    exchange(b, newcomer, now=10**9, rounds=60)
    assert b.proven() == {"new"}
    waiting = make_guard("waiting")
    waiting.take_packets(0)
    for packet in tape:
        waiting.receive(0, packet, len(packet), "x")
    owed = [out for now in range(0, 10**6, 1000) for out in waiting.take_packets(now) if out.destination == "x"]
    assert len(owed) == ANSWERS_MAX


def test_the_newcomers_name_is_checked() -> None:
    with pytest.raises(ValueError, match="name"):
        Guard("orders", NodeId("two words"), [make_key()], Random(1).randbytes)
    with pytest.raises(ValueError, match="at least one key"):
        Guard("orders", NodeId("a"), [], Random(1).randbytes)
