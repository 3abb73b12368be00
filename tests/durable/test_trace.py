"""Traces of real groups of corel: what the layer does is told, and `ordercast check` judges it."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from durable.party import Party, take, wait_until
from ordercast.check import check_trace

NAMES = ("n1", "n2", "n3")


def events(party: Party, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in trace_of(party, name).read_text().splitlines()]


def trace_of(party: Party, name: str) -> Path:
    return party.directory / name / "trace" / f"{name}.jsonl"


def verdict(party: Party, *names: str) -> Any:
    """Of the traces as they stand: those of members that run are those of crashed ones."""
    together = party.directory / "trace"
    together.mkdir(exist_ok=True)
    for name in names:
        shutil.copy(trace_of(party, name), together)
    return check_trace(together)


def test_a_message_goes_through_all_that_the_contract_names(party: Party) -> None:
    members = party.join(*NAMES, trace=True)
    for number in range(5):
        for member in members:
            member.send_many([b"%d" % at for at in range(400)]).wait(60)
        assert number < 5
    for member in members:
        take(member, 6000)
    party.close()
    for name in NAMES:
        told = events(party, name)
        assert [event["step"] for event in told] == list(range(1, len(told) + 1))
        kinds = Counter(event["event"] for event in told)
        for kind in ("deliver", "durable", "queue", "order", "acknowledged"):
            assert kinds[kind] >= 6000, kind
        assert kinds["primary"] >= 1
        assert kinds["group"] >= 1
        colours = Counter(event["colour"] for event in told if event["event"] == "colour")
        assert colours["yellow"] >= 6000
        assert colours["green"] == 6000
        assert [event["pos"] for event in told if event["event"] == "order"] == list(range(6000))
    found = verdict(party, *NAMES)
    assert found.violations == []


def test_restarts_and_a_lost_disk(party: Party) -> None:
    members = party.join(*NAMES, trace=True)
    members[0].send_many([b"%d" % at for at in range(300)]).wait(60)
    party.stop(*NAMES)
    members = party.join(*NAMES, trace=True)
    members[1].send_many([b"%d" % at for at in range(200)]).wait(60)
    party.stop("n3")
    wait_until(lambda: len(members[0].view.members) == 2 and bool(members[0].view.primary), "a primary of two")
    members[0].send_many([b"%d" % at for at in range(100)]).wait(60)
    shutil.rmtree(party.directory / "n3" / "log")
    party.join("n3", trace=True, founders=0)
    party.wait_for_primary()
    wait_until(lambda: party.members["n3"].status()["log"]["ordered"] == 600, "n3 has it all")
    party.close()
    told = [event["event"] for event in events(party, "n3")]
    assert told.count("recover") == 2
    assert told.count("x-wiped") == 1
    assert verdict(party, *NAMES).violations == []
