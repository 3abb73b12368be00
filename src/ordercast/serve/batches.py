"""Which batches of sinks the log holds: a fold over the total order, so it comes out the same at every replica.

A batch is one chunk, so it is in the order as a whole or not at all. Its first message carries a header that names it.
The first chunk that names a batch counts. Another with the same number of the same application, or a lower one, is a
copy that a lost answer or a partition made: it is dead, and nobody is to see it. So is one by another query.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from ordercast.events import decode_headers
from ordercast.log import LogBatch
from ordercast.serve.messages import Batch

MARK = "ordercast-batch"
"""The header of a batch's first message. Readers leave it out."""


class Verdict(Enum):
    """What the order so far says of a batch."""

    NEW = "new"
    SEEN = "seen"
    FOREIGN = "foreign"


class Seen(msgspec.Struct, frozen=True):
    """The last batch of an application."""

    query: str
    number: int
    attempt: str


def mark(batch: Batch) -> tuple[str, bytes]:
    return MARK, msgspec.json.encode(batch)


def batch_of(chunk: LogBatch) -> Batch | None:
    """The batch that a whole chunk is; None for ordinary messages."""
    column = chunk.chunk.headers()
    if column is None:
        return None
    validity, offsets, blob = column
    if not validity[0] & 1:
        return None
    try:
        headers = decode_headers(bytes(blob[offsets[0] : offsets[1]]))
        for name, value in headers:
            if name == MARK:
                return msgspec.json.decode(value, type=Batch)
    except msgspec.MsgspecError:
        pass  # an application's own header of this name
    return None


@dataclass
class Batches:
    """The state of the fold: everything before `position` has been looked at."""

    position: int = 0
    seen: dict[str, Seen] = field(default_factory=dict)
    dead: list[tuple[int, int]] = field(default_factory=list)

    def judge(self, batch: Batch) -> Verdict:
        last = self.seen.get(batch.app)
        if last is None:
            return Verdict.NEW
        if last.query != batch.query:
            return Verdict.FOREIGN
        return Verdict.NEW if batch.number > last.number else Verdict.SEEN

    def take(self, chunks: Iterable[LogBatch]) -> None:
        """The next whole chunks of the log that have headers, in their order; the others need not be shown."""
        for chunk in chunks:
            batch = batch_of(chunk)
            if batch is None:
                continue
            if self.judge(batch) is Verdict.NEW:
                self.seen[batch.app] = Seen(batch.query, batch.number, batch.attempt)
            else:
                self.dead.append((chunk.offset, chunk.end))

    def advance(self, log: Any) -> None:
        """Looks at what a LogReader has beyond `position`."""
        start, end = max(self.position, log.earliest), log.end
        if start < end:
            self.take(log.read_with_headers(start, end))
            self.position = end

    def save(self, path: Path) -> None:
        """So that the memory outlives what retention removes."""
        state = {
            "position": self.position,
            "seen": {app: msgspec.to_builtins(last) for app, last in self.seen.items()},
            "dead": self.dead,
        }
        temporary = path.with_suffix(".new")
        with temporary.open("w") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)


def load_batches(path: Path) -> Batches:
    """What was saved, or nothing yet."""
    try:
        state = json.loads(path.read_text())
        seen = {app: msgspec.convert(last, Seen) for app, last in state["seen"].items()}
        return Batches(int(state["position"]), seen, [(int(low), int(high)) for low, high in state["dead"]])
    except FileNotFoundError:
        return Batches()


def without(batches: Iterable[LogBatch], dead: Sequence[tuple[int, int]]) -> Iterable[LogBatch]:
    """Leaves out what is dead. Dead ranges are whole chunks."""
    if not dead:
        return batches
    return (batch for batch in batches if not any(low <= batch.offset < high for low, high in dead))
