"""A file system in memory for the durable logs of simulated nodes, and what a power cut leaves of it.

What was synced is there. Of what was not, each file keeps nothing, all, a torn beginning, or later parts without the
earlier ones; a name that was not synced may be there or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ordercast.wire.chunk import Buffer


class Blob:
    """The bytes of a file: those that are synced, and the appends since then."""

    __slots__ = ("appended", "size", "synced")

    def __init__(self, synced: bytes = b"") -> None:
        self.synced = synced
        self.appended: list[bytes] = []
        self.size = len(synced)

    @property
    def data(self) -> bytes:
        return b"".join((self.synced, *self.appended))

    def sync(self) -> None:
        self.synced, self.appended = self.data, []

    def after_power_cut(self, rng: Random) -> Blob:
        if not self.appended:
            return Blob(self.synced)
        kind = rng.random()
        if kind < 0.35:
            return Blob(self.synced)
        if kind < 0.6:
            return Blob(self.data)
        if kind < 0.85 or len(self.appended) < 2:
            data = self.data
            return Blob(data[: rng.randint(len(self.synced), len(data))])
        hole = sum(map(len, self.appended[:-1]))
        return Blob(self.synced + bytes(hole) + self.appended[-1])


class MemoryFile:
    def __init__(self, blob: Blob) -> None:
        self._blob = blob

    @property
    def size(self) -> int:
        return self._blob.size

    @size.setter
    def size(self, _: int) -> None:
        raise AttributeError("the size of a file follows from what was appended")

    def append(self, parts: Sequence[Buffer]) -> None:
        data = b"".join(parts)
        self._blob.appended.append(data)
        self._blob.size += len(data)

    def sync(self) -> None:
        self._blob.sync()

    def read(self, at: int, size: int) -> bytes:
        return self._blob.data[at : at + size]

    def truncate(self, size: int) -> None:
        self._blob.synced, self._blob.appended, self._blob.size = self._blob.data[:size], [], size

    def close(self) -> None:
        """Nothing is held open."""


class MemoryFiles:
    """One directory."""

    def __init__(self) -> None:
        self.blobs: dict[str, Blob] = {}
        self.synced_blobs: dict[str, Blob] = {}

    def names(self) -> list[str]:
        return sorted(self.blobs)

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        if create:
            self.blobs[name] = Blob()
        return MemoryFile(self.blobs[name])

    def rename(self, old: str, new: str) -> None:
        self.blobs[new] = self.blobs.pop(old)

    def remove(self, name: str) -> None:
        del self.blobs[name]

    def sync(self) -> None:
        self.synced_blobs = dict(self.blobs)

    def close(self) -> None:
        """Nothing is held open."""

    def power_cut(self, rng: Random) -> None:
        names = self.blobs if rng.random() < 0.5 else self.synced_blobs
        self.blobs = {name: blob.after_power_cut(rng) for name, blob in names.items()}
        self.synced_blobs = dict(self.blobs)
