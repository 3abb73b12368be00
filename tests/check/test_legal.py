"""Odd and legal: what a checker that is too strict would refuse."""

from __future__ import annotations

import pytest

from check.notation import joined, parse, write
from ordercast.check import check_events, check_trace

TWO = joined("n1", "n2")
THREE = joined("n1", "n2", "n3")
FOUR = joined("n1", "n2", "n3", "n4")

LEGAL = {
    "alone": "n1: s1=n1 +a@s1 a<n1@s1 +b!@s1 b!<n1@s1 end",
    "a quiet end": f"""
        {TWO}
        n1: +a@r a<n1@r b!<n2@r end
        n2: +b!@r a<n1@r b!<n2@r end""",
    "both sides of a partition deliver": f"""
        {FOUR}
        n1: +a@r a<n1@r t~n1,n2 r1=n1,n2 +c@r1 c<n1@r1 close
        n2: a<n1@r t~n1,n2 r1=n1,n2 c<n1@r1 close
        n3: a<n1@r u~n3,n4 r2=n3,n4 +d!@r2 d!<n3@r2 close
        n4: a<n1@r u~n3,n4 r2=n3,n4 d!<n3@r2 close""",
    "a partition and the way back": f"""
        {TWO}
        n1: t~n1 r1=n1 +a@r1 a<n1@r1 t1~n1 r3=n1,n2 +c@r3 c<n1@r3 end
        n2: u~n2 r2=n2 +b@r2 b<n2@r2 t2~n2 r3=n1,n2 c<n1@r3 end""",
    "delivered in a transitional configuration only": f"""
        {THREE}
        n1: t~n1,n2 a<n3@t r1=n1,n2 end
        n2: t~n1,n2 a<n3@t r1=n1,n2 end
        n3: +a@r""",
    "crash before delivery": f"""
        {TWO}
        n1: +a@r
        n2: t~n2 r2=n2 end""",
    "its own message delivered by others only": f"""
        {TWO}
        n1: +a@r
        n2: a<n1@r t~n2 r2=n2 end""",
    "a member of T never installs R2": f"""
        {THREE}
        n1: t~n1,n2 r2=n1,n2 close
        n2:
        n3: close""",
    "a member of T is parted from it by a later recovery": f"""
        {THREE}
        n1: t~n1,n2,n3 r2=n1,n2,n3 t2~n1,n2 r3=n1,n2 end
        n2: t~n1,n2,n3 r2=n1,n2,n3 t2~n1,n2 r3=n1,n2 end
        n3: u~n3 q=n3 v~n3 w=n3""",
    "crash in transition": f"""
        {TWO}
        n1: t~n1
        n2: close""",
    "leave in transition": f"""
        {TWO}
        n1: t~n1,n2 leave
        n2: t~n1,n2 r2=n1,n2 t2~n2 r3=n2 end""",
    "close in transition": f"""
        {TWO}
        n1: t~n1,n2 close
        n2: close""",
    "a hole left by a sender that is gone": f"""
        {FOUR}
        n1: +a@r +c@r t~n1,n2 a<n1@t c<n1@t r2=n1,n2 end
        n2: t~n1,n2 a<n1@t c<n1@t r2=n1,n2 end
        n3: +b@r a<n1@r b<n3@r c<n1@r
        n4: a<n1@r b<n3@r c<n1@r""",
    "two parts with different holes": f"""
        {FOUR}
        n1: +a@r t~n1,n2 a<n1@t r2=n1,n2 close
        n2: t~n1,n2 a<n1@t r2=n1,n2 close
        n3: +b@r u~n3,n4 b<n3@u r3=n3,n4 close
        n4: u~n3,n4 b<n3@u r3=n3,n4 close""",
    "a beginning of what others delivered, then a crash": f"""
        {THREE}
        n1: +a@r +b@r a<n1@r b<n1@r close
        n2: a<n1@r
        n3: a<n1@r b<n1@r close""",
    "a safe message in a transitional configuration, known to its members alone": f"""
        {THREE}
        n1: +a!@r t~n1,n2 a!<n1@t r2=n1,n2 end
        n2: t~n1,n2 a!<n1@t r2=n1,n2 end
        n3: u~n3 r3=n3""",
    "a safe message in r at one and after it at another": f"""
        {TWO}
        n1: +a!@r a!<n1@r close
        n2: t~n2 a!<n1@t r2=n2 close""",
    "a safe message and a member that crashes": f"""
        {TWO}
        n1: +a!@r a!<n1@r close
        n2:""",
    "a safe message and a member that crashes in transition": f"""
        {TWO}
        n1: +a!@r a!<n1@r close
        n2: t~n2""",
    "a safe message in a transitional configuration that a member never installs": f"""
        {TWO}
        n1: +a!@r t~n1,n2 a!<n1@t r2=n1,n2 close
        n2:""",
    "a safe message and a member that leaves": f"""
        {TWO}
        n1: +a!@r a!<n1@r close
        n2: leave""",
    "a safe message and a member that is not that far": f"""
        {TWO}
        n1: +a!@r a!<n1@r close
        n2: close""",
    "an agreed message in a configuration that a member never installs": """
        n1: s1=n1 t1~n1 r=n1,n2 +a@r a<n1@r close
        n2: s2=n2 close""",
    "restart and rejoin": f"""
        {TWO}
        n1: +a@r a<n1@r t~n1 r2=n1 +b@r2 b<n1@r2 t2~n1 r3=n1,n2 c<n2@r3 end
        n2: recover s3=n2 t3~n2 r3=n1,n2 +c@r3 c<n2@r3 end""",
    "restart without a word from the life before": """
        n1: recover s1=n1 recover recover s2=n1 end""",
    "leave and come back": f"""
        {TWO}
        n1: t~n1 r2=n1 t2~n1 r3=n1,n2 end
        n2: leave recover s3=n2 t3~n2 r3=n1,n2 end""",
    "its own message is lost in the crash": f"""
        {TWO}
        n1: t~n1 r2=n1 close
        n2: +a@r recover s3=n2 close""",
    "leave with nothing owed": f"""
        {TWO}
        n1: +a@r a<n1@r leave
        n2: a<n1@r t~n2 r2=n2 end""",
    "not done at the close": f"""
        {TWO}
        n1: +a@r +b!@r a<n1@r close
        n2: close""",
    "the network came back, the crashed did not": f"""
        {THREE}
        n1: t~n1,n2 r2=n1,n2 end
        n2: t~n1,n2 r2=n1,n2 end
        n3: +a@r""",
    "a node that never said anything": """
        n1: s1=n1 end
        n2:""",
    "numbers grow, and not all have one": """
        n1: s1=n1#-3 t~n1 r=n1#7 recover s2=n1#8 close""",
    "members in another order": """
        n1: s1=n1 t1~n1 r=n1,n2 close
        n2: s2=n2 t2~n2 r=n2,n1 close""",
    "together with different sets in different components": f"""
        {FOUR}
        n1: a<n4@r t~n1 r1=n1 close
        n2: t2~n2 r2=n2 close
        n3: close
        n4: +a@r""",
    "not to the same next configuration": f"""
        {THREE}
        n1: a<n3@r t~n1 r2=n1,n2 close
        n2: u~n2 q=n2 v~n2 r2=n1,n2 close
        n3: +a@r a<n3@r close""",
}


@pytest.mark.parametrize("name", LEGAL)
def test_passes(name, tmp_path):
    trace = parse(LEGAL[name])
    verdict = check_trace(write(trace, tmp_path))
    assert verdict.violations == []
    assert verdict.events == sum(len(events) for events in trace.values())
    assert check_events(trace) == verdict
