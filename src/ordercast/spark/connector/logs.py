"""Where rows come from: the log's files, or members that serve theirs. Both look alike to the readers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Protocol

from ordercast.errors import GroupError
from ordercast.log import LogBatch, LogReader, ViewRecord
from ordercast.log.reader import Part
from ordercast.serve.batches import load_batches
from ordercast.serve.client import Address, RemoteLog
from ordercast.spark.connector.options import EARLIEST, LATEST, SourceOptions
from ordercast.spark.errors import SparkError
from ordercast.wire.keys import GroupKey, GroupKeyError, load_key


class Log(Protocol):
    """The ordered log of a group."""

    @property
    def group(self) -> str: ...
    @property
    def earliest(self) -> int: ...
    @property
    def end(self) -> int: ...
    def refresh(self) -> int: ...
    def read(self, start: int, end: int | None = None) -> Iterator[LogBatch]: ...
    def views(self, start: int = 0, end: int | None = None) -> Iterator[ViewRecord]: ...
    def parts(self, start: int, end: int, target_bytes: int) -> list[Part]: ...
    def offset_of_time(self, time_us: int) -> int: ...
    @property
    def dead(self) -> list[tuple[int, int]]: ...


class FileLog(LogReader):
    """A log's folder."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self._batches = load_batches(self.directory.parent / "batches.json")

    @property
    def group(self) -> str:
        return self.meta.group

    @property
    def dead(self) -> list[tuple[int, int]]:
        """What copies of a sink's batches take."""
        self._batches.advance(self)
        return self._batches.dead


_open: dict[object, Log] = {}
"""Of this process: a Python worker serves many tasks, and opening a log reads its last segment."""


def open_log(options: SourceOptions) -> Log:
    """The log that the options name, as it is now."""
    place = options.path if options.servers == () else (options.servers, options.key, options.insecure)
    log = _open.get(place)
    if log is None:
        log = _open[place] = _open_anew(options)
    else:
        try:
            log.refresh()
        except GroupError:
            del _open[place]
            raise
    if options.subscribe is not None and log.group != options.subscribe:
        raise SparkError(f"option subscribe: the log is of the group '{log.group}', not of '{options.subscribe}'")
    return log


def _open_anew(options: SourceOptions) -> Log:
    if options.servers:
        return RemoteLog(options.servers, group_key(options.key, options.insecure, options.servers))
    assert options.path is not None
    path = options.path.removeprefix("file://")
    if not os.path.isdir(path):
        raise SparkError(f"option path: {path} is not a directory that this machine has")
    return FileLog(path)


def group_key(key: str | None, insecure: bool, servers: Sequence[Address]) -> GroupKey | None:
    """The group's secret. Off loopback there must be one, or it must be said that there is none."""
    if key is not None:
        if insecure:
            raise SparkError("the options key and insecure exclude each other")
        try:
            return load_key(key)
        except GroupKeyError as error:
            raise SparkError(f"option key: {error}") from None
    for host, _ in servers:
        if not insecure and host != "localhost" and not host.startswith("127."):
            raise SparkError(f"off loopback ({host}) a group needs a key: set the option key, or say insecure")
    return None


def resolve(log: Log, offset: int) -> int:
    """EARLIEST and LATEST are places in the log."""
    return log.earliest if offset == EARLIEST else log.end if offset == LATEST else offset


def first_offset(log: Log, options: SourceOptions) -> int:
    """Where reading begins. What is not there any more, or not yet, is lost data."""
    if options.start_us is not None:
        return log.offset_of_time(options.start_us)
    start = resolve(log, options.start)
    if start > log.end:
        if options.fail_on_data_loss:
            raise SparkError(
                f"option startingOffsets: {start} lies behind the end of the log, {log.end}. "
                "Begin earlier, or set failOnDataLoss to false"
            )
        return log.end
    return not_removed(log, start, options.fail_on_data_loss)


def not_removed(log: Log, start: int, fail: bool) -> int:
    """`start`, or the first offset that retention has left if that may be."""
    if start >= log.earliest:
        return start
    if fail:
        raise SparkError(
            f"offsets {start} to {log.earliest - 1} are no longer in the log of '{log.group}'. "
            "Begin with earliest, or set failOnDataLoss to false to skip them"
        )
    return log.earliest
