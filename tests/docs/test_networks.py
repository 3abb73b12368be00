"""The guide for operators of networks quotes what the layer says."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.redundancy import FaultReason
from ordercast.redundancy.diagnosis import diagnose

GUIDE = (Path(__file__).parents[2] / "docs" / "networks.md").read_text()
NAMES = ("n1", "n2", "n3", "n4")
PAIRS = [(a, b) for a in NAMES for b in NAMES if a != b]
DEAD = {
    "nothing": [],
    "the switch, or the power of all cards": PAIRS,
    "n2's cable, its card, or its port of the switch": [pair for pair in PAIRS if "n2" in pair],
    "n2's sending side: a transmitter, one fibre of two, a filter": [pair for pair in PAIRS if pair[0] == "n2"],
    "n2's receiving side": [pair for pair in PAIRS if pair[1] == "n2"],
    "a way between two, as between two switches": [("n1", "n2"), ("n2", "n1")],
    "one direction of it": [("n2", "n1")],
}


def _sets(heard: frozenset[str], name: str) -> str:
    hears = " ".join(sorted(heard)) or "nobody"
    return f"{hears}, {' '.join(other for other in NAMES if other not in {*heard, name}) or 'nobody'}"


@pytest.mark.parametrize("what", DEAD)
def test_the_guide_says_what_the_status_says(what: str) -> None:
    heard = {b: frozenset(a for a in NAMES if a != b and (a, b) not in DEAD[what]) for b in NAMES}
    cells = [what, _sets(heard["n2"], "n2"), _sets(heard["n1"], "n1"), diagnose(heard)]
    assert f"| {' | '.join(cells)} |" in GUIDE


def test_the_guide_quotes_the_reason_of_those_who_were_told() -> None:
    assert f'"{FaultReason.TOLD.value}"' in GUIDE
