"""Stable storage of an engine: a few small records under `data_dir`, each written atomically.

A record is written to a temporary file, synced, renamed over the old one, and the directory is synced. A record that
is torn or empty all the same is handed to the engine as it stands: it can tell, and falls back on the other.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ordercast.errors import GroupError

_SUFFIX = ".record"


class Storage:
    """The records of one member. One process at a time may have them open."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._directory_fd = self._lock_fd = -1
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise GroupError(f"data_dir {directory}: {error.strerror}") from None
        try:
            self._lock_fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self.close()
            raise GroupError(f"data_dir {directory}: {error.strerror}") from None
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            why = "in use by another member" if isinstance(error, BlockingIOError) else str(error.strerror)
            raise GroupError(f"data_dir {directory}: {why}") from None

    def load(self) -> dict[str, bytes]:
        try:
            return {path.name.removesuffix(_SUFFIX): path.read_bytes() for path in self.directory.glob(f"*{_SUFFIX}")}
        except OSError as error:
            raise GroupError(f"data_dir {self.directory}: {error.strerror}") from None

    def write(self, key: str, record: bytes) -> None:
        """Returns when the record is durable. Any error is final: what is on disk is not known then."""
        path = self.directory / f"{key}{_SUFFIX}"
        temporary = self.directory / f"{key}.tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            view = memoryview(record)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
        os.fsync(self._directory_fd)

    def close(self) -> None:
        for fd in (self._directory_fd, self._lock_fd):
            if fd >= 0:
                os.close(fd)
        self._directory_fd = self._lock_fd = -1
