"""Ranges of offsets: what one task reads, and how."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from pyspark.sql.datasource import InputPartition

from ordercast.log import LogBatch, ViewRecord
from ordercast.log.reader import Part
from ordercast.serve.batches import without
from ordercast.spark.connector.columns import Rows
from ordercast.spark.connector.logs import Log, open_log
from ordercast.spark.connector.options import PARTITION_BYTES, SourceOptions


@dataclass(frozen=True)
class Between:
    """Sender's clocks, both included; None: no limit."""

    low_us: int | None = None
    high_us: int | None = None

    def holds(self, time_us: int) -> bool:
        return (self.low_us is None or time_us >= self.low_us) and (self.high_us is None or time_us <= self.high_us)


@dataclass
class OffsetRange(InputPartition):
    """From `start` up to but excluding `end`; with `closed` also the views that stand at `end`."""

    start: int
    end: int
    closed: bool = False
    times: Between = field(default_factory=Between)
    dead: tuple[tuple[int, int], ...] = ()
    """Copies of a sink's batches, which nobody is to see."""


def split(log: Log, start: int, end: int, at_least: int) -> list[OffsetRange]:
    """Ranges of about PARTITION_BYTES of the log, but `at_least` so many if there are as many messages."""
    ranges = [Part(*part) for part in log.parts(start, end, PARTITION_BYTES)]
    if len(ranges) < at_least and start < end:
        count = min(at_least, end - start)
        cuts = [start + (end - start) * number // count for number in range(count + 1)]
        ranges = [Part(low, high) for low, high in pairwise(cuts)]
    dead = log.dead
    return [
        OffsetRange(low, high, dead=tuple((first, end) for first, end in dead if first < high and end > low))
        for low, high in ranges
    ]


def read_range(part: InputPartition, options: SourceOptions, rows: Rows) -> Iterator[Any]:
    """The Arrow batches of a range. Runs on an executor."""
    if not isinstance(part, OffsetRange):
        return iter(())  # what Spark makes of an empty list of partitions
    log = open_log(options)
    batches = without(log.read(part.start, part.end), part.dead)
    items = _with_views(log, batches, part) if options.views else batches
    return rows.of(_within(items, part.times))


def _within(items: Iterable[LogBatch | ViewRecord] | Iterable[LogBatch], times: Between) -> Iterator[Any]:
    if times == Between():
        return iter(items)
    return (
        item for item in items if times.holds(item.time_us if isinstance(item, ViewRecord) else item.stamp_us)
    )  # fmt: skip


def _with_views(log: Log, batches: Iterable[LogBatch], part: OffsetRange) -> Iterator[LogBatch | ViewRecord]:
    """Messages and views in their order: a view stands before the message with its offset."""
    views = [view for view in log.views(part.start, part.end) if view.offset < part.end or part.closed]
    views.sort(key=lambda view: view.offset)
    views.reverse()
    for whole in batches:
        batch = whole
        while views and views[-1].offset < batch.end:
            view = views.pop()
            if view.offset > batch.offset:
                yield batch.slice(batch.offset, view.offset)
                batch = batch.slice(view.offset, batch.end)
            yield view
        yield batch
    while views:
        yield views.pop()
