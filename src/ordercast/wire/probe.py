"""The probe: what processes with several networks tell one another about them (`ordercast.redundancy.probes`).

    PROBE  incarnation u32, number u64, serial u16, networks u8, via u8, sender name,
           networks × (changes u32, flags u8 (1 ready)), peers u16, peers × (key u64, heard u8: a bit a network),
           padding u16, as many zero bytes

`number` counts the sender's probe intervals; one with the same number leaves by every network. `serial` tells apart
what is said within an interval. Padding makes a probe as long as a full packet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from ordercast.wire.ids import NodeId, NodeKey
from ordercast.wire.layout import MAGIC, MEMBERS_MAX, NETWORKS_MAX, SEQ_MAX, VERSION, Malformed, PacketKind
from ordercast.wire.totem import Reader, encode_name

_HEAD = Struct("<2sBBIQHBB")
_STATE = Struct("<IB")
_COUNT = Struct("<H")
_PEER = Struct("<QB")


@dataclass(slots=True)
class Probe:
    """What `sender` knows of its networks; sent by its network `via`."""

    incarnation: int
    number: int
    serial: int
    via: int
    sender: NodeId
    changes: list[int]
    """For each network how often it has become faulty or sound again: it is faulty while this is odd."""
    ready: list[bool]
    """Whether the sender would take the network back."""
    heard: dict[NodeKey, int] = field(default_factory=dict)
    """Whom it hears, and by which networks."""

    def encode(self, size: int = 0) -> bytes:
        """The packet, filled up to `size` bytes if it is shorter."""
        parts = [
            _HEAD.pack(
                MAGIC,
                VERSION,
                PacketKind.PROBE,
                self.incarnation,
                self.number,
                self.serial,
                len(self.changes),
                self.via,
            ),
            encode_name(self.sender),
            *(_STATE.pack(count, flag) for count, flag in zip(self.changes, self.ready, strict=True)),
            _COUNT.pack(len(self.heard)),
            *(_PEER.pack(key, bits) for key, bits in sorted(self.heard.items())),
        ]
        padding = max(0, size - sum(map(len, parts)) - _COUNT.size)
        return b"".join((*parts, _COUNT.pack(padding), bytes(padding)))


class ProbeHead(NamedTuple):
    """What tells a probe from others: copies on several networks differ in `via` alone."""

    incarnation: int
    number: int
    serial: int
    via: int
    sender: NodeId


def decode_probe_head(data: bytes) -> ProbeHead:
    read = Reader(data)
    _, _, _, incarnation, number, serial, networks, via = read.unpack(_HEAD)
    if not 1 <= networks <= NETWORKS_MAX or via >= networks or number > SEQ_MAX:
        raise Malformed(f"probe {number} by network {via} of {networks}")
    return ProbeHead(incarnation, number, serial, via, read.name())


def decode_probe(data: bytes) -> Probe:
    decode_probe_head(data)
    read = Reader(data)
    _, _, _, incarnation, number, serial, networks, via = read.unpack(_HEAD)
    sender = read.name()
    states = [read.unpack(_STATE) for _ in range(networks)]
    if any(flags > 1 for _, flags in states):
        raise Malformed("a probe with unknown flags")
    (count,) = read.unpack(_COUNT)
    if count > MEMBERS_MAX:
        raise Malformed(f"a probe of one that hears {count} others")
    heard = {NodeKey(key): bits for key, bits in _PEER.iter_unpack(read.bytes(_PEER.size * count))}
    if len(heard) != count or any(bits >> networks for bits in heard.values()):
        raise Malformed("a probe of one that hears by networks that it has not")
    (padding,) = read.unpack(_COUNT)
    if any(read.bytes(padding)):
        raise Malformed("a probe whose padding is not empty")
    read.end()
    return Probe(
        incarnation,
        number,
        serial,
        via,
        sender,
        [changes for changes, _ in states],
        [flags == 1 for _, flags in states],
        heard,
    )
