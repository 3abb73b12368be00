"""Frames: what a segment consists of. Layout, checksum, and the walk over them.

A frame, little-endian, a multiple of 8 bytes:

    bytes  field
    0      magic                  "OCLF"
    4      frame bytes            u32   all of it, padding included
    8      checksum               u32   CRC-32 of everything but this field
    12     kind                   u8
    13     flags                  u8    MORE = 1, REWIND = 2
    14     payload padding        u16
    16     sequence               u64   counts the frames of a log, so that a frame in a wrong place is noticed
    24     offset                 u64   position of its first message, or of what follows
    32     count                  u32   messages
    36     synced                 u32   bytes of this segment that were known to be on disk when this was written
    40     green                  u64   green line once the entry is complete
    48     yellow                 u64   yellow line, likewise
    56     time                   u64   the highest stamp of any message so far, in µs
    64     payload

An entry is one or several frames, all but the last with MORE; it counts only if the last one is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from struct import Struct
from zlib import crc32

from ordercast.wire.chunk import Buffer

HEADER = Struct("<4sIIBBHQQIIQQQ")
HEADER_BYTES = HEADER.size
MAGIC = b"OCLF"
FRAME_BYTES_MAX = 2**30
"""A frame holds at least one chunk, of whatever size; this is what a reader believes at most."""
FRAME_BYTES = 2**20
"""Chunks of one entry share a frame up to this size."""


class FrameKind(IntEnum):
    META = 1
    """The first frame of a segment: JSON with the format's version, the group, the member, and `vector`."""
    CHUNKS = 2
    """Chunks back to back."""
    STATE = 3
    """The state of the protocol above, opaque to the log; the last one counts."""
    VIEW = 4
    """A ViewRecord as JSON."""
    LINES = 5
    """No payload: the green and yellow lines have moved, or the end has."""
    SEAL = 6
    """The last frame of a segment that is complete: `offset` is where the next one begins."""


class FrameFlag(IntFlag):
    MORE = 1
    REWIND = 2


MORE, REWIND = int(FrameFlag.MORE), int(FrameFlag.REWIND)


@dataclass(frozen=True, slots=True)
class Frame:
    """The header of a frame, and where it stands in its segment."""

    at: int
    size: int
    kind: int
    flags: int
    padding: int
    sequence: int
    offset: int
    count: int
    synced: int
    green: int
    yellow: int
    time_us: int

    @property
    def payload(self) -> slice:
        return slice(self.at + HEADER_BYTES, self.at + self.size - self.padding)

    @property
    def end(self) -> int:
        """Where the next frame begins."""
        return self.at + self.size


def make_frame(
    kind: FrameKind,
    flags: int,
    sequence: int,
    offset: int,
    count: int,
    synced: int,
    green: int,
    yellow: int,
    time_us: int,
    payload: list[Buffer],
) -> list[Buffer]:
    """The frame as buffers to be written one after the other: the payload is not copied."""
    length = sum(map(len, payload))
    padding = -length % 8
    if padding:
        payload = [*payload, bytes(padding)]
    size = HEADER_BYTES + length + padding
    fields = (int(kind), flags, padding, sequence, offset, count, synced, green, yellow, time_us)
    head = HEADER.pack(MAGIC, size, 0, *fields)
    check = crc32(head[12:], crc32(head[:8]))
    for part in payload:
        check = crc32(part, check)
    return [head[:8] + check.to_bytes(4, "little") + head[12:], *payload]


def read_frame(raw: Buffer, at: int, *, verify: bool = True) -> Frame | None:
    """The frame that begins at `at`; None if there is no whole and sound one."""
    room = len(raw) - at
    if room < HEADER_BYTES:
        return None
    magic, size, check, kind, flags, padding, *fields = HEADER.unpack_from(raw, at)
    if magic != MAGIC or not HEADER_BYTES + padding <= size <= min(room, FRAME_BYTES_MAX) or size % 8:
        return None
    if verify and frame_checksum(raw, at, size) != check:
        return None
    return Frame(at, size, kind, flags, padding, *fields)


def frame_checksum(raw: Buffer, at: int, size: int) -> int:
    view = memoryview(raw)
    return crc32(view[at + 12 : at + size], crc32(view[at : at + 8]))


def find_frame(raw: bytes | memoryview, at: int, sequence: int) -> Frame | None:
    """The next sound frame at or after `at` whose sequence number is at least `sequence`."""
    data = bytes(raw[at:])
    found = data.find(MAGIC)
    while found >= 0:
        if (at + found) % 8 == 0:
            frame = read_frame(raw, at + found)
            if frame is not None and frame.sequence >= sequence:
                return frame
        found = data.find(MAGIC, found + 1)
    return None
