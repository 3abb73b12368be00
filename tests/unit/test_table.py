"""The state × event table of the Totem engine is total, and every cell says what it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.engine.totem.state import Event, Phase, State, TotemConfig
from ordercast.engine.totem.table import TABLE, ignored, impossible, rows
from ordercast.wire.ids import NodeId

CELLS = [(phase, event) for phase in Phase for event in Event]


def _name(phase: Phase, event: Event) -> str:
    return TABLE[phase][event].__qualname__


@pytest.mark.parametrize("phase", Phase)
def test_every_state_has_a_cell_for_every_event(phase: Phase) -> None:
    assert set(TABLE[phase]) == set(Event)


def test_there_are_no_rows_but_those_of_the_states() -> None:
    assert set(TABLE) == set(Phase)


@pytest.mark.parametrize(("phase", "event"), CELLS)
def test_every_cell_is_a_handler_or_has_a_reason(phase: Phase, event: Event) -> None:
    handler = TABLE[phase][event]
    if "<locals>" in handler.__qualname__:
        assert handler.__qualname__ in ("ignored.<locals>.ignore", "impossible.<locals>.refuse")
        assert handler.__doc__
    else:
        assert handler.__module__.startswith("ordercast.engine.totem.")


def test_rows_are_the_table_in_the_order_of_the_events() -> None:
    assert {phase: dict(zip(Event, cells, strict=True)) for phase, cells in rows().items()} == TABLE


@given(st.sampled_from(CELLS))
def test_ignored_cells_change_nothing_and_impossible_ones_refuse(cell: tuple[Phase, Event]) -> None:
    handler = TABLE[cell[0]][cell[1]]
    state = State(NodeId("a"), TotemConfig(), 4, 0, rows())
    if _name(*cell) == "ignored.<locals>.ignore":
        handler(state, None)
        assert state.effects == []
    elif _name(*cell) == "impossible.<locals>.refuse":
        with pytest.raises(AssertionError, match="impossible"):
            handler(state, None)


def test_only_timers_are_impossible() -> None:
    timers = {event for event in Event if event.name.endswith("TIMEOUT")}
    assert {event for phase, event in CELLS if _name(phase, event).startswith("impossible")} <= timers


def test_reasons_are_kept() -> None:
    assert ignored("because").__doc__ == "because"
    assert impossible("never").__doc__ == "never"
