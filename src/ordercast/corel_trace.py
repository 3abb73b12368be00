"""The trace of a real member of corel: what its layer does, on top of what the transport does.

A message is called by its sender, life and number (`n1/7/42`) in all events, so that they run on in rows which the
recorder writes at once; what else corel multicasts, retransmissions too, has names of the transport. The books know
what is durable in the member's queue behind the green line, in chunks; `sim/corel_record.py` does the same for
simulated members, whose messages have names of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple, cast

from ordercast.corel.messages import MessageKind, decode_head, numbers_of
from ordercast.engine.assemble import Batch
from ordercast.engine.contract import Append, Ordered, Originated, Report
from ordercast.log import LogReader
from ordercast.log.writer import Recovered
from ordercast.net.recorder import Recorder, quoted
from ordercast.wire.chunk import LIFE_SHIFT, Chunk
from ordercast.wire.layout import WireError


class _Placed(NamedTuple):
    """A chunk in the queue: the row of its messages, the first one's number, how many, and where they stand."""

    row: str
    first: int
    messages: int
    place: int

    @property
    def end(self) -> int:
        return self.place + self.messages


class CorelTrace:
    """Its methods are called in the driver's thread, in the order of what happens."""

    def __init__(self, recorder: Recorder, directory: Path, found: Recovered) -> None:
        """`found` is what the log in `directory` held when it was opened."""
        self._recorder = recorder
        self._queue: deque[_Placed] = deque()
        """What is not green here, or was not when the application was last told."""
        self._end = self._green = self._yellow = 0
        self._ordered_to = 0
        """What was told as ordered in any life: it cannot change, though its mark may have to be found again."""
        self._learned: list[Report] = []
        """What the next entry of the log says."""
        self._entries: deque[tuple[Append, list[Report]]] = deque()
        """Those that are on their way to the disk."""
        self._reopen(directory, found)

    # A life begins

    def _reopen(self, directory: Path, found: Recovered) -> None:
        """What stands in the log is durable, whether a life before this one came to say so or not."""
        recorder = self._recorder
        if recorder.continued and found.state is None:
            recorder.said("x-wiped")
            return
        begin = min(recorder.ordered_before(), found.green) if recorder.continued else found.green
        known = max(begin, found.earliest)
        if known > begin or (begin and not recorder.continued):
            # It was brought up from a snapshot, or what came before was not traced.
            recorder.said("x-restored", pos=known)
        self._ordered_to = recorder.ordered_before() if recorder.continued else known
        self._end = known
        read = (batch.chunk for batch in LogReader(directory).read(known, found.green)) if known < found.green else ()
        self._put([*chain(read, found.tail)])
        untold = [chunk for chunk in self._queue if self._ordered_to <= chunk.place and chunk.end <= found.green]
        self._colour("green", untold)
        for chunk in untold:
            recorder.placed("order", *chunk)
        self._ordered_to = max(self._ordered_to, found.green)
        self._tell(found.green)
        self._yellow = found.yellow
        self._move_yellow(found.yellow, found.green)

    # What the transport does

    def sent(self, effect: Originated, bodies: Sequence[bytes], sender: str) -> None:
        conf = f',"conf":{quoted(effect.view_id)},"service":"agreed"'
        for number, body in enumerate(bodies, effect.first):
            self._recorder.messages("send", *_names(sender, body, effect.view_id, number), conf)

    def delivered(self, batch: Batch, sender: str, sent_in: str, view_id: str) -> None:
        more = f',"sender":{quoted(sender)},"conf":{quoted(view_id)},"service":"{batch.service.name.lower()}"'
        for number, body in enumerate(batch, batch.first):
            self._recorder.messages("deliver", *_names(sender, body, sent_in, number), more)

    # What the layer does

    def entered(self, append: Append) -> None:
        """An entry is on its way to the disk."""
        self._entries.append((append, self._learned))
        self._learned = []

    def written(self, write_id: int) -> None:
        """All entries up to this one are durable."""
        while self._entries and self._entries[0][0].write_id >= write_id:
            append, learned = self._entries.popleft()
            self._written(append)
            for report in learned:
                self._primary_or_group(report)

    def _written(self, append: Append) -> None:
        changed = self._end
        if append.base is not None:
            self._recorder.said("x-restored", pos=append.base)
            self._queue.clear()
            self._end = self._yellow = changed = append.base
            self._green = max(self._green, append.base)
        if append.rewind is not None:
            while self._queue and self._queue[-1].place >= append.rewind:
                self._queue.pop()
            self._end = changed = append.rewind
            self._yellow = min(self._yellow, append.rewind)
        self._put([Chunk(raw) for raw in append.chunks])
        line = self._yellow if append.yellow is None else append.yellow
        if changed < self._end or line != self._yellow:
            self._move_yellow(line, changed)

    def _put(self, chunks: Sequence[Chunk]) -> None:
        """Chunks are durable at the end of the queue."""
        placed = []
        for chunk in chunks:
            placed.append(_Placed(_row(chunk.sender, chunk.life), chunk.number, chunk.count, self._end))
            self._end += chunk.count
        for one in placed:
            self._recorder.messages("durable", one.row, one.first, one.messages)
        for one in placed:
            self._recorder.placed("queue", *one)
        self._queue += placed

    def _move_yellow(self, line: int, changed: int) -> None:
        """The yellow line is at `line` now; what stands from `changed` on is new there."""
        low, high = sorted((self._yellow, line))
        self._yellow = line
        yellow: list[_Placed] = []
        red: list[_Placed] = []
        for chunk in self._back_to(max(self._green, min(low, changed))):
            if chunk.place >= changed or low <= chunk.place < high:
                (yellow if chunk.place < line else red).append(chunk)
        # What was green before a crash will be again.
        self._colour("yellow", [chunk for chunk in reversed(yellow) if chunk.place >= self._ordered_to])
        self._colour("red", red[::-1])

    def _back_to(self, place: int) -> Iterator[_Placed]:
        """The chunks from a place on, the last one first."""
        for chunk in reversed(self._queue):
            if chunk.place < place:
                return
            yield chunk

    def _colour(self, colour: str, chunks: Sequence[_Placed]) -> None:
        for chunk in chunks:
            self._recorder.messages("colour", chunk.row, chunk.first, chunk.messages, f',"colour":"{colour}"')

    def ordered(self, effect: Ordered) -> None:
        """Messages are green, and the application is about to be told."""
        recorder, place = self._recorder, effect.offset
        chunks = []
        for raw in effect.chunks:
            chunk = Chunk(raw)
            chunks.append(_Placed(_row(chunk.sender, chunk.life), chunk.number, chunk.count, place))
            place += chunk.count
        self._colour("green", chunks)
        for one in chunks:
            recorder.placed("order", *one)
        for one in chunks:
            recorder.messages("acknowledged", one.row, one.first, one.messages)
        self._ordered_to = max(self._ordered_to, place)
        self._tell(place)

    def _tell(self, green: int) -> None:
        self._green = green
        while self._queue and self._queue[0].end <= green:
            self._queue.popleft()

    def reported(self, report: Report) -> None:
        if report.what not in ("primary", "group"):
            return
        if report.reason == "left":
            self._recorder.said("x-left")
        elif report.what == "primary" and report.reason == "committed":
            self._recorder.said("x-committed", number=report.detail["number"], members=report.detail["members"])
        elif report.reason == "learned":
            self._learned.append(report)
        else:
            self._primary_or_group(report)

    def _primary_or_group(self, report: Report) -> None:
        members = cast("list[str]", report.detail["members"])
        if report.what == "group":
            weights = cast("dict[str, int]", report.detail["weights"])
            self._recorder.said("group", members=members, weights=[weights[name] for name in members])
        else:
            learned = report.reason == "learned"
            self._recorder.said("primary", number=report.detail["number"], members=members, learned=learned)


def _names(sender: str, body: bytes, view_id: str, number: int) -> tuple[str, int, int]:
    """The messages that a message of the layer stands for: their row, the first one's number, how many."""
    try:
        if decode_head(body).kind is MessageKind.CHUNK:
            count, first = numbers_of(body)
            return _row(sender, first >> LIFE_SHIFT), first & (1 << LIFE_SHIFT) - 1, count
    except WireError:
        pass  # the layer drops it and counts it
    return f"{sender}/{view_id}", number, 1


def _row(sender: str, life: int) -> str:
    return f"{sender}/{life}"
