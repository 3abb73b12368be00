"""Paper 000, §6: the membership protocol."""

from __future__ import annotations

import pytest
from ring import COMMIT, DATA, JOIN, TOKEN, Bench, config, pad, ring_of, still
from stages import agree, commit_token, committed, first_rotation, gathering, join, recovering, sets

from ordercast.engine.contract import Install, Kind, Persist, Submission, Unicast
from ordercast.engine.totem import Phase
from ordercast.engine.totem.state import NEVER, RING_NUMBER_KEYS
from ordercast.wire.ids import NodeId, RingId
from ordercast.wire.totem import (
    Beacon,
    Leave,
    decode_commit,
    decode_join,
    decode_ring_record,
    decode_token,
    encode_ring_record,
)

# The start (§6.2.2).


def test_6_2_2_a_process_starts_with_a_ring_of_its_own_and_then_looks_for_others() -> None:
    bench = Bench("a", config())
    (install,) = [effect for effect in bench["a"].effects if isinstance(effect, Install)]
    assert (install.regular.members, install.regular.kind, install.transitional) == (("a",), Kind.REGULAR, None)
    assert bench["a"].phase is Phase.GATHER
    bench.run(1_000)
    assert [decode_join(packet).proc_set for packet in bench["a"].sent(JOIN)] == [{"a"}]


def test_6_2_2_a_process_alone_installs_a_ring_of_itself_and_orders_its_messages() -> None:
    bench = ring_of("a")
    bench.say("a", "x", "y", safe=True)
    bench.quiet()
    assert bench["a"].story == ["a", "[a]", "a", "x", "y"]


def test_6_2_2_processes_that_start_together_form_one_ring() -> None:
    bench = ring_of("abcdefgh")
    assert len({bench[name].ring.id for name in "abcdefgh"}) == 1
    assert bench["h"].ring.representative == "a"


def test_erratum_10_at_a_start_the_stored_number_plus_a_step_is_durable_before_the_singleton_is_installed() -> None:
    bench = Bench("", slow_disk=True)
    process = bench.boot("a", {RING_NUMBER_KEYS[0]: encode_ring_record(40, 7)})
    assert process.views == []
    assert process.phase is Phase.STARTING
    bench.write("a")
    assert process.ring.id == RingId(44, NodeId("a"), 7)
    assert max(decode_ring_record(record) for record in process.disk.values()) == (44, 7)


def test_erratum_10_the_ring_number_is_durable_before_the_commit_token_leaves() -> None:
    bench = Bench("ab", slow_disk=True)
    bench.write("a")
    bench.write("b")
    bench.until(lambda: bench["a"].phase is Phase.COMMIT)
    bench.run(10_000)
    assert bench.counts[COMMIT] == 0
    bench.write("a")
    assert bench.counts[COMMIT] == 1
    number = commit_token(bench, "a").ring_number
    assert max(decode_ring_record(record)[0] for record in bench["a"].disk.values()) == number
    bench.until(lambda: bench["b"].phase is Phase.COMMIT)
    bench.run(10_000)
    assert bench["b"].sent(COMMIT) == []
    bench.write("b")
    assert max(decode_ring_record(record)[0] for record in bench["b"].disk.values()) == number
    bench.settle()


def test_erratum_10_a_write_of_an_attempt_that_was_given_up_sends_nothing() -> None:
    bench = Bench("ab", slow_disk=True)
    bench.write("a")
    bench.write("b")
    bench.until(lambda: bench["a"].phase is Phase.COMMIT)
    bench.run(2 * bench.settings.token_loss_timeout_us)
    assert len(bench["a"].writes) > 1
    sent = bench.counts[COMMIT]
    bench.write("a")
    assert bench.counts[COMMIT] == sent


def test_bug_16_a_torn_record_leaves_the_one_before_it() -> None:
    bench = ring_of("ab")
    number = bench["a"].ring.number
    older = min(bench["a"].disk, key=lambda key: decode_ring_record(bench["a"].disk[key])[0])
    whole = encode_ring_record(number + 4, 1)
    for size in range(len(whole)):
        again = Bench("").boot("a", {**bench["a"].disk, older: whole[:size]})
        assert again.ring.number == number + 4


@pytest.mark.parametrize(
    "record", [b"", b"\0" * 40, b"ordercast-ring 1 8", b"9" * 10_000, b"ordercast-ring 1 " + b"9" * 9_000 + b" 0 0"]
)
def test_bug_16_unreadable_records_let_it_start_with_a_nonce(record: bytes) -> None:
    process = Bench("").boot("a", dict.fromkeys(RING_NUMBER_KEYS, record))
    assert process.ring.id.nonce != 0
    assert process.phase is Phase.GATHER


def test_bug_16_the_record_that_holds_the_number_is_not_the_next_to_be_overwritten() -> None:
    for at, key in enumerate(RING_NUMBER_KEYS):
        bench = Bench("", slow_disk=True)
        old = {key: encode_ring_record(80, 0), RING_NUMBER_KEYS[1 - at]: encode_ring_record(76, 0)}
        process = bench.boot("a", old)
        assert process.writes[0].key == RING_NUMBER_KEYS[1 - at]


def test_bug_02_a_representative_that_restarts_at_once_does_not_reuse_its_ring_identifier() -> None:
    bench = ring_of("abc")
    bench.say("a", "x", "y")
    bench.quiet()
    known = {said.view for process in bench.processes.values() for said in process.said}
    bench.boot("a", bench.crash("a"))
    assert bench["a"].ring.text not in known
    bench.settle()
    assert bench["a"].ring.text not in known
    assert bench["b"].texts == ["x", "y"]
    assert bench["a"].texts == []


def test_bug_02_nor_does_one_whose_disk_is_new() -> None:
    bench = ring_of("abc")
    known = {said.view for process in bench.processes.values() for said in process.said}
    bench.crash("a")
    bench.boot("a", {})
    bench.settle()
    assert bench["a"].ring.text not in known


# Joins in each state (Figures 3 to 6).


def test_6_2_2_operational_a_join_leads_to_gather_whatever_it_says() -> None:
    bench = still("abc")
    bench.give("b", join("c", "abc", ring_seq=bench["b"].ring.number))
    assert bench["b"].phase is Phase.GATHER
    assert sets(bench["b"]) == ("abc", "")


def test_6_2_2_operational_the_join_of_an_outsider_enlarges_the_membership() -> None:
    bench = still("abc")
    bench.give("b", join("x", "xy"))
    assert (bench["b"].phase, sets(bench["b"])) == (Phase.GATHER, ("abcxy", ""))


def test_erratum_07_stale_join_is_ignored() -> None:
    """Bug 6 as well: it was sent by a member before this ring was formed."""
    bench = still("abc")
    bench.give("b", join("c", "abcx", ring_seq=bench["b"].ring.number - 4))
    assert bench["b"].phase is Phase.OPERATIONAL
    assert bench["b"].state.counters["stale"] == 1


def test_erratum_07_a_fresh_join_is_not_dropped() -> None:
    """The other half of bug 6: a member that came back with a higher number rejoins at once."""
    bench = ring_of("abc")
    bench.boot("c", bench.crash("c"))
    start = bench.now
    bench.settle()
    assert bench.now - start < 50_000


def test_erratum_07_a_join_of_one_that_has_given_me_up_is_ignored() -> None:
    bench = still("abc")
    bench.give("b", join("c", "abc", failed="b", ring_seq=bench["b"].ring.number))
    bench.give("b", join("x", "abcx", failed="b", ring_seq=99))
    assert bench["b"].phase is Phase.OPERATIONAL


def test_bug_06_two_rings_that_merge_are_not_kept_apart_by_the_joins_of_each() -> None:
    bench = Bench("abcd")
    bench.partition("ab", "cd")
    bench.settle("ab")
    bench.settle("cd")
    old = [packet for name in "abcd" for packet in bench[name].sent(JOIN)]
    bench.heal()
    bench.settle()
    number = bench["a"].ring.number
    for packet in old:
        for name in "abcd":
            if decode_join(packet).sender != name:
                bench.give(name, packet)
    bench.run(50_000)
    bench.settle()
    assert bench["a"].ring.number == number


def test_6_2_2_gather_a_join_is_merged_into_the_sets() -> None:
    bench = gathering()
    bench.give("b", join("a", "abcx", failed="c"))
    assert sets(bench["b"]) == ("abcx", "c")
    # Its sender has just the sets that are mine now.
    assert bench["b"].state.consensus == {"a", "b"}
    bench.give("b", join("a", "aby"))
    assert sets(bench["b"]) == ("abcxy", "c")
    assert bench["b"].state.consensus == {"b"}


def test_6_2_2_gather_changed_sets_are_told_in_a_new_join() -> None:
    bench = gathering()
    bench.give("b", join("a", "abcx"))
    bench.run(bench.settings.join_pace_us + 1)
    sent = decode_join(bench["b"].sent(JOIN)[-1])
    assert (sent.proc_set, sent.fail_set) == (set("abcx"), set())


def test_6_2_2_gather_joins_are_repeated_at_every_join_timeout() -> None:
    bench = gathering()
    bench.give("b", join("a", "abcx"))
    bench["b"].effects.clear()
    bench.run(bench.settings.consensus_timeout_us - 1)
    assert len({bytes(packet) for packet in bench["b"].sent(JOIN)}) == 1
    assert len(bench["b"].sent(JOIN)) == 2


def test_6_2_2_gather_a_join_that_says_less_changes_nothing() -> None:
    bench = gathering()
    bench.give("b", join("a", "abcx", failed="c"))
    bench["b"].effects.clear()
    assert bench.give("b", join("a", "abc")) == []
    assert sets(bench["b"]) == ("abcx", "c")


def test_6_2_2_gather_the_join_of_one_that_i_have_failed_is_ignored() -> None:
    bench = gathering()
    bench.give("b", join("a", "abc", failed="c"))
    bench.give("b", join("c", "abcy", failed="a"))
    assert sets(bench["b"]) == ("abc", "c")


def test_6_2_2_gather_whoever_has_failed_me_is_failed_and_his_failures_are_not_believed() -> None:
    bench = gathering()
    bench.give("b", join("a", "abc", failed="bc"))
    assert sets(bench["b"]) == ("abc", "a")


def test_erratum_08_an_outsider_does_not_fail_a_member_that_i_have_just_heard() -> None:
    bench = gathering()
    bench.give("b", join("c", "abc", ring_seq=8))
    bench.give("b", join("x", "abcx", failed="ac"))
    assert sets(bench["b"]) == ("abcx", "a")


def test_erratum_08_a_member_does() -> None:
    bench = gathering()
    bench.give("b", join("c", "abc", ring_seq=8))
    bench.give("b", join("a", "abcx", failed="c"))
    assert sets(bench["b"]) == ("abcx", "c")


def test_6_2_2_commit_the_join_of_a_member_that_has_given_up_leads_to_gather() -> None:
    bench = committed()
    bench.give("a", join("c", "abcx", ring_seq=commit_token(bench, "a").ring_number))
    assert (bench["a"].phase, sets(bench["a"])) == (Phase.GATHER, ("abcx", ""))


def test_6_2_2_commit_older_joins_and_those_of_outsiders_are_ignored() -> None:
    bench = committed()
    number = commit_token(bench, "a").ring_number
    bench.give("a", join("c", "abcx", ring_seq=number - 1))
    bench.give("a", join("x", "abcx", ring_seq=number + 4))
    assert (bench["a"].phase, sets(bench["a"])) == (Phase.COMMIT, ("abc", ""))


def test_6_2_2_recovery_the_join_of_a_member_that_has_given_up_leads_to_gather() -> None:
    bench = recovering()
    bench.give("b", join("c", "abcx", ring_seq=100))
    assert (bench["b"].phase, sets(bench["b"])) == (Phase.GATHER, ("abcx", ""))


def test_6_2_2_recovery_older_joins_and_those_of_outsiders_are_ignored() -> None:
    bench = recovering()
    bench.give("b", join("c", "abcx", ring_seq=99))
    bench.give("b", join("x", "abcx", ring_seq=104))
    assert bench["b"].phase is Phase.RECOVERY


# Consensus (§6.2.2, Gather).


def test_6_2_2_gather_the_smallest_makes_the_commit_token_when_all_agree() -> None:
    bench = gathering("abc", "a")
    agree(bench, "a", "b", "abc", ring_seq=16)
    assert bench["a"].phase is Phase.GATHER
    agree(bench, "a", "c", "abc", ring_seq=24)
    assert bench["a"].phase is Phase.COMMIT
    token = commit_token(bench, "a")
    assert [entry.name for entry in token.memb_list] == ["a", "b", "c"]
    assert token.ring_number == 28


def test_6_2_2_gather_the_number_is_four_above_the_highest_known() -> None:
    bench = committed()
    assert commit_token(bench, "a").ring_number == bench["a"].ring.number + 4


def test_erratum_04_the_next_number_is_above_that_of_a_ring_that_was_given_up() -> None:
    bench = committed()
    number = commit_token(bench, "a").ring_number
    bench.run(bench.settings.token_loss_timeout_us + 2_000)
    assert bench["a"].phase is Phase.GATHER
    assert decode_join(bench["a"].sent(JOIN)[-1]).ring_seq == number
    agree(bench, "a", "bc", "abc", ring_seq=8)
    assert commit_token(bench, "a").ring_number == number + 4


def test_6_2_2_gather_others_than_the_smallest_wait_for_the_commit_token() -> None:
    bench = gathering()
    agree(bench, "b", "ac", "abc")
    state = bench["b"].state
    assert state.phase is Phase.GATHER
    assert state.token_loss_at == bench.now + bench.settings.token_loss_timeout_us
    assert state.consensus_at == NEVER


def test_6_2_2_gather_without_a_commit_token_they_try_again() -> None:
    bench = gathering()
    agree(bench, "b", "ac", "abc")
    bench.run(bench.settings.token_loss_timeout_us + 1)
    assert bench["b"].state.consensus == {"b"}
    assert bench["b"].reasons()[-1] == "no Commit token after consensus"


def test_6_2_2_gather_those_who_have_not_agreed_at_the_consensus_timeout_are_failed() -> None:
    bench = gathering()
    agree(bench, "b", "a", "abc")
    bench["b"].state.heard_us.pop(NodeId("c"), None)
    bench.run(bench.settings.consensus_timeout_us + 1)
    assert sets(bench["b"]) == ("abc", "c")


def test_6_2_2_gather_those_heard_lately_get_more_time() -> None:
    """Departure D8."""
    bench = gathering()
    bench.give("b", join("c", "abc"))
    bench.give("b", join("x", "abcx"))
    bench.run(bench.settings.consensus_timeout_us + 1)
    assert sets(bench["b"]) == ("abcx", "")
    bench.run(bench.settings.consensus_patience_us - bench.settings.consensus_timeout_us)
    assert sets(bench["b"]) == ("abcx", "ac")


def test_6_2_2_gather_a_foreign_message_enlarges_the_membership() -> None:
    bench = gathering()
    bench.give("b", Beacon(20, 77, NodeId("x"), frozenset((5,)), frozenset()).encode())
    assert sets(bench["b"]) == ("abcx", "")


def test_6_2_2_operational_a_foreign_message_leads_to_gather() -> None:
    bench = still("abc")
    bench.give("b", Beacon(20, 77, NodeId("x"), frozenset((5,)), frozenset()).encode())
    assert (bench["b"].phase, sets(bench["b"])) == (Phase.GATHER, ("abcx", ""))
    assert bench["b"].reasons()[-1] == "message of another ring"


def test_erratum_03_a_regular_token_is_discarded_in_gather() -> None:
    bench = gathering()
    bench.say("b", "m")
    assert bench.visit("b", seq=0).effects == []
    assert bench["b"].ring.my_token_seq < 100
    visit = bench.visit("b", token_seq=2**30)
    assert visit.effects == []


def test_6_2_2_gather_regular_messages_are_still_received_and_delivered() -> None:
    bench = gathering()
    bench.hear("b", "a", 1, "x")
    assert bench["b"].texts == ["x"]


# The Commit token (§6.2.2, Commit).


def test_6_2_2_gather_a_commit_token_of_another_membership_is_discarded() -> None:
    bench = gathering()
    bench.give("b", first_rotation(bench, "abcx", "b").encode())
    bench.give("b", first_rotation(bench, "ab", "b").encode())
    assert bench["b"].phase is Phase.GATHER


def test_6_2_2_gather_a_commit_token_with_an_old_number_is_discarded() -> None:
    bench = gathering()
    bench.give("b", first_rotation(bench, "abc", "b", number=bench["b"].ring.number).encode())
    assert bench["b"].phase is Phase.GATHER


def test_6_2_2_a_commit_token_of_my_membership_is_consensus() -> None:
    bench = gathering()
    bench.give("b", first_rotation(bench, "abc", "b").encode())
    assert bench["b"].phase is Phase.COMMIT


def test_6_2_2_commit_each_member_fills_in_its_entry_in_the_first_rotation() -> None:
    bench = gathering()
    bench.hear("b", "a", 1, "x")
    bench.hear("b", "a", 2, "s", safe=True)
    bench.give("b", first_rotation(bench, "abc", "b").encode())
    token = commit_token(bench, "b")
    entry = token.memb_list[1]
    assert (token.rotation, token.memb_index) == (1, 1)
    assert (entry.filled, entry.old_ring) == (True, bench["b"].ring.id)
    assert (entry.my_aru, entry.high_delivered, entry.received_flg) == (2, 1, False)
    assert not token.memb_list[2].filled


def test_6_2_2_the_commit_token_goes_round_twice() -> None:
    bench = Bench("abc")
    bench.settle()
    path = [
        (decode_commit(effect.packet).rotation, name, effect.to)
        for name in "abc"
        for effect in bench[name].effects
        if isinstance(effect, Unicast) and effect.packet[3] == COMMIT
    ]
    assert sorted(path) == [(1, "a", "b"), (1, "b", "c"), (1, "c", "a"), (2, "a", "b"), (2, "b", "c"), (2, "c", "a")]


def test_6_2_2_commit_a_regular_token_is_discarded() -> None:
    bench = committed()
    assert bench.visit("a", token_seq=2**30).effects == []


def test_6_2_2_commit_without_the_commit_token_it_returns_to_gather() -> None:
    bench = committed()
    bench.run(bench.settings.token_loss_timeout_us + 1)
    assert bench["a"].phase is Phase.GATHER


def test_6_2_2_a_lost_commit_token_is_retransmitted() -> None:
    for rotation, to in ((1, "b"), (1, "a"), (2, "b"), (2, "a")):
        bench = Bench("abc")
        lost = bench.catch(COMMIT, to=to)
        while decode_commit(lost.data).rotation != rotation:
            bench.arrive(lost)
            lost = bench.catch(COMMIT, to=to)
        bench.settle()
        assert bench["a"].ring.number == decode_commit(lost.data).ring_number


def test_bug_04_late_messages_of_the_old_ring_do_not_end_the_retransmission_of_the_commit_token() -> None:
    bench = committed()
    bench["a"].effects.clear()
    bench.hear("a", "b", 1, "late")
    assert bench["a"].texts == ["late"]
    bench.run(bench.settings.token_retransmission_timeout_us + 1)
    assert len(bench["a"].sent(COMMIT)) == 1


def test_erratum_04_my_ring_is_the_old_one_until_the_new_one_is_installed() -> None:
    bench = ring_of("abc")
    old = bench["b"].ring.id
    bench.crash("c")
    seen = set()
    while bench["b"].members == "abc":
        seen.add(bench["b"].phase)
        assert bench["b"].ring.id == old
        assert bench.step(bench.now + 1_000_000)
    assert seen >= {Phase.OPERATIONAL, Phase.GATHER, Phase.COMMIT, Phase.RECOVERY}


def test_bug_03_a_second_commit_token_does_not_overwrite_the_old_ring() -> None:
    """The first attempt is given up, the second still tells the ring in which the messages were sent."""
    bench = gathering()
    old = bench["b"].ring.id
    bench.give("b", first_rotation(bench, "abc", "b", number=100).encode())
    bench.run(bench.settings.token_loss_timeout_us + 1)
    bench.give("b", first_rotation(bench, "abc", "b", number=104).encode())
    assert commit_token(bench, "b").ring_number == 104
    assert commit_token(bench, "b").memb_list[1].old_ring == old


def test_erratum_04_no_joins_come_from_commit() -> None:
    bench = committed()
    bench["a"].effects.clear()
    bench.run(bench.settings.token_loss_timeout_us - 1)
    assert bench["a"].phase is Phase.COMMIT
    assert bench["a"].sent(JOIN) == []


def test_erratum_09_a_commit_token_of_the_same_number_from_another_representative_is_not_mine() -> None:
    bench = gathering()
    mine = first_rotation(bench, "abc", "b")
    bench.give("b", mine.encode())
    other = commit_token(bench, "b")
    other.rotation = 2
    other.nonce += 1
    for entry in other.memb_list:
        entry.filled, entry.old_ring = True, bench["b"].ring.id
    bench.give("b", other.encode())
    assert bench["b"].phase is Phase.COMMIT
    other.nonce -= 1
    bench.give("b", other.encode())
    assert bench["b"].phase is Phase.RECOVERY


def test_erratum_09_the_first_rotation_twice_changes_nothing() -> None:
    bench = gathering()
    token = first_rotation(bench, "abc", "b")
    bench.give("b", token.encode())
    assert bench.give("b", token.encode()) == []
    assert bench["b"].phase is Phase.COMMIT


def test_erratum_09_the_second_rotation_twice_changes_nothing() -> None:
    bench = recovering()
    token = commit_token(bench, "b")
    bench["b"].effects.clear()
    assert bench.give("b", token.encode()) == []
    token.rotation = 1
    assert bench.give("b", token.encode()) == []
    assert bench["b"].phase is Phase.RECOVERY


def test_bug_05_duplicate_commit_token_originates_once() -> None:
    bench = Bench("abc")
    bench.until(lambda: bench["a"].phase is Phase.RECOVERY)
    packet = bench.catch(COMMIT, to="a")
    assert decode_commit(packet.data).rotation == 2
    bench.arrive(packet)
    first = bench["a"].sent(TOKEN)
    assert len(first) == 1
    assert decode_token(first[0]).token_seq == 1
    bench.arrive(packet)
    assert len(bench["a"].sent(TOKEN)) == 1
    bench.settle()


def test_bug_04_a_stale_commit_token_is_not_accepted_in_recovery() -> None:
    """The regular token is lost in Recovery and the Commit token of the attempt before comes late."""
    bench = Bench("ab")
    bench.until(lambda: bench["a"].phase is Phase.RECOVERY)
    stale = bench.catch(COMMIT, to="a")
    assert decode_commit(stale.data).rotation == 2
    bench.refuse = lambda packet: packet.kind in (COMMIT, TOKEN)
    bench.until(lambda: bench["a"].phase is Phase.GATHER)
    assert bench.give("a", stale.data) == []
    bench.heal()
    bench.until(lambda: bench["a"].phase is Phase.RECOVERY)
    bench["a"].effects.clear()
    bench.arrive(stale)
    assert bench["a"].sent(TOKEN) == []
    bench.settle()
    assert bench["a"].ring.number > decode_commit(stale.data).ring_number


def test_bug_04_a_token_lost_in_recovery_is_retransmitted() -> None:
    bench = Bench("abc")
    bench.until(lambda: bench["b"].phase is Phase.RECOVERY)
    bench.catch(TOKEN)
    bench.settle()
    assert bench["a"].views == ["a", "[a]", "abc"]


def test_bug_01_a_failed_recovery_is_not_followed_by_the_same_ring_identifier() -> None:
    bench = Bench("abc")
    identifiers: list[str] = []
    for _ in range(3):
        bench.heal()
        bench.until(lambda: any(bench[name].phase is Phase.RECOVERY for name in "abc"))
        (found,) = {p.state.new.id.text for p in bench.processes.values() if p.state.new is not None}
        identifiers.append(found)
        bench.refuse = lambda packet: packet.kind in (COMMIT, TOKEN)
        bench.until(lambda: all(bench[name].phase is Phase.GATHER for name in "abc"))
    assert len(set(identifiers)) == 3
    bench.heal()
    bench.settle()
    assert bench["a"].ring.text not in identifiers


def test_bug_01_nor_after_a_restart_in_the_middle_of_it() -> None:
    bench = Bench("ab")
    bench.until(lambda: bench["a"].phase is Phase.COMMIT)
    assert bench["a"].state.new is not None
    given_up = bench["a"].state.new.id
    bench.boot("a", bench.crash("a"))
    bench.settle()
    assert bench["a"].ring.number > given_up.number


# Termination (§6.2.2).


def test_erratum_06_a_membership_that_fails_too_often_loses_the_one_who_stalls() -> None:
    """c never lets the Commit token through."""
    bench = ring_of("abcd")
    bench.refuse = lambda packet: packet.kind is COMMIT and packet.source == "c"
    bench.crash("d")
    bench.until(lambda: bench["a"].members == bench["b"].members == "ab", 20_000_000)


def test_erratum_06_a_representative_without_a_commit_token_is_failed() -> None:
    bench = ring_of("abc")
    bench.refuse = lambda packet: packet.kind is COMMIT and packet.source == "a"
    bench["c"].engine.timer(bench.now + 1)
    bench.run(10)
    bench.boot("c", bench.crash("c"))
    bench.until(lambda: bench["b"].members == bench["c"].members == "bc", 20_000_000)


def test_erratum_06_attempts_are_told_in_the_joins() -> None:
    bench = committed()
    bench.run(bench.settings.token_loss_timeout_us + 2_000)
    assert decode_join(bench["a"].sent(JOIN)[-1]).attempts == 1


def test_erratum_06_attempts_with_other_members_do_not_count() -> None:
    bench = committed()
    bench.run(bench.settings.token_loss_timeout_us + 2_000)
    bench.give("a", join("b", "abcx", ring_seq=8))
    bench.run(bench.settings.join_pace_us + 1)
    assert decode_join(bench["a"].sent(JOIN)[-1]).attempts == 0


def test_6_2_2_proc_set_and_fail_set_only_grow_until_a_ring_is_installed() -> None:
    bench = ring_of("abcde")
    bench.partition("ab", "cde")
    before = {name: sets(bench[name]) for name in "abcde"}
    while not all(bench[name].members in ("ab", "cde") for name in "abcde"):
        assert bench.step(bench.now + 1_000_000)
        for name in "abcde":
            known, failed = sets(bench[name])
            if bench[name].members == "abcde":
                assert set(known) >= set(before[name][0])
                assert set(failed) >= set(before[name][1])
            before[name] = known, failed


def test_6_2_2_a_crash_leaves_the_others_on_a_ring_of_their_own() -> None:
    bench = ring_of("abcd")
    bench.crash("a")
    bench.settle("bcd")
    assert bench["b"].views == ["b", "[b]", "abcd", "[bcd]", "bcd"]


def test_6_2_2_a_partition_makes_two_rings_and_a_remerge_one() -> None:
    bench = ring_of("abcd")
    bench.partition("ab", "cd")
    bench.settle("ab")
    bench.settle("cd")
    bench.heal()
    bench.settle()
    assert bench["a"].views[3:] == ["[ab]", "ab", "[ab]", "abcd"]
    assert bench["d"].views[3:] == ["[cd]", "cd", "[cd]", "abcd"]


def test_6_2_2_ring_numbers_only_grow_at_each_process() -> None:
    bench = ring_of("abc")
    for _ in range(3):
        bench.crash("b")
        bench.settle("ac")
        bench.boot("b", bench["b"].disk)
        bench.settle()
    for name in "ac":
        numbers = [e.regular.number for e in bench[name].effects if isinstance(e, Install)]
        assert numbers == sorted(set(numbers))


def test_erratum_02_views_have_identifiers_of_their_own() -> None:
    """Two parts of one ring that merge into one new ring with a transitional configuration each."""
    bench = ring_of("abcd")
    bench.partition("ab", "cd")
    bench.settle("ab")
    bench.settle("cd")
    bench.heal()
    bench.settle()
    installs = [e for name in "abcd" for e in bench[name].effects if isinstance(e, Install)]
    views = {view for e in installs for view in (e.regular, e.transitional) if view is not None}
    assert len({view.id for view in views}) == len(views)
    for install in installs:
        if install.transitional is not None:
            assert install.transitional.kind is Kind.TRANSITIONAL
            assert install.transitional.number == install.regular.number - 1


def test_bug_10_a_new_member_starts_with_the_new_ring_and_asks_for_nothing_older() -> None:
    bench = ring_of("ab")
    bench.say("a", *(f"m{at}" for at in range(300)))
    bench.quiet()
    before = {name: bench[name].state.counters["retransmissions"] for name in "ab"}
    bench.boot("c", {})
    bench.settle()
    bench.say("b", "hello")
    bench.quiet()
    assert bench["c"].texts == ["hello"]
    assert {name: bench[name].state.counters["retransmissions"] for name in "ab"} == before
    assert bench.counts[DATA] < 310


def test_bug_21_submissions_wait_out_a_view_change_and_then_go_on() -> None:
    bench = ring_of("abc")
    bench.crash("c")
    bench.until(lambda: bench["a"].phase is Phase.GATHER)
    bench.say("a", *(f"m{at}" for at in range(50)))
    assert bench["a"].engine.backlog == 50
    assert bench["a"].engine.backlog_bytes == 50 * len(pad(""))
    bench.settle("ab")
    bench.quiet()
    assert bench["b"].texts == [f"m{at}" for at in range(50)]
    assert (bench["a"].engine.backlog, bench["a"].engine.backlog_bytes) == (0, 0)


def test_bug_14_a_message_cut_by_a_view_change_is_sent_again_whole() -> None:
    """Its first pieces went out on a ring that ends before the last one."""
    bench = ring_of("abc", config(max_messages=2, window_size=4))
    long = b"0123456789" * 100
    bench["a"].engine.submit(bench.now, Submission([long]))
    bench.take(bench["a"])
    bench.until(lambda: bench["b"].ring.high_seq >= 4)
    bench.crash("c")
    bench.settle("ab")
    bench.quiet()
    for name in "ab":
        assert bench[name].texts == [long.decode()]
        assert bench[name].said[-1].view == bench[name].ring.text


def test_bug_13_a_paused_member_does_not_stop_the_group_and_comes_back() -> None:
    bench = ring_of("abc")
    bench.say("b", "before")
    bench.quiet()
    bench["b"].running = False
    bench.settle("ac")
    bench.say("a", "without b")
    bench.run(100_000)
    bench["b"].running = True
    bench.settle()
    assert bench["a"].texts == bench["c"].texts
    assert "without b" in bench["a"].texts
    assert "without b" not in bench["b"].texts
    assert bench["b"].texts == ["before"]


def test_bug_15_a_leave_of_an_older_ring_breaks_nothing() -> None:
    bench = still("abc")
    ring = bench["b"].ring
    bench.give("b", Leave(ring.number - 4, ring.digest ^ 1, NodeId("c")).encode())
    bench.give("b", Leave(ring.number, ring.digest, NodeId("x")).encode())
    assert bench["b"].phase is Phase.OPERATIONAL


def test_6_1_stable_storage_is_read_at_a_start_only_and_written_once_a_ring() -> None:
    bench = ring_of("ab")
    writes = [effect for effect in bench["a"].effects if isinstance(effect, Persist)]
    assert len(writes) == 2
    bench.say("a", "x")
    bench.quiet()
    assert len([effect for effect in bench["a"].effects if isinstance(effect, Persist)]) == 2
