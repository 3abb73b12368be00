"""What a member sees, in one order with all others: messages, views, and faults of networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from ordercast.engine.assemble import Batch as Columns

Headers = Sequence[tuple[str, bytes]]


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message in its place in the order. `seq` numbers the sender's messages within the view, from 1."""

    sender: str
    data: bytes
    view_id: str
    seq: int
    service: str
    timestamp_us: int
    """The sender's clock when the message was queued: for people, never for order."""
    key: bytes | None = None
    headers: Headers | None = None
    offset: int | None = None
    """With the engine corel: its place in the global order, counted from 0 over the whole life of the group."""


class View(msgspec.Struct, frozen=True):
    """A new membership. What follows is delivered by these members, or by those who go on from here together."""

    id: str
    members: tuple[str, ...]
    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    primary: bool | None = None
    """Whether this is the primary component; None where the engine has no such notion."""


class TransitionalView(msgspec.Struct, frozen=True):
    """Those of the last view who go on together; until the next view only they are sure to deliver the same."""

    id: str
    members: tuple[str, ...]


class NetworkFault(msgspec.Struct, frozen=True):
    """A redundant network is taken for broken, and not used until it is mended."""

    network: str
    """This process's own address on it, as it was given to `join`."""
    reason: str
    number: int = 1
    """The same at all members: they give their networks in one order."""
    evidence: Mapping[str, object] = {}
    """`silent` and `hears`: whom this process does not and does hear by it; and what the reason counts."""


class NetworkRepaired(msgspec.Struct, frozen=True):
    """A network is used again."""

    network: str
    number: int = 1


class Snapshot(msgspec.Struct, frozen=True):
    """This member was brought up from a snapshot: messages before `offset` do not come, `data` is what they led to."""

    offset: int
    data: bytes
    """What another member's application offered as its state there; empty if none has offered any."""


class Batch:
    """Consecutive messages of one sender as columns over one blob; messages are made when it is iterated."""

    __slots__ = ("_columns", "offset", "sender", "service", "view_id")

    def __init__(self, columns: Columns, sender: str, view_id: str, service: str, offset: int | None = None) -> None:
        self._columns = columns
        self.sender = sender
        self.view_id = view_id
        self.service = service
        self.offset = offset
        """Of the first message in the global order, with the engine corel; those of the others follow it."""

    @property
    def seq(self) -> int:
        """The sender's number of the first message."""
        return self._columns.first

    @property
    def timestamp_us(self) -> int:
        return self._columns.stamp_us

    @property
    def lengths(self) -> list[int]:
        """The length of each message; with keys or headers, of these and the data together."""
        return self._columns.lengths

    @property
    def blob(self) -> bytes:
        """The messages back to back."""
        return self._columns.blob

    @property
    def size(self) -> int:
        """The bytes of the blob, which is not made for that."""
        columns = self._columns
        return len(columns.blob) if columns.pieces is None else columns.size

    @property
    def bodies(self) -> Iterator[bytes]:
        """The data of each message."""
        return iter(self._columns)

    def tail(self, count: int) -> Batch:
        """The last `count` messages."""
        columns, skip = self._columns, len(self) - count
        cut = Columns(
            columns.sender_key,
            columns.service,
            columns.first + skip,
            columns.stamp_us,
            columns.lengths[skip:],
            columns.blob[sum(columns.lengths[:skip]) :],
        )
        if columns.key_lengths is not None:
            cut.key_lengths = columns.key_lengths[skip:]
        if columns.header_lengths is not None:
            cut.header_lengths = columns.header_lengths[skip:]
        offset = None if self.offset is None else self.offset + skip
        return Batch(cut, self.sender, self.view_id, self.service, offset)

    def __len__(self) -> int:
        return len(self._columns.lengths)

    def __iter__(self) -> Iterator[Message]:
        sender, view_id, service, stamp = self.sender, self.view_id, self.service, self._columns.stamp_us
        seq, offset = self._columns.first, self.offset
        if self._columns.key_lengths is None and self._columns.header_lengths is None:
            if offset is None:
                for data in self._columns:
                    yield Message(sender, data, view_id, seq, service, stamp)
                    seq += 1
                return
            ahead = offset - seq
            for data in self._columns:
                yield Message(sender, data, view_id, seq, service, stamp, None, None, seq + ahead)
                seq += 1
            return
        for number, (key, packed, data) in enumerate(self._columns.records()):
            headers = None if packed is None else decode_headers(packed)
            place = None if offset is None else offset + number
            yield Message(sender, data, view_id, seq + number, service, stamp, key, headers, place)

    def __repr__(self) -> str:
        return f"Batch({len(self)} of {self.sender} from {self.seq} in {self.view_id})"


Event = Message | View | TransitionalView | NetworkFault | NetworkRepaired | Snapshot
"""One event of the stream."""
BatchEvent = Batch | View | TransitionalView | NetworkFault | NetworkRepaired | Snapshot
"""The same with messages in batches."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[str, bytes]]).decode


def encode_headers(headers: Headers) -> bytes:
    return _encode(headers)


def decode_headers(data: bytes) -> Headers:
    return _decode(data)
