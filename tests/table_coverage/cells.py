"""Counts what the table's cells are asked, and tells which kind each is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import wraps

from ordercast.engine.totem import table
from ordercast.engine.totem.state import Event, Handler, Phase, State
from ordercast.sim import run_seed
from ordercast.sim.scenario import load_scenario, run_scenario, scenario_names

from .ends import reach_the_ends

Cell = tuple[Phase, Event]


def kind(cell: Cell) -> str:
    """`handled`, `ignored` or `impossible`: the makers of the last two give their functions these names."""
    handler = table.TABLE[cell[0]][cell[1]]
    return {"ignore": "ignored", "refuse": "impossible"}.get(handler.__name__, "handled")


def why(cell: Cell) -> str:
    return (table.TABLE[cell[0]][cell[1]].__doc__ or "").split("\n")[0]


@contextmanager
def counted() -> Iterator[Counter[Cell]]:
    """Within it every engine that is made counts the events that reach each cell."""
    counts: Counter[Cell] = Counter()
    saved = {phase: dict(cells) for phase, cells in table.TABLE.items()}
    for phase, cells in table.TABLE.items():
        for event in Event:
            cells[event] = _counting(cells[event], (phase, event), counts)
    try:
        yield counts
    finally:
        for phase, handlers in saved.items():
            table.TABLE[phase].update(handlers)


def _counting(handler: Handler, cell: Cell, counts: Counter[Cell]) -> Handler:
    @wraps(handler)
    def count(s: State, event: object) -> None:
        counts[cell] += 1
        handler(s, event)

    return count


def reach(seeds: Iterable[int], *, scenarios: bool = True) -> Counter[Cell]:
    """Runs seeds and scenarios and gives the counts. The traces are not judged here."""
    with counted() as counts:
        for seed in seeds:
            run_seed("totem", seed, check=False)
        for name in scenario_names() if scenarios else ():
            run_scenario(load_scenario(name))
        if scenarios:
            late = [phase for phase in (Phase.RECOVERY, Phase.OPERATIONAL) if kind((phase, Event.WRITTEN)) == "ignored"]
            reach_the_ends(late)
    return counts


def wrong(counts: Counter[Cell]) -> tuple[list[Cell], list[Cell]]:
    """Cells that were not reached and are not `impossible`, and such that are and were."""
    cells = [(phase, event) for phase in Phase for event in Event]
    unreached = [cell for cell in cells if not counts[cell] and kind(cell) != "impossible"]
    refuted = [cell for cell in cells if counts[cell] and kind(cell) == "impossible"]
    return unreached, refuted
