"""Writes the state × event table of docs/totem.md from the engine's dispatch table.

    PYTHONPATH=src python tests/docs/state_table.py

`test_drift.py` compares the page with what this would write.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ordercast.engine.totem.state import Event, Handler, Phase
from ordercast.engine.totem.table import TABLE

PAGE = Path(__file__).parents[2] / "docs" / "totem.md"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"
PARTS = (
    (Phase.OPERATIONAL, Phase.GATHER, Phase.COMMIT, Phase.RECOVERY),
    (Phase.STARTING, Phase.STOPPED),
)
KINDS = {"ignored.<locals>.ignore": "ignored", "impossible.<locals>.refuse": "impossible"}


def cell(handler: Handler) -> str:
    """The handler's name, or why there is none."""
    kind = KINDS.get(handler.__qualname__)
    if kind is not None:
        assert handler.__doc__, "a cell without a handler gives its reason"
        return f"*{kind}*: {handler.__doc__}"
    return f"`{handler.__module__.rpartition('.')[2]}.{handler.__name__}`"


def table(phases: Sequence[Phase]) -> str:
    rows = [["event", *(phase.name for phase in phases)], ["---"] * (len(phases) + 1)]
    rows += [[event.name, *(cell(TABLE[phase][event]) for phase in phases)] for event in Event]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def section() -> str:
    return BEGIN + "\n" + "\n".join(table(phases) for phases in PARTS) + "\n" + END


def rewritten(page: str) -> str:
    """The page with the table as the engine has it."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"{PAGE} has lost the mark before its table"
    assert end, f"{PAGE} has lost the mark behind its table"
    return before + section() + after


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))
