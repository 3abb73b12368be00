"""Writes the table of docs/corel.md, which message is handled in which phase, from the layer's own.

PYTHONPATH=src python tests/docs/corel_table.py
"""

from __future__ import annotations

from pathlib import Path

from ordercast.corel.messages import MessageKind
from ordercast.corel.table import PHASES, TABLE

PAGE = Path(__file__).parents[2] / "docs" / "corel.md"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"


def section() -> str:
    rows = [["message", *(phase.name for phase in PHASES)], ["---"] * (len(PHASES) + 1)]
    rows += [[kind.name, *(TABLE[phase, kind].value for phase in PHASES)] for kind in MessageKind]
    return BEGIN + "\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows) + "\n" + END


def rewritten(page: str) -> str:
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"{PAGE} has lost the mark before its table"
    assert end, f"{PAGE} has lost the mark behind its table"
    return before + section() + after


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))
