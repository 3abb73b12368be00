"""A file system whose power can be cut before any of its calls, and what may be on the disk after that.

Every call that changes something is a boundary. `survivors` yields the states that a disk can be in after the power
fails at one: what was synced is there; of what was not, nothing, all, a torn part, or later parts without earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


class PowerCut(Exception):
    pass


@dataclass
class Blob:
    """The bytes of a file: those that are synced, and the appends since then."""

    synced: bytes = b""
    appended: list[bytes] = field(default_factory=list)

    @property
    def data(self) -> bytes:
        return self.synced + b"".join(self.appended)


class Disk:
    """All that outlives a process: names as they are, names as they were synced, and calls so far."""

    def __init__(self) -> None:
        self.names: dict[str, Blob] = {}
        self.synced_names: dict[str, Blob] = {}
        self.calls = 0
        self.cut_at: int | None = None
        self.fail_sync_at: int | None = None

    def step(self) -> None:
        if self.calls == self.cut_at:
            raise PowerCut
        self.calls += 1

    @classmethod
    def of(cls, files: dict[str, bytes]) -> Disk:
        disk = cls()
        disk.names = {name: Blob(data) for name, data in files.items()}
        disk.synced_names = dict(disk.names)
        return disk

    def survivors(self) -> Iterator[dict[str, bytes]]:
        for names in (self.synced_names, self.names):
            for keep in (_nothing, _all, _torn, _late):
                yield {name: keep(blob) for name, blob in names.items()}


def _nothing(blob: Blob) -> bytes:
    return blob.synced


def _all(blob: Blob) -> bytes:
    return blob.data


def _torn(blob: Blob) -> bytes:
    size = sum(map(len, blob.appended))
    return blob.data[: len(blob.synced) + size * 2 // 3]


def _late(blob: Blob) -> bytes:
    """The last append has reached the disk, those before it have not: zeros, or what the blocks held before."""
    if len(blob.appended) < 2:
        return blob.synced
    hole = sum(map(len, blob.appended[:-1]))
    return blob.synced + bytes(hole) + blob.appended[-1]


class MemoryFile:
    def __init__(self, disk: Disk, blob: Blob) -> None:
        self._disk, self._blob = disk, blob
        self.size = len(blob.data)

    def append(self, parts: Sequence[bytes | memoryview]) -> None:
        self._disk.step()
        self._blob.appended.append(b"".join(parts))
        self.size = len(self._blob.data)

    def sync(self) -> None:
        self._disk.step()
        if self._disk.fail_sync_at == self._disk.calls:
            raise OSError(5, "Input/output error")
        self._blob.synced, self._blob.appended = self._blob.data, []

    def read(self, at: int, size: int) -> bytes:
        return self._blob.data[at : at + size]

    def truncate(self, size: int) -> None:
        self._disk.step()
        self._blob.synced, self._blob.appended = self._blob.data[:size], []
        self.size = size

    def close(self) -> None:
        pass


class MemoryFiles:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def names(self) -> list[str]:
        return sorted(self._disk.names)

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        if create:
            self._disk.step()
            self._disk.names[name] = Blob()
        return MemoryFile(self._disk, self._disk.names[name])

    def rename(self, old: str, new: str) -> None:
        self._disk.step()
        self._disk.names[new] = self._disk.names.pop(old)

    def remove(self, name: str) -> None:
        self._disk.step()
        del self._disk.names[name]

    def sync(self) -> None:
        self._disk.step()
        self._disk.synced_names = dict(self._disk.names)

    def close(self) -> None:
        pass
