"""The log as a stream."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ordercast.spark.connector.columns import Rows
from ordercast.spark.connector.logs import Log, first_offset, not_removed, open_log
from ordercast.spark.connector.options import SourceOptions
from ordercast.spark.connector.parts import read_range, split
from ordercast.spark.errors import SparkError

Offset = dict[str, dict[str, int]]
"""As Kafka's: {GROUP: {"0": OFFSET}}. Spark compares them as text, so there is one way to write each."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("ordercast")`. One of these lives beside the driver for as long as the query runs."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._schema = schema
        self._options = options
        self._topic = open_log(options).group
        self._target: int | None = None
        """Under Trigger.AvailableNow: where the log ended when the query began."""
        self._last_batch_s = time.monotonic()

    def initialOffset(self) -> Offset:
        return self._offset(first_offset(open_log(self._options), self._options))

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_rows is not None:
            return ReadMaxRows(options.max_rows)
        if options.min_rows is not None:
            return ReadMinRows(options.min_rows)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = open_log(self._options).end

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        log = open_log(self._options)
        begin = self._begin(log, start)
        end = log.end if self._target is None else max(begin, min(log.end, self._target))
        if isinstance(limit, ReadAllAvailable):
            return self._offset(end)
        minimum = self._options.min_rows
        if minimum is not None and self._target is None and end - begin < minimum and not self._is_overdue():
            return start
        self._last_batch_s = time.monotonic()
        if isinstance(limit, ReadMaxRows):
            # What retention has removed does not count: a batch of it alone would be empty.
            end = min(end, max(begin, log.earliest) + limit.max_rows)
        return self._offset(end)

    def reportLatestOffset(self) -> Offset:
        return self._offset(open_log(self._options).end)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        log = open_log(self._options)
        last = self._place(end)
        first = not_removed(log, self._place(start), self._options.fail_on_data_loss)
        if last > log.end:
            raise SparkError(
                f"offsets {log.end} to {last - 1} were in the log of '{self._topic}' once and are not now: "
                "it was cut off or replaced by another. Start with a new checkpoint"
            )
        return list(split(log, first, last, self._options.min_partitions)) if first < last else []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_range(partition, self._options, Rows(self._schema, self._topic))

    def _begin(self, log: Log, start: Offset) -> int:
        begin = self._place(start)
        if begin > log.end:
            raise SparkError(
                f"the checkpoint stands at offset {begin}, and the log of '{self._topic}' ends at {log.end}: "
                "it was cut off or replaced by another. Start with a new checkpoint"
            )
        return begin

    def _is_overdue(self) -> bool:
        return time.monotonic() - self._last_batch_s >= self._options.max_delay_s

    def _offset(self, place: int) -> Offset:
        return {self._topic: {"0": place}}

    def _place(self, offset: Offset) -> int:
        try:
            return offset[self._topic]["0"]
        except KeyError:
            raise SparkError(
                f"the checkpoint is of the group '{next(iter(offset), '')}', and the log of '{self._topic}'. "
                "Start with a new checkpoint"
            ) from None
