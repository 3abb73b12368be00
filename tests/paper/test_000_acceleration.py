"""Deviation D29: the token goes ahead of many new messages (Babay and Amir's accelerated ring)."""

from __future__ import annotations

import pytest
from ring import DATA, TOKEN, Packet, config, originated, ring_of, still

from ordercast.engine.contract import Broadcast, Unicast
from ordercast.engine.totem import Phase
from ordercast.wire.totem import decode_token

AHEAD = config(ahead_from=2)
TEXTS = [f"m{at}" for at in range(40)]


def test_acceleration_the_token_goes_ahead_of_many_new_messages_and_counts_them() -> None:
    bench = still("abc", AHEAD)
    bench.say("b", "m1", "m2", "m3")
    visit = bench.visit("b", seq=4, aru=0, aru_id="a")
    kinds = [type(effect) for effect in visit.effects]
    assert kinds.index(Unicast) < kinds.index(Broadcast)
    assert visit.effects.index(originated(visit.effects)[0]) == 0
    assert visit.seqs() == [5, 6, 7]
    assert visit.token is not None
    assert visit.token.seq == 7


def test_acceleration_few_messages_go_before_the_token() -> None:
    bench = still("abc", AHEAD)
    bench.say("b", "m1")
    kinds = [type(effect) for effect in bench.visit("b").effects]
    assert kinds.index(Broadcast) < kinds.index(Unicast)


def test_acceleration_can_be_left_out() -> None:
    bench = still("abc", config(ahead_from=0))
    bench.say("b", *TEXTS)
    kinds = [type(effect) for effect in bench.visit("b").effects]
    assert kinds.index(Broadcast) < kinds.index(Unicast)


def test_acceleration_retransmissions_go_before_the_token() -> None:
    bench = still("abc", AHEAD)
    bench.hear("b", "a", 1, "x")
    bench.say("b", "m1", "m2")
    effects = bench.visit("b", seq=1, aru=0, aru_id="c", rtr=[(1, 1)]).effects
    at = {effect.data[28]: index for index, effect in enumerate(effects) if isinstance(effect, Broadcast)}
    token = next(index for index, effect in enumerate(effects) if isinstance(effect, Unicast))
    assert at[1] < token < at[2]


def test_acceleration_what_may_be_on_its_way_is_not_requested_before_the_next_rotation() -> None:
    bench = still("abc", AHEAD)
    first = bench.visit("b", seq=3, aru=0, aru_id="a")
    assert first.token is not None
    assert first.token.rtr == []
    assert (first.token.aru, bench["b"].ring.my_aru) == (0, 0)
    bench.hear("b", "a", 2, "y")
    second = bench.visit("b", seq=6, aru=0, aru_id="a")
    assert second.token is not None
    assert second.token.rtr == [(1, 1), (3, 1)]


def test_acceleration_what_is_due_is_what_would_be_requested() -> None:
    """What the redundancy layer asks before it lets a token pass."""
    bench = still("abc", AHEAD)
    bench.visit("b", seq=3, aru=0, aru_id="a")
    bench.visit("b", seq=9, aru=0, aru_id="a")
    token = decode_token(bench["b"].sent(TOKEN)[-1])
    token.seq = 12
    engine = bench["b"].engine
    assert engine.due(token.encode()) == 9
    assert engine.misses(token.encode())
    token.rtr = [(1, 8)]
    assert engine.misses(token.encode())
    token.rtr = [(1, 9)]
    assert not engine.misses(token.encode()), "it will be sent again in any case"
    assert not engine.misses(token.encode()[:-1]), "a malformed token is passed on, to be refused"
    token.rtr = []
    bench.hear("b", "a", 1, *TEXTS[:9])
    assert not engine.misses(token.encode())
    token.ring_number += 4
    assert engine.due(token.encode()) == 0


def test_acceleration_all_deliver_one_order_and_nothing_is_sent_twice() -> None:
    bench = ring_of("abcd", config(ahead_from=1, window_size=30, max_messages=10))
    for at in range(6):
        for name in "abcd":
            bench.say(name, *(f"{name}{at}.{text}" for text in TEXTS), safe=at % 2 == 1)
    bench.quiet()
    assert len(bench["a"].texts) == 6 * 4 * 40
    assert all(bench[name].texts == bench["a"].texts for name in "bcd")
    assert sum(bench[name].state.counters["retransmissions"] for name in "abcd") == 0
    assert all(bench[name].state.counters["views"] == 2 for name in "abcd")


def test_acceleration_a_lost_message_comes_back_two_rotations_later() -> None:
    bench = ring_of("abcd", config(ahead_from=1))
    bench.refuse = lambda packet: packet.kind is DATA and packet.to == "c" and packet.source == "b" and packet.seq < 3
    bench.say("b", *TEXTS[:5])
    bench.until(lambda: len(bench["a"].texts) == 5)
    bench.heal()
    bench.until(lambda: bench["c"].texts == TEXTS[:5])
    assert all(bench[name].state.counters["views"] == 2 for name in "abcd")


def test_acceleration_a_crash_between_token_and_messages_leaves_numbers_that_nobody_has() -> None:
    bench = ring_of("abc", config(ahead_from=1))
    bench.refuse = lambda packet: packet.source == "b" and packet.kind is DATA
    bench.say("b", *TEXTS[:4], safe=True)
    bench.until(lambda: bench["b"].ring.last_own_seq == 4)
    bench.crash("b")
    bench.say("a", "a1", "a2")
    bench.say("c", "c1")
    bench.settle("ac")
    bench.until(lambda: len(bench["a"].texts) == len(bench["c"].texts) == 3)
    assert bench["a"].story[-6:] == bench["c"].story[-6:]
    assert sorted(bench["a"].texts) == ["a1", "a2", "c1"]


def test_acceleration_recovery_has_the_order_of_the_paper() -> None:
    bench = ring_of("abc", config(ahead_from=1))
    bench.refuse = lambda packet: packet.kind is DATA and packet.to == "c"
    bench.say("b", *TEXTS[:5])
    bench.until(lambda: len(bench["a"].texts) == 5)
    bench.crash("b")
    bench.heal()
    bench.until(lambda: bench["a"].phase is Phase.RECOVERY and bool(bench["a"].state.retrans_message_queue))
    bench["a"].effects.clear()
    bench.settle("ac")
    said = [e for e in bench["a"].effects if isinstance(e, (Broadcast, Unicast))]
    data = next(at for at, e in enumerate(said) if isinstance(e, Broadcast) and e.data[3] == DATA)
    tokens = [at for at, e in enumerate(said) if isinstance(e, Unicast) and e.packet[3] == TOKEN
              and decode_token(e.packet).seq]  # fmt: skip
    assert data < tokens[0]
    assert bench["c"].texts == TEXTS[:5]


def test_acceleration_what_has_been_numbered_is_sent_though_the_token_is_kept() -> None:
    bench = still("abc", config(ahead_from=1, fail_to_rcv_const=3))
    bench.hear("b", "a", 1, "x", "y")
    for _ in range(4):
        bench.visit("b", seq=2, aru=1, aru_id="c")
    bench.say("b", "m1", "m2")
    visit = bench.visit("b", seq=2, aru=1, aru_id="c")
    assert bench["b"].phase is Phase.GATHER
    assert visit.token is None
    assert visit.seqs() == [3, 4]


@pytest.mark.parametrize("lost", [0, 7])
def test_8_what_may_wait_unread_is_three_windows_at_most(lost: int) -> None:
    """Data packets that are on their way to d from one of its visits to the next; every seventh is lost once."""
    window = 12
    bench = ring_of("abcd", config(ahead_from=1, window_size=window, max_messages=window))
    bench.split = True
    gone: set[tuple[int, str]] = set()

    def refuse(packet: Packet) -> bool:
        if packet.kind is not DATA or not lost or packet.seq % lost or (packet.seq, packet.to) in gone:
            return False
        gone.add((packet.seq, packet.to))
        return True

    bench.refuse = refuse
    for name in "abcd":
        bench.say(name, *TEXTS * 3)
    unread: set[int] = set()
    visit = most = 0

    def all_is_there() -> bool:
        nonlocal visit, most
        ring = bench["d"].ring
        if ring.my_token_seq != visit:
            visit = ring.my_token_seq
            unread.clear()
        unread.update(id(packet) for packet in bench.flight if packet.to == "d" and packet.kind is DATA)
        most = max(most, len(unread))
        return ring.my_aru == 480

    bench.until(all_is_there)
    assert window // 2 < most <= 3 * window
    assert bool(gone) == bool(lost)
