"""What all packets share: the first four bytes, the kinds, the limits, and the errors of decoding.

Every packet begins with `OC`, the format's version and its kind. All numbers are little-endian. Sequence numbers are
64 bits wide, and a packet with one above `SEQ_MAX` is refused: at ten million packets a second a ring would need 14,600
years to get there, so no counter on the wire ever wraps and no serial arithmetic is needed (deviation D27 of the Totem
engine). The margin keeps every sum of two of them within range for those who read traces with signed integers.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

MAGIC = b"OC"
VERSION = 1
SEQ_MAX = 2**62
PACKET_BYTES_MAX = 65_000
"""The largest packet: what one UDP datagram holds, less a margin for encryption."""
MEMBERS_MAX = 384
"""The largest membership: with the longest names a Commit token still fits a packet."""
NETWORKS_MAX = 8
"""Redundant networks of a group: what a byte of bits can name."""

PREFIX = Struct("<2sBB")


class PacketKind(IntEnum):
    DATA = 1
    TOKEN = 2
    JOIN = 3
    COMMIT = 4
    LEAVE = 5
    BEACON = 6
    WAKE = 7
    PROBE = 8


class WireError(ValueError):
    """Bytes that are not a packet of this version."""


class Truncated(WireError):
    """The packet ends before its fields do."""


class Malformed(WireError):
    """A field has a value that no sender would give it."""


class UnknownVersion(WireError):
    """The packet is of another version of the format, or none of ours."""


def packet_kind(data: bytes) -> int:
    """The kind of a packet, after its magic and version have been checked."""
    if len(data) < 4:
        raise Truncated(f"{len(data)} bytes are no packet")
    if data[:3] != _MAGIC_VERSION:
        raise UnknownVersion(f"a packet begins with {_MAGIC_VERSION.hex()}, this one with {data[:3].hex()}")
    return data[3]


_MAGIC_VERSION = MAGIC + bytes([VERSION])
