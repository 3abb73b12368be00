"""A small group on virtual time: Totem engines behind guards, a network that records all that is sent.

The network keeps order and loses what a test tells it to. Everything random comes from one seed.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from random import Random
from typing import NamedTuple

from ordercast.engine.assemble import Assembler
from ordercast.engine.contract import (
    Broadcast,
    Deliver,
    Effect,
    Engine,
    Install,
    Left,
    Originated,
    Persist,
    Report,
    Run,
    Submission,
    Unicast,
)
from ordercast.engine.totem import Phase, Totem, TotemConfig
from ordercast.redundancy import NetworkConfig, Redundant
from ordercast.wire.guard import Guard
from ordercast.wire.ids import NodeId
from ordercast.wire.keys import GroupKey
from ordercast.wire.layout import PacketKind

GROUP = "orders"
DELAY_US = 50
DURABLE_US = 200
CONFIG = TotemConfig(packet_bytes=400)


class Sent(NamedTuple):
    """A train on the wire. `kind` is that of its packets; HELLOs have the kind `HELLO`."""

    at: int
    sender: str
    to: str | None
    kind: str
    data: bytes
    segment: int
    plain: bytes
    """What the engine sent."""


def make_key(seed: object = 0) -> GroupKey:
    return GroupKey(Random(f"key/{seed}").randbytes(32))


def make_guard(name: str, *keys: GroupKey, seed: object = 0, group: str = GROUP) -> Guard:
    return Guard(group, NodeId(name), keys or (make_key(),), Random(f"{name}/{seed}").randbytes)


def exchange(*guards: Guard, now: int = 0, rounds: int = 6) -> int:
    """Carries HELLOs between the guards until they have had time to accept each other; gives the time after that."""
    for _ in range(rounds):
        packets = [(guard, out) for guard in guards for out in guard.take_packets(now)]
        for sender, out in packets:
            for guard in guards:
                if guard is not sender and out.destination in (None, guard.name):
                    guard.receive(now, out.packet, len(out.packet), sender.name)
        now += 10_000
    return now


def make_pair(*keys: GroupKey, seed: object = 0) -> tuple[Guard, Guard]:
    """Two guards that have accepted each other, with nothing owed."""
    pair = make_guard("a", *keys, seed=seed), make_guard("b", *keys, seed=seed)
    exchange(*pair)
    assert pair[0].proven() == {"b"}
    assert pair[1].proven() == {"a"}
    return pair


class Process:
    """One life of one process."""

    def __init__(self, name: str, keys: Iterable[GroupKey], stored: dict[str, bytes], seed: str, networks: int) -> None:
        self.name = name
        self.guard = Guard(GROUP, NodeId(name), list(keys), Random(f"{seed}/guard").randbytes)
        nonce = Random(f"{seed}/nonce").getrandbits(32)
        self.totem = Totem(NodeId(name), CONFIG, stored=stored, nonce=nonce)
        self.engine: Engine = self.totem
        if networks > 1:
            config = NetworkConfig(networks=networks, copies=networks, packet_bytes=CONFIG.packet_bytes)
            self.engine = Redundant(self.totem, config, incarnation=nonce)
        self.stored = stored
        self.assembler = Assembler()
        self.delivered: list[bytes] = []
        self.views: list[tuple[str, ...]] = []
        self.left = False
        self.told = 0
        """Trains that the engine was given."""

    def receive(self, now: int, data: bytes, segment: int, via: int) -> None:
        if isinstance(self.engine, Redundant):
            self.engine.receive(now, data, segment, via)
        else:
            self.engine.receive(now, data, segment)


class World:
    """With `networks` above one each engine has the redundancy layer around it, and so sends probes too."""

    def __init__(self, names: str = "abc", *, seed: object = 0, key: GroupKey | None = None, networks: int = 1) -> None:
        self.now = 0
        self.networks = networks
        self.seed = seed
        self.key = key or make_key()
        self.processes: dict[str, Process] = {}
        self.stored: dict[str, dict[str, bytes]] = {name: {} for name in names}
        self.lives: Counter[str] = Counter()
        self.sent: list[Sent] = []
        self.drop: Callable[[str, str], bool] = lambda sender, receiver: False
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        for name in names:
            self.start(name)

    def start(self, name: str, *keys: GroupKey) -> Process:
        self.lives[name] += 1
        process = Process(
            name, keys or (self.key,), self.stored[name], f"{self.seed}/{name}/{self.lives[name]}", self.networks
        )
        self.processes[name] = process
        process.engine.start(self.now)
        self._carry_out(process)
        return process

    def kill(self, name: str) -> Process:
        return self.processes.pop(name)

    def inject(self, to: str, data: bytes, segment: int, source: object = "x") -> None:
        """Bytes that an attacker sends to one process, now."""
        self._receive(self.processes[to], data, segment, source)

    def run(self, duration_us: int, until: Callable[[], bool] = lambda: False) -> bool:
        """Whether `until` came true within the time."""
        end = self.now + duration_us
        while not until():
            due = min([at for process in self.processes.values() for at in self._deadlines(process)], default=end)
            at = max(self.now, min(due, self._heap[0][0] if self._heap else end))
            if at >= end:
                self.now = end
                return until()
            self.now = at
            while self._heap and self._heap[0][0] <= self.now:
                heapq.heappop(self._heap)[2]()
            for process in list(self.processes.values()):
                if process.engine.deadline is not None and process.engine.deadline <= self.now:
                    process.engine.timer(self.now)
                self._carry_out(process)
        return True

    def form(self, duration_us: int = 5_000_000) -> None:
        """Runs until all living processes are in one view, or fails."""
        assert self.run(duration_us, self.whole), {name: p.views[-1:] for name, p in self.processes.items()}

    def whole(self) -> bool:
        names = tuple(sorted(self.processes))
        return all(
            process.totem.phase is Phase.OPERATIONAL and process.views[-1:] == [names]
            for process in self.processes.values()
        )

    def submit(self, name: str, *bodies: bytes) -> None:
        process = self.processes[name]
        process.engine.submit(self.now, Submission(bodies))
        self._carry_out(process)

    def kinds(self) -> dict[str, list[Sent]]:
        found: dict[str, list[Sent]] = {}
        for sent in self.sent:
            found.setdefault(sent.kind, []).append(sent)
        return found

    def _deadlines(self, process: Process) -> list[int]:
        deadline = process.engine.deadline
        return [process.guard.deadline] if deadline is None else [process.guard.deadline, deadline]

    def _carry_out(self, process: Process) -> None:
        while effects := process.engine.take_effects():
            for effect in effects:
                self._effect(process, effect)
        for out in process.guard.take_packets(self.now):
            to = None if out.destination is None else str(out.destination)
            self._send(process, to, "HELLO", out.packet, len(out.packet), b"", 0)

    def _effect(self, process: Process, effect: Effect) -> None:
        match effect:
            case Broadcast(data, segment, via):
                self._send(process, None, PacketKind(data[3]).name, *process.guard.seal(data, segment), data, via)
            case Unicast(to, packet) if to == process.name:
                process.engine.receive(self.now, packet, len(packet))
            case Unicast(to, packet, via):
                sealed, segment = process.guard.seal(packet, len(packet), to)
                self._send(process, to, PacketKind(packet[3]).name, sealed, segment, packet, via)
            case Persist(write_id, key, record):
                process.stored[key] = record
                self._later(DURABLE_US, lambda: self._written(process, write_id))
            case Deliver(runs=runs):
                self._deliver(process, runs)
            case Install(regular, _, before, between):
                self._deliver(process, before)
                self._deliver(process, between)
                process.assembler.reset()
                process.views.append(tuple(sorted(regular.members)))
            case Left():
                process.left = True
            case Originated() | Report():
                pass

    def _written(self, process: Process, write_id: int) -> None:
        process.engine.written(self.now, write_id)
        self._carry_out(process)

    def _deliver(self, process: Process, runs: list[Run]) -> None:
        for run in runs:
            batch = process.assembler.feed(run)
            if batch is not None:
                process.delivered += batch

    def _send(
        self, process: Process, to: str | None, kind: str, data: bytes, segment: int, plain: bytes, via: int
    ) -> None:
        self.sent.append(Sent(self.now, process.name, to, kind, data, segment, plain))
        for name in list(self.processes):
            if name != process.name and to in (None, name) and not self.drop(process.name, name):
                self._later(DELAY_US, partial(self._arrive, name, data, segment, process.name, via))

    def _arrive(self, name: str, data: bytes, segment: int, source: str, via: int) -> None:
        if name in self.processes:
            self._receive(self.processes[name], data, segment, source, via)

    def _receive(self, process: Process, data: bytes, segment: int, source: object, via: int = 0) -> None:
        for opened in process.guard.receive(self.now, data, segment, source):
            process.told += 1
            process.receive(self.now, opened.data, opened.segment, via)
        self._carry_out(process)

    def _later(self, delay_us: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now + delay_us, next(self._order), action))


def remembered(thing: object) -> object:
    """All that a guard keeps, counters of refused packets excepted: to show that a packet has changed nothing."""
    if isinstance(thing, dict):
        return {key: remembered(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [remembered(value) for value in thing]
    if type(thing).__module__.startswith("ordercast.wire"):
        names = getattr(thing, "__dict__", None) or getattr(type(thing), "__slots__", ())
        return {name: remembered(getattr(thing, name)) for name in names if name != "counters"}
    return thing if isinstance(thing, bytes | str | int | bool | None) else type(thing).__name__
