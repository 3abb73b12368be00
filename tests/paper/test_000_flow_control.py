"""Paper 000, §8: the flow control mechanism."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from ring import COMMIT, DATA, TOKEN, Bench, config, ring_of, still
from stages import agree, commit_token, first_rotation, gathering

from ordercast.engine.contract import Broadcast, Unicast
from ordercast.engine.totem import Phase
from ordercast.engine.totem.flow import transmits_allowed
from ordercast.wire.totem import decode_token
from ordercast.wire.train import check_packet, split_packets

TEXTS = [f"m{at}" for at in range(40)]


def test_8_2_no_more_than_max_messages_in_one_visit() -> None:
    bench = still("abc", config(max_messages=5, window_size=100))
    bench.say("b", *TEXTS)
    assert len(bench.visit("b").data()) == 5


def test_8_2_no_more_than_the_window_leaves_after_the_last_rotation() -> None:
    bench = still("abc", config(max_messages=20, window_size=20))
    bench.say("b", *TEXTS)
    assert len(bench.visit("b", fcc=17).data()) == 3


def test_8_2_nothing_when_the_window_is_used_up() -> None:
    bench = still("abc", config(max_messages=20, window_size=20))
    bench.say("b", *TEXTS)
    assert bench.visit("b", fcc=20).data() == []
    assert bench.visit("b", fcc=25).data() == []


def test_8_2_no_more_than_the_fair_share_of_all_backlogs() -> None:
    """Mine is 41 or 42 of 124: a third of a window of 30."""
    bench = still("abc", config(max_messages=30, window_size=30))
    bench.say("b", *TEXTS)
    assert len(bench.visit("b", backlog=82).data()) == 10


def test_8_1_fcc_loses_what_i_sent_a_rotation_ago_and_gains_what_i_send_now() -> None:
    bench = still("abc", config(max_messages=4, window_size=20))
    bench.say("b", *TEXTS)
    first = bench.visit("b", fcc=7)
    assert first.token is not None
    assert first.token.fcc == 7 + 4
    second = bench.visit("b", seq=first.token.seq, aru=first.token.aru, fcc=first.token.fcc)
    assert second.token is not None
    assert second.token.fcc == 7 + 4


def test_8_1_backlog_loses_what_i_had_a_rotation_ago_and_gains_what_i_have_now() -> None:
    bench = still("abc", config(max_messages=4, window_size=20))
    bench.say("b", *TEXTS)
    first = bench.visit("b", backlog=5)
    assert first.token is not None
    mine = bench["b"].state.new_message_queue.packets_waiting()
    assert first.token.backlog == 5 + mine
    assert mine >= 36
    second = bench.visit("b", seq=first.token.seq, aru=first.token.aru, backlog=first.token.backlog)
    assert second.token is not None
    assert second.token.backlog == 5 + bench["b"].state.new_message_queue.packets_waiting()


def sent_per_visit(bench: Bench) -> list[tuple[int, str, int]]:
    """For every token sent on: its token_seq, by whom, and how many data packets were sent in that visit.

    Retransmissions leave before the token. New packets may leave behind it: they are told by their numbers, which the
    token has counted in.
    """
    visits: list[list[Any]] = []
    for name, process in bench.processes.items():
        count = high = 0
        for effect in process.effects:
            if isinstance(effect, Broadcast) and effect.data[3] == DATA:
                packets = list(split_packets(effect.data, effect.segment))
                seq = check_packet(packets[0], 0, len(packets[0]))[1]
                if high < seq <= token_seq(visits, name):
                    visits[-1][2] += len(packets)
                else:
                    count += len(packets)
                high = max(high, seq)
            elif isinstance(effect, Unicast) and effect.packet[3] == TOKEN:
                token = decode_token(effect.packet)
                visits.append([token.token_seq, name, count, token.seq])
                count = 0
    return sorted((at, name, count) for at, name, count, _ in visits)


def token_seq(visits: list[list[Any]], name: str) -> int:
    """The seq of the last token that this process sent on."""
    return visits[-1][3] if visits and visits[-1][1] == name else 0


@pytest.mark.parametrize("window", [4, 10, 30])
@pytest.mark.parametrize("speakers", ["a", "ab", "abcd"])
def test_8_1_no_rotation_sends_more_than_the_window(window: int, speakers: str) -> None:
    bench = ring_of("abcd", config(window_size=window, max_messages=max(window // 2, 1)))
    bench.run(1_000)
    for process in bench.processes.values():
        process.effects.clear()
    for name in speakers:
        bench.say(name, *TEXTS * 3)
    bench.quiet()
    rotation: deque[int] = deque(maxlen=4)
    most = 0
    for _, _, count in sent_per_visit(bench):
        rotation.append(count)
        most = max(most, sum(rotation))
    assert most <= window
    assert sum(count for _, _, count in sent_per_visit(bench)) == 120 * len(speakers)


def test_8_1_retransmissions_count_against_the_window_too() -> None:
    bench = ring_of("abcd", config(window_size=12, max_messages=6))
    bench.split = True
    bench.run(1_000)
    for process in bench.processes.values():
        process.effects.clear()
    lost: set[tuple[int, str]] = set()

    def lose_once(packet) -> bool:
        key = (packet.seq, packet.to)
        if packet.kind is not DATA or packet.seq % 3 or key in lost:
            return False
        lost.add(key)
        return True

    bench.refuse = lose_once
    for name in "abcd":
        bench.say(name, *TEXTS)
    bench.quiet()
    visits = sent_per_visit(bench)
    assert max(sum(count for _, _, count in visits[at : at + 4]) for at in range(len(visits))) <= 12
    assert sum(bench[name].state.counters["retransmissions"] for name in "abcd") > 0
    assert len(bench["a"].texts) == 160


def test_8_2_members_with_equal_backlogs_get_equal_shares() -> None:
    bench = ring_of("abcd", config(window_size=40, max_messages=40))
    bench.run(1_000)
    for process in bench.processes.values():
        process.effects.clear()
    for name in "abcd":
        bench.say(name, *TEXTS * 10)
    bench.until(lambda: len(bench["a"].texts) >= 1_000)
    sent = {name: len(bench[name].sent(DATA)) for name in "abcd"}
    assert max(sent.values()) <= 1.3 * min(sent.values())


def test_8_2_a_member_that_has_little_is_not_starved_by_one_that_has_much() -> None:
    bench = ring_of("abcd", config(window_size=20, max_messages=20))
    bench.say("a", *TEXTS * 20)
    bench.until(lambda: len(bench["b"].texts) >= 100)
    bench.say("c", "one")
    before = len(bench["b"].texts)
    bench.until(lambda: "one" in bench["b"].texts)
    assert bench["b"].texts.index("one") - before <= 3 * 20


def test_8_2_one_member_alone_may_use_the_whole_window() -> None:
    """Departure D11: its own packets of a rotation ago do not count against it."""
    bench = ring_of("abcd", config(window_size=20, max_messages=20))
    bench.run(1_000)
    bench["a"].effects.clear()
    bench.say("a", *TEXTS * 5)
    bench.quiet()
    counts = [count for _, name, count in sent_per_visit(bench) if name == "a" and count]
    assert counts == [20] * 10


@pytest.mark.parametrize(("windows", "expected"), [((8192, 30, 500), 30), ((8192, 8192, 8192), 800), ((5, 0, 7), 1)])
def test_8_the_window_is_the_smallest_announced(windows: tuple[int, int, int], expected: int) -> None:
    bench = gathering()
    agree(bench, "b", "ac", "abc")
    bench.give("b", first_rotation(bench, "abc", "b").encode())
    assert commit_token(bench, "b").memb_list[1].window == bench.settings.window_size
    token = commit_token(bench, "b")
    token.rotation = 2
    for entry, window in zip(token.memb_list, windows, strict=True):
        entry.filled, entry.old_ring, entry.window = True, bench["b"].ring.id, window
    bench.give("b", token.encode())
    assert bench["b"].phase is Phase.RECOVERY
    assert bench["b"].state.active.window == expected


def test_8_all_members_of_a_ring_have_the_same_window() -> None:
    bench = Bench("abc", config(receive_window=50))
    bench.settings = config(receive_window=9)
    bench.boot("d", {})
    bench.settle()
    assert {bench[name].ring.window for name in "abcd"} == {3}
    assert bench.counts[COMMIT] >= 8


def test_8_three_windows_fit_the_receive_buffer() -> None:
    bench = gathering(settings=config(receive_window=20))
    agree(bench, "b", "ac", "abc")
    bench.give("b", first_rotation(bench, "abc", "b").encode())
    assert commit_token(bench, "b").memb_list[1].window == 6


def test_8_2_nothing_is_sent_far_above_the_aru() -> None:
    bench = still("abc", config(window_size=10, max_messages=10))
    bench.say("b", *TEXTS)
    assert len(bench.visit("b", seq=77, aru=0, aru_id="c").data()) == 3
    assert bench.visit("b", seq=80, aru=0, aru_id="c").data() == []
    assert len(bench.visit("b", seq=80, aru=30, aru_id="c").data()) == 10


def test_8_2_recovery_is_under_flow_control_too() -> None:
    """Three packets of the old ring, which are nine of the new one: three visits."""
    bench = ring_of("abc", config(window_size=6, max_messages=3))
    bench.run(1_000)
    bench.refuse = lambda packet: packet.kind is DATA and packet.to == "c"
    bench.say("b", *TEXTS[:3])
    bench.until(lambda: bench["a"].texts == TEXTS[:3])
    bench.crash("b")
    old = bench["a"].ring.prefix[4:12]
    bench.refuse = lambda packet: packet.kind is TOKEN and packet.data[4:12] == old
    for process in bench.processes.values():
        process.effects.clear()
    bench.until(lambda: bench["a"].members == bench["c"].members == "ac")
    assert bench["c"].texts == TEXTS[:3]
    assert [count for _, _, count in sent_per_visit(bench) if count] == [3, 3, 3]


def allowed(**changes: int) -> int:
    plain = {"max_messages": 10, "window_size": 50, "fcc": 0, "my_trc": 0, "backlog": 0, "my_pbl": 0, "my_tbl": 100}
    return transmits_allowed(**{**plain, **changes})


def test_8_2_the_three_constraints_as_figures() -> None:
    assert allowed() == 10
    assert allowed(fcc=45) == 5
    assert allowed(fcc=45, my_trc=5) == 10
    assert allowed(backlog=900) == 5
    assert allowed(backlog=950, my_pbl=50) == 5
    assert allowed(my_tbl=0) == 0
    assert allowed(fcc=60) == 0
    assert allowed(backlog=10**9, my_tbl=1) == 1
