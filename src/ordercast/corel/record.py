"""What a member must remember whatever happens to it: the STATE of the durable log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ordercast.corel.codec import Reader, Weights, Writer
from ordercast.wire.layout import Malformed

VERSION = 1


class Primary(NamedTuple):
    """A primary component that was tried or committed to. 0: none."""

    number: int = 0
    members: Weights = ()
    """With their weights."""
    group: Weights = ()
    """The declared group that counts for the next one: as of the end of the queue when this one was established."""


@dataclass(slots=True)
class Record:
    """§3.5.1 and what the extensions add. It changes only together with an entry of the log."""

    life: int = 0
    """Another at every start, and at random on a new disk: it is part of its messages' numbers."""
    last_committed_primary: Primary = field(default_factory=Primary)
    last_attempted_primary: int = 0
    attempts: list[Primary] = field(default_factory=list)
    """Those after the last committed one: somebody may have committed to them."""
    heard: int = 0
    """A primary component that this member knows to exist, and whose messages it may lack while it is brought up."""
    founding: str = ""
    """The configuration in which the group was founded: two groups of one name are told apart by it."""
    group: dict[str, int] = field(default_factory=dict)
    """The declared group with weights, as of the green line."""
    base_vector: dict[str, int] = field(default_factory=dict)
    """Last messages of streams that ended before this member's log begins."""

    def hear(self, number: int) -> None:
        """A primary component is known to exist; attempts that came before it are settled."""
        self.heard = max(self.heard, number)
        self.attempts = [attempt for attempt in self.attempts if attempt.number > self.heard]

    def encode(self) -> bytes:
        w = Writer()
        w.u32(VERSION)
        for number in (self.life, self.last_attempted_primary, self.heard):
            w.u64(number)
        write_primaries(w, [self.last_committed_primary, *self.attempts])
        w.text(self.founding)
        w.numbers(self.group)
        w.numbers(self.base_vector)
        return w.take()


def decode_record(raw: bytes) -> Record:
    r = Reader(raw)
    version = r.u32()
    if version != VERSION:
        raise ValueError(f"the log's state was written in version {version}, this program reads {VERSION}")
    record = Record(r.u64(), last_attempted_primary=r.u64(), heard=r.u64())
    record.last_committed_primary, *record.attempts = read_primaries(r)
    record.founding, record.group, record.base_vector = r.text(), r.numbers(), r.numbers()
    r.end()
    return record


def write_primaries(w: Writer, primaries: list[Primary]) -> None:
    w.u32(len(primaries))
    for primary in primaries:
        w.u64(primary.number)
        w.weights(primary.members)
        w.weights(primary.group)


def read_primaries(r: Reader) -> list[Primary]:
    primaries = [Primary(r.u64(), r.weights(), r.weights()) for _ in range(r.count())]
    if not primaries:
        raise Malformed("no last committed primary component")
    return primaries
