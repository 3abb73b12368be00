"""Paper 001: what active, passive and active-passive replication must do, requirement by requirement."""

from __future__ import annotations

import random

import pytest

from networks import Layer, Others, data, join, token
from ordercast.engine.contract import Broadcast, Unicast
from ordercast.redundancy import FaultReason, NetworkConfig, parse_replication
from ordercast.wire.ids import NodeId, RingId
from ordercast.wire.layout import PacketKind

N2 = NodeId("n2")
T_MAX = NetworkConfig().token_timeout_max_us
THRESHOLD = NetworkConfig().threshold


def active(**changes: int) -> Layer:
    return Layer(2, 2, changes)


def passive(networks: int = 2, **changes: int) -> Layer:
    return Layer(networks, 1, changes)


def vias(sent: list[Broadcast | Unicast]) -> list[int]:
    return [effect.via for effect in sent]


# Section 5, Figure 2: active replication


def test_figure_2_sends_every_message_and_token_over_all_networks() -> None:
    layer = active()
    assert vias(layer.send(Broadcast(data(1), 100))) == [0, 1]
    assert vias(layer.send(Unicast(N2, token(1, 1)))) == [0, 1]


def test_a1_a_message_is_passed_on_when_its_first_copy_comes() -> None:
    layer = active()
    layer.comes(data(1), 1)
    assert layer.engine.copies == [1]


def test_a1_a_token_is_passed_on_once_however_many_copies_come() -> None:
    layer = active()
    for via in (0, 1, 0, 1):
        layer.comes(token(1), via)
    assert layer.engine.tokens == [1]


@pytest.mark.parametrize(
    "order",
    [  # Figure 1: m and the token after it on two networks, in every order that keeps each network's own
        ["m0", "m1", "t0", "t1"],
        ["m0", "m1", "t1", "t0"],
        ["m1", "m0", "t0", "t1"],
        ["m0", "t0", "m1", "t1"],
        ["m1", "t1", "m0", "t0"],
        ["m1", "m0", "t1", "t0"],
    ],
)
def test_a2_no_order_of_copies_lets_the_engine_miss_a_message(order: list[str]) -> None:
    layer = active()
    for what in order:
        missing_when_passed = 1 not in layer.engine.have
        layer.comes(data(1) if what[0] == "m" else token(1, 1), int(what[1]), after_us=100)
        if layer.engine.tokens:
            assert not missing_when_passed
    assert layer.engine.tokens == [1]


def test_a2_a_message_lost_on_one_network_is_not_missed() -> None:
    layer = active()
    layer.comes(token(1, 1), 0)
    assert layer.engine.tokens == []
    layer.comes(data(1), 1)
    layer.comes(token(1, 1), 1)
    assert layer.engine.tokens == [1]
    assert layer.engine.have == {1}


def test_a3_the_token_waits_for_the_slower_network() -> None:
    layer = active()
    layer.comes(token(1), 0)
    layer.passes(T_MAX // 2)
    assert layer.engine.tokens == []
    layer.comes(token(1), 1)
    assert layer.engine.tokens == [1]


def test_a4_the_token_is_passed_on_when_its_timer_expires() -> None:
    layer = active()
    layer.comes(token(1), 1)
    layer.passes(T_MAX)
    assert layer.engine.tokens == [1]
    layer.comes(token(1), 0)
    assert layer.engine.tokens == [1], "a later copy is ignored"


def test_a4_the_token_timer_is_not_restarted_by_further_copies() -> None:
    layer = Layer(3, 3)
    layer.comes(token(1), 0)
    layer.comes(token(1), 1, after_us=T_MAX - 1)
    layer.passes(1)
    assert layer.engine.tokens == [1]


def test_a5_a_network_that_fails_for_good_is_found() -> None:
    layer = active()
    for rotation in range(THRESHOLD):
        assert layer.faults() == []
        layer.comes(token(rotation + 1), 0)
        layer.passes(T_MAX)
    assert layer.faults() == [(2, FaultReason.TOKENS.value)]
    assert vias(layer.send(Broadcast(data(1), 100))) == [0]
    layer.comes(token(99), 0)
    assert layer.engine.tokens[-1] == 99, "nothing waits for a faulty network"


def test_a5_what_comes_by_a_faulty_network_is_accepted() -> None:
    layer = active()
    for rotation in range(THRESHOLD):
        layer.comes(token(rotation + 1), 0)
        layer.passes(T_MAX)
    layer.comes(data(1), 1)
    assert layer.engine.copies == [1]


@pytest.mark.parametrize("seed", range(5))
def test_a6_sporadic_loss_of_tokens_raises_no_alarm(seed: int) -> None:
    layer = active()
    rng = random.Random(seed)
    for rotation in range(20_000):
        for via in (0, 1):
            if rng.random() >= 0.02:
                layer.comes(token(rotation + 1), via)
        layer.passes(T_MAX)
    assert layer.faults() == []


def test_a6_a_copy_that_is_late_does_not_count_as_missing() -> None:
    layer = active(token_timeout_max_us=2_000, token_timeout_min_us=1_000)
    for rotation in range(10 * THRESHOLD):
        layer.comes(token(rotation + 1), 0)
        layer.comes(token(rotation + 1), 1, after_us=0)
        layer.comes(token(rotation + 2), 0)
        layer.passes(layer.layer._s.token_timeout_us)
        layer.comes(token(rotation + 2), 1)
    assert layer.faults() == []


def test_erratum_15_a_late_copy_of_an_older_token_does_nothing() -> None:
    layer = active()
    for via in (0, 1):
        layer.comes(token(2), via)
    layer.comes(token(1), 0)
    layer.comes(token(1), 1)
    layer.passes(T_MAX)
    assert layer.engine.tokens == [2]


def test_erratum_15_each_network_counts_its_own_problems() -> None:
    layer = Layer(3, 3)
    for rotation in range(THRESHOLD):
        layer.comes(token(rotation + 1), 0)
        layer.comes(token(rotation + 1), 2)
        layer.passes(T_MAX)
    assert layer.faults() == [(2, FaultReason.TOKENS.value)]


# Section 6, Figures 4 and 5: passive replication


def test_figure_4_sends_messages_and_tokens_in_turn_each_on_its_own() -> None:
    layer = passive(3)
    assert vias(layer.send(*(Broadcast(data(seq), 100) for seq in range(1, 6)))) == [0, 1, 2, 0, 1]
    assert vias(layer.send(*(Unicast(N2, token(seq)) for seq in range(1, 5)))) == [0, 1, 2, 0]


def test_figure_4_a_burst_keeps_all_networks_busy() -> None:
    layer = passive(2)
    sent = layer.send(Broadcast(data(1, count=100), 100))
    assert [(effect.via, len(effect.data)) for effect in sent] == [(0, 5_000), (1, 5_000)]
    assert b"".join(effect.data for effect in sent) == data(1, count=100)


def test_p1_a_token_that_overtook_a_message_waits_for_it() -> None:
    layer = passive()
    layer.comes(token(1, 2), 0)
    layer.comes(data(1), 1, after_us=100)
    assert layer.engine.tokens == []
    layer.comes(data(2), 0, after_us=100)
    assert layer.engine.tokens == [1], "the message for which it waited lets it go at once"


def test_p1_a_token_with_nothing_missing_is_passed_on_at_once() -> None:
    layer = passive()
    layer.comes(data(1), 1)
    layer.comes(token(1, 1), 0)
    assert layer.engine.tokens == [1]


def test_p2_the_token_goes_over_every_network_in_turn() -> None:
    """So the ring runs at the pace of the slowest within N rotations."""
    layer = passive(4)
    assert set(vias(layer.send(*(Unicast(N2, token(seq)) for seq in range(1, 5))))) == {0, 1, 2, 3}


def test_p3_the_token_timer_passes_the_token_on_though_a_message_is_missing() -> None:
    layer = passive()
    layer.comes(token(1, 5), 0)
    layer.passes(T_MAX)
    assert layer.engine.tokens == [1]


def test_p3_a_message_that_does_not_complete_anything_does_not_restart_the_timer() -> None:
    layer = passive()
    layer.comes(token(1, 3), 0)
    layer.comes(data(1), 1, after_us=T_MAX - 1)
    layer.passes(1)
    assert layer.engine.tokens == [1]


def test_p3_a_token_that_nothing_shows_to_have_arrived_is_sent_again_by_all_networks() -> None:
    layer = passive(3)
    assert vias(layer.send(Unicast(N2, token(5, 9)))) == [0]
    layer.passes(T_MAX)
    again = [effect for effect in layer.sent() if isinstance(effect, Unicast)]
    assert (vias(list(again)), {effect.packet for effect in again}) == ([0, 1, 2], {token(5, 9)})
    layer.passes(10 * T_MAX)
    assert not [effect for effect in layer.sent() if isinstance(effect, Unicast)], "once: the rest is the engine's"


def test_p3_a_token_that_goes_ahead_of_a_burst_is_not_sent_again_before_that_can_have_been_taken_in() -> None:
    layer = passive()
    for rotation in range(1_000):
        layer.comes(data(rotation + 1), rotation % 2)
        layer.comes(token(rotation + 1, rotation + 1), rotation % 2)
    assert layer.layer._s.token_timeout_us < T_MAX // 2
    layer.send(Unicast(N2, token(1_001, 1_030)), Broadcast(data(1_001, count=30), len(data(1_001))))
    layer.passes(T_MAX - 1)
    assert not [effect for effect in layer.sent() if isinstance(effect, Unicast)]
    layer.passes(1)
    assert [effect.packet for effect in layer.sent() if isinstance(effect, Unicast)] == [token(1_001, 1_030)] * 2


@pytest.mark.parametrize("evidence", [data(10), token(6, 9)], ids=["a newer message", "a newer token"])
def test_p3_a_token_that_has_shown_to_have_arrived_is_not_sent_again(evidence: bytes) -> None:
    layer = passive()
    layer.engine.have |= set(range(10))
    layer.send(Unicast(N2, token(5, 9)))
    layer.comes(evidence, 1)
    layer.passes(T_MAX)
    assert not [effect for effect in layer.sent() if isinstance(effect, Unicast)]


def test_p4_a_network_that_brings_no_tokens_is_found() -> None:
    layer = passive()
    for rotation in range(2 * THRESHOLD):
        layer.comes(token(rotation + 1), 0)
    assert layer.faults() == [(2, FaultReason.TOKENS.value)]
    assert vias(layer.send(*(Broadcast(data(seq), 100) for seq in range(1, 4)))) == [0, 0, 0]


def test_p4_a_network_that_brings_one_sender_s_messages_no_more_is_found() -> None:
    layer = passive()
    for rotation in range(3 * THRESHOLD):
        layer.comes(token(rotation + 1), rotation % 2)
        layer.comes(data(2 * rotation + 1, "n3"), rotation % 2)
        layer.comes(data(2 * rotation + 2, "n2"), 0)
    assert layer.faults() == [(2, FaultReason.MESSAGES.value)]


@pytest.mark.parametrize("seed", range(5))
def test_p5_sporadic_loss_raises_no_alarm(seed: int) -> None:
    layer = passive()
    rng = random.Random(seed)
    for rotation in range(20_000):
        if rng.random() >= 0.02:
            layer.comes(token(rotation + 1), rotation % 2)
        if rng.random() >= 0.02:
            layer.comes(data(rotation + 1), rotation % 2)
        layer.engine.have.add(rotation + 1)
    assert layer.faults() == []


def test_p5_a_slow_network_whose_copies_come_behind_the_next_token_raises_no_alarm() -> None:
    """Tokens that are sent again go by all networks (R10), and one may be slower than a rotation."""
    layer = passive()
    for rotation in range(10 * THRESHOLD):
        layer.comes(token(rotation + 1), 0)
        layer.comes(token(rotation), 1)
    assert layer.faults() == []


def test_p5_the_loss_of_a_whole_burst_counts_once() -> None:
    layer = passive()
    layer.comes(token(1), 0)
    layer.comes(token(2), 1)
    layer.comes(data(1, count=200), 0, segment=100)
    layer.comes(data(201), 0)
    assert layer.faults() == []


def test_erratum_15_passive_replication_passes_each_token_on_once() -> None:
    layer = passive()
    layer.comes(token(1), 0)
    layer.comes(token(1), 1)
    layer.comes(token(2), 1)
    layer.comes(token(1), 0)
    assert layer.engine.tokens == [1, 2]


def test_erratum_16_with_all_networks_faulty_all_are_used() -> None:
    layer = passive()
    others = Others(layer, "n2")
    others.probe(0, 1)
    others.changes = [1, 1]
    others.probe(0, 1)
    assert sorted(network for network, _ in layer.faults()) == [1, 2]
    assert vias(layer.send(Broadcast(data(1), 100))) == [0, 1]
    assert vias(layer.send(Unicast(N2, token(1)))) == [0, 1]
    layer.comes(token(1), 1)
    assert layer.engine.tokens == [1]


# Section 7: active-passive replication


def test_section_7_k_copies_go_to_the_next_k_networks() -> None:
    layer = Layer(3, 2)
    assert vias(layer.send(*(Broadcast(data(seq), 100) for seq in (1, 2, 3)))) == [0, 1, 1, 2, 2, 0]
    assert vias(layer.send(*(Unicast(N2, token(seq)) for seq in (1, 2)))) == [0, 1, 1, 2]


def test_section_7_a_token_waits_for_k_copies_or_the_timer() -> None:
    layer = Layer(3, 2)
    layer.comes(token(1), 2)
    assert layer.engine.tokens == []
    layer.comes(token(1), 0)
    assert layer.engine.tokens == [1]
    layer.comes(token(2), 1)
    layer.passes(T_MAX)
    assert layer.engine.tokens == [1, 2]


def test_section_7_a_token_waits_for_messages_on_networks_that_it_did_not_take() -> None:
    layer = Layer(4, 2)
    layer.comes(token(1, 1), 0)
    layer.comes(token(1, 1), 1)
    assert layer.engine.tokens == []
    layer.comes(data(1), 3)
    assert layer.engine.tokens == [1]


def test_section_7_monitors_find_the_network_that_brings_nothing() -> None:
    layer = Layer(3, 2)
    for rotation in range(3 * THRESHOLD):
        for via in {rotation % 3, (rotation + 1) % 3} - {1}:
            layer.comes(token(rotation + 1), via)
        layer.passes(T_MAX)
    assert layer.faults() == [(2, FaultReason.TOKENS.value)]


# What the paper leaves out


@pytest.mark.parametrize("copies", [1, 2])
def test_a_network_that_runs_behind_the_others_is_waited_for_and_not_faulty(copies: int) -> None:
    """Once it has shown how far behind it is."""
    layer = Layer(2, copies)
    waits = []
    for rotation in range(500):
        layer.comes(token(rotation + 1, rotation + 1), 0)
        before = len(layer.engine.tokens)
        layer.passes(4_000)
        waits.append(len(layer.engine.tokens) == before)
        layer.comes(data(rotation + 1), 1)
        layer.comes(token(rotation + 1, rotation + 1), 1)
        layer.passes(2_000)
    assert all(waits[5:])
    assert (2, FaultReason.MESSAGES.value) not in layer.faults()


def test_a_message_that_was_lost_and_sent_again_does_not_count_as_late() -> None:
    """By a dead network tokens would wait longer and longer for what does not come."""
    layer = passive()
    for rotation in range(1_000):
        layer.comes(data(rotation + 1), rotation % 2)
        layer.comes(token(rotation + 1, rotation + 1), rotation % 2)
    before = layer.layer._s.token_timeout_us
    layer.comes(token(2_000, 1_001), 0)
    layer.passes(before)
    assert layer.engine.tokens[-1] == 2_000, "passed on without the message"
    layer.comes(data(1_001), 0, after_us=5_000)
    assert layer.layer._s.token_timeout_us <= before
    layer.comes(data(1_001), 0, after_us=1_000)
    assert layer.layer._s.token_timeout_us == T_MAX, "it has come by one network twice: the first one was late"


def test_where_networks_run_together_a_lost_copy_costs_little() -> None:
    layer = active()
    for rotation in range(1_000):
        layer.comes(token(rotation + 1), 0)
        layer.comes(token(rotation + 1), 1, after_us=50)
    layer.comes(token(2_000), 0)
    layer.passes(2_000)
    assert layer.engine.tokens[-1] == 2_000


@pytest.mark.parametrize("copies", [1, 2])
def test_packets_of_the_membership_protocol_leave_by_all_networks(copies: int) -> None:
    layer = Layer(2, copies)
    packet = join("n1")
    assert vias(layer.send(Broadcast(packet, len(packet)))) == [0, 1]


@pytest.mark.parametrize("copies", [1, 2])
def test_what_is_sent_again_leaves_by_all_networks(copies: int) -> None:
    layer = Layer(2, copies)
    layer.comes(token(5, 9), 0)
    layer.passes(T_MAX)
    assert vias(layer.send(Broadcast(data(7), 100))) == [0, 1]
    first = Unicast(N2, token(6, 9))
    layer.send(first)
    assert vias(layer.send(first)) == [0, 1]


@pytest.mark.parametrize(("networks", "copies"), [(2, 1), (3, 2)])
def test_the_token_of_an_idle_ring_leaves_by_all_networks(networks: int, copies: int) -> None:
    layer = Layer(networks, copies)
    assert vias(layer.send(Unicast(N2, token(1, idle=True)))) == list(range(networks))


def test_a_probe_at_the_end_of_a_train_is_told_apart() -> None:
    layer = active()
    others = Others(layer, "n2")
    others.probe(0, 1)
    train = data(1, count=3) + join()
    assert len(join()) < 100
    layer.comes(train, 0, segment=100)
    assert layer.engine.copies == [1, 2, 3]
    assert layer.engine.other == [PacketKind.JOIN]


def test_a_token_of_a_newer_ring_replaces_the_one_that_waits() -> None:
    layer = active()
    layer.comes(token(5), 0)
    layer.comes(token(1, number=8), 0)
    assert layer.engine.tokens == [5]
    layer.comes(token(1, number=8), 1)
    assert layer.engine.tokens == [5, 1]
    layer.comes(token(6), 0)
    layer.comes(data(1, ring=RingId(8, NodeId("n1"))), 1)
    assert layer.engine.tokens == [5, 1]


# Probes


def settled(*names: str, networks: int = 2, copies: int = 2) -> tuple[Layer, Others]:
    layer = Layer(networks, copies)
    others = Others(layer, *names)
    for _ in range(5):
        others.probe(*range(networks))
    assert layer.faults() == []
    return layer, others


@pytest.mark.parametrize("copies", [1, 2])
def test_a_sender_that_one_network_brings_no_more_makes_it_faulty(copies: int) -> None:
    layer, others = settled("n2", "n3", copies=copies)
    for _ in range(8):
        others.probe(0, 1, silent=(("n3", 1),))
    assert layer.faults() == [(2, FaultReason.PROBES.value)]
    assert layer.reports[-1].detail["silent"] == ["n3"]
    assert layer.reports[-1].detail["hears"] == ["n2"]


def test_a_process_that_is_silent_everywhere_accuses_no_network() -> None:
    layer, others = settled("n2", "n3")
    for _ in range(30):
        others.probe(0, 1, silent=(("n3", 0), ("n3", 1)))
    assert layer.faults() == []


def test_a_process_that_was_suspended_accuses_no_network() -> None:
    layer, others = settled("n2")
    layer.passes(0)
    layer.now += 60_000_000  # nothing ran
    others.probe(0, 1)
    others.probe(0, 1)
    assert layer.faults() == []


def test_what_another_has_found_counts_here_at_once() -> None:
    layer, others = settled("n2")
    others.changes = [0, 1]
    others.probe(0, 1)
    assert layer.faults() == [(2, FaultReason.TOLD.value)]
    assert [list(probe.changes) for probe in layer.probes()][-1] == [0, 1], "and is told to others"


def test_a_mended_network_comes_back_once_all_are_ready() -> None:
    layer, others = settled("n2")
    for _ in range(8):
        others.probe(0)
    others.changes = [0, 1]
    assert layer.faults() == [(2, FaultReason.PROBES.value)]
    for _ in range(15):
        others.probe(0, 1)
    assert layer.repairs() == [], "the other one is not ready yet"
    others.ready = [False, True]
    others.probe(0, 1)
    assert layer.repairs() == [2]
    assert vias(layer.send(Broadcast(data(1), 100)))[-2:] == [0, 1]


def test_sporadic_loss_in_a_large_group_does_not_keep_a_mended_network_out() -> None:
    """At any moment somebody has just missed two probes in a row of somebody."""
    names = [f"n{number}" for number in range(2, 12)]
    layer, others = settled(*names)
    for _ in range(8):
        others.probe(0)
    others.changes = [0, 1]
    others.ready = [False, True]
    for interval in range(15):
        lost = names[interval // 2 % len(names)]
        others.probe(0, 1, silent=((lost, 1),))
    assert layer.repairs() == [2]


def test_old_news_of_a_fault_does_not_undo_a_repair() -> None:
    layer, others = settled("n2")
    others.changes = [0, 2]
    others.probe(0, 1)
    others.changes = [0, 1]
    others.probe(0, 1)
    assert layer.faults() == []


def test_a_network_that_fails_again_soon_has_to_wait_longer() -> None:
    def probes_until_repaired(layer: Layer, others: Others) -> int:
        repairs = len(layer.repairs())
        for count in range(1, 200):
            others.probe(0, 1)
            others.changes = list(layer.layer._s.changes)
            if len(layer.repairs()) > repairs:
                return count
        raise AssertionError("it never came back")

    layer, others = settled("n2")
    others.ready = [True, True]
    waits = []
    for _ in range(3):
        for _ in range(8):
            others.probe(0)
            others.changes = list(layer.layer._s.changes)
        waits.append(probes_until_repaired(layer, others))
    assert waits[1] > 1.5 * waits[0]
    assert waits[2] > 1.5 * waits[1]


def test_a_network_is_not_waited_for_until_all_use_it_again() -> None:
    layer, others = settled("n2", "n3")
    others.changes = [0, 1]
    others.probe(0, 1)
    others.changes = [0, 2]
    others.probe(0, 1, silent=(("n3", 0), ("n3", 1)))
    assert layer.repairs() == [2]
    layer.comes(token(1), 0)
    assert layer.engine.tokens == [1]


def test_probes_on_a_faulty_network_are_as_long_as_a_full_packet() -> None:
    layer, others = settled("n2")
    others.changes = [0, 1]
    others.probe(0, 1)
    sizes = {out.via: len(out.data) for out in layer.sent()}
    assert sizes[1] == NetworkConfig().packet_bytes - 1 > sizes[0]


@pytest.mark.parametrize(
    ("text", "networks", "copies"), [("active", 3, 3), ("passive", 3, 1), ("active-passive:2", 3, 2)]
)
def test_replication_by_name(text: str, networks: int, copies: int) -> None:
    assert parse_replication(text, networks) == copies


@pytest.mark.parametrize(
    ("text", "networks"),
    [("fast", 2), ("active-passive", 3), ("active-passive:1", 3), ("active-passive:3", 3), ("active-passive:2", 2)],
)
def test_replication_that_cannot_be_is_refused(text: str, networks: int) -> None:
    with pytest.raises(ValueError, match="replication"):
        parse_replication(text, networks)
