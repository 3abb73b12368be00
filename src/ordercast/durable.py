"""The durable side of a membership: ordered messages with their offsets, replay, and how far own messages have come.

A group with the engine corel keeps its messages in the log; so its readers need no memory of their own. While the
application keeps up it gets messages as they are ordered. When it does not, and at the beginning with `start`, there
is a `Gap` in the stream instead: a stretch of offsets that the reader takes from the log in its own time. Nobody waits
for a slow reader, and nothing is skipped.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import sub
from pathlib import Path
from typing import NamedTuple

from ordercast.corel import Corel, CorelConfig
from ordercast.corel.regular import change_submission
from ordercast.corel_trace import CorelTrace
from ordercast.engine.assemble import Batch as Columns
from ordercast.engine.contract import (
    Component,
    DurableEngine,
    Engine,
    GroupChange,
    NetworkedEngine,
    Ordered,
    Progress,
    Restored,
    Stored,
)
from ordercast.errors import GroupError
from ordercast.events import Batch, BatchEvent, Snapshot, View
from ordercast.log import LogBatch, LogReader, LogWriter
from ordercast.log import Retention as LogRetention
from ordercast.log.files import DiskFiles
from ordercast.net.driver import READER_MESSAGE_BYTES
from ordercast.net.log_disk import LogDisk
from ordercast.net.recorder import Recorder
from ordercast.stream import Done, Gap, Reader, Stream, StreamEnd, cost_of
from ordercast.wire.chunk import Chunk
from ordercast.wire.ids import NO_NODE, NodeId, Service
from ordercast.wire.layout import WireError
from ordercast.wire.totem import check_name

UNREAD_BYTES_MAX = 32 * 2**20
"""Bytes of messages that wait for the application before the rest is left to be read from the log."""

NEVER_FOUNDS = 2**31
"""More founders than any group has: a member that only joins."""

WEIGHT_MAX = 1000
"""Of a member of the declared group."""

__all__ = [
    "Durable",
    "Retention",
    "change_submission",
    "check_change",
    "check_retention",
    "open_durable",
    "parse_change",
]


class DurableStream(Stream):
    """The driver's sink in a group with a durable log."""

    def __init__(self, networks: Sequence[str], name: NodeId, life: int, green: int, start: int) -> None:
        super().__init__(networks)
        self.name = name
        self.life = life
        self.lock = threading.Lock()
        """Held while a gap grows, or ends."""
        self.taken_in = 0
        """Bytes of messages that went to the application directly, which counts them in `bytes_out`."""
        self.primary = 0
        """The number of the primary component that this member is in, or 0."""
        self.ordered_to = green
        self.start = start
        """Messages before it are not wanted."""
        if start < green:
            self.items.append(Gap(start, green))

    # What the driver tells

    def ordered(self, effect: Ordered) -> None:
        offset = effect.offset
        for raw in effect.chunks:
            chunk = Chunk(raw)
            batch = LogBatch(chunk, offset)
            offset = batch.end
            size = chunk.data_bytes + chunk.key_bytes + chunk.header_bytes
            self.bytes_in += size + READER_MESSAGE_BYTES * chunk.count
            self.messages_in += chunk.count
            if chunk.sender == self.name and chunk.life == self.life:
                self._own(Done(chunk.count, batch.view_id, chunk.number + chunk.count - 1, False, offset - 1))
            if offset > self.start and not chunk.change:
                self._staged.append(
                    make_batch(batch if batch.offset >= self.start else batch.slice(self.start, offset))
                )
        self.ordered_to = offset

    def _own(self, done: Done) -> None:
        self.own += done.messages
        self._staged_done.append(done)

    def component(self, component: Component) -> None:
        old, view = self.current, component.view
        before = () if old is None else old.members
        joined = tuple(name for name in view.members if name not in before)
        left = tuple(name for name in before if name not in view.members)
        self.primary = component.number
        self._staged.append(View(view.id, tuple(view.members), joined, left, component.number > 0))
        self.current = view
        self.members_most = max(self.members_most, len(view.members))

    def progress(self, progress: Progress) -> None:
        self.progress_now = progress
        self.moved = self.watched > 0

    def restored(self, effect: Restored) -> None:
        self._staged.append(Snapshot(effect.offset, effect.snapshot))
        self.ordered_to = effect.offset

    def publish(self) -> None:
        behind = self.progress_now.ordered - self.own
        if behind > 0:
            # Own messages that this member knows to be ordered from a snapshot alone.
            view = "" if self.current is None else self.current.id
            self._own(Done(behind, view, self.progress_now.ordered, False, None))
        with self.lock:
            self._spill()
        super().publish()

    def _spill(self) -> None:
        """Leaves to the log what the application has no room for."""
        gap = self.items[-1] if self.items else None
        kept: list[BatchEvent | Gap] = []
        for item in self._staged:
            if not isinstance(item, Batch):
                kept.append(item)
                gap = None
                continue
            assert item.offset is not None
            end = item.offset + len(item)
            if isinstance(gap, Gap) and gap.end <= item.offset:
                gap.end = end
            elif self.unread_bytes > UNREAD_BYTES_MAX:
                gap = Gap(item.offset, end)
                kept.append(gap)
            else:
                gap = None
                kept.append(item)
                self.taken_in += cost_of(item)
        self._staged[:] = kept

    @property
    def unread_bytes(self) -> int:
        return self.taken_in - self.bytes_out

    def reader_backlog(self) -> int:
        return 0


class DurableReader(Reader):
    """Takes gaps from the log."""

    def __init__(self, stream: DurableStream, directory: Path, latest: bool) -> None:
        super().__init__(stream)
        self._latest = latest
        self._durable = stream
        self._directory = directory
        self._log: LogReader | None = None
        self._batches: Iterator[LogBatch] | None = None

    def begin(self) -> None:
        """At the end of `join`: the first view is the group's, with all members as new; then messages from `start` on.

        With `latest` what was ordered so far is not shown.
        """
        latest = self._latest
        with self._durable.lock:
            items = self._durable.items
            seen: View | None = None
            kept: list[BatchEvent | Gap] = []
            while items and not isinstance(items[0], StreamEnd) and (latest or not isinstance(items[0], Batch)):
                item = items.popleft()
                if isinstance(item, View):
                    seen = item
                elif isinstance(item, Batch):
                    self._durable.bytes_out += cost_of(item)
                elif not isinstance(item, StreamEnd) and not (latest and isinstance(item, Gap)):
                    kept.append(item)
            items.extendleft(reversed(kept))
            if seen is not None:
                items.appendleft(View(seen.id, seen.members, seen.members, primary=seen.primary))

    def next_batch(self) -> BatchEvent | StreamEnd | None:
        items = self._durable.items
        while not self._messages and items and isinstance(items[0], Gap):
            batch = self._from_log(items[0])
            if batch is not None:
                return batch
        return super().next_batch()

    def _from_log(self, gap: Gap) -> Batch | None:
        """The next messages of a gap; None when it has come to its end."""
        while True:
            if self._batches is None:
                with self._durable.lock:
                    end = gap.end
                    if gap.start >= end:
                        self._durable.items.popleft()
                        return None
                if self._log is None:
                    self._log = LogReader(self._directory)
                self._log.extend(end)
                self._batches = self._log.read(gap.start, end)
            found = next(self._batches, None)
            if found is None:
                self._batches = None
                continue
            gap.start = found.end
            if not found.chunk.change:
                return make_batch(found)


def make_batch(found: LogBatch) -> Batch:
    """As the application gets it."""
    chunk = found.chunk
    columns: Columns
    if chunk.keys() is None and chunk.headers() is None:
        blob, offsets = found.data()
        ends = offsets.tolist()
        lengths = [*map(sub, ends[1:], ends)]
        columns = Columns(NO_NODE, _service(chunk), found.seq, found.stamp_us, lengths, bytes(blob[ends[0] : ends[-1]]))
    else:
        parts: list[bytes] = []
        key_lengths: list[int | None] = []
        header_lengths: list[int | None] = []
        lengths = []
        for key, headers, data in found.records():
            key_lengths.append(None if key is None else len(key))
            header_lengths.append(None if headers is None else len(headers))
            cell = b"".join((key or b"", headers or b"", data))
            lengths.append(len(cell))
            parts.append(cell)
        columns = Columns(NO_NODE, _service(chunk), found.seq, found.stamp_us, lengths, b"".join(parts))
        columns.key_lengths, columns.header_lengths = key_lengths, header_lengths
    return Batch(columns, found.sender, found.view_id, found.service, found.offset)


def _service(chunk: Chunk) -> Service:
    return Service.SAFE if chunk.safe else Service.AGREED


class Retention(NamedTuple):
    """What is removed from the log, a segment at a time from its beginning, when any of these is passed.

    A member that misses what was removed can only be brought up from a snapshot.
    """

    max_bytes: int | None = None
    max_age_s: float | None = None
    snapshots: bool = False
    """Messages before the last snapshot that the application has offered are not kept."""

    def limits(self, snapshot: int | None) -> LogRetention:
        age_us = None if self.max_age_s is None else int(self.max_age_s * 1_000_000)
        return LogRetention(self.max_bytes, age_us, snapshot if self.snapshots else None)


def check_retention(retention: Retention) -> None:
    for what, limit in (("bytes", retention.max_bytes), ("seconds", retention.max_age_s)):
        if limit is not None and not 0 <= limit < math.inf:
            raise GroupError(f"what is kept of the log is a number of {what}, not {limit}")


@dataclass
class Durable:
    """A member's log, the layer that orders by it, and what the application sees of both."""

    engine: DurableEngine
    disk: LogDisk
    stream: DurableStream
    reader: DurableReader
    retention: Retention | None
    books: CorelTrace | None

    def snapshot_at(self, offset: int) -> None:
        if self.retention is not None:
            self.disk.retention = self.retention.limits(offset)

    def status(self) -> dict[str, object]:
        """Lines, lag of each member, and what the disk has done."""
        found = dict(self.engine.status())
        progress = self.stream.progress_now
        return found | {
            "primary_number": self.stream.primary,
            "earliest": self.disk.earliest,
            "ordered": self.stream.ordered_to,
            "own": {"queued": progress.queued, "stable": progress.stable, "ordered": progress.ordered},
            "entries": self.disk.entries,
            "syncs": self.disk.syncs,
            "waiting_entries": self.disk.waiting,
        }


def open_durable(
    engine: Engine | NetworkedEngine,
    directory: Path,
    *,
    group: str,
    start: int | str | None,
    founders: int,
    sure: bool,
    retention: Retention | None,
    networks: Sequence[str],
    recorder: Recorder | None,
) -> Durable:
    """Opens the log, recovers what it holds, and puts the layer on top of an engine."""
    writer = LogWriter(DiskFiles(directory), group=group, member=engine.name)
    try:
        found = writer.recovered
        if found.state is None and not sure:
            raise GroupError(
                f"{directory} is new: say how many members found the group (min_members, or founders), "
                f"or founders=0 to be added to one that is there"
            )
        stored = Stored(
            found.earliest,
            found.green,
            found.yellow,
            found.state,
            found.vector,
            [chunk.raw for chunk in found.tail],
        )
        books = None if recorder is None else CorelTrace(recorder, directory, found)
        config = CorelConfig(founders=founders or NEVER_FOUNDS, traced=books is not None)
        layer = Corel(engine, config, stored, nonce=int.from_bytes(os.urandom(4), "little"))
        stream = DurableStream(
            networks, engine.name, layer.state.record.life, found.green, replay_from(start, found.earliest, found.green)
        )
    except BaseException:
        writer.close()
        raise
    limits = None if retention is None else retention.limits(None)
    disk = LogDisk(writer, directory, limits)
    reader = DurableReader(stream, directory, latest=start == "latest")
    return Durable(layer, disk, stream, reader, retention, books)


def check_change(change: GroupChange) -> None:
    """Refuses a change of the declared group that no member could carry out."""
    if not change.add and not change.remove:
        raise GroupError("a change of the declared group adds or removes somebody")
    for name in (*change.add, *change.remove):
        try:
            check_name(name)
        except WireError as error:
            raise GroupError(str(error)) from None
    for name, weight in change.add.items():
        if type(weight) is not int or not 1 <= weight <= WEIGHT_MAX:
            raise GroupError(f"the weight of {name} is a number from 1 to {WEIGHT_MAX}, not {weight!r}")


def parse_change(request: Mapping[str, object]) -> GroupChange:
    """What `ordercast members` asks for."""
    add, remove = request.get("add", {}), request.get("remove", [])
    if not isinstance(add, dict) or not isinstance(remove, list) or not all(isinstance(name, str) for name in remove):
        raise GroupError("a change of the declared group that cannot be read")
    return GroupChange(add, tuple(remove))


def replay_from(start: int | str | None, earliest: int, green: int) -> int:
    """The offset at which the application's stream begins."""
    if start is None or start == "latest":
        return green
    if start == "earliest":
        return earliest
    assert isinstance(start, int)
    if start < earliest:
        raise GroupError(f"offset {start} is no longer in the log, which begins with {earliest}")
    return start
