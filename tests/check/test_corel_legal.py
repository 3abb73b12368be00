"""Odd and legal traces of corel, and those that cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from check.corel_notation import parse
from check.notation import joined, write
from ordercast.check import TraceError, check_events, check_trace

TWO = joined("n1", "n2")
THREE = joined("n1", "n2", "n3")
FIVE = joined("n1", "n2", "n3", "n4", "n5")
IN_ONE = "group:n1,n2,n3 primary:1=n1,n2,n3"

LEGAL = {
    "an old primary component that has not been told": f"""
        {FIVE}
        n1: group:n1,n2,n3,n4,n5 primary:1=n1,n2,n3,n4,n5 close
        n2: group:n1,n2,n3,n4,n5 primary:1=n1,n2,n3,n4,n5 close
        n3: group:n1,n2,n3,n4,n5 primary:1=n1,n2,n3,n4,n5 t~n3,n4,n5 r2=n3,n4,n5 primary:2=n3,n4,n5 close
        n4: t~n3,n4,n5 r2=n3,n4,n5 close
        n5: t~n3,n4,n5 r2=n3,n4,n5 close""",
    "gaps in the numbers": f"""
        {TWO}
        n1: group:n1,n2 primary:3=n1,n2 t~n1,n2 r2=n1,n2 primary:9=n1,n2 close
        n2: t~n1,n2 r2=n1,n2 close""",
    "places repeated after a crash": """
        n1: s1=n1 group:n1 primary:1=n1 +a@s1 +b@s1 done:a@0 done:b@1 +c@s1 has:c@2
        n1: recover q1=n1 queue:a@0 queue:b@1 queue:c@2 yellow:b order:a@0 done:b@1 yellow:c done:c@2 close""",
    "it goes on where it was": """
        n1: s1=n1 group:n1 +a@s1 +b@s1 done:a@0 recover q1=n1 done:b@1 close""",
    "a queue that was cut by the crash": f"""
        {TWO}
        n1: +a@r +b@r queue:a@0 queue:b@1 recover q1=n1 queue:a@0 +c@q1 queue:c@1 close
        n2: queue:a@0 queue:c@1 close""",
    "what another life sent and nobody has": f"""
        {TWO}
        n1: +a@r recover q1=n1 +b@q1 queue:b@0 queue:a@1 close
        n2: queue:b@0 close""",
    "queues merged by their timestamps": f"""
        {TWO}
        n1: +a@r has:a@0 red:a has:b@0 has:a@1 red:b red:a close
        n2: +b@r has:b@0 has:a@1 close""",
    "dynamic voting": f"""
        {FIVE}
        n1: group:n1,n2,n3,n4,n5 primary:1=n1,n2,n3 close
        n2: group:n1,n2,n3,n4,n5 primary:1=n1,n2,n3 t~n2,n3 r2=n2,n3 primary:2=n2,n3 u~n2 r3=n2 primary:3=n2 close
        n3: t~n2,n3 r2=n2,n3 close
        n4: close
        n5: close""",
    "a weighted majority": f"""
        {THREE}
        n1: group:n1*3,n2,n3 primary:1=n1 close
        n2: close
        n3: close""",
    "the group shrinks by an ordered change": f"""
        {THREE}
        n1: group:n1,n2,n3 primary:1=n1,n2,n3 group:n1,n2 t~n1,n2 r2=n1,n2 primary:2=n1,n2 close
        n2: t~n1,n2 r2=n1,n2 close
        n3: close""",
    "brought up from a snapshot": f"""
        {TWO}
        n1: group:n1,n2 primary:1=n1,n2 +a@r +b@r +c@r done:a@0 done:b@1 done:c@2 close
        n2: restored:2 has:c@2 primary:1?n1,n2 yellow:c done:c@2 close""",
    "brought up again after some of it": f"""
        {TWO}
        n1: +a@r +b@r +c@r done:a@0 done:b@1 done:c@2 close
        n2: done:a@0 done:c@2 close""",
    "a lost disk is another process": """
        n1: s1=n1 group:n1 +a@s1 done:a@0 wiped recover q1=n1 +b@q1 has:b@0 red:b close""",
    "ordered without a primary component": f"""
        {TWO}
        n1: group:n1,n2 +a@r done:a@0 close
        n2: group:n1,n2 has:a@0 red:a close""",
    "yellow, and given up": f"""
        {THREE}
        n1: {IN_ONE} +a@r has:a@0 yellow:a red:a close
        n2: {IN_ONE} close
        n3: {IN_ONE} close""",
    "half of the last primary component was removed, and lost its disk": f"""
        {TWO}
        n1: group:n1,n2 primary:1=n1,n2 group:n2 wiped recover q1=n1 v~n1 r3=n1,n2 end
        n2: group:n1,n2 primary:1=n1,n2 group:n2 t~n2 r2=n2 +a@r2 a<n2@r2 has:a@0 u~n2 r3=n1,n2 end""",
    "a minority's message at the end": f"""
        {THREE}
        n1: group:n1,n2,n3 t~n1 r2=n1 +a@r2 a<n1@r2 has:a@0 end
        n2:
        n3:""",
    "a member of the declared group that never started": """
        n1: s1=n1 group:n1,n2,n3 close""",
    "places from one on": """
        n1: s1=n1 group:n1 +a@s1 +b@s1 done:a@1 done:b@2 close""",
    "the same place told twice": """
        n1: s1=n1 group:n1 +a@s1 done:a@0 order:a@0 queue:a@0 ack:a close""",
}

UNREADABLE: dict[str, list[dict[str, Any]]] = {
    "a colour that is none": [{"event": "colour", "msg": "a", "colour": "blue"}],
    "a place that is text": [{"event": "queue", "msg": "a", "pos": "0"}],
    "a place below 0": [{"event": "order", "msg": "a", "pos": -1}],
    "a place beyond 64 bits": [{"event": "order", "msg": "a", "pos": 2**70}],
    "no place": [{"event": "order", "msg": "a"}],
    "no number": [{"event": "primary", "members": ["n1"]}],
    "a member of a primary component without a file": [{"event": "primary", "number": 1, "members": ["n1", "n9"]}],
    "weights of others": [{"event": "group", "members": ["n1"], "weights": [1, 2]}],
}


@pytest.mark.parametrize("name", LEGAL)
def test_legal(name: str) -> None:
    assert check_events(parse(LEGAL[name])).violations == []


@pytest.mark.parametrize("name", UNREADABLE)
def test_unreadable(name: str, tmp_path: Path) -> None:
    events = [{"node": "n1", "step": number + 1, **event} for number, event in enumerate(UNREADABLE[name])]
    with pytest.raises(TraceError):
        check_trace(write({"n1": events}, tmp_path / "trace"))


def test_weights_and_snapshots_in_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    trace = parse(LEGAL["a weighted majority"])
    directory = tmp_path / "trace"
    directory.mkdir()
    for node, events in trace.items():
        columns = {name: [event.get(name) for event in events] for name in sorted(set().union(*events))}
        pq.write_table(pa.table(columns), directory / f"{node}.parquet")
    assert check_trace(directory).violations == []
    trace = parse(LEGAL["a weighted majority"].replace("n1*3", "n1*2"))
    columns = {name: [event.get(name) for event in trace["n1"]] for name in sorted(set().union(*trace["n1"]))}
    pq.write_table(pa.table(columns), directory / "n1.parquet")
    assert [violation.property for violation in check_trace(directory).violations] == ["C8"]
