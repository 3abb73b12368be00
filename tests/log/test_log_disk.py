"""The thread that has the log open: one sync for all that wait, in order; what it reads back; how it fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ordercast.engine.contract import Append, Component, Fetch, Kind, View
from ordercast.errors import GroupError
from ordercast.log import LogReader, LogWriter, Retention
from ordercast.log.files import DiskFiles
from ordercast.net.log_disk import LogDisk
from ordercast.wire.chunk import Buffer, Chunk
from ordercast.wire.ids import NodeId

from .disk import Disk, MemoryFiles
from .samples import look, numbered

DEADLINE_S = 60.0


class Told:
    """What the thread has said."""

    def __init__(self, disk: LogDisk) -> None:
        self.written: list[int] = []
        self.fetched: list[tuple[int, int, list[Chunk]]] = []
        self.trimmed: list[int] = []
        self.failed: list[GroupError] = []
        self._changed = threading.Condition()
        disk.on_written = lambda write_id: self._note(self.written, write_id)
        disk.on_fetched = self._on_fetched
        disk.on_trimmed = lambda earliest: self._note(self.trimmed, earliest)
        disk.on_failed = lambda error: self._note(self.failed, error)

    def _on_fetched(self, fetch_id: int, start: int, chunks: Sequence[Buffer]) -> None:
        self._note(self.fetched, (fetch_id, start, [Chunk(raw) for raw in chunks]))

    def _note(self, where: list[Any], what: object) -> None:
        with self._changed:
            where.append(what)
            self._changed.notify_all()

    def wait(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, DEADLINE_S)


def open_disk(directory: Path, retention: Retention | None = None) -> tuple[LogDisk, Told]:
    disk = LogDisk(LogWriter(DiskFiles(directory), segment_bytes=4096), directory, retention)
    return disk, Told(disk)


def test_what_waits_shares_one_sync_and_is_told_once(tmp_path: Path) -> None:
    disk, told = open_disk(tmp_path)
    for number in range(100):
        disk.put(Append(-1 - number, (numbered("n1", 1 + number, 1),), green=number))
    disk.start()
    told.wait(lambda: told.written == [-100])
    assert (disk.syncs, disk.entries) == (1, 100)
    disk.put(Append(-101, green=100))
    told.wait(lambda: told.written == [-100, -101])
    disk.put(Fetch(7, 40, 50))
    told.wait(lambda: bool(told.fetched))
    assert [(fetch, start) for fetch, start, _ in told.fetched] == [(7, 40)]
    assert [chunk.first for chunk in told.fetched[0][2]] == [41]
    disk.put(Fetch(8, 0, 2**20))
    told.wait(lambda: len(told.fetched) == 2)
    assert [chunk.first for chunk in told.fetched[1][2]] == [*range(1, 101)]
    disk.close()
    assert look(tmp_path).green == 100
    assert told.failed == []


def test_views_stand_at_the_green_line_and_a_log_begins_anew(tmp_path: Path) -> None:
    disk, told = open_disk(tmp_path)
    disk.start()
    disk.put(Append(-1, (numbered("n1", 1, 4),)))
    view = View(Kind.REGULAR, "4:n1", 4, (NodeId("n1"), NodeId("n2")))
    disk.put(Append(-2, green=4, component=Component(view, 3)))
    told.wait(lambda: -2 in told.written)
    (record,) = LogReader(tmp_path).views()
    assert (record.offset, record.id, record.members, record.primary, record.number) == (
        4, "4:n1", ("n1", "n2"), True, 3,
    )  # fmt: skip
    disk.put(Append(-3, (numbered("n2", 1, 2),), state=b"new", base=900, vector={"n1": 4}))
    disk.put(Append(-4, green=902))
    disk.put(Fetch(1, 900, 1))
    told.wait(lambda: bool(told.fetched))
    disk.close()
    found = look(tmp_path)
    assert (found.earliest, found.green, found.state, found.vector) == (900, 902, b"new", {"n1": 4, "n2": 2})


def test_retention_is_kept_and_told(tmp_path: Path) -> None:
    disk, told = open_disk(tmp_path, Retention(max_bytes=6000))
    disk.start()
    for number in range(40):
        disk.put(Append(-2 * number - 1, (numbered("n1", 1 + 10 * number, 10),)))
        disk.put(Append(-2 * number - 2, green=10 * number + 10))
        told.wait(lambda last=-2 * number - 2: last in told.written)  # type: ignore[misc]
        disk._retain_at = 0.0
    told.wait(lambda: bool(told.trimmed) and told.trimmed[-1] > 100)
    # What was removed is answered, and is no failure: who asks for it has been told where the log begins.
    disk.put(Fetch(1, 10, 100))
    told.wait(lambda: bool(told.fetched))
    assert told.fetched == [(1, 10, [])]
    disk.close()
    assert told.failed == []
    assert LogReader(tmp_path).earliest == told.trimmed[-1]


def test_a_failed_sync_is_told_once_and_nothing_is_called_written(tmp_path: Path) -> None:
    memory = Disk()
    disk = LogDisk(LogWriter(MemoryFiles(memory)), tmp_path)
    told = Told(disk)
    memory.fail_sync_at = memory.calls + 2
    for number in range(5):
        disk.put(Append(-1 - number, (numbered("n1", 1 + number, 1),)))
    disk.start()
    told.wait(lambda: bool(told.failed))
    disk.put(Append(-9, (numbered("n1", 9, 1),)))
    disk.close()
    assert "cannot be written" in str(told.failed[0])
    assert (told.written, len(told.failed)) == ([], 1)
