"""Seeds of corel: long enough, faulty enough, the same every time, and without a violation."""

from __future__ import annotations

import pytest

from ordercast.sim.campaign import met_minimums
from ordercast.sim.generate_corel import generate_corel
from ordercast.sim.runner import run_seed


@pytest.mark.parametrize("seed", [*range(5), 758])
def test_a_seed_keeps_every_property(seed: int) -> None:
    result = run_seed("corel", seed)
    assert result.violations == []
    assert met_minimums(result)


def test_the_same_seed_is_the_same_run() -> None:
    assert run_seed("corel", 3, check=False).trace_hash == run_seed("corel", 3, check=False).trace_hash


def test_seeds_are_hard_on_disks_and_on_the_group() -> None:
    said = "\n".join(action.what for seed in range(50) for action in generate_corel(seed).actions)
    kinds = "crash *", "disk lose", "disk tear", "disk fail", "partition", "reinstall", "snapshot", "fuse", "cut"
    for what in (*kinds, "propose remove", "propose add"):
        assert what in said, what
