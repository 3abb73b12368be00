"""Paper 000, §5: the total ordering protocol."""

from __future__ import annotations

import pytest
from ring import DATA, TOKEN, Bench, Visit, config, originated, ring_of, still

from ordercast.engine.contract import Broadcast, Submission, Unicast
from ordercast.engine.totem import Phase, TotemConfig
from ordercast.wire.ids import NO_NODE, NodeId, node_key
from ordercast.wire.totem import RTR_RANGES_MAX, decode_token
from ordercast.wire.train import Flag, check_packet

A, B, C = (node_key(NodeId(name)) for name in "abc")


@pytest.fixture
def bench() -> Bench:
    """A ring of a, b and c of which only b is real; nothing has been sent."""
    return still("abc")


# §5.1, §5.2: the token and its sequence numbers.


def test_5_2_each_new_message_gets_the_next_seq_of_the_token(bench: Bench) -> None:
    bench.hear("b", "a", 1, "x", "y")
    bench.say("b", "m1", "m2", "m3")
    visit = bench.visit("b", seq=2, aru=2)
    assert visit.seqs() == [3, 4, 5]
    assert visit.token is not None
    assert visit.token.seq == 5


def test_5_2_token_is_accepted_once_and_its_token_seq_incremented(bench: Bench) -> None:
    number = bench["b"].ring.my_token_seq + 1
    visit = bench.visit("b", token_seq=number)
    assert visit.token is not None
    assert visit.token.token_seq == bench["b"].ring.my_token_seq == number + 1
    bench.say("b", "m")
    for redundant in (number, number + 1, number - 5):
        assert bench.visit("b", token_seq=redundant).effects == []
    assert bench["b"].state.counters["redundant_tokens"] == 3
    assert bench.visit("b", token_seq=number + 2).seqs() == [1]


def test_5_2_token_of_another_ring_is_discarded(bench: Bench) -> None:
    visit = bench.visit("b")
    assert visit.token is not None
    visit.token.token_seq += 10
    visit.token.ring_number += 4
    assert bench.give("b", visit.token.encode()) == []
    visit.token.ring_number -= 4
    visit.token.ring_digest ^= 1
    assert bench.give("b", visit.token.encode()) == []


def test_5_2_token_leaves_behind_the_messages_of_its_visit(bench: Bench) -> None:
    bench.say("b", "m1", "m2")
    kinds = [type(effect) for effect in bench.visit("b").effects]
    assert kinds.index(Broadcast) < kinds.index(Unicast)


def test_5_2_messages_are_originated_before_they_leave(bench: Bench) -> None:
    bench.say("b", "m1", "m2")
    effects = bench.visit("b").effects
    (told,) = originated(effects)
    assert (told.first, told.count, told.view_id) == (1, 2, bench["b"].ring.text)
    assert effects.index(told) == 0


# §5.2: the aru.


def aru_of(visit: Visit) -> tuple[int, int]:
    assert visit.token is not None
    return visit.token.aru, visit.token.aru_id


def test_5_2_aru_is_lowered_by_whoever_misses_a_message(bench: Bench) -> None:
    bench.hear("b", "a", 1, "x")
    assert aru_of(bench.visit("b", seq=3, aru=3)) == (1, B)


def test_5_2_aru_that_another_has_lowered_is_lowered_further(bench: Bench) -> None:
    bench.hear("b", "a", 1, "x")
    assert aru_of(bench.visit("b", seq=4, aru=2, aru_id="c")) == (1, B)


def test_5_2_aru_that_another_has_lowered_further_is_left(bench: Bench) -> None:
    bench.hear("b", "a", 1, "x", "y")
    assert aru_of(bench.visit("b", seq=3, aru=1, aru_id="c")) == (1, C)


def test_5_2_aru_is_raised_only_by_the_one_who_lowered_it(bench: Bench) -> None:
    bench.hear("b", "a", 1, "x", "y", "z")
    assert aru_of(bench.visit("b", seq=4, aru=1, aru_id="b")) == (3, B)
    assert aru_of(bench.visit("b", seq=4, aru=1, aru_id="a")) == (1, A)


def test_5_2_aru_id_is_null_once_the_aru_has_reached_the_seq(bench: Bench) -> None:
    bench.hear("b", "a", 1, "x", "y")
    assert aru_of(bench.visit("b", seq=2, aru=1, aru_id="b")) == (2, NO_NODE)


def test_5_2_aru_goes_in_step_with_seq_when_they_are_equal(bench: Bench) -> None:
    bench.hear("b", "a", 1, "x")
    bench.say("b", "m1", "m2")
    visit = bench.visit("b", seq=1, aru=1)
    assert aru_of(visit) == (3, NO_NODE)
    assert bench["b"].ring.my_aru == 3


def test_5_2_aru_does_not_go_with_seq_while_another_lags(bench: Bench) -> None:
    bench.hear("b", "a", 1, "x")
    bench.say("b", "m1")
    assert aru_of(bench.visit("b", seq=1, aru=0, aru_id="c")) == (0, C)


# §5.2: retransmission requests.


def test_5_2_rtr_is_augmented_with_what_is_missing(bench: Bench) -> None:
    bench.visit("b", seq=6, aru=0, aru_id="c")
    bench.hear("b", "a", 2, "y")
    bench.hear("b", "a", 5, "u")
    visit = bench.visit("b", seq=6, aru=0, aru_id="c", rtr=[(1, 1)])
    assert visit.token is not None
    assert visit.token.rtr == [(1, 1), (3, 2), (6, 1)]


def test_5_2_own_new_messages_are_not_requested(bench: Bench) -> None:
    bench.visit("b", seq=2, aru=2)
    bench.say("b", "m")
    visit = bench.visit("b", seq=2, aru=2)
    assert visit.token is not None
    assert (visit.token.seq, visit.token.rtr) == (3, [(1, 2)])


def test_5_2_requested_messages_are_retransmitted_and_taken_off_the_list(bench: Bench) -> None:
    sent = bench.packets(bench["b"].ring, "a", 1, "x", "y", "z")
    for packet in sent:
        bench.give("b", packet)
    visit = bench.visit("b", seq=4, aru=0, aru_id="c", rtr=[(1, 2), (4, 1)])
    assert visit.data() == sent[:2]
    assert visit.token is not None
    assert visit.token.rtr == [(4, 1)]


def test_5_2_retransmissions_go_before_new_messages_and_within_the_same_allowance() -> None:
    bench = still("abc", config(max_messages=3))
    bench.hear("b", "a", 1, "x", "y")
    bench.say("b", "m1", "m2", "m3")
    visit = bench.visit("b", seq=2, aru=0, aru_id="c", rtr=[(1, 2)])
    assert visit.seqs() == [1, 2, 3]
    assert visit.token is not None
    assert (visit.token.seq, visit.token.fcc, visit.token.rtr) == (3, 3, [])


def test_5_2_requests_beyond_the_allowance_stay_on_the_list() -> None:
    bench = still("abc", config(max_messages=2))
    bench.hear("b", "a", 1, "x", "y", "z")
    visit = bench.visit("b", seq=3, aru=0, aru_id="c", rtr=[(1, 3)])
    assert visit.seqs() == [1, 2]
    assert visit.token is not None
    assert visit.token.rtr == [(3, 1)]


def test_5_2_a_retransmission_is_the_packet_as_its_sender_made_it(bench: Bench) -> None:
    (packet,) = bench.packets(bench["b"].ring, "a", 1, "x", safe=True)
    bench.give("b", packet)
    assert bench.visit("b", seq=1, aru=0, aru_id="c", rtr=[(1, 1)]).data() == [packet]


def test_5_2_a_lost_message_comes_back_on_the_next_rotation() -> None:
    bench = ring_of("abcd")
    bench.refuse = lambda packet: packet.kind is DATA and packet.to == "c" and packet.source == "b"
    bench.say("b", "m1", "m2")
    bench.until(lambda: bench["c"].texts == ["m1", "m2"])
    assert bench["c"].state.counters["views"] == 2


def test_bug_07_a_gap_larger_than_a_token_can_name_is_closed_from_its_low_end() -> None:
    """Every second packet is missing: more ranges than the token holds; and the whole gap is larger than a window."""
    bench = still("ab", config(window_size=10, max_messages=10))
    count = 4 * RTR_RANGES_MAX
    packets = bench.packets(bench["b"].ring, "a", 1, *(f"m{at}" for at in range(count)))
    for packet in packets[1::2]:
        bench.give("b", packet)
    bench.visit("b", seq=count, aru=0, aru_id="b")
    rotations = 0
    while bench["b"].ring.my_aru < count:
        visit = bench.visit("b", seq=count, aru=bench["b"].ring.my_aru, aru_id="b")
        assert visit.token is not None
        assert len(visit.token.rtr) <= RTR_RANGES_MAX
        assert visit.token.rtr[0][0] == bench["b"].ring.my_aru + 1
        for first, length in visit.token.rtr:
            for seq in range(first, first + length):
                bench.give("b", packets[seq - 1])
        rotations += 1
        assert rotations <= 3
    assert bench["b"].texts == [f"m{at}" for at in range(count)]


# §5.2: delivery.


def test_5_2_agreed_messages_are_delivered_at_once_and_in_order(bench: Bench) -> None:
    bench.hear("b", "a", 1, "x")
    assert bench["b"].texts == ["x"]
    bench.hear("b", "c", 3, "z")
    assert bench["b"].texts == ["x"]
    bench.hear("b", "a", 2, "y")
    assert bench["b"].texts == ["x", "y", "z"]


def test_5_2_own_messages_wait_for_those_before_them(bench: Bench) -> None:
    bench.say("b", "m")
    bench.visit("b", seq=1, aru=1)
    assert bench["b"].texts == []
    bench.hear("b", "a", 1, "x")
    assert bench["b"].texts == ["x", "m"]


def test_5_2_a_message_received_twice_is_delivered_once(bench: Bench) -> None:
    bench.hear("b", "a", 1, "x")
    bench.hear("b", "a", 1, "x")
    assert bench["b"].texts == ["x"]
    assert bench["b"].state.counters["duplicates"] == 1


def test_5_2_safe_messages_are_delivered_after_two_forwards_with_an_aru_that_reaches_them(bench: Bench) -> None:
    bench.hear("b", "a", 1, "s", safe=True)
    bench.visit("b", seq=1, aru=1)
    assert bench["b"].texts == []
    bench.visit("b", seq=1, aru=1)
    assert bench["b"].texts == ["s"]


def test_5_2_the_two_forwards_have_to_follow_each_other(bench: Bench) -> None:
    bench.hear("b", "a", 1, "s", safe=True)
    for aru, owner in ((1, NO_NODE), (0, C), (1, C)):
        bench.visit("b", seq=1, aru=aru, aru_id=owner)
        assert bench["b"].texts == []
    bench.visit("b", seq=1, aru=1)
    assert bench["b"].texts == ["s"]


def test_erratum_11_only_tokens_that_were_forwarded_count(bench: Bench) -> None:
    """Neither a redundant copy of the token nor the aru that it brought, but the one with which it left."""
    bench.hear("b", "c", 2, "s", safe=True)
    bench.visit("b", seq=2, aru=2)
    bench.hear("b", "a", 1, "x")
    first = bench.visit("b", seq=2, aru=2)
    assert first.token is not None
    assert first.token.aru == 2
    bench.visit("b", seq=2, aru=2, token_seq=bench["b"].ring.my_token_seq - 1)
    assert bench["b"].texts == ["x"]
    bench.visit("b", seq=2, aru=2)
    assert bench["b"].texts == ["x", "s"]


def test_erratum_12_an_agreed_message_does_not_overtake_an_undelivered_safe_one(bench: Bench) -> None:
    bench.hear("b", "a", 1, "s", safe=True)
    bench.hear("b", "a", 2, "x")
    assert bench["b"].texts == []
    bench.visit("b", seq=2, aru=2)
    bench.visit("b", seq=2, aru=2)
    assert bench["b"].texts == ["s", "x"]


def test_5_1_what_is_safe_and_delivered_is_discarded(bench: Bench) -> None:
    bench.hear("b", "a", 1, "x", "y")
    bench.visit("b", seq=2, aru=2)
    assert sorted(bench["b"].ring.received) == [1, 2]
    bench.visit("b", seq=2, aru=2)
    assert bench["b"].ring.received == {}


def test_5_2_all_deliver_the_same_order_and_safe_means_that_all_have_it() -> None:
    bench = ring_of("abcd")
    for at in range(5):
        for name in "abcd":
            bench.say(name, f"{name}{at}", safe=at % 2 == 1)
    bench.quiet()
    assert len(bench["a"].texts) == 20
    assert all(bench[name].texts == bench["a"].texts for name in "bcd")


def test_5_2_messages_of_one_sender_keep_their_order_and_numbers_have_no_gap() -> None:
    bench = ring_of("ab", config(max_messages=2, window_size=4))
    bench.say("a", *(f"m{at}" for at in range(9)))
    bench.quiet()
    told = originated(bench["a"].effects)
    assert [one.first for one in told] == [1 + sum(other.count for other in told[:at]) for at in range(len(told))]
    assert sum(one.count for one in told) == 9
    assert bench["b"].texts == [f"m{at}" for at in range(9)]


# §5.2: retransmission of the token.


def forward(bench: Bench) -> bytes:
    visit = bench.visit("b", seq=0)
    assert visit.token is not None
    return bench["b"].sent(TOKEN)[-1]


def test_5_2_the_token_is_retransmitted_until_something_shows_that_it_arrived(bench: Bench) -> None:
    token = forward(bench)
    bench["b"].effects.clear()
    bench.run(4 * bench.settings.token_retransmission_timeout_us + 100)
    assert bench["b"].sent(TOKEN) == [token] * 4
    assert bench["b"].state.counters["token_retransmissions"] == 4


def test_erratum_13_a_message_above_the_token_s_seq_cancels_token_retransmission(bench: Bench) -> None:
    forward(bench)
    bench["b"].effects.clear()
    bench.hear("b", "c", 1, "x")
    bench.run(3 * bench.settings.token_retransmission_timeout_us)
    assert bench["b"].sent(TOKEN) == []


def test_erratum_13_an_older_message_does_not_cancel_token_retransmission(bench: Bench) -> None:
    bench.visit("b", seq=2, aru=2)
    bench["b"].effects.clear()
    bench.hear("b", "a", 1, "x", "y")
    assert bench["b"].texts == ["x", "y"]
    bench.run(bench.settings.token_retransmission_timeout_us + 100)
    assert len(bench["b"].sent(TOKEN)) == 1


def test_erratum_13_the_next_token_cancels_token_retransmission_and_a_redundant_one_does_not(bench: Bench) -> None:
    token = forward(bench)
    due = bench["b"].state.token_retransmission_at
    bench.now += 1000
    bench.visit("b", token_seq=decode_token(token).token_seq - 1)
    assert bench["b"].state.token_retransmission_at == due
    bench.visit("b")
    assert bench["b"].state.token_retransmission_at == due + 1000


def test_5_2_a_lost_token_comes_again_without_a_change_of_views() -> None:
    bench = ring_of("abc")
    bench.say("b", "m")
    bench.catch(TOKEN)
    bench.until(lambda: bench["c"].texts == ["m"])
    assert all(bench[name].state.counters["token_retransmissions"] <= 1 for name in "abc")
    assert bench["a"].views == ["a", "[a]", "abc"]


def test_bug_08_a_redundant_token_does_not_reset_the_token_loss_timer(bench: Bench) -> None:
    token = forward(bench)
    loss = bench["b"].state.token_loss_at
    bench.now += 10_000
    bench.visit("b", token_seq=decode_token(token).token_seq - 1)
    assert bench["b"].state.token_loss_at == loss
    bench.run(bench.settings.token_loss_timeout_us)
    assert bench["b"].phase is Phase.GATHER


def test_bug_08_a_redundant_token_is_no_stalled_rotation(bench: Bench) -> None:
    bench.hear("b", "a", 1, "x", "y")
    bench.visit("b", seq=2, aru=1, aru_id="c")
    bench.visit("b", seq=2, aru=1, aru_id="c")
    assert bench["b"].ring.my_aru_count == 1
    for _ in range(5):
        bench.visit("b", seq=2, aru=1, aru_id="c", token_seq=bench["b"].ring.my_token_seq)
    assert bench["b"].ring.my_aru_count == 1


# §6.2.1: token loss, and failure to receive.


def test_6_2_1_without_token_or_messages_the_token_is_lost(bench: Bench) -> None:
    forward(bench)
    bench.run(bench.settings.token_loss_timeout_us - 1)
    assert bench["b"].phase is Phase.OPERATIONAL
    bench.run(2)
    assert bench["b"].phase is Phase.GATHER
    assert bench["b"].reasons()[-1] == "token loss timeout"


def test_6_2_1_while_messages_come_the_token_is_not_lost(bench: Bench) -> None:
    forward(bench)
    for seq in range(1, 6):
        bench.run(bench.settings.token_loss_timeout_us // 2)
        bench.hear("b", "a", seq, "x")
    assert bench["b"].phase is Phase.OPERATIONAL
    bench.run(bench.settings.token_loss_timeout_us + 100)
    assert bench["b"].phase is Phase.GATHER


FEW = config(fail_to_rcv_const=3)


def stall(bench: Bench, rotations: int, *, aru: int, owner: str) -> None:
    for _ in range(rotations):
        bench.visit("b", seq=2, aru=aru, aru_id=owner)


def test_erratum_01_the_member_whose_aru_stands_still_is_failed_by_another() -> None:
    bench = still("abc", FEW)
    bench.hear("b", "a", 1, "x", "y")
    stall(bench, 4, aru=1, owner="c")
    assert bench["b"].phase is Phase.OPERATIONAL
    stall(bench, 1, aru=1, owner="c")
    assert bench["b"].phase is Phase.GATHER
    assert bench["b"].state.my_fail_set == {"c"}
    assert bench["b"].reasons()[-1] == "a member fails to receive"


def test_erratum_01_nobody_fails_itself() -> None:
    bench = still("abc", FEW)
    bench.hear("b", "a", 1, "x")
    stall(bench, 12, aru=1, owner="b")
    assert bench["b"].phase is Phase.OPERATIONAL
    assert bench["b"].state.my_fail_set == set()


def test_erratum_01_one_that_lags_as_far_does_not_fail_the_other() -> None:
    bench = still("abc", FEW)
    bench.hear("b", "a", 1, "x")
    stall(bench, 12, aru=1, owner="c")
    assert bench["b"].phase is Phase.OPERATIONAL


def test_6_2_1_an_aru_that_advances_is_no_failure_to_receive() -> None:
    bench = still("abc", FEW)
    bench.hear("b", "a", 1, *(f"m{at}" for at in range(20)))
    for aru in range(1, 12):
        bench.visit("b", seq=20, aru=aru, aru_id="c")
    assert bench["b"].phase is Phase.OPERATIONAL


def test_bug_09_a_deaf_member_is_failed_soon_and_without_a_storm() -> None:
    """It gets tokens but no data. The ring is paced while it stalls, so few retransmissions are wasted on it."""
    bench = ring_of("abc", TotemConfig())
    bench.refuse = lambda packet: packet.kind is DATA and packet.to == "c"
    bench["a"].engine.submit(bench.now, Submission([b"x" * 1000] * 50))
    bench.take(bench["a"])
    start = bench.now
    bench.until(lambda: bench["a"].members == bench["b"].members == "ab", 1_000_000)
    assert bench.now - start < 500_000
    assert sum(bench[name].state.counters["retransmissions"] for name in "ab") <= 55 * 50


def test_bug_20_sequence_numbers_go_on_far_above_32_bits() -> None:
    bench = still("ab")
    ring = bench["b"].ring
    far = 2**40
    ring.my_aru = ring.delivered = ring.high_seq = ring.safe_seq = far
    ring.forwarded_seq = ring.forwarded_aru = ring.previous_aru = far
    ring.low_seq = far + 1
    bench.hear("b", "a", far + 1, "x")
    bench.say("b", "m")
    visit = bench.visit("b", seq=far + 1, aru=far + 1, token_seq=2**50)
    assert visit.seqs() == [far + 2]
    assert bench["b"].texts == ["x", "m"]
    assert visit.token is not None
    assert (visit.token.seq, visit.token.token_seq) == (far + 2, 2**50 + 1)


def test_bug_22_a_clock_that_jumps_back_stands_still_and_timers_still_run() -> None:
    bench = ring_of("ab")
    bench.say("a", "m1")
    bench.quiet()
    bench.flight.clear()
    before = bench["a"].state.now
    bench.now -= 500_000
    bench.say("a", "m2")
    assert bench["a"].state.now == before
    deadline = bench["a"].engine.deadline
    assert deadline is not None
    assert deadline <= bench.now + bench.settings.token_loss_timeout_us
    bench.until(lambda: bench["b"].texts == ["m1", "m2"])


def test_bug_22_a_clock_that_jumps_forward_loses_no_message() -> None:
    bench = ring_of("abc")
    bench.say("a", "m1")
    bench["a"].engine.timer(bench.now + 3_600_000_000)
    bench.take(bench["a"])
    bench.now += 3_600_000_000
    bench.say("b", "m2")
    bench.settle()
    bench.quiet()
    assert sorted(bench["a"].texts) == sorted(bench["c"].texts) == ["m1", "m2"]


def test_5_1_data_packets_carry_ring_sender_seq_and_service(bench: Bench) -> None:
    bench.say("b", "m", safe=True)
    (packet,) = bench.visit("b").data()
    assert packet[:20] == bench["b"].ring.prefix
    assert check_packet(packet, 0, len(packet)) == (B, 1, Flag.SAFE)
