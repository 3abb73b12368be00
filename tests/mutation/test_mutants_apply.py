"""The mutants fit the engine as it is, and some of them are caught as quickly as they were when they were made."""

from __future__ import annotations

import pytest

from .__main__ import run_child
from .mutants import MUTANTS, Mutant
from .patch import mutated_sources


def test_there_are_enough_mutants_and_each_has_its_name() -> None:
    assert sum(mutant.package == "ordercast.engine.totem" for mutant in MUTANTS) >= 30
    assert sum(mutant.package == "ordercast.redundancy" for mutant in MUTANTS) >= 25
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits_the_engine(mutant: Mutant) -> None:
    for module, source in mutated_sources(mutant).items():
        compile(source, module, "exec")


@pytest.mark.parametrize(
    ("name", "seeds", "caught_by"),
    [
        ("agreed-overtakes-safe", "0:5", "E9"),
        ("ring-number-not-stored", "0:5", "E4"),
        ("token-held-for-ever", "0:5", "expect"),
        ("obligations-forgotten", "0", "E11"),
        ("two-first-tokens", "0", "E13"),
        ("corel-acknowledged-before-durable", "0:2", "C4"),
    ],
)
def test_a_mutant_is_caught(name: str, seeds: str, caught_by: str) -> None:
    verdict = run_child(name, "--seeds", seeds, "--no-scenarios")
    assert verdict.caught_by is not None
    assert caught_by in verdict.caught_by.split("+")


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("messages-await-copies", {"seed 0, active", "a1_a", "p1_a"}),
        ("token-with-the-first-copy", {"a2_a", "a3_the"}),
    ],
)
def test_a_mutant_of_the_layer_is_caught_by_its_requirements(name: str, where: set[str]) -> None:
    verdict = run_child(name, "--seeds", "0:5", "--no-scenarios")
    assert verdict.caught_by is not None
    assert where <= set(verdict.where.split("; "))
