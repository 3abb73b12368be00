"""Cuts messages out of delivered packets: the last step before an application, or a log, takes them.

Packets are delivered in the total order; the pieces of one message lie in consecutive packets of its sender, between
which those of others may stand. So one unfinished message per sender is kept, and dropped when the configuration
ends: its sender sends it again, whole, in the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from ordercast.engine.contract import Run
from ordercast.wire.ids import NodeKey, Service
from ordercast.wire.layout import Malformed
from ordercast.wire.train import (
    ENTRIES_PLAIN,
    HEADER,
    HEADER_BYTES,
    LAYOUT_PACKETS,
    NONE_LENGTH,
    UNPACK_LENGTHS,
    Flag,
    Layout,
    Train,
    entry_lengths,
)

MESSAGE_BYTES_MAX = 256 * 2**20
"""The longest message that is put together again; a sender that goes on beyond it is cut off with an error."""

PLACE_SHIFT = 16
"""A place in the total order: a packet's sequence number, below it which of the messages that end in the packet."""

JOIN_BYTES_MAX = 2**20
"""What is larger stays in pieces until the blob is asked for: to join 64 MiB takes a tenth of a second and more, most
of it for fresh pages, all members come to it at the same time, and who feeds would not pass on the token meanwhile."""

_CONTINUES, _UNFINISHED = int(Flag.CONTINUES), int(Flag.UNFINISHED)
_KEYS, _HEADERS = int(Flag.KEYS), int(Flag.HEADERS)
_FIRST_AND_STAMP = Struct("<36xQQ")


class Batch:
    """Whole messages of one sender in their order, as columns over one blob.

    `lengths` are those of the bodies in `blob`. Where the sender gave keys or headers, `key_lengths` and
    `header_lengths` tell how much of each body's head they are (None: none). Iteration yields the data alone.
    """

    __slots__ = (
        "blob", "first", "header_lengths", "key_lengths", "lengths", "pieces", "places", "sender_key", "service",
        "stamp_us",
    )  # fmt: skip
    blob: bytes
    pieces: list[bytes] | None

    def __init__(
        self,
        sender_key: NodeKey,
        service: Service,
        first: int,
        stamp_us: int,
        lengths: list[int],
        blob: bytes | list[bytes],
    ) -> None:
        """The blob may be given in pieces, which are joined by the first who asks for it."""
        self.sender_key = sender_key
        self.service = service
        self.first = first
        self.stamp_us = stamp_us
        self.lengths = lengths
        if isinstance(blob, list):
            self.pieces = blob  # and no blob yet: see __getattr__
        else:
            self.blob, self.pieces = blob, None
        self.key_lengths: list[int | None] | None = None
        self.header_lengths: list[int | None] | None = None
        self.places: list[int] | None = None
        """Where each message stands in the total order of its configuration, if the assembler was asked for it."""

    def __getattr__(self, name: str) -> bytes:
        """The blob, when it is asked for and still in pieces; so one that is there costs no more than any slot."""
        pieces = self.pieces if name == "blob" else None
        if pieces is None:
            return object.__getattribute__(self, name)  # type: ignore[no-any-return]  # or there is none of this name
        blob = b"".join(pieces)
        self.blob, self.pieces = blob, None
        return blob

    @property
    def size(self) -> int:
        """The bytes of the blob, which is not made for that."""
        return len(self.blob) if self.pieces is None else sum(self.lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[bytes]:
        if self.key_lengths is None and self.header_lengths is None:
            at, blob = 0, self.blob
            for length in self.lengths:
                yield blob[at : at + length]
                at += length
            return
        for _key, _headers, data in self.records():
            yield data

    def records(self) -> Iterator[tuple[bytes | None, bytes | None, bytes]]:
        """Key, headers and data of each message."""
        at = 0
        none = [None] * len(self.lengths)
        for length, key, head in zip(self.lengths, self.key_lengths or none, self.header_lengths or none, strict=True):
            middle = at + (key or 0)
            data = middle + (head or 0)
            end = at + length
            if data > end:
                raise Malformed("a message whose key and headers are longer than itself")
            yield (
                None if key is None else self.blob[at:middle],
                None if head is None else self.blob[middle:data],
                self.blob[data:end],
            )
            at = end


class _Partial:
    """A message whose last piece has not been delivered yet."""

    __slots__ = ("header_length", "key_length", "number", "pieces", "size", "stamp")

    def __init__(self, number: int, stamp: int) -> None:
        self.number = number
        self.stamp = stamp
        self.key_length: int | None = None
        self.header_length: int | None = None
        self.pieces: list[bytes] = []
        self.size = 0


class _Cut:
    """What has been cut out of runs so far."""

    __slots__ = ("goes_on", "last", "lengths", "pieces", "places")

    def __init__(
        self, train: Train, packet: int, pieces: list[bytes], lengths: list[int], places: list[int] | None
    ) -> None:
        self.pieces = pieces
        self.lengths = lengths
        self.places = places
        self.goes_on = 0
        """The flag that the next packet must have: its first entry goes on with the last one, or does not."""
        self.last = train, packet, 0, -1
        """Where the last message begins: train and packet, its first piece, how many bytes of that."""


def follow(before: Run, after: Run) -> bool:
    """Whether two runs are consecutive packets of one sender and kind, without keys or headers."""
    train, last = after.train, before.train
    return (
        train.first_seq + after.start == last.first_seq + before.stop
        and train.sender == last.sender
        and train.flags == last.flags
        and not train.columns
    )


class Assembler:
    """Turns runs of packets, fed in delivery order, into batches of whole messages."""

    def __init__(self, message_bytes_max: int = MESSAGE_BYTES_MAX, *, places: bool = False) -> None:
        self.message_bytes_max = message_bytes_max
        self.places = places
        self._partials: dict[NodeKey, _Partial] = {}

    def reset(self) -> None:
        """A configuration ended: unfinished messages are void."""
        self._partials.clear()

    @property
    def pending_bytes(self) -> int:
        return sum(partial.size for partial in self._partials.values())

    def feed(self, run: Run, *more: Run) -> Batch | None:
        """The messages that the run completes, or None; with those of more runs that `follow` it, as one batch."""
        train = run.train
        if train.columns:
            return self._feed_columns(run)
        goes_on = train.marks[run.start] & _CONTINUES
        first = self._first(train, run.start * train.segment, goes_on)
        cut = _Cut(train, run.start, first.pieces, [first.size] if goes_on else [], [] if self.places else None)
        cut.goes_on = goes_on
        self._cut_run(run, cut)
        for each in more:
            self._cut_run(each, cut)
        if cut.goes_on:
            self._keep_last(first, cut)
        if not cut.lengths:
            return None
        blob = _joined(cut.pieces, train.segment)
        batch = Batch(train.sender, train.service, first.number, first.stamp, cut.lengths, blob)
        batch.places = cut.places
        return batch

    def _cut_run(self, run: Run, cut: _Cut) -> None:
        train = run.train
        segment, count = train.segment, train.count
        for begin in range(run.start, run.stop, LAYOUT_PACKETS):
            stop = min(begin + LAYOUT_PACKETS, run.stop)
            marks = train.marks if stop - begin == count else train.marks[begin:stop]
            size = segment if stop < count else len(train.raw) - (stop - 1) * segment
            layout = Layout.of(segment, size, marks)
            if layout is not None and layout.continues == cut.goes_on:
                self._cut_layout(train, begin, layout, cut)
            else:
                self._cut_packets(train, begin, marks, cut)

    def _cut_layout(self, train: Train, begin: int, layout: Layout, cut: _Cut) -> None:
        """The packets of a layout from packet `begin` on, all at once."""
        at = begin * train.segment
        entries, train.entries = train.entries, None
        if entries is None or len(entries) != layout.slices[-1].stop:
            entries = layout.lengths(train.raw, at)
        if layout.begun is not None:
            packet, entry = layout.begun
            cut.last = train, begin + packet, len(cut.pieces) + packet, entries[entry]
        cut.pieces += layout.blobs(train.raw, at, entries)
        lengths = list(entries)
        for joint in layout.joints:
            lengths[joint - 1] += lengths.pop(joint)
        if cut.goes_on:
            lengths[0] += cut.lengths.pop()
            self._check_size(lengths[0])
        cut.lengths += lengths
        cut.goes_on = layout.open
        if cut.places is not None:
            place = (train.first_seq + begin) << PLACE_SHIFT
            for ended in layout.ended:
                cut.places += range(place, place + ended)
                place += 1 << PLACE_SHIFT

    def _cut_packets(self, train: Train, begin: int, marks: tuple[int, ...], cut: _Cut) -> None:
        """The packets of these marks from packet `begin` on, one by one."""
        raw, segment, pieces, lengths, places = train.raw, train.segment, cut.pieces, cut.lengths, cut.places
        at, goes_on = begin * segment, cut.goes_on
        for mark in marks:
            entries = mark >> 16
            body = at + HEADER_BYTES + 2 * entries
            if entries <= ENTRIES_PLAIN:
                table = UNPACK_LENGTHS[entries](raw, at + HEADER_BYTES)
            else:
                table = entry_lengths(raw, at, entries)
            pieces.append(raw[body : body + sum(table)])
            if mark & _CONTINUES != goes_on:
                raise Malformed(
                    f"packet {train.first_seq + at // segment} does not go on where the one before it ended"
                )
            if goes_on:
                lengths[-1] += table[0]
                self._check_size(lengths[-1])
                lengths += table[1:]
            else:
                lengths += table
            if mark & _UNFINISHED:
                if entries > 1 or not goes_on:
                    cut.last = train, at // segment, len(pieces) - 1, table[-1]
                goes_on = _CONTINUES
            else:
                goes_on = 0
            if places is not None:
                place = (train.first_seq + at // segment) << PLACE_SHIFT
                places += range(place, place + len(lengths) - (goes_on != 0) - len(places))
            at += segment
        cut.goes_on = goes_on

    def _first(self, train: Train, at: int, goes_on: int) -> _Partial:
        """The first message of the packet at `at`: one that was begun before, or a new one."""
        begun = self._partials.pop(train.sender, None)
        if not goes_on:
            return _Partial(*_FIRST_AND_STAMP.unpack_from(train.raw, at))
        if begun is None:
            raise Malformed(f"packet {train.first_seq + at // train.segment} continues a message that never began")
        return begun

    def _keep_last(self, first: _Partial, cut: _Cut) -> None:
        """Takes the last message out of the pieces that begin with `first`, because it is unfinished."""
        size = cut.lengths.pop()
        self._check_size(size)
        train, packet, begin, count = cut.last
        message = first
        if count >= 0:
            pieces = first.pieces
            stamp = _FIRST_AND_STAMP.unpack_from(train.raw, packet * train.segment)[1]
            message = _Partial(first.number + len(cut.lengths), stamp)
            whole = len(pieces[begin]) - count
            message.pieces = [pieces[begin][whole:], *pieces[begin + 1 :]]
            pieces[begin:] = [pieces[begin][:whole]]
        message.size = size
        self._partials[train.sender] = message

    def _feed_columns(self, run: Run) -> Batch | None:
        """The same, packet by packet, for messages with keys or headers."""
        train = run.train
        raw, segment, sender, columns = train.raw, train.segment, train.sender, train.columns
        lengths: list[int] = []
        pieces: list[bytes] = []
        keys: list[int | None] = []
        heads: list[int | None] = []
        first_number, first_stamp = -1, 0
        places: list[int] | None = [] if self.places else None
        for at in range(run.start * segment, run.stop * segment, segment):
            _, _, _, _, _, _, seq, number, stamp, flags, count = HEADER.unpack_from(raw, at)
            table = entry_lengths(raw, at, count)
            body = at + HEADER_BYTES + 2 * count
            if columns:
                body = _read_columns(raw, body, flags, count, keys, heads)
            end = body + sum(table)
            if flags & _CONTINUES:
                partial = self._partials.get(sender)
                if partial is None:
                    raise Malformed(f"packet {seq} continues a message that never began")
                self._grow(partial, raw[body : body + table[0]])
                if count == 1 and flags & _UNFINISHED:
                    if columns:
                        keys.pop(), heads.pop()
                    continue
                del self._partials[sender]
                if first_number < 0:
                    first_number, first_stamp = partial.number, partial.stamp
                pieces += partial.pieces
                lengths.append(partial.size)
                if columns:
                    keys[-count], heads[-count] = partial.key_length, partial.header_length
                body += table[0]
                table = table[1:]
            elif first_number < 0:
                first_number, first_stamp = number, stamp
            if flags & _UNFINISHED:
                partial = _Partial(number + count - 1, stamp)
                if columns:
                    partial.key_length, partial.header_length = keys.pop(), heads.pop()
                self._partials[sender] = partial
                end -= table[-1]
                self._grow(partial, raw[end : end + table[-1]])
                table = table[:-1]
            lengths += table
            pieces.append(raw[body:end])
            if places is not None:
                place = seq << PLACE_SHIFT
                places += range(place, place + len(lengths) - len(places))
        if not lengths:
            return None
        batch = Batch(sender, train.service, first_number, first_stamp, lengths, _joined(pieces, segment))
        batch.places = places
        if columns:
            batch.key_lengths, batch.header_lengths = keys, heads
        return batch

    def _grow(self, partial: _Partial, piece: bytes) -> None:
        partial.pieces.append(piece)
        partial.size += len(piece)
        self._check_size(partial.size)

    def _check_size(self, size: int) -> None:
        if size > self.message_bytes_max:
            raise Malformed(f"a message of more than {self.message_bytes_max} bytes")


def _joined(pieces: list[bytes], segment: int) -> bytes | list[bytes]:
    """The pieces as one, unless they may be too large for that now; none is longer than a packet of `segment`."""
    return pieces if len(pieces) * segment > JOIN_BYTES_MAX else b"".join(pieces)


def _read_columns(raw: bytes, at: int, flags: int, count: int, keys: list[int | None], heads: list[int | None]) -> int:
    """Appends a packet's key and header columns and tells where its blob begins."""
    column = Struct(f"<{count}I")
    for flag, cells in ((_KEYS, keys), (_HEADERS, heads)):
        if flags & flag:
            cells += [None if length == NONE_LENGTH else length for length in column.unpack_from(raw, at)]
            at += column.size
        else:
            cells += [None] * count
    return at
