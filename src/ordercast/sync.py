"""The blocking twin of the group: the same stream and the same calls, for programs without an event loop.

with ordercast.sync.join("orders") as group:
    group.send(b"hello").wait()
    for event in group:
        ...
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from ordercast.errors import GroupError, NotMember, WouldBlock
from ordercast.events import Batch, BatchEvent, Event, Headers, View
from ordercast.group import (
    LEAVE_TIMEOUT_S,
    Member,
    Options,
    Receipt,
    ServiceName,
    StreamEnd,
    Ticket,
    check_options,
    finish_batch,
)

__all__ = ["Group", "SyncTicket", "join"]


class SyncTicket:
    """Stands for messages that were sent; `wait` gives their receipt."""

    __slots__ = ("_group", "_ticket")

    def __init__(self, group: Group, ticket: Ticket) -> None:
        self._group = group
        self._ticket = ticket

    @property
    def done(self) -> bool:
        return self._ticket.done

    def wait(self, timeout: float | None = None) -> Receipt:
        """Waits until the messages are delivered here; TimeoutError if that takes longer than `timeout` seconds."""
        if not self._group._wait_until(lambda: self._ticket.done, timeout):
            raise TimeoutError("the messages are not delivered yet")
        return self._ticket.result()


class Group:
    """A member's hold on its group. Its methods may be called from several threads; one of them reads."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._changed = threading.Condition()
        self._member = member = Member(options)
        self._left = False
        member.stream.wake = self._wake
        member.driver.start()
        try:
            self._discover(member)
        except BaseException:
            self._left = True
            member.driver.stop()
            raise

    def _discover(self, member: Member) -> None:
        time_is_up = time.monotonic() + self._options.discovery_s

        def found() -> bool:
            if member.ended is not None or member.stream.warnings:
                return True
            view = member.view
            enough = view is not None and len(view.members) >= self._options.min_members
            return enough and time.monotonic() >= time_is_up

        while not self._wait_until(found, 0.05):
            continue
        if member.ended is not None:
            raise member.ended.error or NotMember("the group has ended")
        if member.stream.warnings:
            raise GroupError(f"the name {self._options.name!r} is taken by another process of the group")
        member.settle()

    def _wake(self) -> None:
        """The driver's thread has something for us."""
        member = self._member
        with self._changed:
            member.settle_tickets()
            if member.stream.items and isinstance(member.stream.items[-1], StreamEnd):
                member.end()
            self._changed.notify_all()

    def _wait_until(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, timeout)

    @property
    def name(self) -> str:
        return self._options.name

    @property
    def view(self) -> View:
        """The latest view, which the reader of events may not have reached yet."""
        view = self._member.view
        if view is None:
            raise NotMember("there is no view yet")
        return View(view.id, view.members)

    def status(self) -> dict[str, object]:
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
        """Queues messages that get consecutive numbers; one ticket for all."""
        member = self._member
        if member.queue_is_full:
            self._wait_until(lambda: not member.queue_is_full or member.ended is not None)
        return self._submit(data, service, keys, headers)

    def send_nowait(
        self, data: bytes, service: ServiceName = "agreed", key: bytes | None = None, headers: Headers | None = None
    ) -> SyncTicket:
        """Queues a message, or raises WouldBlock."""
        if self._member.queue_is_full:
            raise WouldBlock("the queue of messages to be sent is full")
        return self._submit([data], service, None if key is None else [key], None if headers is None else [headers])

    def _submit(
        self,
        data: Sequence[bytes],
        service: str,
        keys: Sequence[bytes | None] | None,
        headers: Sequence[Headers | None] | None,
    ) -> SyncTicket:
        if self._left:
            raise NotMember("this process has left the group")
        with self._changed:
            return SyncTicket(self, self._member.send(data, service, keys, headers))

    def __iter__(self) -> Iterator[Event]:
        """Every event, one by one. Ends when this process has left; raises what ended it otherwise."""
        for event in self.batches():
            if isinstance(event, Batch):
                yield from event
            else:
                yield event

    def batches(self) -> Iterator[BatchEvent]:
        """The same stream with messages in batches."""
        stream = self._member.stream
        items = stream.items
        while True:
            if not items:
                self._wait_until(lambda: bool(items))
            item = items[0]
            if isinstance(item, StreamEnd):
                if item.error is not None:
                    raise item.error
                return
            items.popleft()
            yield item
            finish_batch(stream, item)

    def leave(self) -> None:
        """Leaves once every own message is at all members; after LEAVE_TIMEOUT_S all the same."""
        if self._left:
            return
        self._left = True
        member = self._member
        if member.driver.is_alive():
            member.driver.leave()
            self._wait_until(lambda: member.ended is not None, LEAVE_TIMEOUT_S)
            member.driver.stop()
        member.driver.join(2.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def __repr__(self) -> str:
        return f"<Group {self._options.group!r} as {self._options.name!r}>"


def join(group: str, **options: Any) -> Group:
    """Joins a group and returns once it is found; the options are those of `ordercast.join`."""
    return Group(check_options(group, **options))
