"""Bytes in and out for what corel multicasts and stores: little-endian integers, short texts, maps of text to number.

Everything comes from members of the group or from this process's own disk; a reader refuses what it cannot read with
`Malformed`, and never looks behind the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct

from ordercast.wire.layout import Malformed

_U32, _U64 = Struct("<I"), Struct("<Q")
COUNT_MAX = 2**20
"""Entries of a list or map: what a reader believes at most."""

Weights = tuple[tuple[str, int], ...]
"""Members with their weights, sorted by name."""


class Writer:
    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []

    def u32(self, number: int) -> None:
        self.parts.append(_U32.pack(number))

    def u64(self, number: int) -> None:
        self.parts.append(_U64.pack(number))

    def text(self, text: str) -> None:
        raw = text.encode()
        self.parts += (_U32.pack(len(raw)), raw)

    def blob(self, raw: bytes | memoryview) -> None:
        self.parts += (_U32.pack(len(raw)), raw)

    def numbers(self, mapping: Mapping[str, int]) -> None:
        """A map of text to number, in the order of the texts."""
        self.u32(len(mapping))
        for name in sorted(mapping):
            self.text(name)
            self.u64(mapping[name])

    def weights(self, members: Weights) -> None:
        self.u32(len(members))
        for name, weight in members:
            self.text(name)
            self.u64(weight)

    def blobs(self, blobs: Sequence[bytes | memoryview]) -> None:
        self.u32(len(blobs))
        for raw in blobs:
            self.blob(raw)

    def take(self) -> bytes:
        return b"".join(self.parts)


class Reader:
    __slots__ = ("at", "raw")

    def __init__(self, raw: bytes, at: int = 0) -> None:
        self.raw = raw
        self.at = at

    def _take(self, size: int) -> int:
        at = self.at
        if at + size > len(self.raw):
            raise Malformed(f"{size} bytes where {len(self.raw) - at} are left")
        self.at = at + size
        return at

    def u32(self) -> int:
        at = self._take(4)
        number: int = _U32.unpack_from(self.raw, at)[0]
        return number

    def u64(self) -> int:
        at = self._take(8)
        number: int = _U64.unpack_from(self.raw, at)[0]
        return number

    def count(self) -> int:
        count = self.u32()
        if count > COUNT_MAX:
            raise Malformed(f"{count} entries")
        return count

    def blob(self) -> bytes:
        size = self.u32()
        at = self._take(size)
        return self.raw[at : at + size]

    def text(self) -> str:
        try:
            return self.blob().decode()
        except UnicodeDecodeError:
            raise Malformed("a text that is none") from None

    def numbers(self) -> dict[str, int]:
        return {self.text(): self.u64() for _ in range(self.count())}

    def weights(self) -> Weights:
        return tuple((self.text(), self.u64()) for _ in range(self.count()))

    def blobs(self) -> list[bytes]:
        return [self.blob() for _ in range(self.count())]

    def end(self) -> None:
        if self.at != len(self.raw):
            raise Malformed(f"{len(self.raw) - self.at} bytes too many")
