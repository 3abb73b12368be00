"""What a benchmark set's part of the page shows: objects that `ordercast bench --json` printed, wherever they lie."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ordercast.spark.errors import SparkError
from ordercast.spark.report.axis import Axis, number, span
from ordercast.spark.report.page import Section, figure, table
from ordercast.spark.report.plot import COLOURS, Plot, Series

_TOLD = (
    ("system", ""), ("engine", "totem"), ("hosts", "loopback"), ("mtu", 1500), ("service", "agreed"),
    ("networks", 1), ("replication", None), ("encrypt", False), ("loss", 0), ("take", "batches"), ("nodes", None),
)  # fmt: skip
"""What tells series apart, and what is usual: only the unusual stands in a series' name, and what differs."""
PLACES_MAX = 8
"""So many values of what was varied are all named on its axis."""
Run = dict[str, Any]


def read_results(paths: Iterable[Path]) -> list[Run]:
    """All measured runs in files of JSON, or in the folders of such; SparkError if there is none or one is not JSON."""
    found: list[Run] = []
    names = list(paths)
    for path in names:
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not files:
            raise SparkError(f"{path}: there is no file of JSON here")
        for file in files:
            found += list(_runs(_parsed(file), {}))
    if names and not found:
        places = ", ".join(map(str, names))
        raise SparkError(f"{places}: no results of `ordercast bench --json` (objects with delivered_per_s and size)")
    return found


def _parsed(file: Path) -> list[object]:
    """One JSON text, or one a line."""
    try:
        text = file.read_text()
        try:
            return [json.loads(text)]
        except ValueError:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SparkError(f"{file}: not JSON ({reason})") from None


def _runs(value: object, around: Run) -> Iterator[Run]:
    """Objects with a rate and a size, with what the objects around them say of them."""
    if isinstance(value, list):
        for each in value:
            yield from _runs(each, around)
    elif isinstance(value, dict):
        plain = {name: each for name, each in value.items() if not isinstance(each, list | dict)}
        known = {**around, **plain}
        if isinstance(value.get("delivered_per_s"), int | float) and isinstance(known.get("size"), int | float):
            yield {**around, **value}
            return
        for each in value.values():
            yield from _runs(each, known)


def bench_sections(runs: Sequence[Run]) -> Iterator[Section]:
    """Plots for what was varied; a table of everything."""
    if not runs:
        return
    found = Section("Benchmarks", f"{len(runs)} measured runs; rates are those of the slowest node.")
    saturated = [run for run in runs if not run.get("rate")]
    paced = [run for run in runs if run.get("rate") and _latency(run, "p50") is not None]
    size = ("size", "message size", lambda value: f"{value:,.0f} B")
    nodes = ("nodes", "nodes", lambda value: f"{value:g}")
    throughput = lambda run: run["delivered_per_s"]  # noqa: E731
    found.blocks += [
        _plot("Throughput against message size", saturated, size, throughput, "messages/s", number, True),
        _plot("Payload against message size", saturated, size, _payload, "payload, MB/s", number, False),
        _plot("Throughput against group size", saturated, nodes, throughput, "messages/s", number, False),
    ]
    load = ("load", "offered load, messages/s", number)
    with_load = [{**run, "load": run["rate"] * run.get("nodes", 1)} for run in paced]
    for share in ("p50", "p99"):
        y = f"latency {share}"
        value = lambda run, share=share: _latency(run, share)  # noqa: E731
        found.blocks.append(_plot(f"Latency ({share}) against load", with_load, load, value, y, _ms, True))
        found.blocks.append(_plot(f"Latency ({share}) against message size", paced, size, value, y, _ms, True))
    turning = [run for run in runs if run.get("rotations_per_s")]
    rotation = lambda run: 1000 / run["rotations_per_s"]  # noqa: E731
    for title, axis, some in (
        ("Rotation time against message size", size, [run for run in turning if not run.get("rate")]),
        ("Rotation time against group size", nodes, [run for run in turning if not run.get("rate")]),
        ("Rotation time against load", load, [run for run in with_load if run.get("rotations_per_s")]),
    ):
        found.blocks.append(_plot(title, some, axis, rotation, "token rotation", _ms, True))
    found.blocks.append(_table(runs))
    found.blocks = [block for block in found.blocks if block]
    yield found


def _plot(
    title: str, runs: Sequence[Run], x: tuple[str, str, Callable[[float], str]], value: Callable[[Run], float | None],
    label: str, write: Callable[[float], str], log: bool,
) -> str:  # fmt: skip
    """Empty if the runs do not vary in what the plot is over."""
    column, x_label, x_write = x
    lines: dict[str, dict[float, float]] = defaultdict(dict)
    names = _names(runs, column)
    for run, name in zip(runs, names, strict=True):
        y = value(run)
        if y is not None and y > 0 and run.get(column):
            lines[name][float(run[column])] = y
    lines = {name: points for name, points in lines.items() if len(points) > 1}
    if not lines:
        return ""
    xs = [at for points in lines.values() for at in points]
    ys = [y for points in lines.values() for y in points.values()]
    wide = max(xs) > 20 * min(xs)
    if wide:
        places = sorted(set(xs))
        x_axis = span(xs, x_label, x_write, log=True)
        if len(places) <= PLACES_MAX:
            x_axis = Axis(min(xs) * 0.85, max(xs) * 1.15, x_label, x_write, log=True, places=tuple(places))
    else:
        margin = (max(xs) - min(xs)) * 0.04
        x_axis = Axis(min(xs) - margin, max(xs) + margin, x_label, x_write)
    y_axis = span(ys, label, write, log=log and max(ys) > 5 * min(ys))
    series = [
        Series(name, sorted(points.items()), None if number < COLOURS else 0)
        for number, (name, points) in enumerate(sorted(lines.items()))
    ]
    return figure(title, Plot(x_axis, y_axis, series, dots=True))


def _names(runs: Sequence[Run], over: str) -> list[str]:
    """A name for each run by what tells it from the others, the plot's own axis aside."""
    told = [name for name, _ in _TOLD if name not in (over, *(("nodes",) if over == "load" else ()))]
    differing = [name for name in told if len({str(run.get(name)) for run in runs}) > 1]
    if over not in ("size",) and len({run.get("size") for run in runs}) > 1:
        differing.append("size")
    if over not in ("load",) and len({run.get("rate") or 0 for run in runs}) > 1:
        differing.append("rate")
    return [", ".join(filter(None, (_word(name, run.get(name)) for name in differing))) or _own(run) for run in runs]


def _word(name: str, value: object) -> str:
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return {"encrypt": "sealed"}.get(name, name) if value else ""
    units = {"nodes": "nodes", "networks": "networks", "mtu": "B MTU", "size": "B", "loss": "% loss", "rate": "/s each"}
    return f"{value} {units[name]}" if name in units else str(value)


def _own(run: Run) -> str:
    return str(run.get("system") or run.get("engine") or "ordercast")


def _payload(run: Run) -> float | None:
    found = run.get("mb_per_s")
    return float(run["delivered_per_s"] * run["size"] / 1e6 if found is None else found)


def _latency(run: Run, share: str) -> float | None:
    found = run.get("latency_ms")
    value = found.get(share) if isinstance(found, dict) else None
    return value if isinstance(value, int | float) else None


def _ms(value: float) -> str:
    if value >= 1000:
        return f"{number(value / 1000)} s"
    return f"{number(value)} ms" if value >= 0.9995 else f"{number(value * 1000)} µs"


def _table(runs: Sequence[Run]) -> str:
    def cell(value: float | None, write: Callable[[float], str]) -> str:
        return "–" if value is None else write(value)

    rows = [
        (_own(run), run.get("nodes", "–"), run["size"], run.get("service", "–"), run.get("hosts", "–"),
         cell(run.get("rate") or None, number), number(run["delivered_per_s"]), cell(_payload(run), number),
         cell(_latency(run, "p50"), _ms), cell(_latency(run, "p99"), _ms),
         cell(1000 / run["rotations_per_s"] if run.get("rotations_per_s") else None, _ms))
        for run in runs
    ]  # fmt: skip
    head = ("system", "nodes", "bytes", "service", "hosts", "rate each", "messages/s", "MB/s", "p50", "p99", "rotation")
    return table("All runs", head, rows)
