"""Whatever ends a log, refusal, failure or the end of the program, leaves no file of it open."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from ordercast.errors import GroupError, LogCorrupt
from ordercast.log import Entry, LogWriter
from ordercast.log.files import DiskFile, DiskFiles

from .samples import numbered


class FailingFiles(DiskFiles):
    """The call with this number fails, as on a full or dying disk; one to `begin_anew` counts like any other."""

    def __init__(self, directory: Path, fails_at: int) -> None:
        super().__init__(directory)
        self.left = fails_at

    def step(self) -> None:
        self.left -= 1
        if not self.left:
            raise OSError(5, "Input/output error")

    def open(self, name: str, *, create: bool = False) -> DiskFile:
        self.step()
        return FailingFile(self, self.directory / name, create)

    def rename(self, old: str, new: str) -> None:
        self.step()
        super().rename(old, new)

    def sync(self) -> None:
        self.step()
        super().sync()


class FailingFile(DiskFile):
    def __init__(self, files: FailingFiles, path: Path, create: bool) -> None:
        super().__init__(path, create)
        self.files = files

    def append(self, parts: object) -> None:
        self.files.step()
        super().append(parts)  # type: ignore[arg-type]

    def sync(self) -> None:
        self.files.step()
        super().sync()

    def read(self, at: int, size: int) -> bytes:
        self.files.step()
        return super().read(at, size)


def work(directory: Path, fails_at: int) -> int:
    """A life of a log, through several segments and a new beginning. Tells how many calls it took."""
    files = FailingFiles(directory, fails_at)
    with contextlib.suppress(GroupError):
        log = LogWriter(files, segment_bytes=4096)
        try:
            for number in range(12):
                log.append(Entry((numbered("n1", 1 + 10 * number, 10), numbered("n2", 1 + 10 * number, 10))))
                log.append(Entry(green=log.end - 10))
                log.commit()
            log.begin_anew(log.end, {}, Entry((numbered("n3", 1, 1),)))
        finally:
            with contextlib.suppress(GroupError, OSError):
                log.close()
    return -files.left


def open_files(directory: Path) -> list[str]:
    """What this process has open there; other tests' threads may close theirs meanwhile."""
    found = []
    for handle in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{handle}"))
    return [path for path in found if path.startswith(str(directory))]


def test_a_failure_of_any_call_leaves_no_file_open(tmp_path: Path) -> None:
    first = work(tmp_path / "0", 0)
    calls = first + work(tmp_path / "0", 0)
    assert calls > 60
    for fails_at in range(1, calls + 1):
        directory = tmp_path / str(fails_at)
        if fails_at > first:
            work(directory, 0)
        work(directory, fails_at - first if fails_at > first else fails_at)
        assert open_files(tmp_path) == [], f"when call {fails_at} fails"


def test_a_log_that_is_refused_leaves_no_file_open(tmp_path: Path) -> None:
    log = LogWriter(DiskFiles(tmp_path), group="g", member="n1", segment_bytes=4096)
    for number in range(20):
        log.append(Entry((numbered("n1", 1 + 10 * number, 10),)))
        log.append(Entry(green=log.end))
    log.close()
    with pytest.raises(GroupError, match="not of 'n2'"):
        LogWriter(DiskFiles(tmp_path), group="g", member="n2")
    first, *_, last = sorted(tmp_path.glob("*.seg"))
    for path, at in ((last, 200), (first, -32)):
        damaged = bytearray(path.read_bytes())
        damaged[at] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(LogCorrupt):
            LogWriter(DiskFiles(tmp_path), group="g", member="n1")
        assert open_files(tmp_path) == []
