"""A simulated process: the host of one engine, with its clock, disk, receive queue and what happens to it."""

from __future__ import annotations

from collections import deque
from enum import Enum
from traceback import format_exception
from typing import TYPE_CHECKING, cast

from ordercast.check.events import Leave
from ordercast.engine.contract import (
    Broadcast,
    Deliver,
    Effect,
    Engine,
    GroupChange,
    Install,
    Left,
    NetworkedEngine,
    NodeId,
    Originated,
    Persist,
    Report,
    Service,
    Submission,
    Unicast,
)
from ordercast.sim.clock import Clock
from ordercast.sim.disk import Disk, Write
from ordercast.sim.record import NodeLog

if TYPE_CHECKING:
    from ordercast.sim.network import Link
    from ordercast.sim.world import World

PACKET_COST_US = 10
QUEUE_MAX = 1_000
DISK_LATENCY_US = 500
DISK_JITTER_US = 500
SPINS_MAX = 1_000
"""Timers in a row, each within a microsecond of the one before, after which an engine counts as stuck."""
BACKLOG_BYTES_MAX = 64_000
"""Submissions are held back while an engine has more than this waiting."""
DRAIN_MAX = 16
"""Trains that are handed to an engine before its effects are taken."""
LOST_WRITE_CRASH_US = 300_000
"""The power fails within this time of a lost write."""


class State(Enum):
    RUNNING = "running"
    PAUSED = "paused"
    DOWN = "down"
    GONE = "gone"


class EngineError(Exception):
    """An engine raised, or broke the contract in a way that its host notices."""

    def __init__(self, node: str, what: str) -> None:
        super().__init__(node, what)
        self.node = node
        self.what = what


class Node:
    """One name, through all its lives."""

    __slots__ = (
        "_due", "_due_local", "_engine", "_fuse", "_last_spin", "_leaving", "_owed", "_spins", "_timer_late",
        "_working", "_written", "busy_until", "clock", "cost_us", "counter", "delivered", "disk", "life", "link_to",
        "links", "links_by", "log", "name", "queue", "queue_max", "queued", "state", "world",
    )  # fmt: skip

    def __init__(self, name: NodeId, world: World) -> None:
        self.name = name
        self.world = world
        rng = world.stream("node", name)
        self.clock = Clock(1_000_000_000 + rng.randrange(60_000_000))
        self.log = self._make_log()
        self.disk = Disk(world.stream("disk", name), DISK_LATENCY_US, DISK_JITTER_US)
        self.state = State.DOWN
        self.life = 0
        self.counter = 0
        self.links: list[Link] = []
        """Those of all networks."""
        self.links_by: list[list[Link]] = []
        """Those of each network."""
        self.link_to: list[dict[NodeId, Link]] = []
        """Those of each network, by where they lead."""
        self.cost_us = PACKET_COST_US
        self.queue: deque[tuple[bytes, int, int, int | None]] = deque()
        self.queue_max = QUEUE_MAX
        self.queued = 0
        """Packets in `queue`."""
        self.busy_until = 0
        self.delivered = 0
        """Packets handed to engines."""
        self._engine: Engine | None = None
        self._due: int | None = None
        self._due_local: int | None = None
        self._fuse: int | None = None
        self._written: list[int] = []
        self._reset()

    def _make_log(self) -> NodeLog:
        return NodeLog(self.name, self.world.messages, self.world.keep_reports)

    def _make_engine(self) -> Engine:
        # The nonce only has to be another in every life, as a random number would be.
        return self.world.make_engine(self.name, dict(self.disk.records), self.life - 1)

    def _reset(self) -> None:
        """What a life begins with."""
        self.queue.clear()
        self.queued = 0
        self.busy_until = 0
        self._working = False
        self._due = None  # when the next wake-up happens
        self._due_local = None  # the deadline it is for
        self._timer_late = False
        self._written = []
        self._fuse = None
        self._leaving = False
        self._owed = 0  # packets that arrived during a pause and come before its timers
        self._spins = 0
        self._last_spin = 0

    @property
    def alive(self) -> bool:
        return self.state is State.RUNNING or self.state is State.PAUSED

    @property
    def engine(self) -> Engine:
        """The engine of the present life."""
        assert self._engine is not None, f"{self.name} has no engine while it is {self.state.value}"
        return self._engine

    @property
    def quiet(self) -> bool:
        """Nothing of what it was asked for is under way."""
        return not self.engine.backlog

    @property
    def unfinished(self) -> str | None:
        """What it has not come to by the end of a run that was left in peace."""
        return "messages that never left their sender's queue" if self.engine.backlog else None

    # Lives

    def start(self) -> None:
        """Begin a life with what the disk holds."""
        self.life += 1
        self.counter = 0
        self._reset()
        if self.disk.forgetful:
            self.log.numbered = False
        self.log.begin_life(recovered=self.life > 1)
        self.state = State.RUNNING
        try:
            self._engine = self._make_engine()
            self._engine.start(self.clock.local(self.world.now))
        except Exception as error:
            raise self._failed(error) from error
        self._flush()

    def crash(self, why: str) -> None:
        if not self.alive:
            return
        self.world.count(why)
        self.state = State.DOWN
        self._engine = None
        self._cut_power()

    def _cut_power(self) -> None:
        self.disk.power_cut()

    def _may_lose_disk(self) -> bool:
        """Whether what the engine promises includes that."""
        return True

    def _wipe(self) -> None:
        """Another disk, an empty one, takes the place of this node's."""
        self.disk.wipe()

    def light_fuse(self, effects: int) -> None:
        if self.alive:
            self._fuse = effects

    def restart(self, wiped: bool) -> None:
        if self.alive:
            return
        if wiped and self._may_lose_disk():
            self.world.count("wipe")
            self._wipe()
        self.world.count("restart")
        self.start()

    def leave(self) -> None:
        if self.state is not State.RUNNING:
            return
        self.world.count("leave")
        self._leaving = True
        try:
            self.engine.leave(self.clock.local(self.world.now))
        except Exception as error:
            raise self._failed(error) from error
        self._flush()

    def pause(self) -> None:
        if self.state is State.RUNNING:
            self.world.count("pause")
            self.state = State.PAUSED

    def resume(self) -> None:
        """Packets that waited come first, then completed writes, then timers that are late."""
        if self.state is not State.PAUSED:
            return
        self.state = State.RUNNING
        self._owed = self.queued
        if not self._working and (self.queue or self._written or self._timer_late):
            self._working = True
            self.world.push(self.world.now, self._work, self.life, None)

    def heal(self) -> None:
        """Back to what a sound node is; whether it runs is left as it is."""
        for write in self.disk.heal(self.world.now, DISK_LATENCY_US, DISK_JITTER_US):
            self.world.push(write.done_at, self._disk_done, self.life, write)
        self.cost_us = PACKET_COST_US
        self.queue_max = QUEUE_MAX
        self._fuse = None
        if self.clock.drift_ppm:
            self.clock.drift(self.world.now, 0)
            self._clock_changed()
        self.resume()

    # Packets

    def arrive(self, data: bytes, segment: int, via: int | None = None) -> None:
        """A train reaches this host, by network `via` if there are several."""
        now = self.world.now
        engine = self._engine
        if engine is None:
            return
        if self._working or now < self.busy_until or self.state is State.PAUSED:
            self._enqueue(data, segment, via)
            return
        count = 1 if len(data) <= segment else -(-len(data) // segment)
        self.delivered += count
        try:
            if via is None:
                engine.receive(self.clock.local(now), data, segment)
            else:
                cast(NetworkedEngine, engine).receive(self.clock.local(now), data, segment, via)
        except Exception as error:
            raise self._failed(error) from error
        self.busy_until = now + self.cost_us * count
        self._flush()

    def _enqueue(self, data: bytes, segment: int, via: int | None) -> None:
        count = 1 if len(data) <= segment else -(-len(data) // segment)
        room = self.queue_max - self.queued
        if count > room:
            self.world.count("overflow", count - room)
            if room <= 0:
                return
            data, count = data[: room * segment], room
        self.queue.append((data, segment, count, via))
        self.queued += count
        if self.state is State.RUNNING and not self._working:
            self._working = True
            self.world.push(max(self.busy_until, self.world.now), self._work, self.life, None)

    def _work(self, life: int, _unused: None) -> None:
        """The node is free again: it drains its queue, some trains at a time, then looks at its timers."""
        if life != self.life or self.state is not State.RUNNING:
            self._working = self._working and life != self.life
            return
        now = self.world.now
        local = self.clock.local(now)
        engine, queue = self.engine, self.queue
        packets = 0
        try:
            for _ in range(min(len(queue), DRAIN_MAX)):
                data, segment, count, via = queue.popleft()
                packets += count
                if via is None:
                    engine.receive(local, data, segment)
                else:
                    cast(NetworkedEngine, engine).receive(local, data, segment, via)
        except Exception as error:
            raise self._failed(error) from error
        self.queued -= packets
        self.delivered += packets
        self.busy_until = now + self.cost_us * packets
        self._working = bool(queue)
        if self._working:
            self.world.push(max(self.busy_until, now + 1), self._work, self.life, None)
        self._owed -= packets
        if self._owed <= 0 and (self._written or self._timer_late):
            self._catch_up(local)
        self._flush()

    def _catch_up(self, local: int) -> None:
        """Completed writes and timers that fell into a pause or into the work on packets."""
        writes, self._written = self._written, []
        late, self._timer_late = self._timer_late, False
        try:
            for write_id in writes:
                self.engine.written(local, write_id)
            if late:
                self.engine.timer(local)
        except Exception as error:
            raise self._failed(error) from error

    # Submissions

    def send(self, count: int, low: int, high: int, safe: bool, keyed: bool) -> None:
        """Submits messages of `low` to `high` bytes, each beginning with its identifier."""
        if self.state is not State.RUNNING or self._leaving:
            return
        if self.engine.backlog_bytes > BACKLOG_BYTES_MAX:
            self.world.held_back += count
            return
        rng, messages = self.world.load, self.world.messages
        service = Service.SAFE if safe else Service.AGREED
        bodies: list[bytes] = []
        for _ in range(count):
            self.counter += 1
            name = f"{self.name}.{self.life}:{self.counter}"
            size = low if low == high else rng.randint(low, high)
            body = f"{name} ".encode().ljust(size, b".")
            messages.names[body] = name
            bodies.append(body)
            self.log.queued(name, service)
        keys = headers = None
        if keyed:
            keys = [body[:3] if index % 3 else None for index, body in enumerate(bodies)]
            headers = [body[-2:] if index % 2 else None for index, body in enumerate(bodies)]
            messages.columns.update(zip(bodies, zip(keys, headers, strict=True), strict=True))
        self.world.submitted += count
        local = self.clock.local(self.world.now)
        try:
            self.engine.submit(local, Submission(bodies, service, local, keys, headers))
        except Exception as error:
            raise self._failed(error) from error
        self._flush()

    def propose(self, change: GroupChange) -> None:
        """Only a layer with a declared group can be asked to change it."""

    def snapshot(self) -> None:
        """Only a node with a durable log has something to let go of."""

    # Clock and timers

    def jump(self, by_us: int) -> None:
        self.world.count("clock jump")
        self.clock.jump(self.world.now, by_us)
        self._clock_changed()

    def drift(self, ppm: int) -> None:
        self.world.count("clock drift")
        self.clock.drift(self.world.now, ppm)
        self._clock_changed()

    def _clock_changed(self) -> None:
        self._due = self._due_local = None
        if self.alive:
            self._schedule()

    def _schedule(self) -> None:
        """Makes sure that a wake-up comes by the engine's deadline.

        One that comes too early is left alone: it looks again when it fires. So a deadline that moves later with
        every packet costs a comparison.
        """
        deadline = self.engine.deadline
        if deadline is None or (self._due_local is not None and deadline >= self._due_local):
            return
        self._due_local = deadline
        self._due = due = max(self.clock.due(deadline), self.world.now)
        self.world.push(due, self._wake, self.life, due)

    def _wake(self, life: int, due: int) -> None:
        if life != self.life or due != self._due or not self.alive:
            return  # an earlier wake-up took its place, or the node is not what it was
        if self.state is State.PAUSED or self._working:
            self._due = self._due_local = None
            self._timer_late = True
            return
        now = self.world.now
        if now < self.busy_until:
            self._due = self.busy_until
            self.world.push(self.busy_until, self._wake, life, self.busy_until)
            return
        self._due = self._due_local = None
        local = self.clock.local(now)
        try:
            deadline = self.engine.deadline
            if deadline is not None and deadline <= local:
                self._count_spin(now)
                self.engine.timer(local)
        except Exception as error:
            raise self._failed(error) from error
        self._flush()

    def _count_spin(self, now: int) -> None:
        self._spins = self._spins + 1 if now - self._last_spin <= 1 else 0
        self._last_spin = now
        if self._spins > SPINS_MAX:
            raise AssertionError(f"the deadline {self.engine.deadline} has been in the past for {SPINS_MAX} timers")

    # Effects

    def _flush(self) -> None:
        """Carries out the effects of the last inputs, and those of packets that the engine sent to itself."""
        while self.state is State.RUNNING:
            try:
                effects = self.engine.take_effects()
                if self._fuse is not None:
                    effects = self._burn_fuse(effects)
                to_self = self._carry_out(effects) if effects else None
            except EngineError:
                raise
            except Exception as error:
                raise self._failed(error) from error
            if self._fuse == 0:
                self.crash("crash amid effects")
                return
            if not to_self or self.state is not State.RUNNING:
                break
            self._spins += 1
            if self._spins > SPINS_MAX:
                raise EngineError(self.name, f"it has sent itself {SPINS_MAX} packets without a pause")
            try:
                for packet in to_self:
                    self.delivered += 1
                    self.engine.receive(self.clock.local(self.world.now), packet, len(packet))
            except Exception as error:
                raise self._failed(error) from error
        if self.state is State.RUNNING:
            self._schedule()

    def _carry_out(self, effects: list[Effect]) -> list[bytes] | None:
        """Carries out effects in their order; returns the packets for this node itself, which come after them."""
        to_self: list[bytes] | None = None
        world, log = self.world, self.log
        at = self.busy_until if self.busy_until > world.now else world.now
        for effect in effects:
            if isinstance(effect, Unicast):
                link = self.link_to[effect.via].get(effect.to)
                if link is not None:
                    world.network.send((link,), effect.packet, len(effect.packet), at)
                elif effect.to == self.name:
                    to_self = to_self or []
                    to_self.append(effect.packet)
            elif isinstance(effect, Broadcast):
                world.network.send(self.links_by[effect.via], effect.data, effect.segment, at)
            elif isinstance(effect, Deliver):
                log.deliver(effect.view_id, effect.runs)
                world.progress_at = world.now
            elif isinstance(effect, Originated):
                log.originated(effect)
            elif isinstance(effect, Report):
                log.reported(effect)
            elif isinstance(effect, Install):
                log.install(effect)
                world.progress_at = world.now
            elif isinstance(effect, Persist):
                self._persist(effect)
            elif isinstance(effect, Left):
                log.close(Leave)
                self.state = State.GONE
                self._engine = None
                self._cut_power()
                break
            else:
                self._carry_out_other(effect)
        return to_self

    def _carry_out_other(self, effect: Effect) -> None:
        raise AssertionError(f"{effect!r} is no effect of an engine without a log")

    def _burn_fuse(self, effects: list[Effect]) -> list[Effect]:
        """Only the first effects happen before the node crashes."""
        assert self._fuse is not None
        effects = effects[: self._fuse]
        self._fuse -= len(effects)
        return effects

    def _persist(self, effect: Persist) -> None:
        write = self.disk.begin(self.world.now, effect.write_id, effect.key, effect.record)
        self.world.push(write.done_at, self._disk_done, self.life, write)

    def _disk_done(self, life: int, write: Write) -> None:
        if life != self.life or not self.alive or write.done_at != self.world.now:
            return  # of another life, or done earlier because the disk was healed
        if write.fault == "lose":
            self.world.count("lost write")
            self.world.push(self.world.now + self.disk.rng.randint(1, LOST_WRITE_CRASH_US), self._power_cut, life, None)
            return
        if write.fault is not None:
            self.crash({"tear": "torn write", "fail": "failed write"}[write.fault])
            return
        if self.disk.writes and self.disk.writes[0] is not write:
            return  # it stands behind a write that was lost, so it never becomes durable either
        self.disk.complete(write)
        self._tell_written(write.write_id)

    def _tell_written(self, write_id: int) -> None:
        if self.state is State.PAUSED or self._working:
            self._written.append(write_id)
            return
        try:
            self.engine.written(self.clock.local(self.world.now), write_id)
        except Exception as error:
            raise self._failed(error) from error
        self._flush()

    def _power_cut(self, life: int, _unused: None) -> None:
        if life == self.life:
            self.crash("power cut")

    def _failed(self, error: Exception) -> EngineError:
        if isinstance(error, EngineError):
            return error
        lines = [line for part in format_exception(error) for line in part.splitlines()]
        return EngineError(self.name, "\n".join(lines[-12:]))
