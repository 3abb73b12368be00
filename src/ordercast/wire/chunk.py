"""The chunk: consecutive messages of one sender as columns, the form in which the ordered log keeps them.

A chunk is what one sender multicast together; it is ordered, stored and retransmitted as a whole. Its columns are
Arrow's: 32-bit offsets that begin with 0, then the bytes, so that a chunk becomes an Arrow batch in place.

Layout, little-endian; every column begins at a multiple of 8 bytes from the beginning of the chunk:

    bytes  field
    0      chunk bytes            u32   all of it, padding included
    4      flags                  u16   SAFE = 1, KEYS = 2, HEADERS = 4, CHANGE = 8
    6      sender bytes           u8    length of the sender's name
    7      view bytes             u8    length of the view's identifier
    8      first                  u64   life × 2⁴⁰ + the sender's number of the first message, gap-free in each life
    16     stamp                  u64   the sender's wall clock in µs
    24     count                  u32   messages
    28     data bytes             u32
    32     key bytes              u32
    36     header bytes           u32
    40     view number            u64   ┐ the transport's place of the chunk: with the view's identifier as the
    48     view index             u64   ┘ last word it is the chunk's timestamp, unique, and kept for ever
    56     sender, view           text
           data offsets           (count + 1) × i32
           data
           key validity           bits, lowest first, with KEYS
           key offsets            (count + 1) × i32, with KEYS
           keys                   with KEYS
           header validity, header offsets, headers: likewise, with HEADERS
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntFlag
from itertools import accumulate
from struct import Struct, pack
from typing import NamedTuple

from ordercast.wire.ids import NAME_BYTES_MAX
from ordercast.wire.layout import SEQ_MAX, Malformed, Truncated

HEAD = Struct("<IHBBQQIIIIQQ")
HEAD_BYTES = HEAD.size
CHUNK_MESSAGES_MAX = 2**24
CHUNK_BYTES_MAX = 2**28
"""A chunk holds at least one message, of whatever size the group accepts, and never more than this."""
VIEW_BYTES_MAX = 255
LIFE_SHIFT = 40
"""The bits of `first` that number the messages of one life; above them stands the life, below `LIVES_MAX`."""
LIVES_MAX = SEQ_MAX >> LIFE_SHIFT
_NUMBER_MASK = (1 << LIFE_SHIFT) - 1

Buffer = bytes | memoryview


class ChunkFlag(IntFlag):
    SAFE = 1
    KEYS = 2
    HEADERS = 4
    CHANGE = 8
    """One message that changes the declared group when it is ordered."""


_KEYS, _HEADERS = int(ChunkFlag.KEYS), int(ChunkFlag.HEADERS)
_ALL = int(sum(ChunkFlag))


class Stamp(NamedTuple):
    """The transport's place of a chunk (the paper's TS). It orders chunks and never goes against causality."""

    number: int
    view: str
    nth: int


class Body(NamedTuple):
    """Messages as columns, before a place is known."""

    messages: int
    flags: int
    sizes: tuple[int, int, int]
    """Bytes of data, keys and headers."""
    columns: bytes


def _pad(length: int) -> int:
    return -length % 8


def _column(cells: Sequence[bytes]) -> tuple[bytes, int]:
    ends = list(accumulate(map(len, cells), initial=0))
    offsets = pack(f"<{len(ends)}i", *ends)
    blob = b"".join(cells)
    return b"".join((offsets, bytes(_pad(len(offsets))), blob, bytes(_pad(len(blob))))), len(blob)


def _nullable(cells: Sequence[bytes | None]) -> tuple[bytes, int]:
    bits = int("".join("0" if cell is None else "1" for cell in reversed(cells)), 2)
    validity = bits.to_bytes((len(cells) + 7) // 8, "little")
    column, size = _column([cell or b"" for cell in cells])
    return b"".join((validity, bytes(_pad(len(validity))), column)), size


def make_body(
    bodies: Sequence[bytes],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[bytes | None] | None = None,
    *,
    safe: bool = False,
) -> Body:
    """The columns of messages; the work per message is one pass in C for each column."""
    flags = int(ChunkFlag.SAFE) if safe else 0
    columns, data_bytes = _column(bodies)
    key_bytes = header_bytes = 0
    parts = [columns]
    if keys is not None:
        flags |= _KEYS
        column, key_bytes = _nullable(keys)
        parts.append(column)
    if headers is not None:
        flags |= _HEADERS
        column, header_bytes = _nullable(headers)
        parts.append(column)
    return Body(len(bodies), flags, (data_bytes, key_bytes, header_bytes), b"".join(parts))


def make_chunk(sender: str, first: int, stamp_us: int, place: Stamp, body: Body) -> bytes:
    """A chunk in its stored form."""
    name, view = sender.encode(), place.view.encode()
    names = name + view
    names += bytes(_pad(HEAD_BYTES + len(names)))
    size = HEAD_BYTES + len(names) + len(body.columns)
    head = HEAD.pack(
        size, body.flags, len(name), len(view), first, stamp_us, body.messages, *body.sizes, place.number, place.nth
    )
    return b"".join((head, names, body.columns))


def columns_bytes(flags: int, count: int, data: int, keys: int, headers: int) -> int:
    """What the columns of a chunk with these sizes take."""
    offsets = 4 * (count + 1)
    offsets += _pad(offsets)
    bits = (count + 7) // 8
    bits += _pad(bits)
    total = offsets + data + _pad(data)
    if flags & _KEYS:
        total += bits + offsets + keys + _pad(keys)
    if flags & _HEADERS:
        total += bits + offsets + headers + _pad(headers)
    return total


class Chunk:
    """A chunk over the bytes it lies in. Cheap to make: the header is read, the columns are left where they are."""

    __slots__ = (
        "_columns", "count", "data_bytes", "first", "flags", "header_bytes", "key_bytes", "place", "raw", "sender",
        "size", "stamp_us",
    )  # fmt: skip

    def __init__(self, raw: Buffer, at: int = 0) -> None:
        """Reads the chunk that begins at `at`; Malformed or Truncated unless it is whole and consistent."""
        room = len(raw) - at
        if room < HEAD_BYTES:
            raise Truncated(f"{room} bytes are no chunk")
        head: tuple[int, ...] = HEAD.unpack_from(raw, at)
        size, flags, name_bytes, view_bytes, first, stamp_us, count, data, keys, headers, number, index = head
        if size > room:
            raise Truncated(f"a chunk of {size} bytes in {room}")
        names = HEAD_BYTES + name_bytes + view_bytes
        columns = names + _pad(names)
        if (
            flags & ~_ALL
            or not 0 < name_bytes <= NAME_BYTES_MAX
            or not 0 < count <= CHUNK_MESSAGES_MAX
            or not 0 < first <= SEQ_MAX - count
            or max(number, index) > SEQ_MAX
            or size != columns + columns_bytes(flags, count, data, keys, headers)
        ):
            raise Malformed(f"chunk with sizes {head}")
        text = bytes(raw[at + HEAD_BYTES : at + names])
        try:
            self.sender = text[:name_bytes].decode()
            view = text[name_bytes:].decode()
        except UnicodeDecodeError:
            raise Malformed("a chunk whose names are not text") from None
        self.raw = raw if at == 0 and len(raw) == size else memoryview(raw)[at : at + size]
        self.size = size
        self.flags = flags
        self.first = first
        self.stamp_us = stamp_us
        self.count = count
        self.data_bytes, self.key_bytes, self.header_bytes = data, keys, headers
        self.place = Stamp(number, view, index)
        self._columns = columns

    @property
    def last(self) -> int:
        """The sender's number of the last message."""
        return self.first + self.count - 1

    @property
    def number(self) -> int:
        """The sender's number of the first message in its life."""
        return self.first & _NUMBER_MASK

    @property
    def life(self) -> int:
        """Which of the sender's lives the messages are from: numbers have no gap within one."""
        return self.first >> LIFE_SHIFT

    @property
    def stream(self) -> str:
        """The name of the row of numbers that these continue: sender and life. Names have no spaces."""
        life = self.first >> LIFE_SHIFT
        return f"{self.sender} {life}" if life else self.sender

    @property
    def safe(self) -> bool:
        return bool(self.flags & 1)

    @property
    def change(self) -> bool:
        return bool(self.flags & 8)

    @property
    def body(self) -> Body:
        sizes = (self.data_bytes, self.key_bytes, self.header_bytes)
        return Body(self.count, self.flags, sizes, bytes(self.raw[self._columns :]))

    def check_columns(self) -> None:
        """Refuses offsets that do not cover their columns in order. For bytes that come from another process."""
        for offsets, size in self._all_offsets():
            if offsets[0] != 0 or offsets[-1] != size or any(map(int.__gt__, offsets, offsets[1:])):
                raise Malformed("a chunk whose offsets do not fit its columns")

    def _all_offsets(self) -> Iterator[tuple[list[int], int]]:
        yield self.data()[0].tolist(), self.data_bytes
        for column, size in ((self.keys(), self.key_bytes), (self.headers(), self.header_bytes)):
            if column is not None:
                yield column[1].tolist(), size

    def data(self) -> tuple[memoryview, memoryview]:
        """Offsets, as 32-bit integers, and the bytes of all messages."""
        return self._read(self._columns, self.data_bytes)[:2]

    def keys(self) -> tuple[memoryview, memoryview, memoryview] | None:
        """Validity, offsets and bytes of the keys; None if the chunk has no such column."""
        return self._read_nullable(_KEYS)

    def headers(self) -> tuple[memoryview, memoryview, memoryview] | None:
        return self._read_nullable(_HEADERS)

    def _read(self, at: int, size: int) -> tuple[memoryview, memoryview, int]:
        raw = memoryview(self.raw)
        end = at + 4 * (self.count + 1)
        blob = end + _pad(end)
        return raw[at:end].cast("i"), raw[blob : blob + size], blob + size + _pad(size)

    def _read_nullable(self, wanted: int) -> tuple[memoryview, memoryview, memoryview] | None:
        if not self.flags & wanted:
            return None
        at = self._read(self._columns, self.data_bytes)[2]
        bits = (self.count + 7) // 8
        for flag, size in ((_KEYS, self.key_bytes), (_HEADERS, self.header_bytes)):
            if self.flags & flag:
                validity = memoryview(self.raw)[at : at + bits]
                offsets, blob, at = self._read(at + bits + _pad(bits), size)
                if flag == wanted:
                    return validity, offsets, blob
        raise AssertionError("a column that the flags name")

    def __repr__(self) -> str:
        return f"Chunk({self.sender}:{self.first}..{self.last} at {self.place})"


def read_chunks(raw: Buffer, at: int = 0) -> Iterator[Chunk]:
    """Chunks that stand back to back up to the end."""
    while at < len(raw):
        chunk = Chunk(raw, at)
        yield chunk
        at += chunk.size
