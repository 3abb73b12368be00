"""The redundancy layer by hand: an engine that only remembers, packets that the test makes, a clock that it moves."""

from __future__ import annotations

from dataclasses import dataclass, field

from ordercast.engine.contract import Broadcast, Effect, Report, Submission, Unicast
from ordercast.redundancy import NetworkConfig, Redundant
from ordercast.wire.ids import NodeId, NodeKey, RingId, node_key
from ordercast.wire.layout import PacketKind
from ordercast.wire.probe import Probe, decode_probe
from ordercast.wire.totem import Join, Token
from ordercast.wire.train import HEADER_BYTES, pack_tail, ring_prefix

ME = NodeId("p7")
"""A name with which turns begin at the first network."""
RING = RingId(4, NodeId("n1"))
_PREFIX = ring_prefix(RING)
_DIGEST = int.from_bytes(_PREFIX[12:20], "little")


def data(seq: int, sender: str = "n2", count: int = 1, ring: RingId = RING) -> bytes:
    """A train of `count` packets from `seq` on, 100 bytes each."""
    packets = []
    for at in range(seq, seq + count):
        body = bytes(100 - HEADER_BYTES - 2)
        packets.append(
            ring_prefix(ring)
            + pack_tail(node_key(NodeId(sender)), at, at, 0, 0, 1)
            + len(body).to_bytes(2, "little")
            + body
        )
    return b"".join(packets)


def token(token_seq: int, seq: int = 0, number: int = RING.number, *, idle: bool = False) -> bytes:
    return Token(number, _DIGEST, token_seq, seq, 0, idle=idle).encode()


class Remembering:
    """An engine that keeps what it gets, and knows which data it has."""

    def __init__(self) -> None:
        self.name = ME
        self.tokens: list[int] = []
        self.have: set[int] = set()
        self.copies: list[int] = []
        self.other: list[int] = []
        self.effects: list[Effect] = []
        self.deadline: int | None = None
        self.backlog = self.backlog_bytes = 0

    def start(self, now: int) -> None:
        pass

    def receive(self, now: int, packets: bytes, segment: int) -> None:
        kind = packets[3]
        if kind == PacketKind.TOKEN:
            self.tokens.append(int.from_bytes(packets[20:28], "little"))
        elif kind == PacketKind.DATA:
            first = int.from_bytes(packets[28:36], "little")
            seqs = range(first, first - -len(packets) // segment)
            self.copies += seqs
            self.have |= set(seqs)
        else:
            self.other.append(kind)

    def submit(self, now: int, submission: Submission) -> None: ...
    def written(self, now: int, write_id: int) -> None: ...
    def timer(self, now: int) -> None: ...
    def throttle(self, now: int, on: bool) -> None: ...
    def leave(self, now: int) -> None: ...

    def take_effects(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects

    def due(self, packet: bytes) -> int:
        return int.from_bytes(packet[28:36], "little")

    def misses(self, packet: bytes) -> bool:
        return not set(range(1, self.due(packet) + 1)) <= self.have


@dataclass
class Layer:
    """One process over its networks; the others are played by the test."""

    networks: int = 2
    copies: int = 2
    changes: dict[str, int] = field(default_factory=dict)
    now: int = 1_000_000

    def __post_init__(self) -> None:
        self.engine = Remembering()
        config = NetworkConfig(networks=self.networks, copies=self.copies, **self.changes)
        self.layer = Redundant(self.engine, config)
        self.reports: list[Report] = []
        self.layer.start(self.now)
        self.sent()

    def comes(self, packet: bytes, via: int, after_us: int = 0, segment: int | None = None) -> None:
        self.now += after_us
        self.layer.receive(self.now, packet, segment or len(packet), via)
        self._collect()

    def passes(self, us: int) -> None:
        """Time goes by; timers run out when they are due."""
        until = self.now + us
        while self.layer.deadline is not None and self.layer.deadline <= until:
            self.now = max(self.now, self.layer.deadline)
            self.layer.timer(self.now)
            self._collect()
        self.now = until

    def send(self, *effects: Effect) -> list[Broadcast | Unicast]:
        """What leaves when the engine sends this."""
        self.sent()
        self.engine.effects += effects
        return self.sent()

    def sent(self) -> list[Broadcast | Unicast]:
        self._out: list[Broadcast | Unicast] = getattr(self, "_out", [])
        self._collect()
        out, self._out = self._out, []
        return out

    def _collect(self) -> None:
        self._out = getattr(self, "_out", [])
        for effect in self.layer.take_effects():
            if isinstance(effect, Report):
                self.reports.append(effect)
            elif isinstance(effect, (Broadcast, Unicast)):
                self._out.append(effect)

    def faults(self) -> list[tuple[int, str]]:
        return [(report.detail["network"], report.reason) for report in self.reports if report.what == "network_fault"]

    def repairs(self) -> list[int]:
        return [report.detail["network"] for report in self.reports if report.what == "network_repaired"]

    def probes(self) -> list[Probe]:
        return [decode_probe(out.data) for out in self.sent() if isinstance(out, Broadcast) and out.data[3] == 8]


class Others:
    """Processes that do nothing but probe."""

    def __init__(self, layer: Layer, *names: str) -> None:
        self.layer = layer
        self.names = names
        self.number = 0
        self.changes = [0] * layer.networks
        self.ready = [False] * layer.networks

    def probe(self, *networks: int, silent: tuple[tuple[str, int], ...] = ()) -> None:
        """An interval: all of them probe by these networks; `silent` names who does not come by which."""
        self.number += 1
        everyone = {node_key(NodeId(name)): (1 << self.layer.networks) - 1 for name in (*self.names, ME)}
        for name in self.names:
            for via in networks:
                if (name, via) not in silent:
                    heard = {key: bits for key, bits in everyone.items() if key != node_key(NodeId(name))}
                    probe = Probe(1, self.number, 0, via, NodeId(name), self.changes, self.ready, heard)
                    self.layer.comes(probe.encode(), via)
        self.layer.passes(200_000)


def join(sender: str = "n2") -> bytes:
    name = NodeId(sender)
    return Join(name, frozenset({name}), frozenset(), 4).encode()


def key_of(name: str) -> NodeKey:
    return node_key(NodeId(name))
