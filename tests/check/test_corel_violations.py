"""For each property of corel small traces that violate it and nothing else: refused by that name and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from check.corel_notation import parse
from check.notation import joined, write
from ordercast.check import COREL_PROPERTIES, check_events, check_trace

ONE = "n1: s1=n1 group:n1"
TWO = joined("n1", "n2")
THREE = joined("n1", "n2", "n3")
FIVE = joined("n1", "n2", "n3", "n4", "n5")
IN_ONE = "group:n1,n2,n3 primary:1=n1,n2,n3"

TRACES = {
    "C1 without what its sender sent before": f"""
        {TWO}
        n1: +a@r +b@r queue:a@0 queue:b@1 close
        n2: queue:b@0 close""",
    "C1 before what its sender sent before": f"""
        {TWO}
        n1: +a@r +b@r queue:a@0 queue:b@1 close
        n2: queue:b@0 queue:a@1 close""",
    "C1 without what its sender had in its queue": f"""
        {THREE}
        n1: +a@r close
        n2: queue:a@0 +b@r queue:b@1 close
        n3: queue:b@0 close""",
    "C1 a cause that came after its sender's last message": f"""
        {THREE}
        n1: +a@r queue:a@0 queue:c@1 queue:b@2 close
        n2: +c@r queue:c@0 queue:a@1 +b@r queue:b@2 close
        n3: queue:c@0 queue:b@1 queue:a@2 close""",
    "C1 a cause that was in the queue when the sender's life began": f"""
        {TWO}
        n1: +a@r queue:b@0 close
        n2: queue:a@0 recover q=n2 +b@q queue:b@1 close""",
    "C1 what a rewritten queue has pushed behind": f"""
        {TWO}
        n1: +a@r +b@r queue:a@0 queue:b@1 queue:b@0 queue:a@1 close
        n2: close""",
    "C2 another message at the place, after a crash": f"""
        {ONE} +a@s1 +b@s1 order:a@0 recover q1=n1 order:b@0 close""",
    "C2 a place is skipped": f"""
        {ONE} +a@s1 +b@s1 order:a@0 order:b@2 close""",
    "C2 green and then red": f"""
        {ONE} has:a@0 green:a red:a close""",
    "C2 ordered and then red, after a crash": f"""
        {ONE} +a@s1 has:a@0 order:a@0 recover q1=n1 red:a close""",
    "C2 green and then yellow": f"""
        {ONE} has:a@0 yellow:a green:a yellow:a close""",
    "C2 a green message's place goes to another": f"""
        {ONE} has:a@0 green:a has:b@0 close""",
    "C2 before a green message": f"""
        {ONE} has:a@0 green:a has:b@0 has:a@1 close""",
    "C2 a green message moves": f"""
        {ONE} has:b@0 has:a@1 green:a has:a@0 close""",
    "C3 two messages at one place": f"""
        {TWO}
        n1: +a@r order:a@0 close
        n2: +b@r order:b@0 close""",
    "C3 in lives that are over": f"""
        {TWO}
        n1: +a@r order:a@0 recover q1=n1
        n2: +b@r order:b@0 recover q2=n2""",
    "C3 marked green at one place of the queues": f"""
        {TWO}
        n1: has:a@0 green:a close
        n2: has:b@0 green:b close""",
    "C4 a member has it red": f"""
        {THREE}
        n1: {IN_ONE} +a@r has:a@0 yellow:a green:a close
        n2: {IN_ONE} has:a@0 yellow:a close
        n3: {IN_ONE} has:a@0 red:a close""",
    "C4 a member does not have it": f"""
        {THREE}
        n1: {IN_ONE} +a@r done:a@0 close
        n2: {IN_ONE} has:a@0 yellow:a close
        n3: {IN_ONE} close""",
    "C4 a member has it at another place": f"""
        {THREE}
        n1: {IN_ONE} +a@r done:a@0 close
        n2: {IN_ONE} has:a@0 yellow:a close
        n3: {IN_ONE} +b@r has:b@0 has:a@1 yellow:b yellow:a close""",
    "C4 who has learned of it does not have it": f"""
        {THREE}
        n1: {IN_ONE.replace(",n3", ",n3", 1).replace("=n1,n2,n3", "=n1,n2")} +a@r done:a@0 close
        n2: group:n1,n2,n3 primary:1=n1,n2 has:a@0 yellow:a close
        n3: group:n1,n2,n3 primary:1?n1,n2 has:a@0 red:a close""",
    "C4 turned red later": f"""
        {THREE}
        n1: {IN_ONE} +a@r done:a@0 close
        n2: {IN_ONE} has:a@0 yellow:a close
        n3: {IN_ONE} has:a@0 yellow:a recover q=n3 red:a close""",
    "C4 given another place later": f"""
        {THREE}
        n1: {IN_ONE} +a@r done:a@0 close
        n2: {IN_ONE} +b@r has:a@0 yellow:a close
        n3: {IN_ONE} has:a@0 yellow:a recover q=n3 has:b@0 has:a@1 yellow:b close""",
    "C5 yellow before it is durable": f"""
        {ONE} queue:a@0 yellow:a durable:a close""",
    "C5 reported before it is durable": f"""
        {ONE} +a@s1 order:a@0 ack:a durable:a close""",
    "C5 durable before the disk was lost": f"""
        {ONE} durable:a wiped recover q1=n1 yellow:a close""",
    "C5 reported and lost": f"""
        {ONE} has:a@0 ack:a recover q1=n1 has:b@0 close""",
    "C7 red in the primary component at the end": """
        n1: s1=n1 group:n1 primary:1=n1 +a@s1 a<n1@s1 has:a@0 red:a end""",
    "C7 not ordered although all are here": f"""
        {TWO}
        n1: group:n1,n2 has:a@0 end
        n2: group:n1,n2 end""",
    "C7 not ordered although all that are left are here": f"""
        {THREE}
        n1: group:n1,n2,n3 primary:1=n1,n2,n3 group:n1,n2 t~n1,n2 r2=n1,n2 +a@r2 a<n1@r2 has:a@0 end
        n2: group:n1,n2,n3 primary:1=n1,n2,n3 group:n1,n2 t~n1,n2 r2=n1,n2 a<n1@r2 end
        n3: primary:1=n1,n2,n3 close""",
    "C8 two memberships of one number": f"""
        {THREE}
        n1: group:n1,n2,n3 primary:1=n1,n2 close
        n2: group:n1,n2,n3 primary:1=n1,n2,n3 close
        n3: close""",
    "C8 another membership is learned": f"""
        {THREE}
        n1: group:n1,n2,n3 primary:1=n1,n2 close
        n2: group:n1,n2,n3 primary:1?n1,n2,n3 close
        n3: close""",
    "C8 no majority": f"""
        {THREE}
        n1: group:n1,n2,n3 primary:1=n1 close
        n2: close
        n3: close""",
    "C8 a half is no majority": f"""
        {TWO}
        n1: group:n1,n2 primary:1=n1 close
        n2: close""",
    "C8 a majority of heads and not of weight": f"""
        {THREE}
        n1: group:n1,n2,n3*5 primary:1=n1,n2 close
        n2: group:n1,n2,n3*5 primary:1=n1,n2 close
        n3: close""",
    "C8 no majority of the last one either": f"""
        {FIVE}
        n1: group:n1,n2,n3,n4,n5 primary:1=n1,n2,n3,n4,n5 close
        n2: close
        n3: close
        n4: group:n1,n2,n3,n4,n5 t~n4,n5 r2=n4,n5 primary:2=n4,n5 close
        n5: close""",
    "C8 a number that does not grow": f"""
        {TWO}
        n1: group:n1,n2 primary:2=n1,n2 t~n1,n2 r2=n1,n2 primary:1=n1,n2 close
        n2: t~n1,n2 r2=n1,n2 close""",
    "C8 a common member that never left": f"""
        {THREE}
        n1: {IN_ONE} close
        n2: {IN_ONE} t~n2,n3 r2=n2,n3 primary:2=n1,n2,n3 close
        n3: t~n2,n3 r2=n2,n3 close""",
    "C9 nobody sent it": f"""
        {ONE} order:a@0 close""",
    "C9 two places": f"""
        {ONE} +a@s1 order:a@0 order:a@1 close""",
    "C9 two places at two nodes": f"""
        {TWO}
        n1: +a@r +b@r order:b@0 order:a@1 close
        n2: order:a@2 close""",
}


def named(name: str) -> set[str]:
    return {name.split()[0]}


@pytest.mark.parametrize("name", TRACES)
def test_refused_by_exactly_its_name(name: str) -> None:
    verdict = check_events(parse(TRACES[name]))
    found = {violation.property: violation.evidence for violation in verdict.violations}
    assert set(found) == named(name), found
    for evidence in found.values():
        assert 1 <= len(evidence) <= 6
        assert any(re.match(r"n\d step \d+: ", line) for line in evidence), evidence


@pytest.mark.parametrize("name", TRACES)
def test_the_same_from_files(name: str, tmp_path: Path) -> None:
    verdict = check_trace(write(parse(TRACES[name]), tmp_path / "trace"))
    assert {violation.property for violation in verdict.violations} == named(name)


def test_every_property_has_its_traces() -> None:
    assert {name.split()[0] for name in TRACES} == set(COREL_PROPERTIES)


def test_evidence_of_a_cause_that_is_missing() -> None:
    verdict = check_events(parse(TRACES["C1 without what its sender sent before"]))
    assert verdict.violations[0].evidence == [
        "n1 step 40: sends a",
        "n1 step 50: sends b",
        "n2 step 40: has b at place 0 of its queue, and not a before it",
    ]


def test_evidence_of_a_member_that_has_it_red() -> None:
    verdict = check_events(parse(TRACES["C4 a member has it red"]))
    assert verdict.violations[0].evidence == [
        "n1 step 50: establishes primary component 1 {n1, n2, n3}",
        "n1 step 100: marks a green",
        "n3 step 50: establishes primary component 1 {n1, n2, n3}",
        "n3 after step 80: does not have a yellow or green",
    ]
