"""What a ticket stands for: own messages, how far they have come, and where they were delivered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple, get_args

from ordercast.errors import GroupError, WouldBlock
from ordercast.stream import Stream


class Receipt(NamedTuple):
    """Where messages were delivered at their sender."""

    view_id: str
    seq: int
    """The number of the last message of the ticket."""
    offset: int | None = None
    """Its place in the global order, with the engine corel."""


MessageState = Literal["sent", "received", "stable", "ordered"]
STATES: tuple[MessageState, ...] = get_args(MessageState)
"""How far a message has come. With corel: sent, it is on its way; received, it is in this member's queue; stable, it is
on the disks of all members of the component; ordered, it has its final place and is on the disks of the primary one.
Other engines know only sent and, once it is delivered here, ordered."""


class Pledge:
    """What a ticket stands for: own messages up to number `end`. Costs nothing while nobody waits for it."""

    __slots__ = ("_error", "_receipt", "_stream", "end", "safe", "size", "when_done")

    def __init__(self, end: int, safe: bool, size: int, stream: Stream) -> None:
        self.end = end
        self.safe = safe
        self.size = size
        """Bytes."""
        self._stream = stream
        self.when_done: list[Callable[[], None]] | None = None
        self._receipt: Receipt | None = None
        self._error: GroupError | None = None

    @property
    def done(self) -> bool:
        return self._receipt is not None or self._error is not None

    @property
    def state(self) -> MessageState:
        """That of the last of the messages."""
        if self._receipt is not None:
            return "ordered"
        progress = self._stream.progress_now
        return "stable" if progress.stable >= self.end else "received" if progress.queued >= self.end else "sent"

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While somebody waits for a state short of the last one."""
        self._stream.watched += 1
        try:
            yield
        finally:
            self._stream.watched -= 1

    def has_reached(self, state: MessageState) -> bool:
        """Whether it is that far; raises what keeps it from ever getting there."""
        if STATES.index(self.state) >= STATES.index(state):
            return True
        if self._error is not None:
            raise self._error
        return False

    def result(self) -> Receipt:
        """The receipt, or the error; only once it is done."""
        if self._error is not None:
            raise self._error
        if self._receipt is None:
            raise WouldBlock("the ticket's messages are not delivered yet")
        return self._receipt

    def settle(self, receipt: Receipt | None, error: GroupError | None = None) -> None:
        self._receipt, self._error = receipt, error
        for call in self.when_done or ():
            call()
        self.when_done = None
