"""What an application's side of a membership offers to the driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ordercast.engine.assemble import Batch as Columns
from ordercast.engine.contract import Append, Component, Ordered, Originated, Progress, Report, Restored, View
from ordercast.errors import GroupError
from ordercast.wire.ids import NodeId


class Sink(Protocol):
    """Where the driver hands things to; its methods are called in the driver's thread."""

    def view(self, view: View) -> None:
        """A configuration was delivered."""

    def batch(self, columns: Columns, sender: NodeId, view_id: str, mine: bool) -> None:
        """Messages were delivered."""

    def publish(self) -> None:
        """The end of a turn: what was delivered in it may go to the application."""

    def reader_backlog(self) -> int:
        """Bytes that wait for the application."""

    def reported(self, report: Report) -> None:
        """Something noteworthy."""

    def ended(self, error: GroupError | None, whole: bool) -> None:
        """The driver has stopped; nothing follows. Not `whole`: in the middle of a turn."""


class Books(Protocol):
    """What the trace of a member with a durable log says of its layer: told as it happens, before others hear of it."""

    def sent(self, effect: Originated, bodies: Sequence[bytes], sender: NodeId) -> None:
        """Messages of the layer have got their places."""

    def delivered(self, columns: Columns, sender: NodeId, sent_in: str, view_id: str) -> None:
        """Messages of the layer were delivered."""

    def entered(self, append: Append) -> None:
        """An entry is on its way to the log."""

    def written(self, write_id: int) -> None:
        """All entries up to this one are durable."""

    def ordered(self, effect: Ordered) -> None:
        """Messages have their final place."""

    def reported(self, report: Report) -> None:
        """Something noteworthy."""


class DurableSink(Sink, Protocol):
    """Where messages with a place in the global order go."""

    def ordered(self, effect: Ordered) -> None:
        """Messages have their final place."""

    def component(self, component: Component) -> None:
        """A view, or that it has become primary."""

    def progress(self, progress: Progress) -> None:
        """How far own messages have come."""

    def restored(self, effect: Restored) -> None:
        """The member was brought up from a snapshot."""
