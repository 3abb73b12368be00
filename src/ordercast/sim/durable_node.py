"""A simulated process that keeps a durable log: the host of corel, with what happens to its log."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from ordercast.corel import Corel, Phase
from ordercast.corel.record import decode_record
from ordercast.corel.state import REGULAR
from ordercast.engine.contract import (
    Append,
    Component,
    DurableEngine,
    Effect,
    Engine,
    Fetch,
    GroupChange,
    NodeId,
    Ordered,
    Progress,
    Restored,
    Transport,
)
from ordercast.sim.corel_record import CorelLog
from ordercast.sim.invariants import Invariants
from ordercast.sim.log_disk import LogDisk
from ordercast.sim.node import LOST_WRITE_CRASH_US, Node, State
from ordercast.wire.chunk import Buffer

if TYPE_CHECKING:
    from ordercast.sim.world import World

FETCH_US = 300
"""How long reading from the log takes."""


class DurableNode(Node):
    __slots__ = ("corel_log", "invariants", "log_disk", "progress", "restored", "stored_green")

    def __init__(self, name: NodeId, world: World) -> None:
        self.log_disk = LogDisk(world.stream("log", name))
        self.progress = Progress(0, 0, 0)
        self.restored: Restored | None = None
        """What it was last brought up from."""
        super().__init__(name, world)
        assert world.invariants is not None
        self.invariants: Invariants = world.invariants

    @property
    def corel(self) -> Corel:
        return cast(Corel, self.engine)

    @property
    def quiet(self) -> bool:
        state = self.corel.state
        if state.phase is Phase.PASSIVE:
            return state.journal.idle
        busy = state.unreported or (state.primary_component_bit and state.mq.tail)
        return state.phase in REGULAR and state.journal.idle and not busy and not self.engine.backlog

    @property
    def unfinished(self) -> str | None:
        """C7 and the liveness of establishing: with a quorum there is a primary component, and it orders everything."""
        state = self.corel.state
        plan = state.plan
        if plan is None:
            return None if state.states else "no configuration has settled"
        if self.name in plan.pupils:
            group = {*plan.group, *dict(plan.max_committed.group)}
            return "a member of the declared group was not brought up" if self.name in group else None
        if self.name not in plan.active or state.phase is Phase.PASSIVE:
            return None
        if plan.quorum and not state.primary_component_bit:
            return "a quorum has not become the primary component"
        if state.primary_component_bit and state.mq.tail:
            return f"{len(state.mq.tail)} chunks were not ordered in the primary component"
        return super().unfinished

    def _make_log(self) -> CorelLog:
        self.corel_log = CorelLog(self.name, self.world.messages, self.world.keep_reports)
        return self.corel_log

    def _make_engine(self) -> Engine:
        stored = self.log_disk.open()
        assert self.world.make_layer is not None
        self.corel_log.reopened(list(self.log_disk.stored()), stored.green, stored.yellow)
        self.progress = Progress(0, 0, 0)
        return self.world.make_layer(super()._make_engine(), stored, self.life - 1)

    def _cut_power(self) -> None:
        super()._cut_power()
        self.log_disk.power_cut()

    def _may_lose_disk(self) -> bool:
        """Somebody must remember the group: if all have forgotten it they found it again, as they must."""
        others = [cast(DurableNode, node) for node in self.world.nodes if node is not self]
        return not self._remembers() or any(node._remembers() for node in others)

    def _remembers(self) -> bool:
        state = self.log_disk.state()
        return state is not None and bool(decode_record(state).founding)

    def _wipe(self) -> None:
        super()._wipe()
        self.log_disk.wipe()
        self.corel_log.wiped()
        self.invariants.wiped(self.name)

    # Effects

    def _carry_out_other(self, effect: Effect) -> None:
        log = self.corel_log
        if isinstance(effect, Append):
            self.log_disk.append(effect)
            log.entered(effect)
            if self.log_disk.syncing is None:
                self._begin_sync()
        elif isinstance(effect, Ordered):
            self.invariants.ordered(self, effect)
            log.ordered(effect)
            self.world.progress_at = self.world.now
        elif isinstance(effect, Transport):
            log.transport(effect)
            self.world.progress_at = self.world.now
        elif isinstance(effect, Progress):
            self.progress = effect
        elif isinstance(effect, Component):
            if effect.number:
                self.world.progress_at = self.world.now
                self.invariants.knows(self, effect.number)
        elif isinstance(effect, Fetch):
            self.world.push(self.world.now + FETCH_US, self._fetched, self.life, effect)
        else:
            assert isinstance(effect, Restored), f"{effect!r} is no effect"
            self.restored = effect

    def _begin_sync(self) -> None:
        """One sync for all that waits; an armed fault of the disk hits it."""
        disk, now = self.disk, self.world.now
        self.log_disk.begin_sync()
        fault = disk.armed.popleft() if disk.armed else None
        took = disk.latency_us + int(disk.rng.random() * disk.jitter_us)
        at = now + 1 + (took // 2 if fault == "tear" else took)
        self.world.push(at, partial(self._sync_done, fault), self.life, None)

    def _sync_done(self, fault: str | None, life: int, _unused: None) -> None:
        if life != self.life or not self.alive:
            return
        if fault == "lose":
            self.world.count("lost write")
            self.world.push(self.world.now + self.disk.rng.randint(1, LOST_WRITE_CRASH_US), self._power_cut, life, None)
            return
        if fault is not None:
            self.crash({"tear": "torn write", "fail": "failed write"}[fault])
            return
        done = self.log_disk.end_sync()
        for number in self.corel_log.appended(done):
            self.invariants.knows(self, number)
        if self.log_disk.waiting:
            self._begin_sync()
        self._tell_written(done[-1].write_id)

    def _fetched(self, life: int, effect: Fetch) -> None:
        if life != self.life or not self.alive:
            return
        if self.state is State.PAUSED or self._working:
            self.world.push(self.world.now + FETCH_US, self._fetched, life, effect)
            return
        chunks: list[Buffer] = self.log_disk.read(effect.start, effect.limit_bytes)
        try:
            cast(DurableEngine, self.engine).fetched(
                self.clock.local(self.world.now), effect.fetch_id, effect.start, chunks
            )
        except Exception as error:
            raise self._failed(error) from error
        self._flush()

    # What scripts ask for

    def propose(self, change: GroupChange) -> None:
        if self.state is not State.RUNNING or self._leaving:
            return
        self.world.count("group change")
        self.corel.propose(self.clock.local(self.world.now), change)
        self._flush()

    def snapshot(self) -> None:
        """The application offers its state as of all that was ordered, and lets go of the log before it."""
        if self.state is not State.RUNNING:
            return
        offset = self.corel_log.green
        now = self.clock.local(self.world.now)
        self.corel.offer(now, offset, b"state as of %d" % offset)
        self.corel.trimmed(now, self.log_disk.retain(offset))
        self._flush()
