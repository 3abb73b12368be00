"""The group as an application sees it: join, send, one ordered stream of events, leave.

`Group` is a thin face over the driver's thread. Everything that crosses between the threads does so in batches: what
is sent is collected until the driver takes it, what is delivered is collected until the application does.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
import warnings
from collections import deque
from collections.abc import AsyncIterator, Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

from ordercast.engine.assemble import Batch as Columns
from ordercast.engine.contract import Kind, Report, Submission
from ordercast.engine.contract import View as EngineView
from ordercast.engine.totem import Totem, TotemConfig
from ordercast.errors import AuthError, DeliveryUncertain, GroupError, MessageTooLarge, NotMember, WouldBlock
from ordercast.events import Batch, BatchEvent, Event, Headers, TransitionalView, View, encode_headers
from ordercast.net.addresses import is_loopback
from ordercast.net.driver import READER_MESSAGE_BYTES, Driver
from ordercast.net.recorder import Recorder
from ordercast.net.storage import Storage
from ordercast.net.udp import UdpNetwork
from ordercast.wire.ids import NodeId, Service
from ordercast.wire.keys import GroupKeyError, load_key
from ordercast.wire.layout import WireError
from ordercast.wire.seal import Guard, PlainGuard
from ordercast.wire.totem import check_name

MESSAGE_BYTES_MAX = 64 * 2**20 + 2**20
"""The longest message, its key and headers included."""
SEND_QUEUE_BYTES = 16 * 2**20
"""Bytes that may wait to be sent before `send` waits; one message may exceed it when nothing else waits."""
SEND_QUEUE_MESSAGES = 200_000
DISCOVERY_S = 0.5
"""How long `join` looks for others before it takes the view that there is."""
LEAVE_TIMEOUT_S = 5.0
"""How long `leave` waits for its last messages to be everywhere before it goes all the same."""
RESERVED_ENGINES = ("sequencer", "mtp", "corel")

ServiceName = Literal["agreed", "safe"]
_SERVICES = {"agreed": Service.AGREED, "safe": Service.SAFE}
_SERVICE_NAMES = {service: name for name, service in _SERVICES.items()}


class Receipt(NamedTuple):
    """Where messages were delivered at their sender."""

    view_id: str
    seq: int
    """The number of the last message of the ticket."""


class Ticket:
    """Stands for messages that were sent; awaiting it gives their receipt. Costs nothing while nobody awaits it."""

    __slots__ = ("_end", "_error", "_receipt", "_safe", "_waiters")

    def __init__(self, end: int, safe: bool) -> None:
        self._end = end
        self._safe = safe
        self._receipt: Receipt | None = None
        self._error: GroupError | None = None
        self._waiters: list[asyncio.Future[None]] | None = None

    @property
    def done(self) -> bool:
        return self._receipt is not None or self._error is not None

    def result(self) -> Receipt:
        """The receipt, or the error; only once it is done."""
        if self._error is not None:
            raise self._error
        if self._receipt is None:
            raise WouldBlock("the ticket's messages are not delivered yet")
        return self._receipt

    def __await__(self) -> Generator[Any, None, Receipt]:
        if not self.done:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(future)
            yield from future
        return self.result()

    def _settle(self, receipt: Receipt | None, error: GroupError | None) -> None:
        self._receipt, self._error = receipt, error
        for future in self._waiters or ():
            if not future.done():
                future.set_result(None)
        self._waiters = None


class _Done(NamedTuple):
    """In the stream from the driver: so many of my own messages have been delivered."""

    messages: int
    view_id: str
    seq: int
    transitional: bool
    partial: bool


class StreamEnd(NamedTuple):
    """In the stream from the driver: nothing follows."""

    error: GroupError | None


class _Stream:
    """What the driver has delivered and the application has not taken; the driver's Sink."""

    def __init__(self) -> None:
        self.items: deque[Batch | View | TransitionalView | StreamEnd] = deque()
        self.done: deque[_Done] = deque()
        self.bytes_in = 0
        self.bytes_out = 0
        self.current: EngineView | None = None
        self.members: tuple[str, ...] = ()
        self.settled = False
        """The group is found: views go to the application from here on."""
        self.fresh = False
        self.wake: Any = None
        self.warnings: list[str] = []
        self._first: View | None = None
        self._transitional: TransitionalView | None = None
        self._smaller = False

    def view(self, view: EngineView) -> None:
        if view.kind is Kind.TRANSITIONAL:
            self._smaller = self.current is not None and len(view.members) < len(self.current.members)
            self._transitional = TransitionalView(view.id, view.members)
            if self.settled:
                self.items.append(self._transitional)
        else:
            self._transitional = None
            before = set(self.members)
            now = set(view.members)
            event = View(
                view.id,
                view.members,
                tuple(name for name in view.members if name not in before),
                tuple(name for name in self.members if name not in now) if self.settled else (),
            )
            self.current = view
            if not self.settled and len(view.members) == 1:
                # The ring of its own with which every process starts: seen only if it stays the only one.
                self._first = event
            else:
                self.settled = True
                self._first = None
                self.items.append(event)
            self.members = view.members if self.settled else ()
        self.fresh = True

    def settle(self) -> None:
        """The discovery is over: alone counts as a group."""
        if not self.settled and self._first is not None:
            self.settled = True
            self.items.append(self._first)
            self.members = self._first.members
            self._first = None

    def batch(self, columns: Columns, sender: NodeId, view_id: str, mine: bool) -> None:
        if not self.settled:
            self.settle()
        self.items.append(Batch(columns, sender, view_id, _SERVICE_NAMES[columns.service]))
        self.bytes_in += len(columns.blob) + READER_MESSAGE_BYTES * len(columns.lengths)
        if mine:
            self.done.append(
                _Done(
                    len(columns),
                    view_id,
                    columns.first + len(columns) - 1,
                    self._transitional is not None,
                    self._smaller,
                )
            )
        self.fresh = True

    def turn_over(self) -> None:
        if self.fresh and self.wake is not None:
            self.fresh = False
            self.wake()

    def reader_backlog(self) -> int:
        return self.bytes_in - self.bytes_out

    def reported(self, report: Report) -> None:
        if report.what == "name_conflict":
            self.warnings.append(report.reason)

    def ended(self, error: GroupError | None) -> None:
        self.items.append(StreamEnd(error))
        self.fresh = True


def finish_batch(stream: _Stream, item: Batch | View | TransitionalView) -> None:
    """The application has come back for more: what it was handed no longer counts as unread."""
    if isinstance(item, Batch):
        stream.bytes_out += len(item.blob) + READER_MESSAGE_BYTES * len(item.lengths)


class Options(NamedTuple):
    """What `join` was given, checked."""

    group: str
    name: NodeId
    engine: str
    networks: tuple[str, ...]
    peers: tuple[str, ...] | None
    key: str | os.PathLike[str] | bytes | None
    insecure: bool
    data_dir: Path | None
    trace: bool
    min_members: int
    discovery_s: float
    slow_reader_timeout_s: float


def _default_name() -> str:
    host = socket.gethostname().partition(".")[0] or "node"
    return f"{host}-{os.getpid():x}{os.urandom(2).hex()}"


def check_options(
    group: str,
    *,
    name: str | None = None,
    engine: str = "totem",
    networks: Sequence[str] = ("127.0.0.1",),
    replication: str = "active",
    peers: Sequence[str] | None = None,
    key: str | os.PathLike[str] | bytes | None = None,
    insecure: bool = False,
    data_dir: str | os.PathLike[str] | None = None,
    trace: bool = False,
    min_members: int = 1,
    start: int | str | None = None,
    discovery_s: float = DISCOVERY_S,
    slow_reader_timeout: float = 30.0,
) -> Options:
    """Refuses what cannot work, each with one clear line, before anything is opened."""
    if not group:
        raise GroupError("a group needs a name")
    if engine in RESERVED_ENGINES:
        raise GroupError(f"engine {engine!r} is not available in this version; there is 'totem'")
    if engine != "totem":
        raise GroupError(f"there is no engine {engine!r}; there is 'totem'")
    if isinstance(networks, str) or len(networks) != 1:
        raise GroupError(
            "networks is a list with one local address; redundant networks are not available in this version"
        )
    if start is not None:
        raise GroupError("start belongs to the engine 'corel', which is not available in this version")
    if trace and data_dir is None:
        raise GroupError("a trace is written under data_dir, which is not given")
    if min_members < 1:
        raise GroupError(f"min_members is at least 1, not {min_members}")
    address = networks[0].partition(":")[0]
    try:
        checked = check_name(_default_name() if name is None else name)
        local = is_loopback(address)
    except (WireError, ValueError) as error:
        raise GroupError(str(error)) from None
    if key is not None and insecure:
        raise AuthError("a key and insecure exclude each other")
    if key is None and not insecure and not local:
        raise AuthError(f"off loopback ({address}) a group needs a key; or say insecure to go without")
    return Options(
        group,
        checked,
        engine,
        tuple(networks),
        None if peers is None else tuple(peers),
        key,
        insecure,
        None if data_dir is None else Path(data_dir),
        trace,
        min_members,
        discovery_s,
        slow_reader_timeout,
    )


class Member:
    """One membership: the driver and the stream that it fills. What the two faces, asyncio and blocking, share."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.stream = _Stream()
        self.submitted = 0
        self.delivered = 0
        """Own messages submitted, and delivered here."""
        self.tickets: deque[Ticket] = deque()
        self.ended: StreamEnd | None = None
        storage: Storage | None = None
        recorder: Recorder | None = None
        network: UdpNetwork | None = None
        try:
            guard = _make_guard(options)
            if options.data_dir is not None:
                storage = Storage(options.data_dir)
                if options.trace:
                    recorder = Recorder(options.data_dir / "trace", options.name)
            network = UdpNetwork(options.group, options.networks[0], peers=options.peers)
            for warning in network.warnings:
                warnings.warn(warning, RuntimeWarning, stacklevel=4)
            packet_bytes = network.packet_bytes_max - guard.overhead_bytes
            config = TotemConfig(packet_bytes=packet_bytes, receive_window=network.receive_window(packet_bytes))
            stored = {} if storage is None else storage.load()
            engine = Totem(options.name, config, stored=stored, nonce=int.from_bytes(os.urandom(4), "little") or 1)
        except OSError as error:
            _close_all(network, storage)
            raise GroupError(str(error.strerror or error)) from error
        except BaseException:
            _close_all(network, storage)
            raise
        self.network = network
        self.guard = guard
        self.engine = engine
        self.driver = Driver(
            engine,
            network,
            guard,
            self.stream,
            storage=storage,
            recorder=recorder,
            slow_reader_timeout_us=int(options.slow_reader_timeout_s * 1e6),
        )

    @property
    def view(self) -> EngineView | None:
        return self.stream.current

    @property
    def queue_is_full(self) -> bool:
        waiting = self.engine.backlog_bytes
        return waiting > SEND_QUEUE_BYTES or self.submitted - self.delivered > SEND_QUEUE_MESSAGES

    def submit(
        self,
        bodies: Sequence[bytes],
        service: str,
        keys: Sequence[bytes | None] | None,
        headers: Sequence[Headers | None] | None,
    ) -> tuple[int, bool]:
        """Hands messages to the driver; tells the number of the last one and whether they are safe ones."""
        wanted = _SERVICES.get(service)
        if wanted is None:
            raise ValueError(f"service is 'agreed' or 'safe', not {service!r}")
        encoded = None if headers is None else [None if head is None else encode_headers(head) for head in headers]
        if len(bodies) == 1:
            size = len(bodies[0]) + sum(len(cells[0] or b"") for cells in (keys, encoded) if cells)
            longest = size
        else:
            longest = max(map(len, bodies), default=0)
        if longest > MESSAGE_BYTES_MAX:
            raise MessageTooLarge(f"a message of {longest} bytes; at most {MESSAGE_BYTES_MAX} are accepted")
        if self.ended is not None:
            raise NotMember("this process is no longer a member of the group")
        self.submitted += len(bodies)
        self.driver.submit(Submission(bodies, wanted, time.time_ns() // 1000, keys, encoded))
        return self.submitted, wanted is Service.SAFE

    def settle(self) -> None:
        """Ends the discovery, in the driver's thread; returns when that has happened."""
        settled = threading.Event()

        def settle() -> None:
            self.stream.settle()
            settled.set()

        self.driver.call(settle)
        settled.wait(LEAVE_TIMEOUT_S)

    def settle_tickets(self) -> None:
        """Own messages that were delivered since the last time complete their tickets, in order."""
        done, tickets = self.stream.done, self.tickets
        while done:
            count, view_id, seq, transitional, smaller = done.popleft()
            self.delivered += count
            while tickets and tickets[0]._end <= self.delivered:
                ticket = tickets.popleft()
                receipt = Receipt(view_id, seq - (self.delivered - ticket._end))
                if ticket._safe and transitional and smaller:
                    ticket._settle(
                        None, DeliveryUncertain(f"the membership changed before the message was safe (in {view_id})")
                    )
                else:
                    ticket._settle(receipt, None)

    def send(
        self,
        bodies: Sequence[bytes],
        service: str,
        keys: Sequence[bytes | None] | None,
        headers: Sequence[Headers | None] | None,
    ) -> Ticket:
        """Submits messages and makes the ticket that stands for them."""
        end, safe = self.submit(bodies, service, keys, headers)
        ticket = Ticket(end, safe)
        if bodies:
            self.tickets.append(ticket)
        else:
            ticket._settle(Receipt("", 0), None)
        return ticket

    def end(self) -> None:
        """The driver has stopped: what is not delivered now will not be."""
        last = self.stream.items[-1]
        assert isinstance(last, StreamEnd)
        self.ended = last
        self._fail_tickets(last.error)

    def _fail_tickets(self, error: GroupError | None) -> None:
        reason = DeliveryUncertain("this process left the group before the message was delivered")
        reason.__cause__ = error
        while self.tickets:
            self.tickets.popleft()._settle(None, reason)

    def status(self) -> dict[str, object]:
        """Figures of this member, for people and machines."""
        view = self.view
        return {
            "group": self.options.group,
            "name": self.options.name,
            "engine": self.options.engine,
            "view": None if view is None else view.id,
            "members": [] if view is None else list(view.members),
            "state": self.engine.phase.name.lower(),
            "submitted": self.submitted,
            "delivered_own": self.delivered,
            "queued_messages": self.engine.backlog,
            "queued_bytes": self.engine.backlog_bytes,
            "unread_bytes": self.stream.reader_backlog(),
            "send_drops": self.network.send_drops,
            "counters": dict(self.engine.state.counters),
            "guard": dict(self.guard.counters),
        }


def _make_guard(options: Options) -> Guard | PlainGuard:
    if options.key is None:
        return PlainGuard(options.group, options.name)
    try:
        return Guard(
            options.group,
            options.name,
            [load_key(options.key if isinstance(options.key, bytes) else Path(options.key))],
            os.urandom,
        )
    except GroupKeyError as error:
        raise AuthError(str(error)) from None


def _close_all(network: UdpNetwork | None, storage: Storage | None) -> None:
    if network is not None:
        network.close()
    if storage is not None:
        storage.close()


class Group:
    """A member's hold on its group. Made by `join`, used in one event loop."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._member: Member | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._readable = asyncio.Event()
        self._left = False

    async def __aenter__(self) -> Self:
        await self._join()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave()

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def _join(self) -> None:
        if self._member is not None:
            raise GroupError("this group has been joined already")
        member = self._member = Member(self._options)
        self._loop = asyncio.get_running_loop()
        member.stream.wake = self._wake_threadsafe
        member.driver.start()
        try:
            deadline = self._loop.time() + self._options.discovery_s
            while True:
                self._raise_if_ended(member)
                left = deadline - self._loop.time()
                if left <= 0 and member.view is not None:
                    if len(member.view.members) >= self._options.min_members:
                        break
                    left = 0.1
                self._readable.clear()
                try:
                    await asyncio.wait_for(self._readable.wait(), max(left, 0.01))
                except TimeoutError:
                    continue
            await asyncio.to_thread(member.settle)
        except BaseException:
            self._left = True
            member.driver.stop()
            raise

    def _raise_if_ended(self, member: Member) -> None:
        if not member.driver.is_alive() and member.stream.items:
            last = member.stream.items[-1]
            if isinstance(last, StreamEnd):
                raise last.error or NotMember("the group has ended")
        if member.stream.warnings:
            raise GroupError(f"the name {self._options.name!r} is taken by another process of the group")

    def _wake_threadsafe(self) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._on_turn)
        except RuntimeError:
            return  # the event loop is closed

    def _on_turn(self) -> None:
        member = self._joined()
        member.settle_tickets()
        stream = member.stream
        if member.ended is None and stream.items and isinstance(stream.items[-1], StreamEnd):
            member.end()
        self._readable.set()

    def _joined(self) -> Member:
        if self._member is None:
            raise NotMember("the group has not been joined yet")
        return self._member

    @property
    def name(self) -> str:
        return self._options.name

    @property
    def view(self) -> View:
        """The latest view, which the reader of events may not have reached yet."""
        view = self._joined().view
        if view is None:
            raise NotMember("there is no view yet")
        return View(view.id, view.members)

    def status(self) -> dict[str, object]:
        return self._joined().status()

    async def send(
        self, data: bytes, service: ServiceName = "agreed", key: bytes | None = None, headers: Headers | None = None
    ) -> Ticket:
        """Queues a message; waits while the queue is full."""
        return await self.send_many(
            [data], service, None if key is None else [key], None if headers is None else [headers]
        )

    async def send_many(
        self,
        data: Sequence[bytes],
        service: ServiceName = "agreed",
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
    ) -> Ticket:
        """Queues messages that get consecutive numbers; one ticket for all."""
        member = self._joined()
        while member.queue_is_full and member.ended is None:
            self._readable.clear()
            if member.queue_is_full and member.ended is None:
                await self._readable.wait()
        return self._submit(member, data, service, keys, headers)

    def send_nowait(
        self, data: bytes, service: ServiceName = "agreed", key: bytes | None = None, headers: Headers | None = None
    ) -> Ticket:
        """Queues a message, or raises WouldBlock."""
        member = self._joined()
        if member.queue_is_full:
            raise WouldBlock("the queue of messages to be sent is full")
        return self._submit(
            member, [data], service, None if key is None else [key], None if headers is None else [headers]
        )

    def _submit(
        self,
        member: Member,
        data: Sequence[bytes],
        service: str,
        keys: Sequence[bytes | None] | None,
        headers: Sequence[Headers | None] | None,
    ) -> Ticket:
        if self._left:
            raise NotMember("this process has left the group")
        return member.send(data, service, keys, headers)

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Every event, one by one. Ends when this process has left; raises what ended it otherwise."""
        async for event in self.batches():
            if isinstance(event, Batch):
                for message in event:
                    yield message
            else:
                yield event

    async def batches(self) -> AsyncIterator[BatchEvent]:
        """The same stream with messages in batches."""
        member = self._joined()
        items, stream = member.stream.items, member.stream
        while True:
            while items:
                item = items[0]
                if isinstance(item, StreamEnd):
                    if item.error is not None:
                        raise item.error
                    return
                items.popleft()
                yield item
                finish_batch(stream, item)
            self._readable.clear()
            if not items:
                await self._readable.wait()

    async def leave(self) -> None:
        """Leaves once every own message is at all members; after LEAVE_TIMEOUT_S all the same."""
        member = self._member
        if member is None or self._left:
            return
        self._left = True
        if member.driver.is_alive():
            member.driver.leave()
            await self._wait_end(member, LEAVE_TIMEOUT_S)
            member.driver.stop()
            await self._wait_end(member, 1.0)
        await asyncio.to_thread(member.driver.join, 2.0)
        self._on_turn()

    async def _wait_end(self, member: Member, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while member.ended is None:
                    self._readable.clear()
                    if member.ended is None:
                        await self._readable.wait()
        except TimeoutError:
            return

    def __del__(self) -> None:
        member = self._member
        if member is not None and not self._left and member.driver.is_alive():
            warnings.warn(f"{self!r} was never left", ResourceWarning, stacklevel=2)
            member.driver.stop()

    def __repr__(self) -> str:
        return f"<Group {self._options.group!r} as {self._options.name!r}>"


def join(group: str, **options: Any) -> Group:
    """A group to be entered: `async with join("orders") as group:`, or `group = await join("orders")`.

    Options, all by name: `name`, `engine`, `networks`, `replication`, `peers`, `key`, `insecure`, `data_dir`, `trace`,
    `min_members`, `start`, `discovery_s`, `slow_reader_timeout`; see `check_options` for their defaults.
    """
    return Group(check_options(group, **options))
