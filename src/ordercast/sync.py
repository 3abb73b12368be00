"""The blocking twin of the group: the same stream and the same calls, for programs without an event loop.

with ordercast.sync.join("orders") as group:
    group.send(b"hello").wait()
    for event in group:
        ...
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Generic, Self, TypeVar, Unpack

from ordercast.engine.contract import GroupChange
from ordercast.errors import GroupError, NotMember, WouldBlock
from ordercast.events import BatchEvent, Event, Headers, View
from ordercast.member import (
    CANCELLED_LEAVE_US,
    LEAVE_PATIENCE_S,
    STOP_PATIENCE_S,
    Member,
    read_key,
)
from ordercast.options import (
    JoinOptions,
    KeyLike,
    Options,
    ServiceName,
    check_options,
)
from ordercast.pledge import MessageState, Pledge, Receipt
from ordercast.stream import StreamEnd

__all__ = ["Group", "SyncTicket", "join"]

T = TypeVar("T")


class _Bridge:
    """From the driver's thread to the application's: one condition, under whose lock the books are kept."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.changed = threading.Condition()

    def wake(self) -> None:
        with self.changed:
            self.member.settle()
            self.changed.notify_all()

    def call(self, function: Callable[[], None]) -> None:
        """Runs a function of another thread where the application's own calls run."""
        with self.changed:
            function()

    def until(self, condition: Callable[[], bool], timeout_s: float | None = None) -> bool:
        with self.changed:
            return self.changed.wait_for(condition, timeout_s)


class SyncTicket:
    """Stands for messages that were sent; `wait` gives their receipt."""

    __slots__ = ("_bridge", "_pledge")

    def __init__(self, bridge: _Bridge, pledge: Pledge) -> None:
        self._bridge = bridge
        self._pledge = pledge

    @property
    def done(self) -> bool:
        return self._pledge.done

    @property
    def state(self) -> MessageState:
        """How far the messages have come: sent, received, stable, ordered (corel); or sent and ordered."""
        return self._pledge.state

    def reached(self, state: MessageState, timeout: float | None = None) -> None:
        """Waits until the messages are that far; members of a minority may wait for `stable`."""
        pledge = self._pledge
        with pledge.watched():
            if not self._bridge.until(lambda: pledge.has_reached(state), timeout):
                raise TimeoutError(f"the messages are not {state} yet")

    def wait(self, timeout: float | None = None) -> Receipt:
        """Waits until the messages are delivered here; TimeoutError if that takes longer than `timeout` seconds."""
        if not self._pledge.done and not self._bridge.until(lambda: self._pledge.done, timeout):
            raise TimeoutError("the messages are not delivered yet")
        return self._pledge.result()


class _Events(Generic[T]):
    """An iterator over the one stream of a group; making another loses nothing."""

    __slots__ = ("_group", "_take")

    def __init__(self, group: Group, take: Callable[[], T | StreamEnd | None]) -> None:
        self._group = group
        self._take = take

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        item = self._take()
        while item is None:
            self._group._wait_readable()
            item = self._take()
        if isinstance(item, StreamEnd):
            raise self._group._end_of_stream() or StopIteration
        return item


class Group:
    """A member's hold on its group. Its methods may be called from several threads; one of them reads."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._member = member = Member(options)
        self._bridge = bridge = _Bridge(member)
        member.stream.wake = bridge.wake
        member.in_face = bridge.call
        member.start()
        try:
            while not member.found():
                bridge.until(member.found, 0.02)
            member.begin()
        except GroupError:
            member.error_shown = member.leaving = True
            member.abandon()
            member.driver.join(STOP_PATIENCE_S)
            raise
        except BaseException:
            # Interrupted: the others need not wait for this process's silence.
            member.leaving = True
            member.driver.leave(CANCELLED_LEAVE_US)
            member.driver.join(STOP_PATIENCE_S)
            raise

    @property
    def name(self) -> str:
        return self._options.name

    @property
    def view(self) -> View:
        """The latest view, which the reader of events may not have reached yet."""
        return self._member.view()

    def status(self) -> dict[str, object]:
        """Figures of this member, for people and machines."""
        return self._member.status()

    def send(
        self, data: bytes, service: ServiceName = "agreed", key: bytes | None = None, headers: Headers | None = None
    ) -> SyncTicket:
        """Queues a message; waits while the queue is full."""
        return self.send_many([data], service, None if key is None else [key], None if headers is None else [headers])

    def send_many(
        self,
        data: Sequence[bytes],
        service: ServiceName = "agreed",
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
    ) -> SyncTicket:
        """Queues messages that stay in their order; one ticket for all. Waits while the queue is full."""
        member, bridge = self._member, self._bridge
        with bridge.changed:
            while not (member.has_room() or member.leaving):
                bridge.changed.wait()
            return SyncTicket(bridge, member.send(data, service, keys, headers))

    def send_nowait(
        self, data: bytes, service: ServiceName = "agreed", key: bytes | None = None, headers: Headers | None = None
    ) -> SyncTicket:
        """Queues a message, or raises WouldBlock."""
        with self._bridge.changed:
            if not self._member.has_room():
                raise WouldBlock("the queue of messages to be sent is full")
            keys, columns = None if key is None else [key], None if headers is None else [headers]
            return SyncTicket(self._bridge, self._member.send([data], service, keys, columns))

    def __iter__(self) -> Iterator[Event]:
        """Every event, one by one. Ends when this process has left; raises what ended it otherwise."""
        return _Events(self, self._member.reader.next_event)

    def batches(self) -> Iterator[BatchEvent]:
        """The same stream with messages in batches."""
        return _Events(self, self._member.reader.next_batch)

    def _wait_readable(self) -> None:
        self._bridge.until(lambda: bool(self._member.stream.items))

    def _end_of_stream(self) -> GroupError | None:
        return self._member.stream_error()

    def rotate_key(self, new: KeyLike) -> None:
        """Goes over to another secret of the group; see the asynchronous group's."""
        member = self._member
        rotation = member.driver.rotate(read_key(new))
        while not rotation.done:
            if self._bridge.until(lambda: rotation.done or member.ended is not None, 0.1) and member.ended is not None:
                raise NotMember("this process is no longer a member of the group") from member.ended.error
        rotation.result()

    def add_member(self, name: str, weight: int = 1) -> SyncTicket:
        """Asks the group to count `name` among its declared members, whose majority decides; ordered as a message is.

        NotPrimary outside the primary component. Only with the engine corel.
        """
        with self._bridge.changed:
            return SyncTicket(self._bridge, self._member.propose(GroupChange(add={name: weight})))

    def remove_member(self, name: str) -> SyncTicket:
        """Asks the group to count `name` no more."""
        with self._bridge.changed:
            return SyncTicket(self._bridge, self._member.propose(GroupChange(remove=(name,))))

    def offer_snapshot(self, offset: int, snapshot: bytes) -> None:
        """The application's state before the message with this offset, for members that are brought up.

        With a `retention` that says so the log keeps nothing older. Only with the engine corel.
        """
        self._member.offer(offset, snapshot)

    def leave(self) -> None:
        """Leaves once every own message is at all members.

        When that makes no progress for LEAVE_PATIENCE_S it leaves all the same, and raises DeliveryUncertain.
        """
        member, bridge = self._member, self._bridge
        with bridge.changed:
            if member.leaving:
                return
            member.leaving = True
            bridge.changed.notify_all()
        member.stop_serving()
        try:
            member.driver.leave()
            before = None
            while member.ended is None and before != (before := member.progress()):
                until = time.monotonic() + LEAVE_PATIENCE_S
                bridge.until(lambda: member.ended is not None, until - time.monotonic())
        finally:
            member.abandon()
        bridge.until(lambda: member.ended is not None, STOP_PATIENCE_S)
        member.conclude()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.leave()
        except GroupError:
            # The error on its way out says more than that leaving failed too.
            if error is None:
                raise

    def __del__(self) -> None:
        member = getattr(self, "_member", None)
        if member is not None and not member.leaving and member.abandon():
            member.leaving = True
            warnings.warn(f"{self!r} was never left", ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        return f"<Group {self._options.group!r} as {self._options.name!r}>"


def join(group: str, **options: Unpack[JoinOptions]) -> Group:
    """Joins a group and returns once it is found; the options are those of `ordercast.join`."""
    return Group(check_options(group, **options))
