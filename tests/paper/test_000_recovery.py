"""Paper 000, §7: the recovery protocol."""

from __future__ import annotations

from collections.abc import Callable

from ring import COMMIT, DATA, TOKEN, Bench, Packet, config, ring_of
from stages import recovering

from ordercast.engine.contract import Install
from ordercast.engine.totem import Phase
from ordercast.wire.ids import NodeId, node_key
from ordercast.wire.pack import PACKET_BYTES_MIN
from ordercast.wire.train import Flag, parse_train


def interrupted(names: str, say: Callable[[Bench], None], lose: Callable[[Packet], bool]) -> Bench:
    """A ring in which something is said, some packets of it are lost, and then every token: nothing is made good."""
    bench = ring_of(names)
    bench.split = True
    bench.run(1_000)
    bench.refuse = lose
    say(bench)
    bench.until(lambda: any(process.sent(DATA) for process in bench.processes.values()))
    bench.refuse = lambda packet: packet.kind is TOKEN or lose(packet)
    bench.flight = [packet for packet in bench.flight if packet.kind is not TOKEN]
    bench.until(lambda: all(process.phase is Phase.GATHER for process in bench.processes.values()))
    return bench


def end(process_story: list[str], after: str) -> list[str]:
    """What a process delivered from the view `after`, its last of those members before the change, on."""
    return process_story[process_story.index(after) + 1 :]


def never(_packet: Packet) -> bool:
    return False


# §7.2, step 1: the exchange.


def test_7_2_members_exchange_what_some_of_them_have_not_received() -> None:
    bench = interrupted("abc", lambda b: b.say("b", "m1", "m2"), lambda p: p.kind is DATA and p.to == "c")
    assert (bench["a"].texts, bench["c"].texts) == (["m1", "m2"], [])
    bench.heal()
    bench.settle_anew()
    for name in "abc":
        assert end(bench[name].story, "abc") == ["m1", "m2", "[abc]", "abc"]


def test_7_2_the_exchange_begins_above_the_lowest_aru() -> None:
    bench = interrupted(
        "abc", lambda b: b.say("b", "m1", "m2", "m3", "m4"), lambda p: p.kind is DATA and p.to == "c" and p.seq > 2
    )
    bench.heal()
    bench.until(lambda: bench["a"].phase is Phase.RECOVERY)
    assert list(bench["a"].state.retrans_message_queue) == [3, 4]
    bench.until(lambda: bench["c"].phase is Phase.RECOVERY)
    assert list(bench["c"].state.retrans_message_queue) == []


def test_7_2_a_message_that_another_has_retransmitted_is_not_retransmitted_again() -> None:
    bench = interrupted("abcd", lambda b: b.say("b", "m1", "m2"), lambda p: p.kind is DATA and p.to == "d")
    for process in bench.processes.values():
        process.effects.clear()
    bench.heal()
    bench.settle_anew()
    carried = [
        train.count
        for process in bench.processes.values()
        for packet in process.sent(DATA)
        if (train := parse_train(packet, len(packet))) is not None and train.recovery
    ]
    # Of the three that have the two packets one sends them, each in three pieces.
    assert sum(carried) == 6


def test_7_2_the_last_member_that_has_a_message_gives_it_to_the_others() -> None:
    """Its sender is gone."""
    bench = interrupted("abcd", lambda b: b.say("d", "m"), lambda p: p.kind is DATA and p.to in "ab")
    assert bench["c"].texts == ["m"]
    bench.crash("d")
    bench.heal()
    bench.settle_anew("abc")
    for name in "abc":
        assert end(bench[name].story, "abcd") == ["m", "[abc]", "abc"]


def test_7_2_messages_of_an_old_ring_are_not_delivered_by_others() -> None:
    bench = Bench("abcd")
    bench.partition("abc", "d")
    bench.settle("abc")
    bench.settle("d")
    bench.run(1_000)
    bench.refuse = lambda packet: packet.kind is DATA and packet.to == "c"
    bench.say("b", "m1", "m2")
    bench.until(lambda: bench["a"].texts == ["m1", "m2"])
    bench.cuts = set()
    bench.refuse = lambda packet: packet.kind in (DATA, TOKEN)
    bench.until(lambda: bench["a"].phase is Phase.GATHER)
    bench.heal()
    bench.settle()
    assert bench["c"].texts == ["m1", "m2"]
    assert bench["d"].texts == []


def test_7_2_no_new_messages_are_originated_in_recovery() -> None:
    bench = recovering()
    bench.say("b", "m")
    assert bench.visit("b").data() == []
    assert bench["b"].engine.backlog == 1


def test_7_2_messages_of_members_that_have_installed_already_wait_for_the_installation() -> None:
    bench = recovering()
    bench.hear("b", "a", 1, "new")
    assert bench["b"].texts == []
    assert (bench["b"].phase, bench["b"].state.active.my_aru) == (Phase.RECOVERY, 1)


def test_bug_12_encapsulated_messages_are_no_larger_than_a_packet() -> None:
    bench = interrupted(
        "abc", lambda b: b.say("b", *(f"m{at}" for at in range(9))), lambda p: p.kind is DATA and p.to == "c"
    )
    for process in bench.processes.values():
        process.effects.clear()
    bench.heal()
    bench.settle_anew()
    sent = [packet for process in bench.processes.values() for packet in process.sent(DATA)]
    assert len(sent) >= 9
    assert max(map(len, sent)) <= PACKET_BYTES_MIN
    assert bench["c"].texts == [f"m{at}" for at in range(9)]


def test_bug_11_many_messages_with_gaps_everywhere_are_recovered() -> None:
    """Each member misses other ones, and in the recovery packets are lost again."""
    texts = [f"m{at}" for at in range(180)]
    bench = interrupted("abcd", lambda b: b.say("d", *texts), lambda p: p.kind is DATA and p.seq % 3 == ord(p.to) % 3)
    seen: set[tuple[int, str]] = set()

    def lose_once(packet: Packet) -> bool:
        if packet.kind is not DATA or packet.seq % 5 or (packet.seq, packet.to) in seen:
            return False
        seen.add((packet.seq, packet.to))
        return True

    bench.crash("d")
    bench.refuse = lose_once
    bench.settle_anew("abc")
    for name in "abc":
        assert end(bench[name].story, "abcd") == [*texts, "[abc]", "abc"]
    assert len(seen) > 50


# Figure 6: the code before the token is forwarded.


def test_7_1_a_member_with_messages_to_retransmit_says_so_in_the_token_and_takes_it_back() -> None:
    bench = recovering()
    state = bench["b"].state
    state.ring.add(parse_one(bench, 5))
    state.retrans_message_queue = {5: None}
    state.retrans_packer.add([b"waits"] * 30)  # type: ignore[union-attr]
    bench.settings = config()
    object.__setattr__(state.config, "max_messages", 1)
    first = bench.visit("b")
    assert first.token is not None
    assert first.token.retrans_flg
    object.__setattr__(state.config, "max_messages", 100)
    last = bench.visit("b", seq=first.token.seq, aru=first.token.aru, retrans_flg=True)
    assert last.token is not None
    assert not last.token.retrans_flg
    assert state.my_retrans_flg_count == 1


def parse_one(bench: Bench, seq: int):
    (packet,) = bench.packets(bench["b"].ring, "a", seq, "x")
    train = parse_train(packet, len(packet))
    assert train is not None
    return train


def test_7_1_a_member_does_not_take_back_what_another_has_said() -> None:
    bench = recovering()
    visit = bench.visit("b", retrans_flg=True)
    assert visit.token is not None
    assert visit.token.retrans_flg
    assert bench["b"].state.my_retrans_flg_count == 0


def test_7_2_a_token_with_the_flag_starts_the_count_again() -> None:
    bench = recovering()
    for flag, count in ((False, 1), (True, 0), (False, 1), (False, 2)):
        bench.visit("b", retrans_flg=flag)
        assert bench["b"].state.my_retrans_flg_count == count


def test_7_2_received_flg_is_set_after_two_rotations_with_all_messages() -> None:
    bench = recovering()
    bench.visit("b", seq=1, aru=0, aru_id="b")
    bench.visit("b", seq=1, aru=0, aru_id="b")
    assert bench["b"].state.my_install_seq == 1
    assert not bench["b"].state.my_received_flg
    bench.hear("b", "a", 1, "x")
    bench.visit("b", seq=1, aru=0, aru_id="b")
    assert bench["b"].state.my_received_flg
    assert bench["b"].state.my_deliver_memb == set("abc")


def test_7_2_installation_takes_three_rotations_and_the_aru_of_the_last_two() -> None:
    bench = recovering()
    for _ in range(4):
        bench.visit("b", seq=1, aru=0, aru_id="c")
    assert bench["b"].phase is Phase.RECOVERY
    bench.hear("b", "a", 1, "x")
    bench.visit("b", seq=1, aru=1)
    assert bench["b"].phase is Phase.RECOVERY
    bench.visit("b", seq=1, aru=1)
    assert bench["b"].phase is Phase.OPERATIONAL
    assert bench["b"].texts == ["x"]


def test_7_2_the_quickest_installation_takes_three_tokens() -> None:
    bench = recovering()
    for rotation in range(1, 4):
        bench.visit("b")
        assert (bench["b"].phase is Phase.OPERATIONAL) == (rotation == 3)


def test_7_2_installation_is_one_effect() -> None:
    bench = recovering()
    bench["b"].effects.clear()
    for _ in range(3):
        bench.visit("b")
    installs = [effect for effect in bench["b"].effects if isinstance(effect, Install)]
    assert len(installs) == 1
    assert installs[0].transitional is not None
    assert (installs[0].regular.members, installs[0].transitional.members) == (("a", "b", "c"), ("a", "b", "c"))


# §7.2, steps 2 to 5: where messages are delivered.


def test_7_2_safe_messages_that_one_member_has_delivered_are_delivered_on_the_old_ring_by_all() -> None:
    bench = ring_of("abc")
    bench.say("b", "s", safe=True)
    bench.until(lambda: any(bench[name].texts for name in "abc"))
    assert sum(len(bench[name].texts) for name in "abc") == 1
    bench.refuse = lambda packet: packet.kind is TOKEN
    bench.flight.clear()
    bench.until(lambda: all(bench[name].phase is Phase.GATHER for name in "abc"))
    bench.heal()
    bench.settle_anew()
    for name in "abc":
        assert end(bench[name].story, "abc") == ["s", "[abc]", "abc"]


def test_7_2_safe_messages_that_nobody_knows_to_be_safe_are_delivered_in_the_transitional_configuration() -> None:
    bench = interrupted("abc", lambda b: b.say("b", "s", safe=True), never)
    bench.heal()
    bench.settle_anew()
    for name in "abc":
        assert end(bench[name].story, "abc") == ["[abc]", "s", "abc"]


def test_erratum_12_agreed_messages_behind_an_undelivered_safe_one_follow_it() -> None:
    def say(bench: Bench) -> None:
        bench.say("b", "x1")
        bench.say("b", "s", safe=True)
        bench.say("b", "x2")

    bench = interrupted("abc", say, never)
    bench.heal()
    bench.settle_anew()
    for name in "abc":
        assert end(bench[name].story, "abc") == ["x1", "[abc]", "s", "x2", "abc"]


def test_erratum_14_before_the_first_gap_messages_are_delivered_whoever_sent_them() -> None:
    """c, which is gone, may have delivered its own safe message."""
    bench = interrupted("abc", lambda b: b.say("c", "s", safe=True), never)
    bench.crash("c")
    bench.heal()
    bench.settle_anew("ab")
    for name in "ab":
        assert end(bench[name].story, "abc") == ["[ab]", "s", "ab"]


def gap() -> Bench:
    """c's first message is lost for good, its second arrives at all; between them one of a."""
    bench = ring_of("abc")
    bench.run(1_000)
    bench.refuse = lambda packet: packet.kind is DATA and packet.seq == 1
    bench.say("c", "c1")
    bench.until(lambda: bench["c"].ring.high_seq == 1)
    bench.say("a", "x")
    bench.until(lambda: bench["c"].ring.high_seq == 2)
    bench.say("c", "c2")
    bench.until(lambda: all(bench[name].ring.high_seq == 3 for name in "abc"))
    assert [bench[name].texts for name in "ab"] == [[], []]
    return bench


def test_7_2_behind_a_gap_only_what_members_of_the_transitional_configuration_sent_is_delivered() -> None:
    bench = gap()
    bench.crash("c")
    bench.heal()
    bench.settle_anew("ab")
    for name in "ab":
        assert end(bench[name].story, "abc") == ["[ab]", "x", "ab"]


def test_7_2_the_other_side_of_the_gap_delivers_what_it_has() -> None:
    bench = gap()
    bench.flight.clear()
    bench.heal()
    bench.partition("ab", "c")
    bench.settle_anew("c")
    assert end(bench["c"].story, "abc") == ["c1", "x", "c2", "[c]", "c"]


def test_7_2_without_a_partition_the_gap_is_filled() -> None:
    bench = gap()
    bench.refuse = lambda packet: packet.kind is TOKEN
    bench.until(lambda: all(bench[name].phase is Phase.GATHER for name in "abc"))
    bench.heal()
    bench.settle_anew()
    for name in "abc":
        assert end(bench[name].story, "abc") == ["c1", "x", "c2", "[abc]", "abc"]


def test_7_2_the_transitional_configuration_holds_those_that_come_from_the_same_ring() -> None:
    """The example of §7.3: p is parted from q, r, s and t, which merge with u and v."""
    bench = Bench("pqrstuv")
    bench.partition("pqrst", "uv")
    bench.settle("pqrst")
    bench.settle("uv")
    bench.partition("p", "qrstuv")
    bench.settle("qrstuv")
    bench.settle("p")
    assert end(bench["q"].story, "pqrst")[-2:] == ["[qrst]", "qrstuv"]
    assert end(bench["u"].story, "uv")[-2:] == ["[uv]", "qrstuv"]
    assert end(bench["p"].story, "pqrst") == ["[p]", "p"]


def test_7_2_partitioned_members_deliver_their_own_messages() -> None:
    bench = interrupted("abcd", lambda b: b.say("c", "m", safe=True), lambda p: p.kind is DATA and p.to in "ab")
    bench.refuse = never
    bench.partition("ab", "cd")
    bench.settle_anew("ab")
    bench.settle_anew("cd")
    assert end(bench["c"].story, "abcd") == ["[cd]", "m", "cd"]
    assert end(bench["d"].story, "abcd") == ["[cd]", "m", "cd"]
    assert end(bench["a"].story, "abcd") == ["[ab]", "ab"]


# §7.2: failure of recovery.


def failed_recovery(stop: Callable[[Bench], bool]) -> Bench:
    """A safe message that all have received and nobody delivered; the recovery stops where `stop` says."""
    bench = interrupted("abc", lambda b: b.say("b", "s", safe=True), never)
    bench.heal()
    bench.until(lambda: stop(bench))
    return bench


def test_7_2_the_old_ring_is_kept_over_a_failed_recovery_and_so_is_what_was_recovered() -> None:
    bench = interrupted("abc", lambda b: b.say("b", "m1", "m2"), lambda p: p.kind is DATA and p.to == "c")
    old = bench["c"].ring.id
    bench.heal()
    bench.until(lambda: bench["c"].ring.my_aru == 2)
    assert bench["c"].phase is Phase.RECOVERY
    bench.refuse = lambda packet: packet.kind in (COMMIT, TOKEN)
    bench.until(lambda: bench["c"].phase is Phase.GATHER)
    assert (bench["c"].ring.id, bench["c"].ring.my_aru, bench["c"].texts) == (old, 2, [])
    bench.crash("a")
    bench.crash("b")
    bench.heal()
    bench.settle_anew("c")
    assert end(bench["c"].story, "abc") == ["m1", "m2", "[c]", "c"]


def test_7_2_an_obligation_is_kept_when_one_has_installed_and_the_others_have_not() -> None:
    bench = failed_recovery(lambda b: any(b[name].texts for name in "abc"))
    (first,) = (name for name in "abc" if bench[name].texts)
    others = "".join(name for name in "abc" if name != first)
    assert all(bench[name].state.my_received_flg for name in others)
    bench.flight.clear()
    bench.partition(first, others)
    bench.until(lambda: all(bench[name].phase is Phase.GATHER for name in others))
    bench.until(lambda: all(bench[name].phase is Phase.RECOVERY for name in others))
    for name in others:
        assert bench[name].state.obliged
        assert bench[name].state.my_deliver_memb == set("abc")
    bench.settle_anew(others)
    assert end(bench[first].story, "abc")[:2] == ["[abc]", "s"]
    for name in others:
        assert end(bench[name].story, "abc") == [f"[{others}]", "s", others]


def test_erratum_05_received_flg_is_reset_when_not_all_have_it() -> None:
    bench = failed_recovery(lambda b: sum(b[name].state.my_received_flg for name in "abc") == 1)
    (first,) = (name for name in "abc" if bench[name].state.my_received_flg)
    bench.refuse = lambda packet: packet.kind in (COMMIT, TOKEN)
    bench.flight.clear()
    bench.until(lambda: all(bench[name].phase is Phase.GATHER for name in "abc"))
    assert bench[first].state.my_received_flg
    bench.heal()
    bench.until(lambda: bench[first].phase is Phase.RECOVERY)
    assert not bench[first].state.my_received_flg
    bench.settle_anew()
    for name in "abc":
        assert end(bench[name].story, "abc") == ["[abc]", "s", "abc"]


def test_erratum_05_received_flg_is_false_after_an_installation() -> None:
    bench = ring_of("abc")
    assert not any(bench[name].state.my_received_flg or bench[name].state.obliged for name in "abc")


def test_erratum_05_the_commit_token_tells_the_flag() -> None:
    bench = failed_recovery(lambda b: all(b[name].state.my_received_flg for name in "abc"))
    bench.refuse = lambda packet: packet.kind in (COMMIT, TOKEN)
    bench.flight.clear()
    bench.until(lambda: all(bench[name].phase is Phase.GATHER for name in "abc"))
    bench.heal()
    bench.until(lambda: bench["a"].phase is Phase.RECOVERY)
    assert bench["a"].state.commit is not None
    assert all(entry.received_flg for entry in bench["a"].state.commit.memb_list)


def test_7_2_messages_that_come_after_received_flg_was_said_are_not_taken() -> None:
    """Departure D9: another member may have installed, and delivered exactly what all of us had."""
    bench = failed_recovery(lambda b: all(b[name].state.my_received_flg for name in "abc"))
    bench.refuse = lambda packet: True
    bench.flight.clear()
    bench.until(lambda: bench["a"].phase is Phase.GATHER)
    bench.hear("a", "c", 2, "late")
    assert bench["a"].ring.high_seq == 1


def test_erratum_05_the_transitional_members_do_not_grow_before_an_installation() -> None:
    """a and b give c up, fail to recover, and hear c again before they try once more."""
    bench = interrupted("abc", lambda b: b.say("b", "s", safe=True), never)
    bench.heal()
    bench.partition("ab", "c")
    bench.until(lambda: all(bench[name].phase is Phase.RECOVERY for name in "ab"))
    assert bench["a"].state.my_trans_memb == {"a", "b"}
    bench.refuse = lambda packet: packet.kind in (COMMIT, TOKEN)
    bench.flight.clear()
    bench.cuts = set()
    bench.until(lambda: all(bench[name].phase is Phase.GATHER for name in "ab"))
    bench.heal()
    bench.settle_anew(within_us=20_000_000)
    assert end(bench["a"].story, "abc")[:3] == ["[ab]", "s", "ab"]
    assert bench["c"].texts == ["s"]


def test_7_2_recovery_flag_marks_what_belongs_to_no_application() -> None:
    bench = recovering()
    state = bench["b"].state
    assert state.retrans_packer is not None
    state.retrans_packer.add([bench.packets(state.ring, "b", 1, "old")[0]])
    visit = bench.visit("b")
    flags = {int.from_bytes(packet[52:54], "little") & Flag.RECOVERY for packet in visit.data()}
    assert flags == {Flag.RECOVERY}
    assert {int.from_bytes(packet[20:28], "little") for packet in visit.data()} == {node_key(NodeId("b"))}
