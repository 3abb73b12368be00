"""What is written in one atomic step: after a crash all of an entry is there, or nothing."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from ordercast.wire.chunk import Buffer


class ViewRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of membership as this member saw it, at its place among the messages."""

    offset: int
    """It stands before the message with this offset."""
    id: str
    members: tuple[str, ...]
    primary: bool
    number: int = 0
    """Of the primary component."""
    time_us: int = 0
    """This member's clock."""


@dataclass(slots=True)
class Entry:
    """Chunks, lines, state and views that become durable together. What is None stays as it is."""

    chunks: tuple[Buffer, ...] = ()
    """In their stored form, to be put at `rewind` or else at the end."""
    rewind: int | None = None
    """Everything at this position or after it is void; never below the green line."""
    green: int | None = None
    """Messages whose place in the global order is known: all before this position. Lines stand between chunks."""
    yellow: int | None = None
    state: bytes | None = None
    view: ViewRecord | None = None
