"""What a child process does: one mutant, its seeds in order, then its scenario."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from time import process_time

from . import patch
from .mutant import Mutant

EVENTS_MAX = 2_000_000
"""Several times what the longest run of a sound engine takes: a mutant that makes a storm is caught sooner."""
SCENARIOS = Path(__file__).parents[2] / "src" / "ordercast" / "sim" / "scenarios"


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
    if mutant.scenario is None:
        found = _first_seed(mutant.engine, seeds)
        where = f"seed {found[0]}" if found else ""
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
    return Verdict(mutant.name, found[1], where, seconds, found[2])


def _first_seed(engine: str, seeds: Iterable[int]) -> tuple[int, str, str] | None:
    from ordercast.sim import run_seed

    for seed in seeds:
        violations = run_seed(engine, seed).violations
        if violations:
            return seed, "+".join(sorted({found.property for found in violations})), "\n".join(violations[0].evidence)
    return None


def _scenario(name: str) -> tuple[int, str, str] | None:
    from ordercast.sim.scenario import load_scenario, run_scenario

    violations = run_scenario(load_scenario(name)).violations
    if not violations:
        return None
    return 0, "+".join(sorted({found.property for found in violations})), "\n".join(violations[0].evidence)
