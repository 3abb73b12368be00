"""For each property small traces that violate it and nothing else: each is refused by that name and no other."""

from __future__ import annotations

import re

import pytest

from check.notation import joined, parse, write
from ordercast.check import PROPERTIES, check_events, check_trace

TWO = joined("n1", "n2")
THREE = joined("n1", "n2", "n3")
FOUR = joined("n1", "n2", "n3", "n4")
FIVE = joined("n1", "n2", "n3", "n4", "n5")
SIX = joined("n1", "n2", "n3", "n4", "n5", "n6")

TRACES = {
    # E1
    "E1 nobody sent it": f"""
        {TWO}
        n1: a<n2@r close
        n2: a<n2@r close""",
    "E1 another sender": f"""
        {TWO}
        n1: +a@r a<n1@r close
        n2: a<n2@r close""",
    "E1 another sender, in the first file read": f"""
        {TWO}
        n1: a<n1@r close
        n2: +a@r a<n2@r close""",
    "E1 all deliveries name another sender": f"""
        {THREE}
        n1: a<n1@r close
        n2: +a@r a<n1@r close
        n3: a<n1@r close""",
    "E1 a sender that is no node": f"""
        {TWO}
        n1: +a@r a<n1@r close
        n2: a<n9@r close""",
    "E1 another service": f"""
        {TWO}
        n1: +a@r a<n1@r close
        n2: a!<n1@r close""",
    "E1 conf is not the latest": f"""
        {TWO}
        n1: +a@r a<n1@r close
        n2: a<n1@s2 close""",
    "E1 conf is one never delivered": f"""
        {TWO}
        n1: +a@r a<n1@r close
        n2: a<n1@elsewhere close""",
    "E1 before any configuration": """
        n1: s1=n1 +a@s1 a<n1@s1 close
        n2: a<n1@s1 s2=n2 close""",
    "E1 in the regular configuration after": f"""
        {THREE}
        n1: +a@r
        n2: t~n2,n3 r2=n2,n3 a<n1@r2 close
        n3: t~n2,n3 r2=n2,n3 a<n1@r2 close""",
    "E1 in a transitional configuration that does not follow": f"""
        {THREE}
        n1: +a@r
        n2: t~n2,n3 r2=n2,n3 t2~n2,n3 a<n1@t2 r3=n2,n3 close
        n3: t~n2,n3 r2=n2,n3 t2~n2,n3 a<n1@t2 r3=n2,n3 close""",
    "E1 after the leave": f"""
        {TWO}
        n1: +a@r a<n1@r close
        n2: leave a<n1@r""",
    # E2
    "E2 sent twice": f"""
        {TWO}
        n1: +a@r +a@r a<n1@r close
        n2: a<n1@r close""",
    "E2 sent by two": f"""
        {TWO}
        n1: +a@r a<n1@r close
        n2: +a@r a<n1@r close""",
    "E2 delivered twice": f"""
        {TWO}
        n1: +a@r a<n1@r close
        n2: a<n1@r a<n1@r close""",
    # E3
    "E3 sent in a transitional configuration": f"""
        {TWO}
        n1: t~n1 +a@t a<n1@t r2=n1 close
        n2: close""",
    "E3 sent in the configuration before": f"""
        {TWO}
        n1: t~n1 +a@r a<n1@t r2=n1 close
        n2: close""",
    "E3 sent in a configuration to come": """
        n1: s1=n1 +a@r t1~n1 r=n1 a<n1@r close""",
    "E3 sent before any configuration": """
        n1: +a@s1 s1=n1 a<n1@s1 close""",
    # E4
    "E4 not a member": """
        n1: s1=n1 t1~n1 r=n1,n2 t2~n1,n2 close
        n2: s2=n2 t3~n2 r=n1,n2 t4~n1 close""",
    "E4 an identifier twice, by a restart": """
        n1: s1=n1 recover s1=n1 close""",
    "E4 an identifier twice, by a restart and with other members": """
        n1: s1=n1 recover s1=n1,n2 close
        n2: s2=n2 close""",
    "E4 an identifier twice, directly": f"""
        {TWO}
        n1: r=n1,n2 +a!@r a!<n1@r close
        n2: a!<n1@r t~n2 r2=n2 close""",
    "E4 two kinds": f"""
        {TWO}
        n1: x~n1,n2 close
        n2: t~n2 x=n1,n2 close""",
    "E4 the first is not of one alone": """
        n1: r=n1,n2 close
        n2: s2=n2 close""",
    "E4 the first is transitional": """
        n1: t~n1 close""",
    "E4 the first after a recover is not of one alone": f"""
        {TWO}
        n1: close
        n2: recover r2=n1,n2 close""",
    "E4 the first after a leave is not of one alone": f"""
        {TWO}
        n1: close
        n2: leave r2=n1,n2 close""",
    "E4 regular directly after regular": """
        n1: s1=n1 r=n1 close""",
    "E4 transitional after transitional": """
        n1: s1=n1 t1~n1 t2~n1 r=n1 close""",
    "E4 no regular one after the transitional one": """
        n1: s1=n1 t1~n1 end""",
    "E4 T is not within R1": """
        n1: s1=n1 t~n1,n2 r=n1,n2 close
        n2: s2=n2 close""",
    "E4 T is not within R2": f"""
        {TWO}
        n1: t~n1,n2 r2=n1 close
        n2: close""",
    "E4 a member of T never delivered R1": """
        n1: s1=n1 i1~n1 r=n1,n2 t~n1,n2 r2=n1,n2 close
        n2: s2=n2 close""",
    "E4 a node that did not come from R1 is in T": f"""
        {TWO}
        n1: t~n1,n2 r2=n1,n2 close
        n2: u~n2 q=n2 v~n2 r2=n1,n2 close""",
    "E4 a node that came from R1 through a restart is in T": f"""
        {TWO}
        n1: t~n1,n2 r2=n1,n2 close
        n2: recover q=n2 v~n2 r2=n1,n2 close""",
    "E4 a node that came from R1 is not in T": f"""
        {TWO}
        n1: t~n1 r2=n1,n2 close
        n2: u~n2 r2=n1,n2 close""",
    "E4 number does not grow": """
        n1: s1=n1#4 t1~n1#5 r=n1#5 close""",
    "E4 number does not grow over a restart": """
        n1: s1=n1#4 recover s2=n1#3 close""",
    # E5
    "E5 different members": """
        n1: s1=n1 t1~n1 r=n1,n2 close
        n2: s2=n2 t2~n2 r=n1,n2,n3 close
        n3: s3=n3 close""",
    "E5 different members of a transitional one": f"""
        {THREE}
        n1: t~n1,n2 close
        n2: t~n1,n2,n3 close
        n3: close""",
    # E6
    "E6 goes on without its own": f"""
        {TWO}
        n1: +a@r t~n1,n2 r2=n1,n2 close
        n2: t~n1,n2 r2=n1,n2 close""",
    "E6 leaves without its own": f"""
        {TWO}
        n1: +a@r leave
        n2: close""",
    "E6 leaves in transition without its own": f"""
        {TWO}
        n1: +a@r t~n1,n2 leave
        n2: t~n1,n2 close""",
    # E7
    "E7 in a regular configuration": f"""
        {THREE}
        n1: t~n1,n2 r2=n1,n2 close
        n2: a<n3@r t~n1,n2 r2=n1,n2 close
        n3: +a@r a<n3@r""",
    "E7 in a transitional configuration": f"""
        {THREE}
        n1: t~n1,n2 a<n3@t r2=n1,n2 close
        n2: t~n1,n2 r2=n1,n2 close
        n3: +a@r a<n3@r""",
    "E7 both have what the other has not": f"""
        {FOUR}
        n1: a<n3@r t~n1,n2 r2=n1,n2 close
        n2: b<n4@r t~n1,n2 r2=n1,n2 close
        n3: +a@r
        n4: +b@r""",
    # E8
    "E8 one sender's messages in the wrong order": f"""
        {TWO}
        n1: +a@r +b@r b<n1@r a<n1@r close
        n2: b<n1@r a<n1@r close""",
    "E8 one sender's second without its first": f"""
        {TWO}
        n1: +a@r +b@r
        n2: t~n2 b<n1@t r2=n2 close""",
    "E8 an answer without its question": f"""
        {THREE}
        n1: +a@r a<n1@r
        n2: a<n1@r +b@r
        n3: t~n3 b<n2@t r2=n3 close""",
    "E8 through a third": f"""
        {FOUR}
        n1: +a@r a<n1@r
        n2: a<n1@r +b@r
        n3: a<n1@r b<n2@r +c@r
        n4: t~n4 c<n3@t r2=n4 close""",
    # E9
    "E9 delivered before it is sent": """
        n1: s1=n1 a<n1@s1 +a@s1 close""",
    "E9 two configurations in two orders": """
        n1: s1=n1 t1~n1 a=n1,n2 t2~n1 b=n1,n2 close
        n2: s2=n2 t3~n2 b=n1,n2 t4~n2 a=n1,n2 close""",
    "E9 two parts deliver what is lost to them in two orders": f"""
        {FOUR}
        n1: t1~n1 a<n3@t1 b<n4@t1 r1=n1 close
        n2: t2~n2 b<n4@t2 a<n3@t2 r2=n2 close
        n3: +a@r
        n4: +b@r""",
    "E9 a cycle through three that no pair shows": f"""
        {SIX}
        n1: t1~n1 a<n4@t1 b<n5@t1 r1=n1 close
        n2: t2~n2 b<n5@t2 c<n6@t2 r2=n2 close
        n3: t3~n3 c<n6@t3 a<n4@t3 r3=n3 close
        n4: +a@r
        n5: +b@r
        n6: +c@r""",
    # E10
    "E10 a hole in a regular configuration": f"""
        {TWO}
        n1: +a@r a<n1@r b<n2@r close
        n2: +b@r b<n2@r close""",
    "E10 a hole, and the one without it has crashed": f"""
        {THREE}
        n1: +a@r a<n1@r b<n2@r
        n2: +b@r
        n3: b<n2@r close""",
    "E10 a hole at one that crashes": f"""
        {TWO}
        n1: +a@r a<n1@r b<n2@r close
        n2: +b@r b<n2@r""",
    "E10 a hole in a transitional one in which its sender is": f"""
        {THREE}
        n1: +a@r t~n1,n2
        n2: t~n1,n2 b<n3@t r2=n1,n2 close
        n3: +b@r a<n1@r b<n3@r""",
    "E10 a hole against one in the same transitional one": f"""
        {FOUR}
        n1: t~n1,n2 a<n3@t b<n4@t
        n2: t~n1,n2 b<n4@t r2=n1,n2 close
        n3: +a@r
        n4: +b@r""",
    "E10 a hole in a regular configuration that is legal in the transitional one after it": f"""
        {FIVE}
        n1: t~n1 b<n5@t r1=n1 close
        n2: b<n5@r
        n3: a<n4@r b<n5@r
        n4: +a@r
        n5: +b@r""",
    "E10 a hole in a transitional one that is legal in another": f"""
        {FIVE}
        n1: t~n1 b<n5@t r1=n1 close
        n2: u~n2,n4 b<n5@u r2=n2,n4 close
        n3: a<n4@r b<n5@r
        n4: +a@r
        n5: +b@r""",
    # E11
    "E11 a member goes on without it": f"""
        {TWO}
        n1: +a!@r a!<n1@r close
        n2: t~n2 r2=n2 close""",
    "E11 the one that delivered it has crashed": f"""
        {TWO}
        n1: +a!@r a!<n1@r
        n2: t~n2 r2=n2 close""",
    "E11 in a transitional configuration": f"""
        {THREE}
        n1: t~n1,n2 a!<n3@t
        n2: t~n1,n2 r2=n1,n2 close
        n3: +a!@r""",
    "E11 a member crashes after it has gone on": f"""
        {TWO}
        n1: +a!@r a!<n1@r close
        n2: t~n2 r2=n2""",
    # E12
    "E12 a member never installs it": """
        n1: s1=n1 t1~n1 r=n1,n2 +a!@r a!<n1@r close
        n2: s2=n2 close""",
    # E13
    "E13 two that do not find each other": """
        n1: s1=n1 end
        n2: s2=n2 end""",
    "E13 a member that is gone": f"""
        {TWO}
        n1: end
        n2: leave""",
    "E13 in no configuration": """
        n1: end""",
    "E13 one is in the next configuration, of the same members": f"""
        {TWO}
        n1: t~n1,n2 r2=n1,n2 end
        n2: end""",
    "E13 together, and one has left it out": f"""
        {TWO}
        n1: end
        n2: t~n2 r2=n2 end""",
    # E14
    "E14 not delivered by one": f"""
        {TWO}
        n1: +a@r a<n1@r end
        n2: end""",
    "E14 not delivered by its sender": """
        n1: s1=n1 +a@s1 end""",
    "E14 not delivered by anyone": f"""
        {TWO}
        n1: +a@r end
        n2: end""",
}

SEVERAL = {
    "E1 E9 E10 one hole of two is a delivery too early": f"""
        {FIVE.replace("s1=n1", "s1=n1 a<n4@s1", 1)}
        n1: b<n5@r close
        n2: b<n5@r close
        n3: a<n4@r b<n5@r close
        n4: +a@r
        n5: +b@r""",
    "E1 E8 E9 one without the question had it too early": f"""
        {FOUR.replace("s1=n1", "s1=n1 a<n3@s1", 1)}
        n1: t1~n1 b<n3@t1 r1=n1 close
        n2: t2~n2 b<n3@t2 r2=n2 close
        n3: +a@r +b@r
        n4: a<n3@r""",
    "E8 E9 E10 an answer before its question": f"""
        {THREE}
        n1: +a@r a<n1@r
        n2: a<n1@r +b@r
        n3: t~n3 b<n2@t a<n1@t r2=n3 close""",
    "E7 E9 one before, one after the transitional configuration": f"""
        {THREE}
        n1: a<n3@r t~n1,n2 r2=n1,n2 close
        n2: t~n1,n2 a<n3@t r2=n1,n2 close
        n3: +a@r a<n3@r""",
    "E4 E9 an identifier twice, with others between": """
        n1: s1=n1 t1~n1 r=n1 t2~n1 r=n1 close""",
    "E2 E9 delivered twice with something between": f"""
        {TWO}
        n1: +a@r +b@r a<n1@r b<n1@r close
        n2: a<n1@r b<n1@r a<n1@r close""",
    "E1 E2 E9 delivered again after a restart": f"""
        {TWO}
        n1: +a@r a<n1@r close
        n2: a<n1@r recover s3=n2 a<n1@s3 close""",
    "E9 E10 two orders in one configuration": f"""
        {TWO}
        n1: +a@r a<n1@r b<n2@r close
        n2: +b@r b<n2@r a<n1@r close""",
    "E1 E6 delivers its own too late": f"""
        {TWO}
        n1: +a@r t~n1 r2=n1 a<n1@r2 close
        n2: close""",
    "E1 E3 sent in a configuration left long ago": """
        n1: s1=n1 t1~n1 r=n1 +a@s1 a<n1@r close""",
    "E11 E13 ends without a safe message": f"""
        {TWO}
        n1: +a!@r a!<n1@r close
        n2: end""",
    "E11 E14 all end, one without a safe message": f"""
        {TWO}
        n1: +a!@r a!<n1@r end
        n2: end""",
}


@pytest.mark.parametrize("name", [*TRACES, *SEVERAL])
def test_is_refused_by_its_names_and_no_other(name, tmp_path):
    trace = parse({**TRACES, **SEVERAL}[name])
    verdict = check_trace(write(trace, tmp_path))
    words = [word for word in name.split() if word in PROPERTIES]
    assert [violation.property for violation in verdict.violations] == words
    assert verdict == check_events(trace)


@pytest.mark.parametrize("name", [*TRACES, *SEVERAL])
def test_evidence_is_short_and_names_events(name):
    for violation in check_events(parse({**TRACES, **SEVERAL}[name])).violations:
        assert 1 <= len(violation.evidence) <= 5, violation.evidence
        assert " step " in violation.evidence[0]
        assert all("\n" not in line and len(line) < 200 for line in violation.evidence)


def test_every_property_has_a_trace():
    assert {name.split()[0] for name in TRACES} == set(PROPERTIES)


def test_order_of_files_does_not_matter():
    """Names turned round, so that deliveries are read before sends and the other way about."""
    for name, text in {**TRACES, **SEVERAL}.items():
        trace = parse(re.sub(r"\bn(\d)", lambda found: f"n{7 - int(found[1])}", text))
        names = [violation.property for violation in check_events(trace).violations]
        assert names == [word for word in name.split() if word in PROPERTIES], name


def test_a_cycle_through_three_is_shown_as_a_chain():
    evidence = check_events(parse(TRACES["E9 a cycle through three that no pair shows"])).violations[0].evidence
    assert evidence == [
        "n1 step 50: delivers a, before it delivers b in step 60",
        "n2 step 50: delivers b, before it delivers c in step 60",
        "n3 step 50: delivers c, before it delivers a in step 60",
        "no single order has a before b before c before a",
    ]


def test_what_nobody_sent_is_called_so():
    assert check_events(parse(TRACES["E1 nobody sent it"])).violations[0].evidence[1] == "no node ever sent it"
