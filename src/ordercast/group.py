"""The group as an asyncio application sees it: join, send, one ordered stream of events, leave.

`Group` is a thin face over a `Member`, whose driver runs in a thread of its own and tells the event loop once a turn
that there is something new.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack

from ordercast.engine.contract import GroupChange
from ordercast.errors import GroupError, NotMember, WouldBlock
from ordercast.events import BatchEvent, Event, Headers, View
from ordercast.member import (
    CANCELLED_LEAVE_US,
    LEAVE_PATIENCE_S,
    MESSAGE_BYTES_MAX,
    STOP_PATIENCE_S,
    Member,
    read_key,
)
from ordercast.options import (
    DISCOVERY_S,
    JoinOptions,
    KeyLike,
    Options,
    ServiceName,
    check_options,
)
from ordercast.pledge import MessageState, Pledge, Receipt
from ordercast.stream import StreamEnd

__all__ = ["DISCOVERY_S", "MESSAGE_BYTES_MAX", "Group", "JoinOptions", "Receipt", "Ticket", "join"]

T = TypeVar("T")


class Ticket:
    """Stands for messages that were sent; awaiting it gives their receipt. Tickets may be awaited in any order."""

    __slots__ = ("_bridge", "_pledge")

    def __init__(self, bridge: _Bridge, pledge: Pledge) -> None:
        self._bridge = bridge
        self._pledge = pledge

    @property
    def done(self) -> bool:
        return self._pledge.done

    def result(self) -> Receipt:
        """The receipt, or the error; only once it is done."""
        return self._pledge.result()

    @property
    def state(self) -> MessageState:
        """How far the messages have come: sent, received, stable, ordered (corel); or sent and ordered."""
        return self._pledge.state

    async def reached(self, state: MessageState) -> None:
        """Waits until the messages are that far; members of a minority may wait for `stable`."""
        pledge = self._pledge
        with pledge.watched():
            await self._bridge.until(lambda: pledge.has_reached(state))

    def __await__(self) -> Generator[Any, None, Receipt]:
        pledge = self._pledge
        if not pledge.done:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if pledge.when_done is None:
                pledge.when_done = []
            pledge.when_done.append(lambda: None if future.done() else future.set_result(None))
            yield from future
        return pledge.result()


class _Bridge:
    """From the driver's thread to the event loop: at most one call is on its way, however many turns it covers."""

    def __init__(self, member: Member, loop: asyncio.AbstractEventLoop) -> None:
        self.member = member
        self._loop = loop
        self._changed = asyncio.Event()
        self._scheduled = False

    def wake(self) -> None:
        if self._scheduled:
            # A loop that is closed drops what it was asked to call: nobody would ever clear the mark.
            if self._loop.is_closed():
                self._stop()
            return
        self._scheduled = True
        try:
            self._loop.call_soon_threadsafe(self._on_change)
        except RuntimeError:
            self._stop()

    def _stop(self) -> None:
        if not self.member.leaving:
            self.member.driver.stop(GroupError("the event loop was closed before the group was left"))

    def call(self, function: Callable[[], None]) -> None:
        """Runs a function of another thread where the application's own calls run."""
        self._loop.call_soon_threadsafe(function)

    def _on_change(self) -> None:
        self._scheduled = False
        self.member.settle()
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            if not condition():
                await self._changed.wait()

    async def until_timeout(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self.until(condition)
        except TimeoutError:
            return condition()
        return True


class _Events(Generic[T]):
    """An asynchronous iterator over the one stream of a group. Cancelling it, or making another, loses nothing."""

    __slots__ = ("_group", "_take")

    def __init__(self, group: Group, take: Callable[[], T | StreamEnd | None]) -> None:
        self._group = group
        self._take = take

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        item = self._take()
        while item is None:
            await self._group._readable()
            item = self._take()
        if isinstance(item, StreamEnd):
            raise self._group._end_of_stream() or StopAsyncIteration
        return item


class Group:
    """A member's hold on its group. Made by `join`, used in one event loop."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._bridge: _Bridge | None = None

    async def __aenter__(self) -> Self:
        await self._join()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.leave()
        except GroupError:
            # The error on its way out says more than that leaving failed too.
            if error is None:
                raise

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def _join(self) -> None:
        if self._bridge is not None:
            raise GroupError("this group has been joined already")
        member = Member(self._options)
        bridge = self._bridge = _Bridge(member, asyncio.get_running_loop())
        member.stream.wake = bridge.wake
        member.in_face = bridge.call
        member.start()
        try:
            while not member.found():
                # Time and the engine's phase wake nobody, so it is looked at now and then.
                await bridge.until_timeout(member.found, 0.02)
            member.begin()
        except GroupError:
            member.error_shown = member.leaving = True
            member.abandon()
            await bridge.until_timeout(lambda: member.ended is not None, STOP_PATIENCE_S)
            raise
        except BaseException:
            member.leaving = True
            member.driver.leave(CANCELLED_LEAVE_US)
            raise

    def _joined(self) -> _Bridge:
        if self._bridge is None:
            raise NotMember("the group has not been joined yet")
        return self._bridge

    @property
    def name(self) -> str:
        return self._options.name

    @property
    def view(self) -> View:
        """The latest view, which the reader of events may not have reached yet."""
        return self._joined().member.view()

    def status(self) -> dict[str, object]:
        """Figures of this member, for people and machines."""
        return self._joined().member.status()

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
        """Queues messages that stay in their order; one ticket for all. Waits while the queue is full."""
        bridge = self._joined()
        member = bridge.member
        if not member.has_room():
            await bridge.until(lambda: member.has_room() or member.leaving)
        return Ticket(bridge, member.send(data, service, keys, headers))

    def send_nowait(
        self, data: bytes, service: ServiceName = "agreed", key: bytes | None = None, headers: Headers | None = None
    ) -> Ticket:
        """Queues a message, or raises WouldBlock."""
        bridge = self._joined()
        if not bridge.member.has_room():
            raise WouldBlock("the queue of messages to be sent is full")
        keys, heads = None if key is None else [key], None if headers is None else [headers]
        return Ticket(bridge, bridge.member.send([data], service, keys, heads))

    def __aiter__(self) -> AsyncIterator[Event]:
        """Every event, one by one. Ends when this process has left; raises what ended it otherwise."""
        return _Events(self, self._joined().member.reader.next_event)

    def batches(self) -> AsyncIterator[BatchEvent]:
        """The same stream with messages in batches."""
        return _Events(self, self._joined().member.reader.next_batch)

    async def _readable(self) -> None:
        bridge = self._joined()
        await bridge.until(lambda: bool(bridge.member.stream.items))

    def _end_of_stream(self) -> GroupError | None:
        return self._joined().member.stream_error()

    async def rotate_key(self, new: KeyLike) -> None:
        """Goes over to another secret of the group, as all members must, in any order; returns when that is done.

        From now on what is sealed with the new secret is accepted. It seals as soon as every member has been heard
        to accept it, and the old one is retired after that.
        """
        bridge = self._joined()
        rotation = bridge.member.driver.rotate(read_key(new))
        while not rotation.done:
            await bridge.until_timeout(lambda: rotation.done or bridge.member.ended is not None, 0.1)
            if bridge.member.ended is not None:
                raise NotMember("this process is no longer a member of the group") from bridge.member.ended.error
        rotation.result()

    def add_member(self, name: str, weight: int = 1) -> Ticket:
        """Asks the group to count `name` among its declared members, whose majority decides; ordered as a message is.

        NotPrimary outside the primary component. Only with the engine corel.
        """
        bridge = self._joined()
        return Ticket(bridge, bridge.member.propose(GroupChange(add={name: weight})))

    def remove_member(self, name: str) -> Ticket:
        """Asks the group to count `name` no more."""
        bridge = self._joined()
        return Ticket(bridge, bridge.member.propose(GroupChange(remove=(name,))))

    def offer_snapshot(self, offset: int, snapshot: bytes) -> None:
        """The application's state before the message with this offset, for members that are brought up.

        With a `retention` that says so the log keeps nothing older. Only with the engine corel.
        """
        self._joined().member.offer(offset, snapshot)

    async def leave(self) -> None:
        """Leaves once every own message is at all members.

        When that makes no progress for LEAVE_PATIENCE_S it leaves all the same, and raises DeliveryUncertain.
        Cancelled, it leaves at once.
        """
        bridge = self._bridge
        if bridge is None or bridge.member.leaving:
            return
        member = bridge.member
        member.leaving = True
        bridge._changed.set()
        member.stop_serving()
        try:
            member.driver.leave()
            before = None
            while member.ended is None and before != (before := member.progress()):
                await bridge.until_timeout(lambda: member.ended is not None, LEAVE_PATIENCE_S)
            if member.abandon():
                await bridge.until_timeout(lambda: member.ended is not None, STOP_PATIENCE_S)
        except BaseException:
            member.abandon()
            raise
        member.conclude()

    def __del__(self) -> None:
        bridge = getattr(self, "_bridge", None)
        if bridge is not None and not bridge.member.leaving and bridge.member.abandon():
            bridge.member.leaving = True
            warnings.warn(f"{self!r} was never left", ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        return f"<Group {self._options.group!r} as {self._options.name!r}>"


def join(group: str, **options: Unpack[JoinOptions]) -> Group:
    """A group to be entered: `async with join("orders") as group:`, or `group = await join("orders")`.

    Options are given by name; see `JoinOptions`.
    """
    return Group(check_options(group, **options))
