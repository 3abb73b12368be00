"""The scenario scripts of the package, and the transcripts that they must give.

`pytest tests/scenarios --rewrite` writes the transcripts anew; look at the difference before you commit it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.sim.scenario import load_scenario, run_scenario, scenario_names

_GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", scenario_names())
def test_scenario(name: str, request: pytest.FixtureRequest) -> None:
    outcome = run_scenario(load_scenario(name))
    assert not outcome.violations, "\n".join(
        "\n  ".join([violation.property, *violation.evidence]) for violation in outcome.violations
    )
    golden = _GOLDEN / f"{name}.txt"
    if request.config.getoption("--rewrite", default=False):
        golden.write_text(outcome.transcript)
    assert golden.exists(), f"no transcript of {name}: pytest tests/scenarios --rewrite"
    assert outcome.transcript == golden.read_text()


def test_no_transcript_is_without_its_scenario() -> None:
    assert {path.stem for path in _GOLDEN.glob("*.txt")} <= set(scenario_names())
