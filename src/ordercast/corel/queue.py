"""The message queue MQ: a green prefix that only counts here, then the yellow zone, then the red suffix."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from ordercast.wire.chunk import Buffer, Chunk, Stamp


class Item:
    """A chunk in the queue: ordered, stored and retransmitted as a whole."""

    __slots__ = ("change", "count", "first", "last", "raw", "sender", "stream", "ts")

    def __init__(self, chunk: Chunk) -> None:
        self.raw: Buffer = chunk.raw
        self.sender = chunk.sender
        self.stream = chunk.stream
        self.first = chunk.first
        self.last = chunk.last
        self.count = chunk.count
        self.ts: Stamp = chunk.place
        self.change = chunk.change

    @property
    def name(self) -> tuple[str, int]:
        return self.stream, self.last

    def body(self) -> bytes:
        """The first message's data: of a change, what it says."""
        offsets, blob = Chunk(self.raw).data()
        return bytes(blob[offsets[0] : offsets[1]])

    def __repr__(self) -> str:
        return f"Item({self.stream}:{self.first}..{self.last} at {self.ts})"


class MessageQueue:
    """Positions count messages from 0. Lines are positions between items; `tail` is what is not green."""

    __slots__ = ("end", "green", "last", "tail", "yellow")

    def __init__(self, green: int, yellow: int, vector: Mapping[str, int], tail: Iterable[Item]) -> None:
        self.green = green
        self.yellow = yellow
        self.tail: deque[Item] = deque(tail)
        self.end = green + sum(item.count for item in self.tail)
        self.last: dict[str, int] = dict(vector)
        """The last message of every stream that is in the queue."""
        for item in self.tail:
            self.last[item.stream] = item.last

    def follows(self, item: Item) -> bool:
        """Whether it continues its stream: neither here already, nor with a gap before it."""
        last = self.last.get(item.stream)
        return item.first == last + 1 if last is not None else item.first & 0xFF_FFFF_FFFF == 1

    def append(self, item: Item) -> None:
        self.tail.append(item)
        self.end += item.count
        self.last[item.stream] = item.last

    def advance_green(self, position: int) -> list[Item]:
        """Moves the green line to a position between items and takes what it has passed."""
        passed: list[Item] = []
        while self.green < position:
            item = self.tail.popleft()
            passed.append(item)
            self.green += item.count
        assert self.green == position, f"the green line would stand inside an item, at {position} of {self.green}"
        self.yellow = max(self.yellow, self.green)
        return passed

    def before(self, position: int) -> list[Item]:
        """What is not green and stands before a position."""
        return [item for end, item in self.ends() if end <= position]

    def behind(self, position: int) -> list[Item]:
        return [item for end, item in self.ends() if end > position]

    def ends(self) -> Iterator[tuple[int, Item]]:
        """The items of the tail, each with the position behind it."""
        position = self.green
        for item in self.tail:
            position += item.count
            yield position, item

    def replace(self, position: int, items: Iterable[Item]) -> None:
        """Puts other items to where the tail stands from `position` on."""
        self.tail = deque([*self.before(position), *items])
        self.end = self.green + sum(item.count for item in self.tail)
        for item in self.tail:
            self.last[item.stream] = max(item.last, self.last.get(item.stream, 0))
