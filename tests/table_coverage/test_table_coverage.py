"""A short form of `make coverage-table`: every cell is reached that can be, and none that cannot."""

from __future__ import annotations

from ordercast.engine.totem.state import Event, Phase
from ordercast.engine.totem.table import TABLE

from .cells import reach, wrong
from .ends import leave_amid_traffic, start_amid_traffic


def test_every_state_has_a_cell_for_every_event() -> None:
    assert set(TABLE) == set(Phase)
    assert all(set(cells) == set(Event) for cells in TABLE.values())


def test_seeds_and_scenarios_reach_every_cell_that_is_not_impossible() -> None:
    unreached, refuted = wrong(reach(range(40)))
    assert not unreached
    assert not refuted


def test_a_process_that_starts_or_has_left_answers_nothing() -> None:
    assert not start_amid_traffic()
    assert not leave_amid_traffic()
