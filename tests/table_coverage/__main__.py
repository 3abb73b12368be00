"""`python -m tests.table_coverage`: how often seeds and scenarios reach each cell of Totem's state × event table.

Status 1 if a cell that is not `impossible` is never reached, or one that is.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from ordercast.engine.totem.state import Event, Phase

from .cells import Cell, kind, reach, why, wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.table_coverage", description=__doc__)
    parser.add_argument("--seeds", metavar="[FIRST:]LAST", default="300", help="which seeds to run (0:300)")
    parser.add_argument("--no-scenarios", action="store_true", help="seeds alone")
    parser.add_argument("--why", action="store_true", help="say of each cell why, or what it does")
    args = parser.parse_args()
    first, _, last = args.seeds.rpartition(":")
    counts = reach(range(int(first or 0), int(last)), scenarios=not args.no_scenarios)
    show(counts)
    if args.why:
        for phase in Phase:
            for event in Event:
                print(f"{phase.name:12}{event.name:30}{kind((phase, event)):12}{why((phase, event))}")
    unreached, refuted = wrong(counts)
    for said, cells in (("never reached", unreached), ("reached, though impossible", refuted)):
        for cell in cells:
            print(f"{said}: {cell[0].name} × {cell[1].name} ({kind(cell)}: {why(cell)})")
    return 1 if unreached or refuted else 0


def show(counts: Counter[Cell]) -> None:
    print(f"{'':30}" + "".join(f"{phase.name.lower():>19}" for phase in Phase))
    for event in Event:
        cells = [(phase, event) for phase in Phase]
        print(f"{event.name.lower():30}" + "".join(f"{_short(cell, counts[cell]):>19}" for cell in cells))


def _short(cell: Cell, count: int) -> str:
    return "impossible" if kind(cell) == "impossible" and not count else f"{kind(cell)} {count}"


if __name__ == "__main__":
    sys.exit(main())
