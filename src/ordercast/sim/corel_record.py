"""The trace of a node that runs corel: the transport's events with their own identifiers, and the layer's on top.

A message of the application keeps its identifier: it is sent and delivered under it once. All else that corel
multicasts, retransmissions too, has an identifier of the transport.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Literal, cast

from msgspec import UNSET

from ordercast.check.events import (
    Acknowledged,
    Colour,
    Deliver,
    Durable,
    Event,
    Extra,
    Group,
    Order,
    Primary,
    Queue,
    Send,
)
from ordercast.corel.messages import MessageKind, decode_chunk, decode_head
from ordercast.engine.contract import Append, Install, Ordered, Originated, Report, Run, Transport
from ordercast.engine.contract import Deliver as Delivered
from ordercast.sim.record import Messages, NodeLog
from ordercast.wire.chunk import Chunk, Stamp
from ordercast.wire.ids import Service

ColourName = Literal["red", "yellow", "green"]
_NOWHERE = Stamp(0, "", 0)


class CorelLog(NodeLog):
    """`queue` is what is durable in the node's message queue, by the names of the messages."""

    __slots__ = ("_entries", "_learned", "durable", "green", "ordered_to", "queue", "restored", "yellow")

    def __init__(self, node: str, messages: Messages, keep_reports: bool) -> None:
        super().__init__(node, messages, keep_reports)
        self.queue: list[str] = []
        self.durable: set[str] = set()
        self.green = 0
        """What was ordered here in this life, or stood below the green line when it began."""
        self.yellow = 0
        self.restored = 0
        """Positions below this are not in the node's log: it was brought up from a snapshot."""
        self.ordered_to = 0
        """What was ordered here in any life: it cannot change, though the mark may have to be found again."""
        self._learned: list[Report] = []
        """What it has learned, and knows from the next entry of its log on."""
        self._entries: dict[int, list[Report]] = {}
        """What it will know once an entry is durable, by the entry's `write_id`."""

    # What the engine below did

    def transport(self, effect: Transport) -> None:
        inner = effect.effect
        if isinstance(inner, Originated):
            for at, body in enumerate(effect.bodies):
                for name in self.names(self.node, body, inner.view_id, inner.first + at):
                    self.step += 1
                    self.events.append(Send(self.node, self.step, name, inner.view_id, "agreed"))
        elif isinstance(inner, Delivered):
            self.deliver(inner.view_id, inner.runs)
        else:
            assert isinstance(inner, Install)
            self.install(inner)

    def deliver(self, view_id: str, runs: Iterable[Run]) -> None:
        keys = self._messages.keys
        view = self.view.id if self.view is not None else view_id
        for run in runs:
            batch = self._assembler.feed(run)
            if batch is None:
                continue
            sender = keys[batch.sender_key]
            for at, body in enumerate(batch):
                for name in self.names(sender, body, view, batch.first + at):
                    self.step += 1
                    self.events.append(Deliver(self.node, self.step, name, sender, view_id, "agreed"))

    def names(self, sender: str, body: bytes, view: str, number: int) -> Sequence[str]:
        """The events that a message of corel stands for: one, or one for each message of the application."""
        if decode_head(body).kind is not MessageKind.CHUNK:
            return (f"{sender}@{view}/{number}",)
        return self._messages.of_chunk(body, decode_chunk(body, sender, _NOWHERE))

    # What the layer did

    def reopened(self, stored: Sequence[tuple[int, Chunk]], green: int, yellow: int) -> None:
        """A life begins with this log: what stands in it is durable, whether it was said before or not."""
        self._learned.clear()
        self._entries.clear()
        known = self.queue
        begin = stored[0][0] if stored else green
        names = [name for _, chunk in stored for name in self.of_stored(chunk)]
        self.restored = max(self.restored, begin) if known else begin
        if begin > len(known):
            # It was brought up from a snapshot, and crashed before anybody was told.
            self.extra("x-restored", begin)
        self.queue = known[:begin] + [""] * (begin - len(known)) + names
        # What the crash kept back: entries that became durable, and nobody was told.
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(known, self.queue, strict=False)))
        for position in range(max(begin, min(green, same)), len(self.queue)):
            self._place(position)
        for position in range(max(begin, self.ordered_to), green):
            # Its green line was on the disk: the host hands these to the application from there.
            self.step += 2
            self.events.append(Colour(self.node, self.step - 1, self.queue[position], "green"))
            self.events.append(Order(self.node, self.step, self.queue[position], position))
        self.ordered_to = max(self.ordered_to, green)
        self.yellow = yellow
        self.green = green
        self._move_yellow(yellow, green)

    def of_stored(self, chunk: Chunk) -> Sequence[str]:
        return self._messages.of_chunk(bytes(chunk.raw), chunk)

    def _place(self, position: int) -> None:
        name = self.queue[position]
        if name not in self.durable:
            self.durable.add(name)
            self.step += 1
            self.events.append(Durable(self.node, self.step, name))
        self.step += 1
        self.events.append(Queue(self.node, self.step, name, position))

    def _move_yellow(self, line: int, changed: int | None = None) -> None:
        """The yellow line is at `line` now; what stands from `changed` on is new there."""
        end = len(self.queue)
        changed = end if changed is None else changed
        low, high = sorted((self.yellow, line))
        self.yellow = line
        for position in (*range(max(low, self.green), min(high, changed)), *range(max(changed, self.green), end)):
            colour: ColourName = "yellow" if position < line else "red"
            if colour == "yellow" and position < self.ordered_to:
                continue  # it was green before a crash, and will be again
            self.step += 1
            self.events.append(Colour(self.node, self.step, self.queue[position], colour))

    def appended(self, effects: Sequence[Append]) -> list[int]:
        """Entries of the log are durable. Tells of which primary components the node has learned by them."""
        learned: list[int] = []
        for effect in effects:
            changed: int | None = None
            if effect.base is not None:
                self.extra("x-restored", effect.base)
                self.queue = self.queue[: effect.base] + [""] * (effect.base - len(self.queue))
                self.restored = effect.base
                self.green = max(self.green, effect.base)
                self.yellow = effect.base
                changed = effect.base
            if effect.rewind is not None:
                del self.queue[effect.rewind :]
                changed = effect.rewind
                self.yellow = min(self.yellow, effect.rewind)
            start = len(self.queue)
            for raw in effect.chunks:
                self.queue += self.of_stored(Chunk(raw))
            for position in range(start, len(self.queue)):
                self._place(position)
            if effect.chunks:
                changed = start if changed is None else min(start, changed)
            line = self.yellow if effect.yellow is None else effect.yellow
            if changed is not None or line != self.yellow:
                self._move_yellow(line, changed)
            for report in self._entries.pop(effect.write_id, ()):
                self._primary_or_group(report)
                if report.what == "primary":
                    learned.append(cast(int, report.detail["number"]))
        return learned

    def entered(self, effect: Append) -> None:
        """An entry is on its way to the disk."""
        if self._learned:
            self._entries[effect.write_id] = self._learned
            self._learned = []

    def queued(self, name: str, service: Service) -> None:
        """What is sent is seen when the layer multicasts it."""

    def ordered(self, effect: Ordered) -> None:
        """Messages are green and the application is told."""
        position = effect.offset
        names = [name for raw in effect.chunks for name in self.of_stored(Chunk(raw))]
        for name in names:
            self.step += 3
            self.events.append(Colour(self.node, self.step - 2, name, "green"))
            self.events.append(Order(self.node, self.step - 1, name, position))
            self.events.append(Acknowledged(self.node, self.step, name))
            position += 1
        self.green = position
        self.ordered_to = max(self.ordered_to, position)

    def wiped(self) -> None:
        """The node has another disk: it remembers nothing."""
        self.extra("x-wiped")
        self.queue, self.durable = [], set()
        self.green = self.yellow = self.restored = self.ordered_to = 0

    def extra(self, event: str, pos: object = UNSET) -> None:
        self.step += 1
        self.events.append(cast(Event, Extra(self.node, self.step, event, pos)))

    def reported(self, report: Report) -> None:
        super().reported(report)
        if report.what not in ("primary", "group"):
            return
        if report.reason == "left":
            self.extra("x-left")
        elif report.what == "primary" and report.reason == "committed":
            number, members = report.detail["number"], report.detail["members"]
            self.step += 1
            self.events.append(cast(Event, Extra(self.node, self.step, "x-committed", number=number, members=members)))
        elif report.reason == "learned":
            self._learned.append(report)
        else:
            self._primary_or_group(report)

    def _primary_or_group(self, report: Report) -> None:
        members = report.detail["members"]
        assert isinstance(members, list)
        self.step += 1
        if report.what == "group":
            weights = cast("dict[str, int]", report.detail["weights"])
            self.events.append(Group(self.node, self.step, tuple(members), tuple(weights[name] for name in members)))
            return
        number = report.detail["number"]
        assert isinstance(number, int)
        self.events.append(Primary(self.node, self.step, number, tuple(members), report.reason == "learned"))
