"""The thread that has a member's durable log open: appends with one sync for all that wait, fetches, retention.

The driver puts `Append` and `Fetch` effects in, in their order, and is told what is durable and what was read. While a
sync is under way entries pile up; the next sync takes all of them (group commit), so that a slow disk makes groups
larger, not the queue longer. The first failure is final: what is on disk is not known then.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from ordercast.engine.contract import Append, Fetch
from ordercast.errors import GroupError, LogCorrupt
from ordercast.log import Entry, LogReader, LogWriter, Retention, ViewRecord
from ordercast.wire.chunk import Buffer

RETAIN_INTERVAL_S = 5.0
"""How often segments are looked at for what may be removed."""


class LogDisk(threading.Thread):
    """Hosts one log. The callbacks are called in this thread, one at a time."""

    def __init__(self, writer: LogWriter, directory: Path, retention: Retention | None = None) -> None:
        super().__init__(name=f"ordercast log {directory}", daemon=True)
        self.on_written: Callable[[int], None] = lambda write_id: None
        self.on_fetched: Callable[[int, int, Sequence[Buffer]], None] = lambda fetch_id, start, chunks: None
        self.on_trimmed: Callable[[int], None] = lambda earliest: None
        self.on_failed: Callable[[GroupError], None] = lambda error: None
        self.retention = retention
        """May be replaced at any time."""
        self.syncs = self.entries = 0
        self._writer = writer
        self._directory = directory
        self._reader: LogReader | None = None
        self._changed = threading.Condition()
        self._jobs: deque[Append | Fetch] = deque()
        self._closing = False
        self._pid = os.getpid()
        self._retain_at = 0.0

    @property
    def recovered(self) -> object:
        return self._writer.recovered

    @property
    def earliest(self) -> int:
        return self._writer.earliest

    @property
    def waiting(self) -> int:
        """Entries that no sync has taken yet."""
        return len(self._jobs)

    def put(self, effect: Append | Fetch) -> None:
        with self._changed:
            self._jobs.append(effect)
            self._changed.notify()

    def close(self) -> None:
        """Everything that was put in is durable when this returns, unless the log has failed."""
        if os.getpid() != self._pid:
            return  # a forked child: the log is its parent's
        if self.ident is None:
            self._writer.close()
            return
        with self._changed:
            self._closing = True
            self._changed.notify()
        self.join()

    def run(self) -> None:
        try:
            while jobs := self._take():
                self._work(jobs)
            self._writer.close()
        except (GroupError, OSError, ValueError) as error:
            failure = error if isinstance(error, GroupError) else GroupError(f"the durable log has failed: {error}")
            self.on_failed(failure)
            self._abandon()

    def _abandon(self) -> None:
        """The log is left as it is on disk; what this process thought of it counts for nothing any more."""
        self._writer.broken = self._writer.broken or OSError("closed after a failure")
        self._writer.close()

    def _take(self) -> list[Append | Fetch]:
        with self._changed:
            while not self._jobs and not self._closing:
                self._changed.wait(RETAIN_INTERVAL_S)
                if not self._jobs:
                    self._retain()
            jobs = [*self._jobs]
            self._jobs.clear()
        return jobs

    def _work(self, jobs: Sequence[Append | Fetch]) -> None:
        last: int | None = None
        for job in jobs:
            if isinstance(job, Append):
                self._append(job)
                last = job.write_id
                self.entries += 1
        if last is not None:
            self._writer.commit()
            self.syncs += 1
            self.on_written(last)
        for job in jobs:
            if isinstance(job, Fetch):
                self.on_fetched(job.fetch_id, job.start, self._fetch(job))
        self._retain()

    def _append(self, job: Append) -> None:
        view: ViewRecord | None = None
        if job.component is not None:
            green = self._writer.green if job.green is None else job.green
            seen = job.component.view
            view = ViewRecord(
                max(green, job.base or 0), seen.id, tuple(seen.members), job.component.number > 0,
                job.component.number, time.time_ns() // 1000,
            )  # fmt: skip
        entry = Entry(tuple(job.chunks), job.rewind, job.green, job.yellow, job.state, view)
        if job.base is None:
            self._writer.append(entry)
        else:
            self._writer.begin_anew(job.base, job.vector or {}, entry)
            self._reader = None

    def _fetch(self, job: Fetch) -> list[Buffer]:
        if job.start < self._writer.earliest:
            return []
        if self._reader is None:
            self._reader = LogReader(self._directory)
        self._reader.refresh()
        chunks: list[Buffer] = []
        size = 0
        for batch in self._reader.read(job.start):
            if batch.offset == job.start or chunks:
                chunks.append(batch.chunk.raw)
                size += len(batch.chunk.raw)
            if size >= job.limit_bytes:
                break
        if not chunks:
            raise LogCorrupt(f"{self._directory}: nothing is to be read at offset {job.start}")
        return chunks

    def _retain(self) -> None:
        now = time.monotonic()
        if self.retention is None or now < self._retain_at:
            return
        self._retain_at = now + RETAIN_INTERVAL_S
        if self._writer.retain(self.retention, time.time_ns() // 1000):
            self._reader = None
            self.on_trimmed(self._writer.earliest)
