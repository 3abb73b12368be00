"""The layer itself: a host to the engine below, an engine to the host above."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

from ordercast.corel import catchup, establish, handler, recovery, regular
from ordercast.corel.journal import NEVER, Journal
from ordercast.corel.messages import (
    MessageKind,
    decode_catchup,
    decode_chunk,
    decode_head,
    decode_number,
    decode_priority,
    decode_red,
    decode_state,
)
from ordercast.corel.queue import Item, MessageQueue
from ordercast.corel.record import Record, decode_record
from ordercast.corel.state import CorelConfig, Phase, State
from ordercast.corel.table import TABLE, Action
from ordercast.engine.assemble import Assembler
from ordercast.engine.contract import (
    Component,
    Deliver,
    Effect,
    Engine,
    GroupChange,
    Install,
    NetworkedEngine,
    Originated,
    Run,
    Stored,
    Submission,
    Transport,
)
from ordercast.wire.chunk import LIVES_MAX, Buffer, Chunk, Stamp
from ordercast.wire.ids import NodeId, node_key
from ordercast.wire.layout import WireError


class Corel:
    """One member. `stored` is what its durable log held; see `engine.contract` for what a host owes it.

    `nonce` is a random number of 32 bits that the host draws at every start. It is used where the log is new: a member
    whose disk was lost must not number its messages like those that it does not remember.
    """

    def __init__(
        self, engine: Engine, config: CorelConfig | None = None, stored: Stored | None = None, *, nonce: int = 0
    ) -> None:
        stored = stored or Stored()
        self.engine = engine
        self.config = config = config or CorelConfig()
        record = Record() if stored.state is None else decode_record(stored.state)
        # Deviation K8: each start is another life, and numbers begin with it.
        record.life = (nonce if stored.state is None else record.life + 1) % LIVES_MAX
        mq = MessageQueue(
            stored.green,
            stored.yellow,
            {**record.base_vector, **stored.vector},
            [Item(Chunk(raw)) for raw in stored.tail],
        )
        journal = Journal(stored.green, stored.yellow, mq.end, config.lines_delay_us)
        self._s = State(engine.name, config, record, mq, journal, self._send, earliest=stored.earliest)
        self._assembler = Assembler(places=True)
        self._in_transport: deque[tuple[bytes, int]] = deque()
        self._transport_bytes = 0
        self._chunks_in_transport = 0
        self._behind_us = 0
        self._host_now = 0

    # An engine to the host

    @property
    def name(self) -> NodeId:
        return self.engine.name

    @property
    def state(self) -> State:
        return self._s

    @property
    def deadline(self) -> int | None:
        mine = min(self._s.ack_at, self._s.journal.lines_at)
        engine = self.engine.deadline
        if mine >= NEVER:
            return engine
        return mine - self._behind_us if engine is None else min(engine, mine - self._behind_us)

    @property
    def backlog(self) -> int:
        s = self._s
        return s.unsent_messages + sum(own.messages for own in s.own)

    @property
    def backlog_bytes(self) -> int:
        return self._s.unsent_bytes + self._s.own_bytes

    def start(self, now: int) -> None:
        self._advance(now)
        self._s.save()
        self.engine.start(now)

    def receive(self, now: int, data: bytes, segment: int, via: int | None = None) -> None:
        self._advance(now)
        if via is None:
            self.engine.receive(now, data, segment)
        else:
            cast(NetworkedEngine, self.engine).receive(now, data, segment, via)

    def submit(self, now: int, submission: Submission) -> None:
        self._advance(now)
        if self._s.leaving:
            raise ValueError("messages submitted after the leave was announced")
        regular.submit(self._s, submission)

    def propose(self, now: int, change: GroupChange) -> None:
        """Multicasts a change of the declared group; it takes effect at its place in the global order."""
        self.submit(now, regular.change_submission(change, 0))

    def offer(self, now: int, offset: int, snapshot: bytes) -> None:
        self._advance(now)
        self._s.snapshot = offset, snapshot

    def trimmed(self, now: int, earliest: int) -> None:
        self._advance(now)
        self._s.earliest = max(self._s.earliest, earliest)

    def written(self, now: int, write_id: int) -> None:
        self._advance(now)
        if write_id >= 0:
            self.engine.written(now, write_id)
            return
        for then in self._s.journal.written(write_id):
            then()
        regular.report_ordered(self._s)

    def fetched(self, now: int, fetch_id: int, start: int, chunks: Sequence[Buffer]) -> None:
        self._advance(now)
        then = self._s.fetches.pop(fetch_id, None)
        if then is not None:
            then(start, chunks)

    def timer(self, now: int) -> None:
        self._advance(now)
        if self._s.ack_at <= self._s.now:
            regular.ack_timeout_expired(self._s)
        self.engine.timer(now)

    def throttle(self, now: int, on: bool) -> None:
        self._advance(now)
        self.engine.throttle(now, on)

    def leave(self, now: int) -> None:
        self._advance(now)
        self._s.leaving = True

    def take_effects(self) -> list[Effect]:
        """Hosts the engine below until it is quiet, then closes the entry of this turn."""
        s = self._s
        while True:
            effects = self.engine.take_effects()
            for effect in effects:
                self._carry_out(effect)
            catchup.send_more(s)
            regular.send_regular(s, self.config.transport_bytes - self._chunks_in_transport)
            s.journal.flush(s.effects, s.now)
            regular.acknowledge_in_time(s)
            self._leave_if_due()
            if not effects:
                break
        progress = regular.note_progress(s)
        if progress != s.told:
            s.told = s.progress = progress
            s.effects.append(progress)
        effects, s.effects = s.effects, []
        return effects

    # A host to the engine below

    def _send(self, message: bytes, messages: int) -> None:
        if self._s.left:
            return
        self._in_transport.append((message, messages))
        self._transport_bytes += len(message)
        if messages:
            self._chunks_in_transport += len(message)
        self.engine.submit(self._host_now, Submission([message]))

    def _carry_out(self, effect: Effect) -> None:
        s = self._s
        if isinstance(effect, Deliver):
            if self.config.traced:
                s.effects.append(Transport(effect))
            self._deliver(effect.runs)
        elif isinstance(effect, Originated):
            bodies = []
            for _ in range(effect.count):
                message, messages = self._in_transport.popleft()
                self._transport_bytes -= len(message)
                if messages:
                    self._chunks_in_transport -= len(message)
                bodies.append(message)
            if self.config.traced:
                s.effects.append(Transport(effect, bodies))
        elif isinstance(effect, Install):
            self._install(effect)
        else:
            s.effects.append(effect)

    def _install(self, effect: Install) -> None:
        s = self._s
        s.effects.append(Transport(effect))
        self._deliver(effect.before)
        s.transitional = True
        self._deliver(effect.between)
        s.transitional = False
        self._assembler.reset()
        s.view = effect.regular
        s.names = {node_key(name): name for name in effect.regular.members}
        s.effects.append(Component(effect.regular))
        handler.configuration_changed(s)

    def _deliver(self, runs: Sequence[Run]) -> None:
        s = self._s
        for run in runs:
            batch = self._assembler.feed(run)
            if batch is None:
                continue
            sender = s.names[batch.sender_key]
            assert batch.places is not None
            for place, message in zip(batch.places, batch, strict=True):
                try:
                    self._received(sender, message, place)
                except WireError:
                    s.counters["malformed"] += 1

    def _received(self, sender: NodeId, message: bytes, place: int) -> None:
        s = self._s
        head = decode_head(message)
        if head.kind is MessageKind.CHUNK:
            # Messages of the application count whatever round they were sent in.
            assert s.view is not None
            chunk = decode_chunk(message, sender, Stamp(s.view.number, s.view.id, place))
            action = TABLE[s.phase, head.kind]
            if action is Action.HANDLE:
                regular.chunk_received(s, chunk, place)
        elif head.round == s.round and not s.transitional:
            action = TABLE[s.phase, head.kind]
            assert action is not Action.IMPOSSIBLE, f"{head.kind.name} in {s.phase.value}"
            if action is Action.HANDLE:
                _HANDLERS[head.kind](s, sender, message)
        if head.round == s.round:
            regular.acknowledged(s, sender, head.ack)

    def _leave_if_due(self) -> None:
        """The leave is announced once nothing of this member is under way that can be finished."""
        s = self._s
        if not s.leaving or s.left:
            return
        submitted = s.next_number - 1
        if s.phase is Phase.PRIMARY:
            due = not self.backlog and s.progress.ordered >= submitted
        elif s.phase is Phase.COMPONENT:
            due = not self.backlog and max(s.progress.stable, s.progress.ordered) >= submitted
        else:
            due = s.phase is Phase.PASSIVE
        if due and s.journal.idle:
            s.left = True
            self.engine.leave(self._host_now)

    def _advance(self, now: int) -> None:
        """A clock that jumps back stands still for the layer, as for the engine."""
        s = self._s
        self._host_now = now
        if now + self._behind_us < s.now:
            self._behind_us = s.now - now
        s.now = now + self._behind_us

    # For people

    def _lag(self) -> dict[str, int]:
        """Messages that each member has not acknowledged, or as a pupil has not been sent."""
        s = self._s
        # Asked in another thread than the layer's: copies are made in one step.
        end, tail, placed, pupils = s.mq.end, list(s.mq.tail), list(s.placed), dict(s.pupils)
        first = end - sum(item.count for item in tail)
        lag = {}
        for member in s.members:
            known = bisect_right(placed, s.acks.get(member, 0), key=lambda each: each[0])
            covered = placed[known - 1][1] if known else first
            lag[str(member)] = max(0, end - covered)
        lag.update({str(name): max(0, s.mq.green - position) for name, position in pupils.items()})
        return lag

    def status(self) -> dict[str, object]:
        s = self._s
        return {
            "phase": s.phase.value,
            "round": {"view": s.round.view, "epoch": s.round.epoch},
            "primary": s.record.last_committed_primary.number if s.primary_component_bit else 0,
            "last_committed_primary": s.record.last_committed_primary.number,
            "last_attempted_primary": s.record.last_attempted_primary,
            "group": dict(s.record.group),
            "earliest": s.earliest,
            "green": s.mq.green,
            "yellow": s.mq.yellow,
            "end": s.mq.end,
            "durable": s.journal.durable_end,
            "lag": self._lag(),
            "progress": s.progress._asdict(),
            "counters": dict(s.counters),
        }


def _state(s: State, sender: NodeId, message: bytes) -> None:
    handler.state_received(s, sender, decode_state(message))


def _priority(s: State, sender: NodeId, message: bytes) -> None:
    recovery.priority_received(s, decode_priority(message))


def _red(s: State, sender: NodeId, message: bytes) -> None:
    recovery.reds_received(s, sender, [Item(chunk) for chunk in decode_red(message)])


def _attempt(s: State, sender: NodeId, message: bytes) -> None:
    establish.attempt_received(s, sender, decode_number(message))


def _commit(s: State, sender: NodeId, message: bytes) -> None:
    establish.commit_received(s, sender, decode_number(message))


def _regroup(s: State, sender: NodeId, message: bytes) -> None:
    handler.regroup_received(s)


def _catchup(s: State, sender: NodeId, message: bytes) -> None:
    catchup.catchup_received(s, decode_catchup(message))


def _pace(s: State, sender: NodeId, message: bytes) -> None:
    catchup.pace_received(s, sender, decode_number(message))


def _ack(s: State, sender: NodeId, message: bytes) -> None:
    """It says nothing beyond its head."""


_HANDLERS: dict[MessageKind, Callable[[State, NodeId, bytes], None]] = {
    MessageKind.ACK: _ack,
    MessageKind.STATE: _state,
    MessageKind.PRIORITY: _priority,
    MessageKind.RED: _red,
    MessageKind.ATTEMPT: _attempt,
    MessageKind.COMMIT: _commit,
    MessageKind.REGROUP: _regroup,
    MessageKind.CATCHUP: _catchup,
    MessageKind.PACE: _pace,
}
