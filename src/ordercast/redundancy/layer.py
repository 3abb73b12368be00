"""The layer as a whole: an engine to its host, a host to its engine.

It reads from packets what it has to know (kind, and of tokens and data their ring and numbers), hands them to the
style, and lets everything else pass. It never changes a packet and never makes one but probes.
"""

from __future__ import annotations

from typing import Protocol, cast

from ordercast.engine.contract import Broadcast, Effect, Engine, Submission, Unicast
from ordercast.redundancy.active import Active
from ordercast.redundancy.active_passive import ActivePassive
from ordercast.redundancy.diagnosis import diagnose
from ordercast.redundancy.passive import Passive
from ordercast.redundancy.probes import Peer, Probes
from ordercast.redundancy.state import (
    DATA_BYTES_MIN,
    NEVER,
    TOKEN_BYTES_MIN,
    FaultReason,
    NetworkConfig,
    State,
    data_mark,
    token_mark,
)
from ordercast.wire.ids import NodeId, NodeKey, node_key
from ordercast.wire.layout import MAGIC, VERSION, PacketKind, WireError
from ordercast.wire.probe import decode_probe, decode_probe_head

HELLO_US = 10_000
"""A process that has come is answered with a probe after so long, so that it need not wait for the next interval."""
_HEAD = MAGIC + bytes((VERSION,))
_DATA_HEAD = _HEAD + bytes((PacketKind.DATA,))
_DATA, _TOKEN, _PROBE = int(PacketKind.DATA), int(PacketKind.TOKEN), int(PacketKind.PROBE)


class RedundantEngine(Engine, Protocol):
    """What the layer asks of an engine beyond the contract."""

    def misses(self, token: bytes) -> bool:
        """Whether a retransmission would be requested if this token were received now (anyMessagesMissing)."""

    def due(self, token: bytes) -> int:
        """The number up to which messages were sent before this token; later ones may come behind it."""


class Redundant:
    """One process's engine over several networks; see `ordercast.engine.contract` for what a host owes it.

    `incarnation` is another number at every start of the process.
    """

    def __init__(self, engine: RedundantEngine, config: NetworkConfig, *, incarnation: int = 0) -> None:
        self.engine = engine
        self.config = config
        self._s = s = State(config, self._deliver_to_srp, engine.misses, engine.due)
        kind = Active if config.copies == config.networks else Passive if config.copies == 1 else ActivePassive
        self._style: Active | Passive | ActivePassive = kind(s, self._fault, node_key(engine.name) % config.networks)
        self._probes = Probes(s, engine.name, incarnation, self._fault)
        self._tick_at = NEVER
        self._announce = False
        self._highest: tuple[bytes, int] = (b"", 0)  # ring and seq of the newest token: what is above has not been sent
        self._sent_token = b""
        self._last_fault: list[dict[str, object] | None] = [None] * config.networks
        self._behind_us = 0
        self._clock = 0

    # An engine to the host

    @property
    def name(self) -> NodeId:
        return self.engine.name

    @property
    def deadline(self) -> int | None:
        mine = min(self._tick_at, self._s.token_timer_at, self._s.resend_at)
        engine = self.engine.deadline
        if mine >= NEVER:
            return engine
        return mine - self._behind_us if engine is None else min(engine, mine - self._behind_us)

    @property
    def backlog(self) -> int:
        return self.engine.backlog

    @property
    def backlog_bytes(self) -> int:
        return self.engine.backlog_bytes

    def start(self, now: int) -> None:
        self._advance(now)
        self.engine.start(now)
        self._tick_at = self._s.now + self._probes.interval_us
        self._probes.send()

    def submit(self, now: int, submission: Submission) -> None:
        self._advance(now)
        self.engine.submit(now, submission)

    def written(self, now: int, write_id: int) -> None:
        self._advance(now)
        self.engine.written(now, write_id)

    def throttle(self, now: int, on: bool) -> None:
        self._advance(now)
        self.engine.throttle(now, on)

    def leave(self, now: int) -> None:
        self._advance(now)
        self.engine.leave(now)

    def receive(self, now: int, data: bytes, segment: int, via: int | None = None) -> None:
        """A train that came by network `via`; None: from this process itself."""
        self._advance(now)
        size = len(data)
        if via is None or size < DATA_BYTES_MIN or segment < DATA_BYTES_MIN:
            self.engine.receive(now, data, segment)
            return
        if size <= segment:
            self._packet(data, via)
            return
        if data[:4] != _DATA_HEAD:
            for at in range(0, size, segment):
                self._packet(data[at : at + segment], via)
            return
        tail = (size - 1) // segment * segment
        if data[tail : tail + 4] == _DATA_HEAD:
            self._data(data, segment, via)
        else:
            # The kernel has put another packet to the end of a train.
            self._data(data[:tail], segment, via)
            self._packet(data[tail:], via)

    def timer(self, now: int) -> None:
        self._advance(now)
        s = self._s
        if s.token_timer_at <= s.now:
            self._style.token_timer_expired()
        if s.resend_at <= s.now and isinstance(self._style, Passive):
            self._style.resend()
        if self._tick_at <= s.now:
            self._tick()
        self.engine.timer(now)

    def take_effects(self) -> list[Effect]:
        """The engine's effects, each packet with the network or networks by which it leaves."""
        s = self._s
        for effect in self.engine.take_effects():
            if isinstance(effect, Broadcast):
                self._send_broadcast(effect)
            elif isinstance(effect, Unicast):
                self._send_unicast(effect)
            else:
                s.effects.append(effect)
        effects, s.effects = s.effects, []
        return effects

    # What arrives

    def _packet(self, data: bytes, via: int) -> None:
        kind = data[3] if len(data) > 3 and data[:3] == _HEAD else 0
        if kind == _DATA and len(data) >= DATA_BYTES_MIN:
            self._data(data, len(data), via)
        elif kind == _TOKEN and len(data) >= TOKEN_BYTES_MIN:
            mark = token_mark(data)
            if mark.ring != self._highest[0] or mark.seq > self._highest[1]:
                self._highest = mark.ring, mark.seq
            self._style.recv_token(data, mark, via)
        elif kind == _PROBE:
            self._probe(data, via)
        else:
            self.engine.receive(self._clock, data, len(data))

    def _data(self, data: bytes, segment: int, via: int) -> None:
        self.engine.receive(self._clock, data, segment)
        self._style.recv_msg(data, via)

    def _probe(self, data: bytes, via: int) -> None:
        probes = self._probes
        try:
            head = decode_probe_head(data)
            if head.sender == self.name:
                return
            new = head.sender not in probes.peers
            peer = probes.received(head, via)
            if peer is None or (head.number, head.serial) <= peer.said:
                return
            news = probes.learn(peer, decode_probe(data))
        except WireError:
            return
        if new:
            self._tick_at = min(self._tick_at, self._s.now + HELLO_US)
        if not news and not new:
            return
        for x in range(self.config.networks):
            if peer.changes[x] > self._s.changes[x]:
                self._told(x, peer)
        self._settle()

    def _deliver_to_srp(self, token: bytes) -> None:
        self.engine.receive(self._clock, token, len(token))

    # What leaves

    def _send_broadcast(self, effect: Broadcast) -> None:
        if effect.data[3] != _DATA:
            # Deviation R4: the packets of the membership protocol are rare, and decide.
            self._s.send_by_all(effect)
            return
        mark = data_mark(effect.data)
        if mark.ring == self._highest[0] and mark.seq <= self._highest[1]:
            # Deviation R6: what was lost once is sent again by all networks.
            for via in self._s.usable:
                self._s.send(effect, via)
            return
        self._style.send_msg(effect)

    def _send_unicast(self, effect: Unicast) -> None:
        if effect.to == self.name:
            self._s.effects.append(effect)
        elif effect.packet[3] != _TOKEN or effect.packet == self._sent_token:
            self._s.send_by_all(effect)
        else:
            self._sent_token = effect.packet
            self._style.send_token(effect)

    # Faults and repairs

    def _tick(self) -> None:
        self._tick_at = self._s.now + self._probes.interval_us
        self._style.monitors.forgive()
        self._probes.tick()
        self._announce = True
        self._settle()

    def _fault(self, x: int, reason: FaultReason, evidence: dict[str, object]) -> None:
        """A monitor, or the probes, have found network x faulty."""
        if self._s.faulty[x]:
            return
        self._s.changes[x] += 1
        if reason is FaultReason.MESSAGES:
            names = {node_key(name): name for name in self._probes.peers}
            evidence["of"] = names.get(cast(NodeKey, evidence["of"]), "one that has sent no probe")
        self._failed(x, reason, evidence)
        self._settle()

    def _told(self, x: int, peer: Peer) -> None:
        """Deviation R7: what one has found, all know at once."""
        was_faulty = self._s.faulty[x]
        self._s.changes[x] = peer.changes[x]
        is_faulty = self._s.changes[x] % 2 == 1
        if is_faulty and not was_faulty:
            self._failed(x, FaultReason.TOLD, {"by": str(peer.name)})
        elif was_faulty and not is_faulty:
            self._repaired(x, str(peer.name))
        self._announce = True

    def _failed(self, x: int, reason: FaultReason, evidence: dict[str, object]) -> None:
        self._probes.failed(x)
        hears = self._probes.hearing(x)[str(self.name)]
        silent = sorted(str(name) for name in self._probes.peers if name not in hears)
        self._announce = True
        detail = {"silent": silent, "hears": sorted(hears), **evidence}
        self._last_fault[x] = {"reason": reason.value, **detail}
        self._s.report("network_fault", reason.value, network=x + 1, **detail)

    def _repaired(self, x: int, by: str) -> None:
        self._announce = True
        self._s.report("network_repaired", "all hear each other by it again", network=x + 1, by=by)

    def _settle(self) -> None:
        """After anything that may change which networks are used, by me or by others."""
        s, probes = self._s, self._probes
        for x in probes.agreed_repairs():
            s.changes[x] += 1
            self._repaired(x, str(self.name))
        faulty = [count % 2 == 1 for count in s.changes]
        expected = [not bad and probes.used_by_all(x) for x, bad in enumerate(faulty)]
        if faulty != s.faulty or expected != s.expected:
            s.set_networks(faulty, expected)
            self._style.monitors.reset()
            if s.held:
                self._style.reconsider()
        if self._announce:
            self._announce = False
            probes.send()

    def _advance(self, now: int) -> None:
        """A clock that jumps back stands still for the layer, as for the engine."""
        self._clock = now
        if now + self._behind_us < self._s.now:
            self._behind_us = self._s.now - now
        self._s.now = now + self._behind_us

    # For status

    def networks(self) -> list[dict[str, object]]:
        """What is known of each network, for people."""
        s = self._s
        return [
            {
                "number": x + 1,
                "state": "faulty" if s.faulty[x] else "sound" if s.expected[x] else "changing",
                "changes": s.changes[x],
                "diagnosis": diagnose(self._probes.hearing(x)),
                "last_fault": self._last_fault[x],
                "crossed": sorted(name for name, (_, here) in self._probes.crossed.copy().items() if here == x),
            }
            for x in range(self.config.networks)
        ]

    @property
    def replication(self) -> str:
        return format_replication(self.config)


def parse_replication(text: str, networks: int) -> int:
    """The number of copies K that `replication` asks for; raises ValueError with a line for people."""
    if text == "active":
        return networks
    if text == "passive":
        return 1
    kind, colon, number = text.partition(":")
    if kind != "active-passive" or not colon or not number.isdecimal():
        raise ValueError(f"replication is 'active', 'passive' or 'active-passive:K', not {text!r}")
    copies = int(number)
    if networks < 3 or not 1 < copies < networks:
        raise ValueError(f"replication {text!r} takes three networks or more, and K between 1 and their number")
    return copies


def format_replication(config: NetworkConfig) -> str:
    if config.copies == config.networks:
        return "active"
    return "passive" if config.copies == 1 else f"active-passive:{config.copies}"
