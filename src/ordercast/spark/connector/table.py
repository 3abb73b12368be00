"""The log as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from ordercast.errors import GroupError
from ordercast.spark.connector.columns import Rows
from ordercast.spark.connector.logs import Log, first_offset, not_removed, open_log, resolve
from ordercast.spark.connector.options import SourceOptions
from ordercast.spark.connector.parts import Between, OffsetRange, read_range, split


class TableReader(DataSourceReader):
    """`spark.read.format("ordercast")`. The ends are fixed when the query is planned."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._schema = schema
        self._options = options
        self._topic = open_log(options).group
        self._low = 0
        self._high: int | None = None
        self._times = Between()

    def partitions(self) -> list[InputPartition]:
        options = self._options
        log = open_log(options)
        start, end = max(first_offset(log, options), self._low), last_offset(log, options)
        closed = self._high is None
        if self._high is not None:
            end = min(end, self._high)
        if self._times.low_us is not None and not options.views:
            # A view may be later than the messages that stand before it.
            start = max(start, log.offset_of_time(self._times.low_us))
        if start > end:
            return []
        ranges = split(log, start, end, options.min_partitions) or [OffsetRange(start, end)]
        ranges[-1].closed = closed
        return [replace(part, times=self._times) for part in ranges]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_range(partition, self._options, Rows(self._schema, self._topic))


class PushingTableReader(TableReader):
    """Takes limits of offset and timestamp upon itself. Spark asks it only where its configuration allows it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for each in filters:
            if not self._take(each):
                yield each

    def _take(self, each: Filter) -> bool:
        match each:
            case GreaterThanOrEqual(("offset",), int(value)):
                self._low = max(self._low, value)
            case GreaterThan(("offset",), int(value)):
                self._low = max(self._low, value + 1)
            case LessThan(("offset",), int(value)):
                self._limit(value)
            case LessThanOrEqual(("offset",), int(value)):
                self._limit(value + 1)
            case EqualTo(("offset",), int(value)):
                self._low = max(self._low, value)
                self._limit(value + 1)
            case GreaterThanOrEqual(("timestamp",), datetime() as time):
                self._since(_microseconds(time))
            case GreaterThan(("timestamp",), datetime() as time):
                self._since(_microseconds(time) + 1)
            case LessThanOrEqual(("timestamp",), datetime() as time):
                self._until(_microseconds(time))
            case LessThan(("timestamp",), datetime() as time):
                self._until(_microseconds(time) - 1)
            case _:
                return False
        return True

    def _limit(self, end: int) -> None:
        self._high = end if self._high is None else min(self._high, end)

    def _since(self, low_us: int) -> None:
        times = self._times
        self._times = replace(times, low_us=low_us if times.low_us is None else max(times.low_us, low_us))

    def _until(self, high_us: int) -> None:
        times = self._times
        self._times = replace(times, high_us=high_us if times.high_us is None else min(times.high_us, high_us))


def last_offset(log: Log, options: SourceOptions) -> int:
    """One behind the last offset of a table."""
    if options.end_us is not None:
        return log.offset_of_time(options.end_us)
    end = resolve(log, options.end)
    if end > log.end:
        raise GroupError(f"option endingOffsets: {end} lies behind the end of the log, {log.end}")
    return not_removed(log, end, options.fail_on_data_loss)


def _microseconds(time: datetime) -> int:
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    delta = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
