"""What a child process does: one mutant; its tests, its seeds in order, then its scenario."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from time import process_time

from . import patch
from .mutant import Mutant

EVENTS_MAX = 2_000_000
"""Several times what the longest run of a sound engine takes: a mutant that makes a storm is caught sooner."""
SCENARIOS = Path(__file__).parents[2] / "src" / "ordercast" / "sim" / "scenarios"
TESTS = Path(__file__).parents[1]


@dataclass
class Verdict:
    """Where a mutant was caught: by which property, in which run."""

    name: str
    caught_by: str | None
    where: str
    seconds: float
    evidence: str = ""


def judge(mutant: Mutant, seeds: Iterable[int], *, scenarios: bool) -> Verdict:
    """Runs in a process that has not imported the engine yet, and leaves it with the mutant in its place."""
    patch.install(mutant)
    from ordercast.sim import world

    world.EVENTS_MAX = EVENTS_MAX
    began = process_time()
    failed = [] if mutant.tests is None else _failing(mutant.tests)
    if mutant.tests is not None and (mutant.tests_alone or not failed):
        return Verdict(mutant.name, "tests" if failed else None, "; ".join(failed), process_time() - began)
    if mutant.scenario is None:
        found = _first_seed(mutant, seeds)
        where = found[0] if found else ""
    else:
        found = _scenario(mutant.scenario)
        where = f"scenario {mutant.scenario}"
    if found is None and scenarios and mutant.scenario is None and mutant.engine == "totem":
        for path in sorted(SCENARIOS.glob("*.txt")):
            found = _scenario(path.stem)
            if found is not None:
                where = f"scenario {path.stem}"
                break
    seconds = process_time() - began
    if found is None:
        return Verdict(mutant.name, None, "", seconds)
    return Verdict(mutant.name, found[1], "; ".join([where, *failed]), seconds, found[2])


def _failing(file: str) -> list[str]:
    """The tests of a file that fail with the mutant: the first words of their names."""
    import pytest

    names: dict[str, None] = {}

    class Failures:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                names["_".join(report.location[2].removeprefix("test_").split("[")[0].split("_")[:2])] = None

    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(TESTS / file)], plugins=[Failures()])
    return list(names)


def _first_seed(mutant: Mutant, seeds: Iterable[int]) -> tuple[str, str, str] | None:
    from ordercast.sim import run_seed

    for seed in seeds:
        for style in mutant.replications:
            networks = 1 if style == "none" else None
            violations = run_seed(mutant.engine, seed, networks=networks, replication=style).violations
            if violations:
                where = f"seed {seed}" if style == "none" else f"seed {seed}, {style}"
                properties = "+".join(sorted({found.property for found in violations}))
                return where, properties, "\n".join(violations[0].evidence)
    return None


def _scenario(name: str) -> tuple[str, str, str] | None:
    from ordercast.sim.scenario import load_scenario, run_scenario

    violations = run_scenario(load_scenario(name)).violations
    if not violations:
        return None
    return name, "+".join(sorted({found.property for found in violations})), "\n".join(violations[0].evidence)
