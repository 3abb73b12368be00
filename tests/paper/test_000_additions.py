"""What this engine adds to paper 000: rest and wake, the announced leave, one-way links, a host that lags."""

from __future__ import annotations

import pytest
from ring import BEACON, DATA, JOIN, LATENCY_US, LEAVE, TOKEN, WAKE, Bench, config, ring_of, still

from ordercast.engine.contract import Broadcast, Left, Report, Submission
from ordercast.engine.totem import Phase
from ordercast.wire.ids import NodeId, NodeKey, node_key
from ordercast.wire.totem import Beacon, Join, Wake, decode_beacon

HOP = LATENCY_US


def tokens_in(bench: Bench, time_us: int) -> int:
    before = bench.counts[TOKEN]
    bench.run(time_us)
    return bench.counts[TOKEN] - before


def idle_ring(names: str = "abc") -> Bench:
    """A ring that has rested some times already."""
    bench = ring_of(names)
    bench.run(300_000)
    return bench


# Rest and wake.


def test_an_idle_ring_sends_few_tokens() -> None:
    bench = idle_ring()
    rotations = 1_000_000 // bench.settings.token_hold_us
    assert tokens_in(bench, 1_000_000) <= 3 * (rotations + 1)


@pytest.mark.parametrize("speaker", "abc")
def test_a_ring_rests_again_once_everything_is_safe(speaker: str) -> None:
    bench = idle_ring()
    bench.say(speaker, "x")
    bench.quiet()
    bench.run(10_000)
    assert tokens_in(bench, 1_000_000) <= 60


@pytest.mark.parametrize("speaker", "abc")
def test_a_ring_rests_again_after_messages_that_came_while_it_moved(speaker: str) -> None:
    bench = idle_ring()
    bench.say("b", "x")
    bench.run(2 * HOP)
    for _ in range(5):
        bench.run(HOP + 7)
        bench.say(speaker, "y")
    bench.quiet()
    bench.run(10_000)
    assert tokens_in(bench, 1_000_000) <= 60


@pytest.mark.parametrize("speaker", "abcd")
@pytest.mark.parametrize("after_us", [0, 1, 50, 33_333, 59_990, 60_040])
def test_the_first_message_after_idling_goes_out_at_once(speaker: str, after_us: int) -> None:
    """One hop to wake the representative, at most a rotation of the token, one hop of the message."""
    bench = idle_ring("abcd")
    bench.until(lambda: bench["a"].state.held is not None)
    bench.run(after_us)
    start = bench.now
    bench.say(speaker, "x")
    bench.until(lambda: all(bench[name].texts == ["x"] for name in "abcd"))
    assert bench.now - start <= 6 * HOP


def test_a_lost_wake_is_repeated() -> None:
    bench = idle_ring()
    bench.until(lambda: bench["a"].state.held is not None)
    bench.refuse = lambda packet: packet.kind is WAKE
    bench.say("c", "x")
    bench.run(HOP)
    bench.refuse = lambda packet: False
    start = bench.now
    bench.until(lambda: bench["a"].texts == ["x"])
    assert bench.now - start <= bench.settings.token_retransmission_timeout_us + 5 * HOP


def test_a_wake_of_another_ring_wakes_nobody() -> None:
    bench = idle_ring()
    bench.until(lambda: bench["a"].state.held is not None)
    ring = bench["a"].ring
    assert bench.give("a", Wake(ring.number - 4, ring.digest, node_key(NodeId("b"))).encode()) == []
    assert bench.give("a", Wake(ring.number, ring.digest ^ 1, node_key(NodeId("b"))).encode()) == []
    assert bench.give("a", Wake(ring.number, ring.digest, node_key(NodeId("b"))).encode()) != []


def test_resting_is_no_token_loss_and_no_cause_for_retransmissions() -> None:
    bench = idle_ring()
    for process in bench.processes.values():
        process.state.counters["token_retransmissions"] = 0
    bench.run(5_000_000)
    assert bench["a"].views == ["a", "[a]", "abc"]
    assert retransmissions(bench) == 0


def retransmissions(bench: Bench) -> int:
    return sum(process.state.counters["token_retransmissions"] for process in bench.processes.values())


def test_the_first_rest_of_a_ring_is_known_to_all_and_causes_no_retransmissions() -> None:
    bench = ring_of("abc")
    bench.run(500_000)
    assert retransmissions(bench) == 0


def test_the_first_message_in_the_first_rest_of_a_ring_goes_out_at_once() -> None:
    bench = ring_of("abc")
    bench.until(lambda: bench["a"].state.held is not None)
    start = bench.now
    bench.say("c", "x")
    bench.until(lambda: bench["b"].texts == ["x"])
    assert bench.now - start <= 6 * HOP


def test_only_the_representative_rests_and_only_when_two_rotations_were_idle() -> None:
    bench = still("abc")
    assert bench.visit("b", idle=True).token is not None
    assert bench["b"].state.held is None


def test_anyone_with_work_objects_to_the_rest() -> None:
    bench = still("abc")
    first = bench.visit("b", idle=True)
    assert first.token is not None
    assert first.token.idle
    bench.say("b", "x")
    second = bench.visit("b", idle=True)
    assert second.token is not None
    assert not second.token.idle


def test_a_token_lost_while_the_ring_rests_is_retransmitted() -> None:
    bench = idle_ring()
    bench.catch(TOKEN)
    bench.say("c", "x")
    bench.until(lambda: bench["b"].texts == ["x"], 200_000)
    assert bench["b"].views == ["b", "[b]", "abc"]


# The announced leave.


def test_leave_whoever_leaves_is_missed_at_once() -> None:
    bench = idle_ring()
    start = bench.now
    bench["c"].engine.leave(bench.now)
    bench.take(bench["c"])
    bench.settle("ab")
    assert bench.now - start < 100_000
    assert not bench["c"].running
    assert bench["c"].phase is Phase.STOPPED
    assert isinstance(bench["c"].effects[-1], Left)


@pytest.mark.parametrize("leaver", "abc")
def test_leave_its_last_messages_are_delivered_by_all(leaver: str) -> None:
    bench = ring_of("abc", config(max_messages=2, window_size=4))
    texts = [f"m{at}" for at in range(9)]
    bench.say(leaver, *texts, safe=True)
    bench[leaver].engine.leave(bench.now)
    bench.take(bench[leaver])
    others = "abc".replace(leaver, "")
    bench.settle(others)
    for name in "abc":
        assert bench[name].texts == texts
    assert bench[leaver].views[-1] == "abc"


def test_leave_of_the_only_member() -> None:
    bench = ring_of("a")
    bench.say("a", "x")
    bench["a"].engine.leave(bench.now)
    bench.take(bench["a"])
    bench.until(lambda: not bench["a"].running)
    assert bench["a"].texts == ["x"]


def test_leave_before_there_is_a_ring_happens_once_there_is_one() -> None:
    bench = Bench("ab")
    bench["a"].engine.leave(bench.now)
    bench.take(bench["a"])
    bench.until(lambda: not bench["a"].running)
    bench.settle("b")


def test_leave_of_all_at_once() -> None:
    bench = idle_ring()
    for name in "abc":
        bench[name].engine.leave(bench.now)
        bench.take(bench[name])
    bench.until(lambda: not any(process.running for process in bench.processes.values()))


def test_leave_nothing_may_be_submitted_afterwards() -> None:
    bench = idle_ring()
    bench["c"].engine.leave(bench.now)
    with pytest.raises(ValueError, match="leave"):
        bench["c"].engine.submit(bench.now, Submission([b"x"]))


def test_bug_15_a_leave_that_is_lost_is_a_crash_like_any_other() -> None:
    bench = idle_ring()
    bench.refuse = lambda packet: packet.kind is LEAVE
    bench["c"].engine.leave(bench.now)
    bench.take(bench["c"])
    bench.settle("ab")
    assert bench["a"].views[-1] == "ab"


def test_bug_15_copies_of_a_leave_break_no_later_ring() -> None:
    bench = idle_ring()
    bench["c"].engine.leave(bench.now)
    bench.take(bench["c"])
    leave = bench.catch(LEAVE, to="a")
    bench.settle("ab")
    ring = bench["a"].ring.id
    bench.arrive(leave)
    bench.boot("c", bench["c"].disk)
    bench.settle()
    rejoined = bench["a"].ring.id
    bench.arrive(leave)
    bench.run(100_000)
    assert (bench["a"].ring.id, bench["a"].phase) == (rejoined, Phase.OPERATIONAL)
    assert rejoined.number > ring.number


def test_leave_and_return_at_once() -> None:
    """A leaver is not suspected, however many copies of its leave come: it returns without a pause."""
    bench = idle_ring()
    bench["c"].engine.leave(bench.now)
    bench.take(bench["c"])
    bench.settle("ab")
    assert bench.settings.leave_copies > 1
    assert bench["a"].state.suspects == bench["b"].state.suspects == {}
    bench.boot("c", bench["c"].disk)
    start = bench.now
    bench.settle()
    assert bench.now - start < 50_000


def test_leave_is_the_end_of_all_timers_and_packets() -> None:
    bench = idle_ring()
    bench["c"].engine.leave(bench.now)
    bench.take(bench["c"])
    bench.until(lambda: not bench["c"].running)
    assert bench["c"].engine.deadline is None


# One-way and partial links (bug 18).


def steady(bench: Bench, time_us: int) -> dict[str, int]:
    """Views installed by each process within a time."""
    before = {name: len(process.views) for name, process in bench.processes.items()}
    bench.run(time_us)
    return {name: len(process.views) - before[name] for name, process in bench.processes.items()}


@pytest.mark.parametrize("names", ["ab", "abc", "abcd"])
@pytest.mark.parametrize("deaf", "ab")
def test_bug_18_a_one_way_link_settles(names: str, deaf: str) -> None:
    bench = ring_of(names)
    other = "b" if deaf == "a" else "a"
    bench.cuts = {(other, deaf)}
    bench.run(20_000_000)
    assert set(steady(bench, 20_000_000).values()) == {0}
    for process in bench.processes.values():
        assert process.phase is Phase.OPERATIONAL
        assert len(process.views) < 60


@pytest.mark.parametrize("cut", ["ac", "bc", "ab"])
def test_bug_18_two_that_do_not_hear_each_other_settle(cut: str) -> None:
    bench = ring_of("abc")
    bench.cuts = {(cut[0], cut[1]), (cut[1], cut[0])}
    bench.run(20_000_000)
    assert set(steady(bench, 20_000_000).values()) == {0}
    assert max(len(process.members) for process in bench.processes.values()) == 2


def test_bug_18_links_that_heal_merge_the_rings() -> None:
    bench = ring_of("abc")
    bench.cuts = {("a", "c")}
    bench.run(20_000_000)
    bench.heal()
    bench.settle(within_us=2 * bench.settings.suspect_backoff_max_us)


def test_bug_18_a_one_way_link_delivers_no_message_twice_and_stops_nobody() -> None:
    bench = ring_of("abc")
    bench.cuts = {("a", "b")}
    for at in range(20):
        for name in "abc":
            bench.say(name, f"{name}{at}")
        bench.run(300_000)
    bench.run(5_000_000)
    for name in "abc":
        assert len(set(bench[name].texts)) == len(bench[name].texts)
        assert not bench[name].engine.backlog
        assert [text for text in bench[name].texts if text[0] == name] == [f"{name}{at}" for at in range(20)]


def test_a_crash_is_not_suspected_and_a_restart_merges_at_once() -> None:
    bench = ring_of("abc")
    bench.crash("c")
    bench.settle("ab")
    assert bench["a"].state.suspects == {}
    bench.boot("c", bench["c"].disk)
    start = bench.now
    bench.settle()
    assert bench.now - start < 50_000


def test_a_healed_partition_merges_within_some_beacons() -> None:
    bench = ring_of("abcd")
    bench.partition("ab", "cd")
    bench.settle("ab")
    bench.settle("cd")
    bench.run(1_000_000)
    bench.heal()
    start = bench.now
    bench.settle()
    assert bench.now - start < 2 * bench.settings.beacon_interval_us


def test_beacons_tell_the_members_and_whom_one_hears() -> None:
    bench = ring_of("abc")
    bench.run(1_000_000)
    beacon = decode_beacon(bench["b"].sent(BEACON)[-1])
    keys = {node_key(NodeId(name)) for name in "abc"}
    assert (beacon.sender, beacon.members, beacon.ring_digest) == ("b", keys, bench["b"].ring.digest)
    assert beacon.heard >= keys - {node_key(NodeId("b"))}


def test_a_process_with_my_name_is_reported_and_ignored() -> None:
    bench = still("abc")
    bench.give("b", Join(NodeId("b"), frozenset((NodeId("b"),)), frozenset(), 8).encode())
    assert bench["b"].phase is Phase.OPERATIONAL
    assert [e.what for e in bench["b"].effects if isinstance(e, Report)] == ["name_conflict"]


def test_late_messages_of_a_former_ring_are_not_foreign() -> None:
    bench = ring_of("abc")
    (late,) = bench.packets(bench["a"].ring, "c", 1, "late")
    bench.crash("c")
    bench.settle("ab")
    bench.give("a", late)
    assert bench["a"].phase is Phase.OPERATIONAL
    assert bench["a"].texts == []


def test_names_heard_of_are_bounded_and_the_longest_silent_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ordercast.engine.totem.links.DIRECTORY_MAX", 6)
    bench = still("abc")
    state = bench["b"].state
    for at in range(12):
        bench.now += 1_000
        bench.give(
            "b",
            Join(NodeId(f"x{at}"), frozenset({NodeId(f"x{at}"), NodeId("b")}), frozenset({NodeId("b")}), 4).encode(),
        )
        assert len(state.directory) <= 6
    assert set(state.directory.values()) == {"a", "b", "c", "x9", "x10", "x11"}
    assert bench["b"].phase is Phase.OPERATIONAL


def test_a_full_ring_is_not_broken_by_outsiders(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("operational", "gather"):
        monkeypatch.setattr(f"ordercast.engine.totem.{module}.MEMBERS_MAX", 3)
    bench = still("abc")
    bench.give("b", Join(NodeId("x"), frozenset({NodeId("x")}), frozenset(), 4).encode())
    bench.give("b", Beacon(20, 77, NodeId("x"), frozenset((NodeKey(5),)), frozenset()).encode())
    assert bench["b"].phase is Phase.OPERATIONAL
    bench.give("b", Join(NodeId("c"), frozenset(map(NodeId, "abc")), frozenset(), bench["b"].ring.number).encode())
    assert bench["b"].phase is Phase.GATHER
    bench.give("b", Join(NodeId("x"), frozenset(map(NodeId, "abcx")), frozenset(), 4).encode())
    assert bench["b"].state.my_proc_set == set("abc")


def test_messages_of_another_ring_are_foreign_once_their_sender_is_known_by_name() -> None:
    bench = Bench("ab")
    bench.partition("a", "b")
    bench.settle("a")
    bench.settle("b")
    bench.run(500_000)
    bench.cuts = set()
    bench.refuse = lambda packet: packet.kind in (JOIN, BEACON)
    bench.say("b", "x")
    (packet,) = bench.packets(bench["b"].ring, "b", 1, "x")
    bench.give("a", packet)
    assert bench["a"].phase is Phase.OPERATIONAL
    bench["a"].state.directory[node_key(NodeId("b"))] = NodeId("b")
    bench.give("a", packet)
    assert bench["a"].phase is Phase.GATHER


# A host that lags.


def test_throttle_while_one_application_lags_nobody_sends_anything_new() -> None:
    bench = ring_of("abc")
    bench.run(10_000)
    bench["b"].engine.throttle(bench.now, True)
    bench.run(200_000)
    for name in "abc":
        bench.say(name, *(f"{name}{at}" for at in range(20)))
    bench.run(200_000)
    said = len(bench["a"].texts)
    bench.run(500_000)
    assert len(bench["a"].texts) == said
    bench["b"].engine.throttle(bench.now, False)
    bench.quiet()
    assert len(bench["a"].texts) == 60
    assert bench["a"].views == ["a", "[a]", "abc"]


@pytest.mark.parametrize("lagging", "ab")
def test_throttle_does_not_make_the_ring_spin(lagging: str) -> None:
    bench = ring_of("abc")
    bench[lagging].engine.throttle(bench.now, True)
    for name in "abc":
        bench.say(name, *(f"{name}{at}" for at in range(20)))
    bench.run(100_000)
    assert tokens_in(bench, 1_000_000) <= 3 * 1_000_000 // bench.settings.stall_pace_us


def test_broadcasts_have_the_form_of_a_train() -> None:
    bench = ring_of("ab")
    bench.say("a", *(f"m{at}" for at in range(7)))
    bench.quiet()
    trains = [e for e in bench["a"].effects if isinstance(e, Broadcast) and e.data[3] == DATA]
    assert len(trains) == 1
    assert len(trains[0].data) == 7 * trains[0].segment
