"""One packet of every kind, made by the encoders from plain values: the source of the golden vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ordercast.wire.ids import NodeId, RingId, Service, node_key, ring_digest
from ordercast.wire.layout import Malformed, PacketKind, WireError, packet_kind
from ordercast.wire.pack import Packer
from ordercast.wire.totem import (
    Beacon,
    CommitEntry,
    CommitToken,
    Join,
    Leave,
    Token,
    Wake,
    decode_beacon,
    decode_commit,
    decode_join,
    decode_leave,
    decode_ring_record,
    decode_token,
    decode_wake,
    encode_ring_record,
)
from ordercast.wire.train import Flag, parse_train, ring_prefix

ALICE, BOB, CARL = NodeId("alice"), NodeId("bob"), NodeId("carl-ünï")
RING = RingId(8, ALICE, 0x1234)
OLD = RingId(4, BOB)
DIGEST = ring_digest(RING)
PREFIX = ring_prefix(RING)
STAMP = 1_700_000_000_123_456


def decode(data: bytes) -> object:
    """What an engine does with the bytes of one packet."""
    kind = packet_kind(data)
    if kind == PacketKind.DATA:
        return parse_train(data, len(data))
    decoder = DECODERS.get(kind)
    if decoder is None:
        raise Malformed(f"kind {kind}")
    return decoder(data)


DECODERS: dict[int, Callable[[bytes], object]] = {
    PacketKind.TOKEN: decode_token,
    PacketKind.JOIN: decode_join,
    PacketKind.COMMIT: decode_commit,
    PacketKind.LEAVE: decode_leave,
    PacketKind.BEACON: decode_beacon,
    PacketKind.WAKE: decode_wake,
}


def bursts(
    bodies: Sequence[bytes],
    *,
    service: Service = Service.AGREED,
    packet_bytes: int = 120,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[bytes | None] | None = None,
    flags: int = 0,
) -> list[bytes]:
    packer = Packer(node_key(BOB), packet_bytes, flags=flags)
    packer.add(bodies, service, STAMP, keys, headers)
    return packer.burst(PREFIX, 42, 100).stretches


def _data() -> dict[str, bytes]:
    (plain,) = bursts([b"one", b"", b"three"])
    (safe,) = bursts([b"safe and sound"], service=Service.SAFE)
    (columns,) = bursts([b"data", b"", b"x"], keys=[b"key", None, b""], headers=[None, b"head", b""])
    (keys,) = bursts([b"data"], keys=[b"key"])
    (train,) = bursts([bytes(range(100))])
    (recovery,) = bursts([plain], packet_bytes=1400, flags=int(Flag.RECOVERY))
    return {
        "data plain": plain,
        "data safe": safe,
        "data with keys": keys,
        "data with keys and headers": columns,
        "data split, first piece": train[:120],
        "data split, last piece": train[120:],
        "data recovery": recovery,
    }


def _commit(rotation: int) -> CommitToken:
    entries = [
        CommitEntry(ALICE, True, RingId(4, ALICE, 7), 17, 11, True, 8192),
        CommitEntry(BOB, rotation == 2, OLD if rotation == 2 else CommitEntry(BOB).old_ring, 3 * (rotation - 1)),
    ]
    return CommitToken(8, 0x1234, rotation, rotation - 1, entries)


def make() -> dict[str, bytes]:
    """All packets, and the record of stable storage, by name."""
    rtr = [(12, 1), (14, 5), (60, 40)]
    return {
        **_data(),
        "token": Token(8, DIGEST, 5, 99, 99).encode(),
        "token with requests": Token(8, DIGEST, 77, 99, 11, node_key(BOB), 3, 4, True, True, rtr).encode(),
        "join": Join(BOB, frozenset((ALICE, BOB, CARL)), frozenset((CARL,)), 4, 2).encode(),
        "commit, first rotation": _commit(1).encode(),
        "commit, second rotation": _commit(2).encode(),
        "leave": Leave(8, DIGEST, CARL).encode(),
        "beacon": Beacon(
            8, DIGEST, ALICE, frozenset((node_key(ALICE), node_key(BOB))), frozenset((node_key(CARL),))
        ).encode(),
        "wake": Wake(8, DIGEST, node_key(BOB)).encode(),
        "ring record": encode_ring_record(8, 0x1234),
    }


def packets() -> dict[str, bytes]:
    """Those that travel."""
    return {name: data for name, data in make().items() if name != "ring record"}


def refused(data: bytes) -> bool:
    """Whether the decoders refuse the bytes with the error they should; anything else they raise goes through."""
    try:
        decode(data)
    except WireError:
        return True
    return False


def refused_record(data: bytes) -> bool:
    try:
        decode_ring_record(data)
    except WireError:
        return True
    return False
