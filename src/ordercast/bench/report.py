"""Repeated runs as one result: medians, and how far the runs lie apart."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Iterable, Sequence
from typing import Any


def summarize(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The median of each figure over the runs; `spread_percent` is of the first one, lowest to highest."""
    first = next(iter(runs[0]))
    values = [run[first] for run in runs]
    middle = statistics.median(values)
    summary = {name: _median([run[name] for run in runs]) for name in runs[0]}
    return summary | {
        "runs": list(runs),
        "spread_percent": round(100 * (max(values) - min(values)) / middle, 1) if middle else 0.0,
    }


def _median(values: Sequence[Any]) -> Any:
    if isinstance(values[0], dict):
        return {name: _median([value[name] for value in values]) for name in values[0]}
    known = [value for value in values if value is not None]
    if not known:
        return None
    middle = statistics.median(known)
    return round(middle) if all(isinstance(value, int) for value in known) else round(middle, 3)


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    return {
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "taken": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns under their names: texts to the left, numbers to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(line[column]) for line in [list(head), *cells]) for column in range(len(head))]
    lines = []
    for line in [list(head), *cells]:
        padded = [
            cell.ljust(width) if not at else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
