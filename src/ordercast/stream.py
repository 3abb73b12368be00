"""What crosses from the driver's thread to the application: the stream of events, and its reader.

What was delivered is collected until the end of a turn of the driver's loop, however many messages that is: in a trace
what is handed over has been written before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from ordercast.engine.assemble import Batch as Columns
from ordercast.engine.contract import Kind, Progress, Report
from ordercast.engine.contract import View as EngineView
from ordercast.errors import GroupError
from ordercast.events import Batch, BatchEvent, Event, Message, NetworkFault, NetworkRepaired, TransitionalView, View
from ordercast.net.driver import READER_MESSAGE_BYTES
from ordercast.wire.ids import NodeId, Service

_SERVICE_NAMES = {Service.AGREED: "agreed", Service.SAFE: "safe"}


class StreamEnd(NamedTuple):
    """The last item of a stream."""

    error: GroupError | None


class Done(NamedTuple):
    """So many of my own messages have been delivered."""

    messages: int
    view_id: str
    seq: int
    unsure: bool
    """In a transitional view without all members of the last one: of a safe message the others may know nothing."""
    offset: int | None = None
    """Of the last of them in the global order, where there is one and it is known."""


class Gap:
    """Messages from offset `start` up to `end` that are in the log, and not in the stream. Both may grow."""

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end


def cost_of(batch: Batch) -> int:
    """What a batch counts for among what waits for the application."""
    return batch.size + READER_MESSAGE_BYTES * len(batch.lengths)


class Stream:
    """The driver's Sink: what was delivered and not taken yet. All methods run in the driver's thread."""

    def __init__(self, networks: Sequence[str]) -> None:
        self.networks = networks
        self.items: deque[BatchEvent | Gap | StreamEnd] = deque()
        self.done: deque[Done] = deque()
        self.own = 0
        """Own messages that were delivered."""
        self.bytes_in = 0
        self.messages_in = 0
        self.members_most = 0
        """In any view so far: who came and went while this process was still joining was there all the same."""
        self.bytes_out = 0
        """Counted by the side that takes."""
        self.end: StreamEnd | None = None
        self.current: EngineView | None = None
        self.room_wanted = False
        """A sender waits until `has_room`."""
        self.has_room: Callable[[], bool] = lambda: True
        self.wake: Callable[[], None] = lambda: None
        self.on_end: Callable[[], None] = lambda: None
        self._staged: list[BatchEvent | Gap] = []
        self._staged_done: list[Done] = []
        self._unsure = False
        self.progress_now = Progress(0, 0, 0)
        """Of own messages short of their delivery, where the engine knows such."""
        self.watched = 0
        """So many wait for the progress of own messages short of their end."""
        self.moved = False
        """There was such progress in this turn."""

    def view(self, view: EngineView) -> None:
        old = self.current
        if view.kind is Kind.TRANSITIONAL:
            self._unsure = old is not None and len(view.members) < len(old.members)
            self._staged.append(TransitionalView(view.id, view.members))
            return
        before = () if old is None else old.members
        joined = tuple(name for name in view.members if name not in before)
        left = tuple(name for name in before if name not in view.members)
        self._unsure = False
        self._staged.append(View(view.id, view.members, joined, left))
        self.current = view
        self.members_most = max(self.members_most, len(view.members))

    def batch(self, columns: Columns, sender: NodeId, view_id: str, mine: bool) -> None:
        self._staged.append(Batch(columns, sender, view_id, _SERVICE_NAMES[columns.service]))
        size = len(columns.blob) if columns.pieces is None else columns.size
        self.bytes_in += size + READER_MESSAGE_BYTES * len(columns.lengths)
        self.messages_in += len(columns.lengths)
        if mine:
            count = len(columns.lengths)
            self.own += count
            self._staged_done.append(Done(count, view_id, columns.first + count - 1, self._unsure))

    def publish(self) -> None:
        fresh = bool(self._staged or self._staged_done or self.moved)
        if fresh:
            self.moved = False
            self.items.extend(self._staged)
            self.done.extend(self._staged_done)
            self._staged.clear()
            self._staged_done.clear()
        if fresh or (self.room_wanted and self.has_room()):
            self.room_wanted = False
            self.wake()

    def reader_backlog(self) -> int:
        return self.bytes_in - self.bytes_out

    def reported(self, report: Report) -> None:
        if report.what not in ("network_fault", "network_repaired"):
            return
        detail = dict(report.detail)
        number = cast(int, detail.pop("network"))
        network = self.networks[number - 1]
        if report.what == "network_fault":
            self._staged.append(NetworkFault(network, report.reason, number, detail))
        else:
            self._staged.append(NetworkRepaired(network, number))

    def ended(self, error: GroupError | None, whole: bool) -> None:
        """Nothing follows. What the turn that failed had delivered stands in no trace: it is handed to nobody."""
        if whole:
            self.publish()
        end = StreamEnd(error)
        self.items.append(end)
        self.end = end
        self.on_end()
        self.wake()


class Reader:
    """Takes the stream, event by event or batch by batch: one place for a group, however often it is iterated."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._batch: Batch | None = None
        self._messages: deque[Message] = deque()
        """Those of `_batch` that have not been taken."""

    def begin(self) -> None:
        """At the end of `join`: the first view that the application sees is the group's, with all members as new.

        What came before it is dropped as far as there are views only; messages of an earlier view are kept, after it,
        and so are faults of networks.
        """
        items = self._stream.items
        latest: View | None = None
        kept: list[BatchEvent | Gap] = []
        while items and not isinstance(items[0], (Batch, StreamEnd)):
            item = items[0]
            if isinstance(item, TransitionalView) and not _view_follows(items):
                break
            items.popleft()
            if isinstance(item, View):
                latest = item
            elif not isinstance(item, TransitionalView):
                kept.append(item)
        items.extendleft(reversed(kept))
        if latest is not None:
            items.appendleft(View(latest.id, latest.members, latest.members))

    def next_event(self) -> Event | StreamEnd | None:
        """The next event; None if there is none yet. The end stays where it is."""
        if self._messages:
            return self._messages.popleft()
        item = self.next_batch()
        if isinstance(item, Batch):
            self._batch = item
            self._messages.extend(item)
            return self._messages.popleft()
        return item

    def next_batch(self) -> BatchEvent | StreamEnd | None:
        if self._messages:
            assert self._batch is not None
            rest = self._batch.tail(len(self._messages))
            self._messages.clear()
            return rest
        items = self._stream.items
        if not items:
            return None
        if self._stream.end is not None and items[0] is self._stream.end:
            return self._stream.end
        item = items.popleft()
        assert not isinstance(item, (Gap, StreamEnd))
        if isinstance(item, Batch):
            self._stream.bytes_out += cost_of(item)
        return item


def _view_follows(items: deque[BatchEvent | Gap | StreamEnd]) -> bool:
    return len(items) > 1 and isinstance(items[1], View)
