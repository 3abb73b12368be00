"""The loop around an engine: sockets, clock, disk and application on one side, the pure protocol on the other.

The loop runs in a thread of its own. An application that blocks its event loop, or computes, holds up only itself;
the interpreter hands the thread its turn every few milliseconds, which is far below the token-loss timeout. What was
measured, and what a process of its own would have cost, stands in `docs/design/group.md`.

One turn of the loop: take what the application has submitted, drain the data sockets, then the token's (§5.2: on
receipt of the token the input buffer is emptied first), call the timer if it is due, carry out the effects in order,
hand over to the application what was delivered.

Before the engine starts the driver listens for a little more than a beacon interval, without a word. A process that
claims a name that another one has would disturb the ring with its first Join; so it finds out before.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import cast

from ordercast.engine.assemble import Assembler, follow
from ordercast.engine.contract import (
    Append,
    Broadcast,
    Component,
    Deliver,
    DurableEngine,
    Effect,
    Engine,
    Fetch,
    Install,
    Kind,
    Left,
    NetworkedEngine,
    Ordered,
    Originated,
    Persist,
    Progress,
    Report,
    Restored,
    Run,
    Service,
    Submission,
    Transport,
    Unicast,
    View,
)
from ordercast.errors import AuthError, Evicted, GroupError
from ordercast.net.addresses import Address
from ordercast.net.log_disk import LogDisk
from ordercast.net.recorder import Recorder
from ordercast.net.rotation import Rotation
from ordercast.net.sink import Books, DurableSink, Sink
from ordercast.net.storage import Storage
from ordercast.net.udp import DRAIN_BYTES_MAX, DRAIN_TRAINS_MAX, UdpNetwork
from ordercast.wire.guard import AnyGuard, Guard
from ordercast.wire.ids import NodeId, node_key
from ordercast.wire.keys import SEAL_VERSION, GroupKey
from ordercast.wire.layout import MAGIC, VERSION, PacketKind, WireError
from ordercast.wire.seal import SEALED_MAGIC
from ordercast.wire.totem import Beacon, Join, Leave, decode_beacon, decode_join, decode_leave

BATCH_BYTES = 256 << 10
"""Trains that follow one another are handed on as one batch until it has so many bytes."""
POLL_MAX_US = 1_000_000
"""The longest sleep; the engine's own deadlines are shorter."""
READER_BYTES_MAX = 32 * 2**20
"""Bytes that wait for the application before the member throttles the group..."""
READER_BYTES_RESUME = 3 * READER_BYTES_MAX // 4
"""...and below which it lets the group go on."""
READER_BYTES_LEAVING = 4 * READER_BYTES_MAX
"""Bytes that may wait for the application while the member leaves, when it throttles nobody any more."""
READER_MESSAGE_BYTES = 64
"""What a message counts for in these limits beside its own bytes."""
EVICTION_US = 2_000_000
"""How long an evicted member goes on to have its own messages delivered."""
NEWCOMER_US = 1_000_000
"""For so long after its start a process that meets its own name is the one that came later."""
NAMESAKE_US = 2_000_000
"""After so long with another process of the same name one of two established members must go."""
DRAINS_MAX = 32
"""Drains of the data socket in one turn: more than its buffer holds."""
REPORT_INTERVAL_US = 1_000_000
KEPT_BYTES = 16 << 20
"""From this size on a block of memory goes back to the system when it is freed; twice as much may be kept."""
ADDRESSES_MAX = 1024

_BEACON_MEMBERS = 32
"""In larger rings beacons are rarer, see engine.totem.links."""
_CONTROL: dict[int, Callable[[bytes], Join | Beacon | Leave]] = {
    PacketKind.JOIN: decode_join,
    PacketKind.BEACON: decode_beacon,
    PacketKind.LEAVE: decode_leave,
}
_NEVER = 2**62
_log = logging.getLogger("ordercast")


DurableEffect = Append | Fetch | Ordered | Progress | Component | Restored | Transport


class Driver(threading.Thread):
    """Hosts one engine on real networks until it leaves, fails or is stopped."""

    def __init__(
        self,
        engine: Engine | NetworkedEngine,
        networks: Sequence[UdpNetwork],
        guard: AnyGuard,
        sink: Sink,
        *,
        group: str,
        storage: Storage | None,
        recorder: Recorder | None,
        listen_us: int,
        slow_reader_timeout_us: int,
        log: LogDisk | None = None,
        books: Books | None = None,
    ) -> None:
        """With several networks the engine is a `NetworkedEngine`; with a log a `DurableEngine`, the sink likewise.

        `books` go with a recorder and a log.
        """
        super().__init__(name=f"ordercast {group} {engine.name}", daemon=True)
        self.engine = engine
        self.networks = tuple(networks)
        self.guard = guard
        self.sink = sink
        self.group = group
        self.storage = storage
        self.recorder = recorder
        self.listen_us = listen_us
        self.slow_reader_timeout_us = slow_reader_timeout_us
        self.log = log
        self.books = books
        self.addresses: list[dict[NodeId, Address]] = [{} for _ in self.networks]
        """Of the other members, by each network."""
        self.unreachable = 0
        """Packets for a process whose address is not known."""
        self.foreign_version: int | None = None
        """The version of packets that this process cannot read, when such have come."""
        self.turns = 0
        self.queued_bytes = 0
        """Submitted, and not yet handed to the engine."""
        self.engine_left = False
        """The engine has left in good order."""
        self._names = {node_key(engine.name): engine.name}
        self._assembler = Assembler()
        self._view: View | None = None
        self._loopback: deque[bytes] = deque()
        self._lock = threading.RLock()  # a collected group may stop its driver from within any line
        self._pending: list[Submission] = []
        self._calls: deque[Callable[[], None]] = deque()
        self._signalled = False
        self._signal_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._services: deque[tuple[Service, int]] = deque()
        self._disk: ThreadPoolExecutor | None = None
        self._stopping = False
        self._error: GroupError | None = None
        self._throttled_us: int | None = None
        self._minded = 0
        self._leave_until: int | None = None
        self._begun: int | None = None
        self._listen_until = 0
        self._namesake: tuple[int, int, int] | None = None
        self._head = (SEALED_MAGIC + bytes((SEAL_VERSION,))) if isinstance(guard, Guard) else MAGIC + bytes((VERSION,))
        self._rotation: Rotation | None = None
        self._report_at = 0
        self._poll = select.poll()
        self._poll.register(self._signal_fd, select.POLLIN)
        self._network_of: dict[int, tuple[int, UdpNetwork]] = {}
        for via, network in enumerate(self.networks):
            for fd in network.filenos():
                self._network_of[fd] = via, network
                self._poll.register(fd, select.POLLIN)
        self._readable: dict[int, UdpNetwork] = {}
        """Networks at which something waited when the last poll ended: asking the others costs system calls a turn."""

    # Called by the application's threads

    def submit(self, submission: Submission) -> None:
        """Takes messages; those of one service without keys and headers join the ones that wait already."""
        size = sum(map(len, submission.bodies))
        with self._lock:
            self.queued_bytes += size
            pending = self._pending
            last = pending[-1] if pending else None
            if (
                last is not None
                and last.service == submission.service
                and last.keys is last.headers is submission.keys is submission.headers is None
                and not (last.whole or submission.whole)
                and type(last) is type(submission) is Submission
                and isinstance(last.bodies, list)
            ):
                last.bodies.extend(submission.bodies)
            else:
                pending.append(submission._replace(bodies=list(submission.bodies)))
            self._signal()

    def leave(self, within_us: int | None = None) -> None:
        """Leaves in good order, and stops in any case after `within_us` if that is given."""
        self.call(lambda: self._begin_leave(_now(), within_us))

    def stop(self, error: GroupError | None = None) -> None:
        """Ends at once, without a word to the others; with an error as in a crash."""

        def end() -> None:
            self._stopping = True
            self._error = self._error or error

        self.call(end)

    def rotate(self, key: GroupKey) -> Rotation:
        """Begins to change the key; one change at a time, the next one waits for nobody."""
        rotation = Rotation(key)

        def begin() -> None:
            if self._rotation is not None:
                rotation.error, rotation.done = GroupError("the key is being changed already"), True
            else:
                self._rotation = rotation

        self.call(begin)
        return rotation

    def key_change(self) -> dict[str, object] | None:
        """The change of keys that goes on, and which members have not been heard to accept the new key yet."""
        rotation, view = self._rotation, self._view
        if rotation is None or not rotation.begun:
            return None
        members = frozenset() if view is None else frozenset(view.members)
        accept = self.guard.proven(rotation.key) if rotation.key in self.guard.keys else frozenset()
        return {"to": rotation.key.id, "waits_for": sorted(members - accept - {self.engine.name})}

    @property
    def throttling(self) -> bool:
        """The group waits for this member's application."""
        return self._throttled_us is not None

    def stranger(self) -> GroupError | None:
        """Whom this process cannot understand, when such have spoken and nobody else has."""
        if self.foreign_version is not None:
            return GroupError(
                f"processes of another version ({self.foreign_version}) use this group; this one has {VERSION}"
            )
        counters = self.guard.counters
        if counters.get("sealed"):
            return AuthError("the group's processes use a key, and this one has none")
        if counters.get("accepted"):
            return None
        if counters.get("unknown_key"):
            return AuthError("the group's processes use another key")
        if counters.get("plaintext"):
            return AuthError("the group's processes use no key, and this one has one")
        return None

    def call(self, function: Callable[[], None]) -> None:
        """Runs a function in the driver's thread, between two turns."""
        with self._lock:
            self._calls.append(function)
            self._signal()

    def _signal(self) -> None:
        """Ends the poll. Under the lock: the descriptor of a driver that has ended may be another file's by now."""
        if not self._signalled:
            self._signalled = True
            os.eventfd_write(self._signal_fd, 1)

    # The driver's thread

    def run(self) -> None:
        error: GroupError | None = None
        whole = False
        try:
            _keep_freed_memory()
            self._listen()
            if not self._stopping:
                self._open_log()
                self._begun = _now()
                self.engine.start(self._begun)
                self._carry_out()
            while not self._stopping:
                self._turn()
            error = self._error
            whole = True
        except GroupError as failure:
            error = failure
        except Exception as failure:
            error = GroupError(f"the group's driver has failed: {type(failure).__name__}: {failure}")
            error.__cause__ = failure
        finally:
            self._close(error, whole)

    def _open_log(self) -> None:
        """What the log's thread says reaches the engine between two turns; its first failure is the end."""
        log = self.log
        if log is None:
            return
        engine = cast(DurableEngine, self.engine)
        log.on_written = lambda write_id: self.call(lambda: self._log_written(engine, write_id))
        log.on_fetched = lambda fetch_id, start, chunks: self.call(
            lambda: engine.fetched(_now(), fetch_id, start, chunks)
        )
        log.on_trimmed = lambda earliest: self.call(lambda: engine.trimmed(_now(), earliest))
        log.on_failed = self.stop
        log.start()

    def _log_written(self, engine: DurableEngine, write_id: int) -> None:
        if self.books is not None:
            self.books.written(write_id)
        engine.written(_now(), write_id)

    def _close(self, error: GroupError | None, whole: bool) -> None:
        if self.recorder is not None:
            # What a turn that failed has not written yet is not written: the trace ends as in a crash.
            ending = None
            if whole:
                ending = "leave" if self.engine_left else "close" if error is None else None
            try:
                self.recorder.end(ending)
            except GroupError as failure:
                error = error or failure
        for network in self.networks:
            network.close()
        if self._disk is not None:
            self._disk.shutdown(wait=True)
        if self.log is not None:
            self.log.close()
        if self.storage is not None:
            self.storage.close()
        with self._lock:
            self._signalled = True  # nobody writes to the descriptor any more
            os.close(self._signal_fd)
        self.sink.ended(error, whole)

    def _listen(self) -> None:
        """Until a beacon of everybody must have come; raises if one of them has my name."""
        self._listen_until = _now() + self.listen_us + 500 * (self.networks[0].own[1] % 64)
        while not self._stopping:
            now = _now()
            self._wait(now, self._listen_until)
            self._receive_all()
            self._send_own_packets(_now())
            if self._leave_until is not None:
                self._stopping = True
            if now >= self._listen_until:
                return

    def _turn(self) -> None:
        self.turns += 1
        now = _now()
        deadline = self.engine.deadline
        self._wait(now, now + POLL_MAX_US if deadline is None else deadline)
        self._receive_all()
        while self._loopback:
            packet = self._loopback.popleft()
            self.engine.receive(_now(), packet, len(packet))
        deadline = self.engine.deadline
        now = _now()
        if deadline is not None and deadline <= now:
            self.engine.timer(now)
        self._carry_out()
        self._send_own_packets(now)
        if self._rotation is not None:
            self._rotate(self._rotation, now)
        self._mind_the_reader(now)
        self.sink.publish()
        if now >= self._report_at:
            self._report(now)

    def _wait(self, now: int, until: int) -> None:
        """Sleeps until there is something to do, and takes what the application has left."""
        if self.guard.deadline is not None:
            until = min(until, self.guard.deadline)
        wait_us = 0 if self._loopback else max(0, min(until - now, POLL_MAX_US))
        self._readable.clear()
        for fd, _ in self._poll.poll(wait_us / 1000):
            if fd == self._signal_fd:
                self._take_submissions()
            else:
                via, network = self._network_of[fd]
                self._readable[via] = network

    def _send_own_packets(self, now: int) -> None:
        """The guard's."""
        for destination, packet, via in self.guard.take_packets(now):
            if destination is None:
                self.networks[via].broadcast(packet, len(packet))
            else:
                self.networks[via].unicast(cast(Address, destination), packet)

    def _report(self, now: int) -> None:
        self._report_at = now + REPORT_INTERVAL_US
        line = self.guard.report(now)
        if line is not None:
            _log.warning("group %s: %s", self.group, line)

    def _rotate(self, rotation: Rotation, now: int) -> None:
        members = () if self._view is None else self._view.members
        rotation.advance(now, self.guard, frozenset(members) - {self.engine.name})
        if rotation.done:
            self._rotation = None

    def _take_submissions(self) -> None:
        with self._lock:
            with suppress(BlockingIOError):
                os.eventfd_read(self._signal_fd)
            self._signalled = False
            pending, self._pending = self._pending, []
            calls, self._calls = self._calls, deque()
            size = self.queued_bytes
        # What was submitted before a call is taken before it: the engine takes nothing after `leave`.
        now = _now()
        for submission in pending:
            if self._leave_until is not None:
                break  # submitted while this member was being evicted: its tickets will say so
            if self.recorder is not None:
                self._services.append((submission.service, len(submission.bodies)))
            self.engine.submit(now, submission)
        with self._lock:
            self.queued_bytes -= size
        for call in calls:
            call()

    def _receive_all(self) -> None:
        """All data first, then the token: what was sent before it would otherwise be asked for again.

        So tokens are read before the data, and handed on after it: what comes while the data is read is not older.
        """
        readable = self._readable
        tokens = [(via, readable[via].drain_unicast()) for via in readable]
        for via, network in readable.items():
            for _ in range(DRAINS_MAX):
                trains = network.drain()
                self._receive(trains, via)
                if len(trains) < DRAIN_TRAINS_MAX and sum(len(train[0]) for train in trains) < DRAIN_BYTES_MAX:
                    break
        for via, packets in tokens:
            self._receive(packets, via)

    def _receive(self, trains: Sequence[tuple[bytes, int, Address]], via: int) -> None:
        if not trains:
            return
        now = _now()
        receive, guard, started = self.engine.receive, self.guard, self._begun is not None
        if len(self.networks) > 1:
            receive = partial(cast(NetworkedEngine, self.engine).receive, via=via)
        for sealed, sealed_segment, source in trains:
            if sealed[:3] != self._head:
                self._look_at_stranger(sealed)
            for data, segment, _ in guard.receive(now, sealed, sealed_segment, source, via):
                if len(data) > 3 and data[3] in _CONTROL:
                    self._look_at_sender(now, data[:segment], source, via)
                if started:
                    receive(now, data, segment)

    def _look_at_stranger(self, packet: bytes) -> None:
        version = {MAGIC: VERSION, SEALED_MAGIC: SEAL_VERSION}.get(packet[:2])
        if version is None or len(packet) < 4 or packet[2] == version or self.foreign_version is not None:
            return
        self.foreign_version = packet[2]
        _log.warning("group %s: packets of version %d are dropped, this is %d", self.group, packet[2], version)

    def _look_at_sender(self, now: int, packet: bytes, source: Address, via: int) -> None:
        """Join, beacon and leave name their sender; they come from the socket at which it receives the token."""
        try:
            said = _CONTROL[packet[3]](packet)
        except WireError:
            return
        if said.sender == self.engine.name:
            if not isinstance(said, Leave):
                self._meet_namesake(now, source, via)
            return
        self.addresses[via][said.sender] = source
        if self._begun is None and isinstance(said, Beacon):
            intervals = -(-len(said.members) // _BEACON_MEMBERS)
            self._listen_until = max(self._listen_until, now + (intervals - 1) * self.listen_us)

    def _meet_namesake(self, now: int, source: Address, via: int) -> None:
        """Another process says that it is me. The newcomer goes; of two members, long parted, one does."""
        taken = f"the name {self.engine.name!r} is taken by another process of the group, at {source[0]}"
        if self._begun is None or now - self._begun < NEWCOMER_US:
            raise GroupError(taken)
        first, last, lowest = self._namesake or (now, now, via)
        if now - last > NAMESAKE_US:
            first, lowest = now, via
        # Both must come to the same end: they compare their addresses on the first network by which they meet.
        lowest = min(lowest, via)
        self._namesake = first, now, lowest
        if now - first > NAMESAKE_US and via == lowest and source < self.networks[via].own:
            raise GroupError(taken)

    def _carry_out(self) -> None:
        """The effects since the last time, in their order."""
        effects = self.engine.take_effects()
        while effects:
            for effect in _deliveries_joined(effects):
                self._effect(effect)
            effects = self.engine.take_effects()
        if self.recorder is not None:
            self.recorder.flush()

    def _effect(self, effect: Effect) -> None:
        if isinstance(effect, Deliver):
            self._deliver(effect.view_id, effect.runs)
        elif isinstance(effect, Broadcast):
            self._flush_trace()
            data, segment = self.guard.seal(effect.data, effect.segment)
            self.networks[effect.via].broadcast(data, segment)
        elif isinstance(effect, Unicast):
            self._flush_trace()
            self._unicast(effect)
        elif isinstance(effect, Originated):
            if self.recorder is not None:
                self._record_sent(self.recorder, effect)
        elif isinstance(effect, Install):
            self._install(effect)
        elif isinstance(effect, Persist):
            self._persist(effect)
        elif isinstance(effect, Left):
            self.engine_left = self._stopping = True
        elif isinstance(effect, Report):
            if self.recorder is not None:
                self.recorder.reported(effect)
            if self.books is not None:
                self.books.reported(effect)
            self.sink.reported(effect)
        else:
            self._durable_effect(effect)

    def _durable_effect(self, effect: DurableEffect) -> None:
        """Those of a layer with a log, which says what messages and views the application gets."""
        assert self.log is not None
        sink = cast(DurableSink, self.sink)
        if isinstance(effect, Append | Fetch):
            if self.books is not None and isinstance(effect, Append):
                self.books.entered(effect)
            self.log.put(effect)
        elif isinstance(effect, Ordered):
            if self.books is not None:
                self.books.ordered(effect)
            sink.ordered(effect)
        elif isinstance(effect, Progress):
            sink.progress(effect)
        elif isinstance(effect, Component):
            sink.component(effect)
        elif isinstance(effect, Restored):
            sink.restored(effect)
        else:
            self._transport(effect)

    def _transport(self, effect: Transport) -> None:
        said = effect.effect
        if isinstance(said, Install):
            self._install(said)
        elif isinstance(said, Deliver):
            self._deliver(said.view_id, said.runs)
        elif self.books is not None:
            self.books.sent(said, effect.bodies, self.engine.name)

    def _flush_trace(self) -> None:
        """What the trace says must be on disk before a packet leaves the process."""
        if self.recorder is not None:
            self.recorder.flush()

    def _unicast(self, effect: Unicast) -> None:
        to, packet, via = effect.to, effect.packet, effect.via
        if to == self.engine.name:
            self._loopback.append(packet)
            return
        address = self.addresses[via].get(to)
        if address is None:
            self.unreachable += 1
            return
        data, _ = self.guard.seal(packet, len(packet), to)
        self.networks[via].unicast(address, data)

    def _deliver(self, view_id: str, runs: Sequence[Run]) -> None:
        recorder, me = self.recorder, self.engine.name
        if recorder is None and self.log is not None:
            return
        assert self._view is not None
        at, count = 0, len(runs)
        while at < count:
            # What one visit of the token has sent is one batch, however many trains it came in.
            begin, size = at, len(runs[at].train.raw)
            at += 1
            while at < count and size < BATCH_BYTES and follow(runs[at - 1], runs[at]):
                size += len(runs[at].train.raw)
                at += 1
            columns = self._assembler.feed(*runs[begin:at])
            if columns is None:
                continue
            sender = self._names[columns.sender_key]
            if self.books is not None:
                self.books.delivered(columns, sender, self._view.id, view_id)
            elif recorder is not None:
                recorder.delivered(columns, sender, self._view.id, view_id)
            if self.log is None:
                self.sink.batch(columns, sender, view_id, sender == me)

    def _install(self, effect: Install) -> None:
        if effect.transitional is not None:
            assert self._view is not None
            self._deliver(self._view.id, effect.before)
            self._show(effect.transitional)
            self._deliver(effect.transitional.id, effect.between)
        self._assembler.reset()
        self._view = effect.regular
        self._names = {node_key(name): name for name in effect.regular.members}
        for via, addresses in enumerate(self.addresses):
            if len(addresses) > ADDRESSES_MAX:
                # Those of passers-by are learnt again when they speak.
                self.addresses[via] = {name: at for name, at in addresses.items() if name in effect.regular.members}
        self._show(effect.regular)

    def _show(self, view: View) -> None:
        if self.recorder is not None:
            self.recorder.conf(view)
            if view.kind is Kind.REGULAR:
                self.recorder.flush()
        if self.log is None:
            self.sink.view(view)

    def _record_sent(self, recorder: Recorder, effect: Originated) -> None:
        first, left = effect.first, effect.count
        while left:
            service, count = self._services.popleft()
            if count > left:
                self._services.appendleft((service, count - left))
                count = left
            recorder.sent(self.engine.name, effect.view_id, first, count, service.name.lower())
            first += count
            left -= count

    def _persist(self, effect: Persist) -> None:
        """The write goes on beside the loop; the engine is told when it is durable."""
        if self.storage is None:
            self.engine.written(_now(), effect.write_id)
            return
        if self._disk is None:
            self._disk = ThreadPoolExecutor(1, "ordercast disk")
        done = self._disk.submit(self.storage.write, effect.key, effect.record)
        done.add_done_callback(lambda future: self._written(future, effect.write_id))

    def _written(self, future: Future[None], write_id: int) -> None:
        failure = future.exception()
        if failure is None:
            self.call(lambda: self.engine.written(_now(), write_id))
        else:
            # A failed write is final: what the disk holds now is not known.
            self.stop(GroupError(f"stable storage has failed: {failure}"))

    def _mind_the_reader(self, now: int) -> None:
        """Throttles the group while the application lags, and leaves it after slow_reader_timeout."""
        waiting = self.sink.reader_backlog()
        # A process that was suspended is not blamed for the time.
        passed, self._minded = min(now - self._minded, POLL_MAX_US), now
        if self._leave_until is not None:
            if waiting > READER_BYTES_LEAVING or now >= self._leave_until:
                self._stopping = True
        elif self._throttled_us is None:
            if waiting > READER_BYTES_MAX:
                self._throttled_us = 0
                self.engine.throttle(now, True)
        elif waiting < READER_BYTES_RESUME:
            self._throttled_us = None
            self.engine.throttle(now, False)
        else:
            self._throttled_us += passed
            if self._throttled_us > self.slow_reader_timeout_us:
                self._error = Evicted(
                    f"the application held the group up for {self.slow_reader_timeout_us / 1e6:g} s "
                    f"while {waiting} bytes waited for it"
                )
                self._begin_leave(now, EVICTION_US)

    def _begin_leave(self, now: int, within_us: int | None) -> None:
        if self._leave_until is not None:
            return
        self._leave_until = _NEVER if within_us is None else now + within_us
        if self._throttled_us is not None:
            self._throttled_us = None
            self.engine.throttle(now, False)
        if self._begun is not None:
            self.engine.leave(now)


def _deliveries_joined(effects: Iterable[Effect]) -> Iterator[Effect]:
    """The same effects, with one delivery in place of several in a row."""
    joined: Deliver | None = None
    for effect in effects:
        if isinstance(effect, Deliver):
            if joined is not None and joined.view_id == effect.view_id:
                joined.runs += effect.runs
                continue
            if joined is not None:
                yield joined
            joined = effect
            continue
        if joined is not None:
            yield joined
            joined = None
        yield effect
    if joined is not None:
        yield joined


def _keep_freed_memory() -> None:
    """Lets the allocator hand the memory of trains out again instead of returning it to the system.

    glibc returns what is free at the end of its heap from 128 KiB on, and maps what is larger anew each time, until a
    large block has been freed: from then on that block's size is the limit. A page that is handed out anew costs more
    than what stands in it. The block is never touched, so it costs two system calls.
    """
    bytes(KEPT_BYTES)


def _now() -> int:
    return time.monotonic_ns() // 1000
