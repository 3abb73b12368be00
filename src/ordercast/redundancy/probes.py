"""Who hears whom by which network; faults that others report; and the way back for a network that was mended.

The paper has no probes: its monitors see only what the ring sends, so a fault between two processes that do not follow
each other on an idle ring is never found, and nothing ever takes a network back. Here (deviation R5) every process
broadcasts a small probe by every network at an interval, faulty networks included. A probe says whom its sender hears
by which network, and how often each network has changed between faulty and sound.

- *Fault.* A sender whose last six probes came by other networks and not by this one: the network is faulty. Counting
  probes, not time: a process that was suspended missed no more by one network than by another.
- *Told.* Of two counts of changes the higher one holds, at everyone. So all stop using a network as soon as one of them
  has found it faulty, and old news never undoes new.
- *Repair.* A process is ready to take a network back when for ten intervals it has brought the probes of all others,
  not later than the other networks by more than a token waits. Once all are ready, the first to see that takes it
  back, and the others hear of it. A network that soon fails again must wait twice as long each time.
"""

from __future__ import annotations

from ordercast.engine.contract import Broadcast
from ordercast.redundancy.monitor import Fault
from ordercast.redundancy.state import FaultReason, State
from ordercast.wire.ids import NodeId, NodeKey, node_key
from ordercast.wire.layout import MEMBERS_MAX
from ordercast.wire.probe import Probe, ProbeHead

HEARD_WITHIN = 3
"""A probe says that its sender hears another by a network that has brought one of that one's last so many probes."""
READY_WITHIN = 3
"""A network on its way back may miss fewer than so many probes in a row: sporadic loss must not keep it out, though in
a large group somebody has just missed two of somebody's at almost any moment."""
PEERS_PER_INTERVAL = 32
"""In larger groups probes become rarer, so that their number for each process stays bounded."""


class Peer:
    """What is known of another process by its probes."""

    __slots__ = ("changes", "first_at", "heard", "incarnation", "late_us", "name", "newest", "newest_on", "ready",
                 "said", "silent_ticks")  # fmt: skip

    def __init__(self, name: NodeId, networks: int, incarnation: int, number: int) -> None:
        self.name = name
        self.incarnation = incarnation
        self.newest = number
        self.newest_on = [number] * networks
        """The benefit of the doubt: a process that has just come is heard by all networks."""
        self.first_at = 0
        self.late_us = [0] * networks
        self.said = (-1, -1)
        self.changes = [0] * networks
        self.ready = [False] * networks
        self.heard: dict[NodeKey, int] = {}
        self.silent_ticks = 0

    def lag(self, x: int) -> int:
        """The probes that other networks have brought since the last one that network x brought."""
        return self.newest - self.newest_on[x]


class Probes:
    def __init__(self, s: State, name: NodeId, incarnation: int, fault: Fault) -> None:
        n = s.config.networks
        self.s = s
        self.name = name
        self.key = node_key(name)
        self.incarnation = incarnation
        self._fault = fault
        self.peers: dict[NodeId, Peer] = {}
        self.number = 0
        self.serial = 0
        self.good_ticks = [0] * n
        """For how many intervals each network has brought everything."""
        self.failures = [0] * n
        """How often each network has failed soon after it had been taken back."""
        self.sound_ticks = [0] * n
        self.crossed: dict[str, tuple[int, int]] = {}
        """Processes whose network i is attached to my network j."""

    @property
    def interval_us(self) -> int:
        return self.s.config.probe_interval_us * max(1, -(-(len(self.peers) + 1) // PEERS_PER_INTERVAL))

    # Once an interval

    def tick(self) -> None:
        """Judges what has come; a probe follows. Once an interval, after all that has arrived was received."""
        self.number += 1
        self.serial = 0
        for name in [name for name, peer in self.peers.items() if peer.silent_ticks >= self.s.config.peer_ticks]:
            del self.peers[name]
        for peer in self.peers.values():
            peer.silent_ticks += 1
        for x in range(self.s.config.networks):
            self._judge(x)

    def _judge(self, x: int) -> None:
        s = self.s
        if s.faulty[x]:
            late = s.config.token_timeout_max_us
            good = all(peer.lag(x) < READY_WITHIN and peer.late_us[x] <= late for peer in self.peers.values())
            self.good_ticks[x] = self.good_ticks[x] + 1 if good and self.peers else 0
            return
        self.sound_ticks[x] += 1
        if self.sound_ticks[x] >= s.config.repair_forget_ticks:
            self.failures[x] = 0
        silent = [peer.name for peer in self.peers.values() if peer.lag(x) >= s.config.probes_missed]
        if silent:
            self._fault(x, FaultReason.PROBES, {"probes": s.config.probes_missed, "of": sorted(silent)})

    def ready(self, x: int) -> bool:
        """Whether this process would take network x back."""
        config = self.s.config
        doublings = min(self.failures[x], config.repair_doublings_max)
        return self.s.faulty[x] and self.good_ticks[x] >= config.repair_ticks << doublings

    def failed(self, x: int) -> None:
        """Network x is faulty from now on."""
        if 0 < self.sound_ticks[x] < self.s.config.repair_forget_ticks and self.s.changes[x] > 1:
            self.failures[x] += 1
        self.good_ticks[x] = self.sound_ticks[x] = 0

    def agreed_repairs(self) -> list[int]:
        """Faulty networks that all are ready to take back."""
        s = self.s
        return [
            x
            for x in range(s.config.networks)
            if self.ready(x)
            and self.peers
            and all(peer.ready[x] and peer.changes[x] == s.changes[x] for peer in self.peers.values())
        ]

    def used_by_all(self, x: int) -> bool:
        """Whether all others, as far as they have spoken, count network x as I do."""
        return all(peer.changes[x] == self.s.changes[x] for peer in self.peers.values())

    def send(self) -> None:
        s = self.s
        heard = {node_key(peer.name): self._bits(peer) for peer in list(self.peers.values())[:MEMBERS_MAX]}
        ready = [self.ready(x) for x in range(s.config.networks)]
        for via in range(s.config.networks):
            probe = Probe(
                self.incarnation, self.number, self.serial, via, self.name, list(s.changes), ready, dict(heard)
            )
            # A byte less than a full packet, so that it ends any train that the kernel may put it into.
            data = probe.encode(s.config.packet_bytes - 1 if s.faulty[via] else 0)
            s.effects.append(Broadcast(data, len(data), via))
        self.serial += 1

    def _bits(self, peer: Peer) -> int:
        return sum(1 << x for x in range(self.s.config.networks) if peer.lag(x) < HEARD_WITHIN)

    # What others say

    def received(self, probe: ProbeHead, x: int) -> Peer | None:
        """Takes note that a probe came by network x; its sender, unless it is of a life that has just ended."""
        s = self.s
        if probe.via != x:
            self.crossed[probe.sender] = (probe.via, x)
        peer = self.peers.get(probe.sender)
        if peer is None or (peer.incarnation != probe.incarnation and peer.silent_ticks):
            peer = self.peers[probe.sender] = Peer(probe.sender, s.config.networks, probe.incarnation, probe.number)
        elif peer.incarnation != probe.incarnation:
            return None
        peer.silent_ticks = 0
        if probe.number > peer.newest:
            peer.newest = probe.number
            peer.first_at = s.now
        if probe.number == peer.newest and peer.newest_on[x] < probe.number:
            peer.late_us[x] = s.now - peer.first_at
        peer.newest_on[x] = max(peer.newest_on[x], probe.number)
        return peer

    def learn(self, peer: Peer, probe: Probe) -> bool:
        """Takes what is news in a probe; whether that may change which networks are used."""
        peer.said = probe.number, probe.serial
        if len(probe.changes) != self.s.config.networks:
            return False  # it was started with another number of networks
        peer.heard = probe.heard
        if peer.changes == probe.changes and peer.ready == probe.ready:
            return False
        peer.changes, peer.ready = probe.changes, probe.ready
        return True

    def hearing(self, x: int) -> dict[str, frozenset[str]]:
        """Who hears whom by network x, for diagnosis."""
        peers = list(self.peers.values())  # status reads from another thread
        known = {node_key(peer.name): str(peer.name) for peer in peers} | {self.key: str(self.name)}
        bit = 1 << x
        table = {
            str(peer.name): frozenset(known[key] for key, bits in peer.heard.items() if bits & bit and key in known)
            for peer in peers
        }
        table[str(self.name)] = frozenset(str(peer.name) for peer in peers if peer.lag(x) < HEARD_WITHIN)
        return table
