"""Which cells of the engines' tables a run reaches.

An engine's table stands in a module of its own. While a table is watched, every engine that is made counts what its
cells are asked; nothing else about it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class CellTable:
    """One table of an engine, its cells called `table.phase.event`."""

    possible: Callable[[], frozenset[str]]
    """The cells that are not `impossible`."""
    watched: Callable[[dict[str, int]], AbstractContextManager[None]]
    """Within it the cells that are asked are counted there."""


def _totem_possible() -> frozenset[str]:
    from ordercast.engine.totem.table import TABLE

    # The makers of cells give their functions these names.
    cells = ((phase, event, handler) for phase, row in TABLE.items() for event, handler in row.items())
    return frozenset(_name("totem", phase, event) for phase, event, handler in cells if handler.__name__ != "refuse")


@contextmanager
def _totem_watched(counts: dict[str, int]) -> Iterator[None]:
    from ordercast.engine.totem.table import TABLE

    saved = {phase: dict(row) for phase, row in TABLE.items()}
    for phase, row in TABLE.items():
        for event, handler in row.items():
            row[event] = _counting(handler, _name("totem", phase, event), counts)
    try:
        yield
    finally:
        for phase, row in saved.items():
            TABLE[phase].update(row)


def _counting(handler: Callable[[Any, Any], None], cell: str, counts: dict[str, int]) -> Callable[[Any, Any], None]:
    def count(state: object, event: object) -> None:
        counts[cell] = counts.get(cell, 0) + 1
        handler(state, event)

    count.__name__, count.__doc__ = handler.__name__, handler.__doc__
    return count


class _Counting(dict[tuple[Enum, Enum], Any]):
    """A table that is asked for a cell and says what to do, counting."""

    def __init__(self, cells: Mapping[tuple[Enum, Enum], Any], table: str, counts: dict[str, int]) -> None:
        super().__init__(cells)
        self._names = {cell: _name(table, *cell) for cell in cells}
        self._counts = counts

    def __getitem__(self, cell: tuple[Enum, Enum]) -> Any:
        name = self._names[cell]
        self._counts[name] = self._counts.get(name, 0) + 1
        return super().__getitem__(cell)


def _corel_possible() -> frozenset[str]:
    from ordercast.corel.table import TABLE, Action

    return frozenset(_name("corel", *cell) for cell, action in TABLE.items() if action is not Action.IMPOSSIBLE)


@contextmanager
def _corel_watched(counts: dict[str, int]) -> Iterator[None]:
    # By its name as text: that the layer looks cells up in a table of its own is no part of its interface.
    layer: Any = import_module("ordercast.corel.layer")
    saved = layer.TABLE
    layer.TABLE = _Counting(saved, "corel", counts)
    try:
        yield
    finally:
        layer.TABLE = saved


def _name(table: str, phase: Enum, event: Enum) -> str:
    return f"{table}.{phase.name.lower()}.{event.name.lower()}"


TOTEM = CellTable(_totem_possible, _totem_watched)
COREL = CellTable(_corel_possible, _corel_watched)
