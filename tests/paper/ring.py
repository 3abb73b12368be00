"""A few engines on one network in one thread, with a clock that stands still until it is told to go on.

Two ways to use it. `run` and `until` let packets arrive and timers run out in the order of their times, with the
packets in flight open to be dropped, copied or put back. `visit` and `packets` play the rest of the ring by hand: they
give one engine a token or a data packet that the test has made up, and show what it answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ordercast.engine.assemble import Assembler
from ordercast.engine.contract import (
    Broadcast,
    Deliver,
    Effect,
    Install,
    Left,
    Originated,
    Persist,
    Report,
    Run,
    Service,
    Submission,
    Unicast,
    View,
)
from ordercast.engine.totem import Phase, Totem, TotemConfig
from ordercast.engine.totem.state import Ring, State
from ordercast.wire.ids import NO_NODE, NodeId, NodeKey, node_key
from ordercast.wire.layout import PacketKind
from ordercast.wire.pack import PACKET_BYTES_MIN, Packer
from ordercast.wire.totem import Token, decode_token
from ordercast.wire.train import split_packets

LATENCY_US = 50
BODY_BYTES = 30
"""A body of this size fills a packet of the least size, so that here a message is a packet."""
DATA, TOKEN, JOIN = PacketKind.DATA, PacketKind.TOKEN, PacketKind.JOIN
COMMIT, LEAVE, BEACON, WAKE = PacketKind.COMMIT, PacketKind.LEAVE, PacketKind.BEACON, PacketKind.WAKE


def config(**changes: int) -> TotemConfig:
    return TotemConfig(**{"packet_bytes": PACKET_BYTES_MIN, **changes})


def pad(text: str) -> bytes:
    assert len(text) < BODY_BYTES
    return text.ljust(BODY_BYTES).encode()


@dataclass(eq=False)
class Packet:
    at: int
    source: str
    to: str
    data: bytes
    segment: int

    @property
    def kind(self) -> PacketKind:
        return PacketKind(self.data[3])

    @property
    def seq(self) -> int:
        """Of a data packet."""
        return int.from_bytes(self.data[28:36], "little")


@dataclass
class Said:
    """What a process delivered: a message with the view it came in, or with no text the view itself."""

    view: str
    text: str = ""
    sender: str = ""
    safe: bool = False
    members: str = ""


@dataclass
class Process:
    """One engine and what its host has kept of its effects."""

    name: str
    engine: Totem
    disk: dict[str, bytes]
    assembler: Assembler = field(default_factory=Assembler)
    effects: list[Effect] = field(default_factory=list)
    """All of them since the start, or since the test has cleared them."""
    said: list[Said] = field(default_factory=list)
    writes: list[Persist] = field(default_factory=list)
    """Begun and not told to be durable; only with a slow disk."""
    running: bool = True

    @property
    def state(self) -> State:
        return self.engine.state

    @property
    def ring(self) -> Ring:
        return self.state.ring

    @property
    def phase(self) -> Phase:
        return self.engine.phase

    @property
    def members(self) -> str:
        """Those of the ring installed last, one letter each."""
        return "".join(self.ring.members)

    @property
    def texts(self) -> list[str]:
        return [said.text for said in self.said if said.text]

    @property
    def views(self) -> list[str]:
        """Members of the views delivered so far, transitional ones in brackets."""
        return [said.members for said in self.said if said.members]

    @property
    def story(self) -> list[str]:
        """Views and messages in the order of their delivery."""
        return [said.members or said.text for said in self.said]

    def sent(self, kind: PacketKind) -> list[bytes]:
        """Packets of a kind among the effects, single ones."""
        packets: list[bytes] = []
        for effect in self.effects:
            if isinstance(effect, Broadcast) and effect.data[3] == kind:
                packets += split_packets(effect.data, effect.segment)
            elif isinstance(effect, Unicast) and effect.packet[3] == kind:
                packets.append(effect.packet)
        return packets

    def reasons(self) -> list[str]:
        return [effect.reason for effect in self.effects if isinstance(effect, Report) and effect.what == "phase"]

    def _hear(self, effect: Effect) -> None:
        if isinstance(effect, Deliver):
            self._messages(effect.view_id, effect.runs)
        elif isinstance(effect, Install):
            old = next((said.view for said in reversed(self.said) if said.members), "")
            self._messages(old, effect.before)
            if effect.transitional is not None:
                self._view(effect.transitional, "[", "]")
                self._messages(effect.transitional.id, effect.between)
            self.assembler.reset()
            self._view(effect.regular)

    def _view(self, view: View, before: str = "", after: str = "") -> None:
        self.said.append(Said(view.id, members=before + "".join(view.members) + after))

    def _messages(self, view: str, runs: list[Run]) -> None:
        for run in runs:
            batch = self.assembler.feed(run)
            if batch is None:
                continue
            sender = self.state.directory.get(batch.sender_key, "?")
            for body in batch:
                self.said.append(Said(view, body.decode().rstrip(), sender, batch.service is Service.SAFE))


@dataclass
class Visit:
    """What a process did with one token: its effects, and the token it sent on, if it did."""

    effects: list[Effect]
    token: Token | None

    def data(self) -> list[bytes]:
        """The data packets it broadcast, single ones."""
        trains = [e for e in self.effects if isinstance(e, Broadcast) and e.data[3] == DATA]
        return [packet for train in trains for packet in split_packets(train.data, train.segment)]

    def seqs(self) -> list[int]:
        return [int.from_bytes(packet[28:36], "little") for packet in self.data()]


class Bench:
    """The processes, the packets in flight between them, and the clock."""

    def __init__(self, names: Iterable[str], settings: TotemConfig | None = None, *, slow_disk: bool = False) -> None:
        self.now = 1_000_000
        self.settings = settings or config()
        self.slow_disk = slow_disk
        self.flight: list[Packet] = []
        self.refuse: Callable[[Packet], bool] = lambda packet: False
        """Packets for which it says True are lost."""
        self.cuts: set[tuple[str, str]] = set()
        """Links, from and to, that lose everything."""
        self.counts: dict[PacketKind, int] = dict.fromkeys(PacketKind, 0)
        """Packets sent, by kind."""
        self.split = False
        """Every packet travels alone, so that it can be lost alone."""
        self.lives = 0
        self.processes: dict[str, Process] = {}
        for name in names:
            self.boot(name, {})

    def __getitem__(self, name: str) -> Process:
        return self.processes[name]

    def boot(self, name: str, disk: dict[str, bytes]) -> Process:
        """A new life: nothing is kept but the disk."""
        self.lives += 1
        process = Process(name, Totem(name, self.settings, stored=dict(disk), nonce=self.lives), disk)
        self.processes[name] = process
        process.engine.start(self.now)
        self.take(process)
        return process

    def crash(self, name: str) -> dict[str, bytes]:
        self[name].running = False
        self.flight = [packet for packet in self.flight if packet.to != name]
        return self[name].disk

    def partition(self, *groups: str) -> None:
        """Only members of one group hear each other; those that are not named hear everybody."""
        group_of = {name: group for group in groups for name in group}
        self.cuts = {(a, b) for a in group_of for b in group_of if group_of[a] != group_of[b]}

    def heal(self) -> None:
        self.cuts = set()
        self.refuse = lambda packet: False

    def settle(self, names: str | None = None, within_us: int = 5_000_000) -> None:
        """Runs until the processes named are on one ring of just them, and Operational."""
        wanted = "".join(sorted(names or self.processes))
        self.until(
            lambda: (
                all(self[name].phase is Phase.OPERATIONAL and self[name].members == wanted for name in wanted)
                and len({self[name].ring.text for name in wanted}) == 1
            ),
            within_us,
        )

    def settle_anew(self, names: str | None = None, within_us: int = 5_000_000) -> None:
        """Runs until the processes named have installed another ring than they have now, of just them."""
        wanted = "".join(sorted(names or self.processes))
        rings = {name: self[name].ring.text for name in wanted}
        self.until(lambda: all(self[name].ring.text != rings[name] for name in wanted), within_us)
        self.settle(wanted, within_us)

    def quiet(self) -> None:
        """Runs until nobody has anything left to send and everything sent is safe everywhere."""

        def done() -> bool:
            return all(
                p.phase is Phase.OPERATIONAL
                and not p.engine.backlog
                and p.ring.delivered == p.ring.high_seq == p.ring.safe_seq
                for p in self.processes.values()
                if p.running
            )

        self.until(done)

    def until(self, condition: Callable[[], bool], within_us: int = 5_000_000) -> None:
        end = self.now + within_us
        while not condition():
            if not self.step(end):
                raise AssertionError(f"not within {within_us} µs: {self.describe()}")

    def run(self, time_us: int) -> None:
        end = self.now + time_us
        while self.step(end):
            pass
        self.now = end

    def describe(self) -> str:
        return ", ".join(f"{p.name} {p.phase.name} {p.ring.text} {p.members}" for p in self.processes.values())

    def step(self, end: int) -> bool:
        """Lets the next thing happen, if it does before `end`: a packet arrives or a timer runs out."""
        packet = min(self.flight, key=lambda packet: packet.at, default=None)
        timers = [(p.engine.deadline, p.name) for p in self.processes.values() if p.running]
        deadline, name = min(((at, name) for at, name in timers if at is not None), default=(end, ""))
        if packet is not None and packet.at <= max(deadline, self.now):
            if packet.at > end:
                return False
            self.flight.remove(packet)
            self.now = max(self.now, packet.at)
            self.arrive(packet)
            return True
        if not name or deadline >= end:
            return False
        self.now = max(self.now, deadline)
        self[name].engine.timer(self.now)
        self.take(self[name])
        return True

    def arrive(self, packet: Packet) -> None:
        process = self[packet.to]
        if process.running:
            process.engine.receive(self.now, packet.data, packet.segment)
            self.take(process)

    def take(self, process: Process) -> None:
        """Carries out what the engine wants."""
        while effects := process.engine.take_effects():
            process.effects += effects
            for effect in effects:
                if isinstance(effect, Broadcast):
                    self.counts[PacketKind(effect.data[3])] += 1
                    for name in self.processes:
                        if name != process.name:
                            self.spread(process.name, name, effect)
                elif isinstance(effect, Unicast):
                    self.counts[PacketKind(effect.packet[3])] += 1
                    self.send(process.name, effect.to, effect.packet, len(effect.packet))
                elif isinstance(effect, Persist):
                    process.writes.append(effect)
                    if not self.slow_disk:
                        self.write(process.name)
                elif isinstance(effect, Left):
                    process.running = False
                else:
                    process._hear(effect)

    def spread(self, source: str, to: str, effect: Broadcast) -> None:
        if self.split:
            for packet in split_packets(effect.data, effect.segment):
                self.send(source, to, packet, len(packet))
        else:
            self.send(source, to, effect.data, effect.segment)

    def write(self, name: str) -> None:
        """The oldest write of a process becomes durable."""
        process = self[name]
        write = process.writes.pop(0)
        process.disk[write.key] = write.record
        process.engine.written(self.now, write.write_id)
        self.take(process)

    def send(self, source: str, to: str, data: bytes, segment: int) -> None:
        packet = Packet(self.now + LATENCY_US, source, to, data, segment)
        if to in self.processes and (source, to) not in self.cuts and not self.refuse(packet):
            self.flight.append(packet)

    def say(self, name: str, *texts: str, safe: bool = False) -> None:
        """Submits messages, each of which fills a packet."""
        service = Service.SAFE if safe else Service.AGREED
        self[name].engine.submit(self.now, Submission([pad(text) for text in texts], service))
        self.take(self[name])

    def catch(self, kind: PacketKind, to: str | None = None, within_us: int = 5_000_000) -> Packet:
        """Runs until a packet of the kind is in flight, and takes it out."""

        def found() -> list[Packet]:
            return [packet for packet in self.flight if packet.kind is kind and to in (None, packet.to)]

        self.until(lambda: bool(found()), within_us)
        packet = found()[0]
        self.flight.remove(packet)
        return packet

    def stop_traffic(self) -> None:
        """From here on the test plays the others: what is in flight, and what is sent, is lost."""
        self.flight.clear()
        self.refuse = lambda packet: True
        for process in self.processes.values():
            process.effects.clear()

    def give(self, name: str, data: bytes, segment: int | None = None) -> list[Effect]:
        """Hands bytes to a process and tells what it answers."""
        process = self[name]
        before = len(process.effects)
        process.engine.receive(self.now, data, segment or len(data))
        self.take(process)
        return process.effects[before:]

    def visit(
        self,
        name: str,
        *,
        seq: int = 0,
        aru: int = 0,
        aru_id: str | NodeKey = NO_NODE,
        token_seq: int | None = None,
        rtr: Iterable[tuple[int, int]] = (),
        fcc: int = 0,
        backlog: int = 0,
        idle: bool = False,
        retrans_flg: bool = False,
    ) -> Visit:
        """A token of the process's ring comes to it."""
        ring = self[name].state.active
        owner = node_key(NodeId(aru_id)) if isinstance(aru_id, str) else aru_id
        number = ring.my_token_seq + 1 if token_seq is None else token_seq
        token = Token(ring.number, ring.digest, number, seq, aru, owner, fcc, backlog, retrans_flg, idle, list(rtr))
        effects = self.give(name, token.encode())
        sent = [e.packet for e in effects if isinstance(e, Unicast) and e.packet[3] == TOKEN]
        return Visit(effects, decode_token(sent[-1]) if sent else None)

    def packets(self, ring: Ring, sender: str, first_seq: int, *texts: str, safe: bool = False) -> list[bytes]:
        """Data packets as `sender` would broadcast them on a ring."""
        packer = Packer(node_key(NodeId(sender)), self.settings.packet_bytes)
        packer.add([pad(text) for text in texts], Service.SAFE if safe else Service.AGREED)
        burst = packer.burst(ring.prefix, first_seq, len(texts))
        return [packet for data in burst.stretches for packet in split_packets(data, self.settings.packet_bytes)]

    def hear(self, name: str, sender: str, first_seq: int, *texts: str, safe: bool = False) -> list[Effect]:
        """A process receives messages of another on its ring, packet by packet."""
        effects: list[Effect] = []
        for packet in self.packets(self[name].state.active, sender, first_seq, *texts, safe=safe):
            effects += self.give(name, packet)
        return effects


def ring_of(names: str, settings: TotemConfig | None = None, *, slow_disk: bool = False) -> Bench:
    """A bench whose processes have formed one ring, in which nothing has been sent yet."""
    bench = Bench(names, settings, slow_disk=slow_disk)
    bench.settle()
    return bench


def still(names: str, settings: TotemConfig | None = None) -> Bench:
    """A ring of which the test plays all but one member: no packet is in flight, none will be."""
    bench = ring_of(names, settings)
    bench.run(5_000)
    bench.stop_traffic()
    return bench


def originated(effects: Iterable[Effect]) -> list[Originated]:
    return [effect for effect in effects if isinstance(effect, Originated)]
