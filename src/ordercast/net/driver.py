"""The loop around an engine: sockets, clock, disk and application on one side, the pure protocol on the other.

The loop runs in a thread of its own. An application that blocks its event loop, or computes, holds up only itself;
the interpreter hands the thread its turn every few milliseconds, which is far below the token-loss timeout. What was
measured, and what a process of its own would have cost, stands in `docs/design/group.md`.

One turn of the loop: take what the application has submitted, drain the data sockets, then the token's (§5.2: on
receipt of the token the input buffer is emptied first), call the timer if it is due, carry out the effects in order.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol, cast

from ordercast.engine.assemble import Assembler
from ordercast.engine.assemble import Batch as Columns
from ordercast.engine.contract import (
    Broadcast,
    Deliver,
    Effect,
    Engine,
    Install,
    Kind,
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
from ordercast.errors import Evicted, GroupError
from ordercast.net.addresses import Address
from ordercast.net.recorder import Recorder
from ordercast.net.storage import Storage
from ordercast.net.udp import UdpNetwork
from ordercast.wire.ids import NodeId, node_key
from ordercast.wire.layout import PacketKind, WireError
from ordercast.wire.seal import Guard, PlainGuard
from ordercast.wire.totem import decode_beacon, decode_join, decode_leave

POLL_MAX_US = 1_000_000
"""The longest sleep; the engine's own deadlines are shorter."""
READER_BYTES_MAX = 32 * 2**20
"""Bytes that wait for the application before the member throttles the group..."""
READER_BYTES_RESUME = READER_BYTES_MAX // 2
"""...and below which it lets the group go on."""
READER_MESSAGE_BYTES = 64
"""What a message counts for in these limits beside its own bytes."""

_SENDER_OF = {
    PacketKind.JOIN: lambda data: decode_join(data).sender,
    PacketKind.BEACON: lambda data: decode_beacon(data).sender,
    PacketKind.LEAVE: lambda data: decode_leave(data).sender,
}


class Sink(Protocol):
    """Where the driver hands things to; its methods are called in the driver's thread."""

    def view(self, view: View) -> None:
        """A configuration was delivered."""

    def batch(self, columns: Columns, sender: NodeId, view_id: str, mine: bool) -> None:
        """Messages were delivered."""

    def turn_over(self) -> None:
        """The end of a turn of the loop: wake whoever waits."""

    def reader_backlog(self) -> int:
        """Bytes that wait for the application."""

    def reported(self, report: Report) -> None:
        """Something noteworthy."""

    def ended(self, error: GroupError | None) -> None:
        """The driver has stopped; nothing follows."""


class Driver(threading.Thread):
    """Hosts one engine on real networks until it leaves, fails or is stopped."""

    def __init__(
        self,
        engine: Engine,
        network: UdpNetwork,
        guard: Guard | PlainGuard,
        sink: Sink,
        *,
        storage: Storage | None,
        recorder: Recorder | None,
        slow_reader_timeout_us: int,
    ) -> None:
        super().__init__(name=f"ordercast {engine.name}", daemon=True)
        self.engine = engine
        self.network = network
        self.guard = guard
        self.sink = sink
        self.storage = storage
        self.recorder = recorder
        self.slow_reader_timeout_us = slow_reader_timeout_us
        self.addresses: dict[NodeId, Address] = {}
        self.unreachable = 0
        """Packets for a process whose address is not known."""
        self.turns = 0
        self._names = {node_key(engine.name): engine.name}
        self._assembler = Assembler()
        self._view: View | None = None
        self._loopback: deque[bytes] = deque()
        self._lock = threading.Lock()
        self._pending: list[Submission] = []
        self._calls: deque[Callable[[], None]] = deque()
        self._signalled = False
        self._signal_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._services: deque[tuple[Service, int]] = deque()
        self._disk: ThreadPoolExecutor | None = None
        self._stopping = False
        self._error: GroupError | None = None
        self._throttled_since: int | None = None
        self._poll = select.poll()
        for fd in (self._signal_fd, *network.filenos()):
            self._poll.register(fd, select.POLLIN)

    # Called by the application's threads

    def submit(self, submission: Submission) -> None:
        with self._lock:
            pending = self._pending
            last = pending[-1] if pending else None
            if (
                last is not None
                and last.service == submission.service
                and last.keys is last.headers is submission.keys is submission.headers is None
                and isinstance(last.bodies, list)
            ):
                last.bodies.extend(submission.bodies)
            else:
                pending.append(submission._replace(bodies=list(submission.bodies)))
        self._signal()

    def call(self, function: Callable[[], None]) -> None:
        """Runs a function in the driver's thread, between two turns."""
        self._calls.append(function)
        self._signal()

    def leave(self) -> None:
        self.call(lambda: self.engine.leave(_now()))

    def stop(self, error: GroupError | None = None) -> None:
        """Ends at once, as in a crash."""

        def end() -> None:
            self._stopping = True
            self._error = self._error or error

        self.call(end)

    def _signal(self) -> None:
        if not self._signalled:
            self._signalled = True
            try:
                os.eventfd_write(self._signal_fd, 1)
            except OSError:
                return

    # The driver's thread

    def run(self) -> None:
        error: GroupError | None = None
        try:
            self.engine.start(_now())
            self._carry_out()
            while not self._stopping:
                self._turn()
            error = self._error
        except GroupError as failure:
            error = failure
        except Exception as failure:
            error = GroupError(f"the engine has failed: {type(failure).__name__}: {failure}")
            error.__cause__ = failure
        finally:
            self._close(error)

    def _close(self, error: GroupError | None) -> None:
        if self.recorder is not None and self.engine_left:
            self.recorder.close("leave")
        self.network.close()
        if self._disk is not None:
            self._disk.shutdown(wait=True)
        if self.storage is not None:
            self.storage.close()
        with self._lock:
            self._signalled = True
            os.close(self._signal_fd)
        self.sink.ended(error)
        self.sink.turn_over()

    engine_left = False
    """The engine has left in good order."""

    def _turn(self) -> None:
        self.turns += 1
        deadline = self.engine.deadline
        now = _now()
        until = min(
            now + POLL_MAX_US if deadline is None else deadline,
            now + POLL_MAX_US if self.guard.deadline is None else self.guard.deadline,
        )
        self._poll.poll(0 if self._loopback else max(0, min(until - now, POLL_MAX_US)) / 1000)
        if self._signalled:
            self._take_submissions()
        self._receive(self.network.drain())
        self._receive(self.network.drain_unicast())
        while self._loopback:
            packet = self._loopback.popleft()
            self.engine.receive(_now(), packet, len(packet))
        deadline = self.engine.deadline
        now = _now()
        if deadline is not None and deadline <= now:
            self.engine.timer(now)
        self._carry_out()
        for destination, packet in self.guard.take_packets(now):
            if destination is None:
                self.network.broadcast(packet, len(packet))
            else:
                self.network.unicast(cast(Address, destination), packet)
        self._mind_the_reader(now)
        self.sink.turn_over()

    def _take_submissions(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._signal_fd)
        with self._lock:
            self._signalled = False
            pending, self._pending = self._pending, []
        while self._calls:
            self._calls.popleft()()
        now = _now()
        for submission in pending:
            if self.recorder is not None:
                self._services.append((submission.service, len(submission.bodies)))
            self.engine.submit(now, submission)

    def _receive(self, trains: Sequence[tuple[bytes, int, Address]]) -> None:
        if not trains:
            return
        now = _now()
        receive, guard = self.engine.receive, self.guard
        for sealed, sealed_segment, source in trains:
            for data, segment, _ in guard.receive(now, sealed, sealed_segment, source):
                if len(data) > 3 and data[3] in _SENDER_OF:
                    self._learn_address(data[:segment], source)
                receive(now, data, segment)

    def _learn_address(self, packet: bytes, source: Address) -> None:
        """Join, beacon and leave name their sender; they come from the socket at which it receives the token."""
        try:
            sender = _SENDER_OF[PacketKind(packet[3])](packet)
        except WireError:
            return
        self.addresses[sender] = source
        self._names[node_key(sender)] = sender

    def _carry_out(self) -> None:
        """The effects since the last time, in their order."""
        effects = self.engine.take_effects()
        while effects:
            for effect in effects:
                self._effect(effect)
            effects = self.engine.take_effects()
        if self.recorder is not None:
            self.recorder.flush()

    def _effect(self, effect: Effect) -> None:
        if isinstance(effect, Deliver):
            self._deliver(effect.view_id, effect.runs)
        elif isinstance(effect, Broadcast):
            self._leaving()
            data, segment = self.guard.seal(effect.data, effect.segment)
            self.network.broadcast(data, segment)
        elif isinstance(effect, Unicast):
            self._leaving()
            self._unicast(effect.to, effect.packet)
        elif isinstance(effect, Originated):
            if self.recorder is not None:
                self._record_sent(self.recorder, effect)
        elif isinstance(effect, Install):
            self._install(effect)
        elif isinstance(effect, Persist):
            self._persist(effect)
        elif isinstance(effect, Left):
            self.engine_left = self._stopping = True
        else:
            self.sink.reported(effect)

    def _leaving(self) -> None:
        """What the trace says must be on disk before a packet leaves the process."""
        if self.recorder is not None:
            self.recorder.flush()

    def _unicast(self, to: NodeId, packet: bytes) -> None:
        if to == self.engine.name:
            self._loopback.append(packet)
            return
        address = self.addresses.get(to)
        if address is None:
            self.unreachable += 1
            return
        data, _ = self.guard.seal(packet, len(packet))
        self.network.unicast(address, data)

    def _deliver(self, view_id: str, runs: Sequence[Run]) -> None:
        assert self._view is not None
        recorder, me = self.recorder, self.engine.name
        for run in runs:
            columns = self._assembler.feed(run)
            if columns is None:
                continue
            sender = self._names[columns.sender_key]
            if recorder is not None:
                recorder.delivered(columns, sender, self._view.id, view_id)
            self.sink.batch(columns, sender, view_id, sender == me)

    def _install(self, effect: Install) -> None:
        for name in effect.regular.members:
            self._names[node_key(name)] = name
        if effect.transitional is not None:
            assert self._view is not None
            self._deliver(self._view.id, effect.before)
            self._show(effect.transitional)
            self._deliver(effect.transitional.id, effect.between)
        self._assembler.reset()
        self._view = effect.regular
        self._show(effect.regular)

    def _show(self, view: View) -> None:
        if self.recorder is not None:
            self.recorder.conf(view)
            if view.kind is Kind.REGULAR:
                self.recorder.flush()
        self.sink.view(view)

    def _record_sent(self, recorder: Recorder, effect: Originated) -> None:
        services: list[str] = []
        while len(services) < effect.count:
            service, count = self._services.popleft()
            take = min(count, effect.count - len(services))
            services += [service.name.lower()] * take
            if take < count:
                self._services.appendleft((service, count - take))
        recorder.sent(self.engine.name, effect.view_id, effect.first, services)

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
        if self._throttled_since is None:
            if waiting > READER_BYTES_MAX:
                self._throttled_since = now
                self.engine.throttle(now, True)
        elif waiting < READER_BYTES_RESUME:
            self._throttled_since = None
            self.engine.throttle(now, False)
        elif now - self._throttled_since > self.slow_reader_timeout_us and self._error is None:
            self._error = Evicted(
                f"the application has not read for {self.slow_reader_timeout_us / 1e6:g} s "
                f"while {waiting} bytes waited for it"
            )
            self.engine.throttle(now, False)
            self.engine.leave(now)


def _now() -> int:
    return time.monotonic_ns() // 1000
