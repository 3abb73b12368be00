"""Identifiers: of processes, of rings, and the fixed-size keys that stand for them in packets.

Names travel in the rare packets (Join, Commit token, leave, beacon). Data packets and tokens carry 8-byte keys,
BLAKE2 digests of the names, so that their headers have a fixed size and one comparison of bytes tells whether a
packet belongs to the ring.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple, NewType

NodeId = NewType("NodeId", str)
"""The name of a process, unique in its group."""

NodeKey = NewType("NodeKey", int)
"""The 64-bit key that stands for a NodeId in data packets and tokens; never 0."""

NO_NODE = NodeKey(0)
NAME_BYTES_MAX = 64


class Service(IntEnum):
    """The delivery guarantee that the sender asks for."""

    AGREED = 0
    SAFE = 1


class RingId(NamedTuple):
    """The identifier of a ring: unique, because its representative never uses a number twice.

    The representative keeps its ring number on stable storage. A process whose stable storage is new draws a `nonce`
    with it, so that a wiped or diskless process that starts counting again cannot make an identifier anew that
    others still remember (deviation D26 of the Totem engine).
    """

    number: int
    representative: NodeId
    nonce: int = 0

    @property
    def text(self) -> str:
        suffix = f".{self.nonce:x}" if self.nonce else ""
        return f"{self.number}:{self.representative}{suffix}"


@lru_cache(maxsize=4096)
def node_key(name: NodeId) -> NodeKey:
    return NodeKey(_digest(name.encode()) or 1)


@lru_cache(maxsize=4096)
def ring_digest(ring: RingId) -> int:
    return _digest(f"{ring.number}\0{ring.nonce}\0{ring.representative}".encode())


def _digest(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")
