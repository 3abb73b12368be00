"""What the log asks of a file system, and the real one. Tests put another in its place and cut its power."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from ordercast.wire.chunk import Buffer

_IOV_MAX = 1024


class File(Protocol):
    """A file that is appended to."""

    size: int

    def append(self, parts: Sequence[Buffer]) -> None:
        """All parts, one after the other, at the end; not durable before `sync`."""

    def sync(self) -> None: ...

    def read(self, at: int, size: int) -> bytes: ...

    def truncate(self, size: int) -> None: ...

    def close(self) -> None: ...


class Files(Protocol):
    """A directory."""

    def names(self) -> list[str]: ...

    def open(self, name: str, *, create: bool = False) -> File: ...

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, name: str) -> None: ...

    def sync(self) -> None:
        """The names are durable: what was made, renamed or removed."""

    def close(self) -> None: ...


class DiskFile:
    def __init__(self, path: Path, create: bool) -> None:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_TRUNC if create else 0)
        self._fd = os.open(path, flags, 0o644)
        self.size = os.fstat(self._fd).st_size

    def append(self, parts: Sequence[Buffer]) -> None:
        for group in _groups(parts):
            length = sum(map(len, group))
            done = os.pwritev(self._fd, group, self.size)
            while done < length:
                # A signal or a full disk ended the call early; the next one says which.
                rest = b"".join(group)[done:]
                done += os.pwrite(self._fd, rest, self.size + done)
            self.size += length

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def read(self, at: int, size: int) -> bytes:
        parts = []
        while size and (part := os.pread(self._fd, size, at)):
            parts.append(part)
            at, size = at + len(part), size - len(part)
        return b"".join(parts)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self.size = size

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


class DiskFiles:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def names(self) -> list[str]:
        return sorted(os.listdir(self.directory))

    def open(self, name: str, *, create: bool = False) -> DiskFile:
        return DiskFile(self.directory / name, create)

    def rename(self, old: str, new: str) -> None:
        os.rename(self.directory / old, self.directory / new)

    def remove(self, name: str) -> None:
        os.unlink(self.directory / name)

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def _groups(parts: Sequence[Buffer]) -> Iterator[Sequence[Buffer]]:
    for at in range(0, len(parts), _IOV_MAX):
        yield parts[at : at + _IOV_MAX]
