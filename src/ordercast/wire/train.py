"""The data packet, one at a time and in trains.

Layout of a data packet, little-endian:

    bytes  field
    0      "OC", version, kind = 1
    4      ring number            u64   ┐ the ring the packet belongs to
    12     ring digest            u64   ┘
    20     sender key             u64   the originator, whoever transmits the packet
    28     seq                    u64   place in the ring's total order
    36     first                  u64   the originator's number, within the ring, of the first message in the packet
    44     stamp                  u64   the originator's wall clock in µs when the first message was submitted
    52     flags                  u16   see `Flag`
    54     count                  u16   messages, or pieces of messages, in the packet
    56     lengths                count × u16
           key lengths            count × u32, with KEYS: bytes of key at the head of the body, 0xFFFFFFFF for none
           header lengths         count × u32, with HEADERS: likewise, after the key
           blob                   the bodies (key, headers, data) back to back
           padding                up to PADDING_MAX zero bytes

A sequence number belongs to a packet, not to a message (deviation D17 of the Totem engine).

The form is columnar: a receiver checks a packet by adding up one column, and the blob can be handed on, or become
an Arrow buffer, with no work per message. A message that does not fit is cut: its first piece is the last entry of
one packet (UNFINISHED), and it goes on as the first entry of the sender's next packet (CONTINUES). So every packet of
a burst but the last is full, and the burst can leave as one UDP_SEGMENT train. A continued entry repeats the key and
header lengths of its message's start as "none".

A *train* is what one `recvmsg` with UDP_GRO returns: packets of one size back to back, from one sender. `Train` is a
maximal stretch of them with consecutive sequence numbers, one service and one set of columns, checked once and
kept whole.

Trains repeat one another: where messages are of one size there are few ways in which they can lie in 44 packets. A
`Layout` is one such way. It reads the lengths of all packets in one call and their bodies in another, which costs a
packet a third of what reading it on its own does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import IntFlag
from functools import lru_cache
from itertools import accumulate, pairwise
from struct import Struct

from ordercast.wire.ids import NodeKey, RingId, Service, ring_digest
from ordercast.wire.layout import MAGIC, SEQ_MAX, VERSION, Malformed, PacketKind, Truncated

HEADER = Struct("<2sBBQQQQQQHH")
HEADER_BYTES = HEADER.size
RING_BYTES = 20
"""Magic, version, kind and ring: one comparison of so many bytes tells whether a data packet is of a ring."""
PADDING_MAX = 16
NONE_LENGTH = 0xFFFFFFFF

_RING = Struct("<2sBBQQ")
_TAIL = Struct("<QQQQHH")  # what follows the ring: sender, seq, first, stamp, flags, count


class Flag(IntFlag):
    SAFE = 1
    """Every message in the packet asks for safe delivery."""
    CONTINUES = 2
    """The first entry goes on with the message that the sender's previous packet left unfinished."""
    UNFINISHED = 4
    """The last entry goes on in the sender's next packet."""
    KEYS = 8
    HEADERS = 16
    RECOVERY = 32
    """The entries are packets of an old ring, retransmitted during recovery."""


_FLAGS_ALL = int(sum(Flag))
_SAFE, _RECOVERY = int(Flag.SAFE), int(Flag.RECOVERY)
_CONTINUES, _UNFINISHED = int(Flag.CONTINUES), int(Flag.UNFINISHED)
_COLUMNS = int(Flag.KEYS | Flag.HEADERS)
KEPT = _SAFE | _RECOVERY | _COLUMNS
"""The flags that are the same in all packets of a train."""
_CONSTANT = 0xFFFF & ~int(Flag.CONTINUES | Flag.UNFINISHED)
"""What must be the same in all packets of a train: the kept flags set alike, and the unknown ones not set."""


class Train:
    """Packets `first_seq` to `last_seq` of one ring, sender, service and set of columns, as they came.

    Each has `segment` bytes but the last, which may be shorter.
    """

    __slots__ = ("count", "direct", "entries", "first_seq", "flags", "last_seq", "marks", "raw", "segment", "sender")

    def __init__(
        self, raw: bytes, segment: int, marks: tuple[int, ...], first_seq: int, sender: NodeKey, flags: int
    ) -> None:
        self.raw = raw
        self.segment = segment
        self.marks = marks
        """Of each packet its flags and, above them, how many entries it has."""
        self.count = count = len(marks)
        self.first_seq = first_seq
        self.last_seq = first_seq + count - 1
        self.sender = sender
        self.flags = flags
        self.entries: tuple[int, ...] | None = None
        """The lengths of all entries, if the check has read them in one call; whoever has used them lets them go."""
        self.direct = not flags & (_SAFE | _RECOVERY)
        """Its messages are for the application, and agreed: in their turn they are delivered on sight."""

    @property
    def service(self) -> Service:
        return Service.SAFE if self.flags & _SAFE else Service.AGREED

    @property
    def recovery(self) -> bool:
        """Its entries are packets of an old ring."""
        return self.flags & _RECOVERY != 0

    @property
    def columns(self) -> int:
        """Which of the key and header columns its packets have."""
        return self.flags & _COLUMNS

    def packet(self, seq: int) -> bytes:
        """The bytes of one packet, as needed to retransmit it."""
        at = (seq - self.first_seq) * self.segment
        return self.raw[at : at + self.segment]

    def packets(self, first: int, last: int) -> bytes:
        """The bytes of packets `first` to `last`, both included."""
        at = (first - self.first_seq) * self.segment
        return self.raw[at : at + (last - first + 1) * self.segment]

    def __repr__(self) -> str:
        return f"Train({self.first_seq}..{self.last_seq} {self.service.name})"


def ring_prefix(ring: RingId) -> bytes:
    """The first bytes of every data packet of `ring`."""
    return _RING.pack(MAGIC, VERSION, PacketKind.DATA, ring.number, ring_digest(ring))


pack_tail: Callable[[int, int, int, int, int, int], bytes] = _TAIL.pack
"""The header behind the ring prefix, of sender, seq, first, stamp, flags and count; without a call of Python code."""


@lru_cache(maxsize=512)
def pack_head(count: int) -> Callable[..., bytes]:
    """The same with the lengths column of a packet with so many entries behind it."""
    return Struct(f"{_TAIL.format}{count}H").pack


def sender_of(data: bytes) -> NodeKey:
    """The sender key of a data packet whose header is complete."""
    return NodeKey(int.from_bytes(data[20:28], "little"))


@lru_cache(maxsize=512)
def _lengths(count: int) -> Struct:
    return Struct(f"<{count}H")


ENTRIES_PLAIN = 256
UNPACK_LENGTHS = [Struct(f"<{count}H").unpack_from for count in range(ENTRIES_PLAIN + 1)]
"""For packets of up to so many entries, without a call of Python code in between."""


@lru_cache(maxsize=256)
def _headers(segment: int, count: int) -> Struct:
    """Reads ring and sender, seq, first, and the *mark* of `count` packets in one call.

    A mark is a packet's flags and, above them, its count: few differ within a train.
    """
    gap = segment - HEADER_BYTES
    return Struct("<" + f"{gap}x".join(["28sQQ8xI"] * count))


LAYOUT_PACKETS = 64
"""A layout is one of at most so many packets: what one call sends, and what arrives together."""
LAYOUTS_MAX = 512


class Layout:
    """How entries lie in packets back to back: in all packets with these sizes and marks, however long each entry is.

    Reading by layout is reading packet by packet, done in C: the checks are the same, and so is what comes out.
    """

    __slots__ = ("begun", "bodies", "continues", "ended", "joints", "lengths", "open", "room", "rooms", "slices")

    def __init__(self, segment: int, last_bytes: int, marks: tuple[int, ...]) -> None:
        counts = [mark >> 16 for mark in marks]
        sizes = [segment] * (len(marks) - 1) + [last_bytes]
        rooms = [size - HEADER_BYTES - 2 * count for size, count in zip(sizes, counts, strict=True)]
        gaps = list(zip(counts, rooms, strict=True))
        bounds = list(accumulate(counts, initial=0))
        self.lengths: Callable[[bytes, int], tuple[int, ...]] = Struct(
            "<" + "".join(f"{HEADER_BYTES}x{count}H{room}x" for count, room in gaps)
        ).unpack_from
        """The lengths of all entries."""
        self.bodies: Callable[[bytes, int], tuple[bytes, ...]] = Struct(
            "<" + "".join(f"{HEADER_BYTES + 2 * count}x{room}s" for count, room in gaps)
        ).unpack_from
        """What stands behind each packet's lengths: its blob, and its padding if it has any."""
        self.slices = [slice(begin, end) for begin, end in pairwise(bounds)]
        """Which of the lengths are each packet's."""
        self.rooms = tuple(rooms)
        self.room = sum(rooms)
        self.continues = marks[0] & _CONTINUES
        self.open = _CONTINUES if marks[-1] & _UNFINISHED else 0
        """What the packet behind these has to say of its first entry."""
        self.joints = [at for at, mark in zip(bounds, marks, strict=False) if at and mark & _CONTINUES][::-1]
        """The entries that go on with the one before them, from the last to the first."""
        self.ended = [count - (mark & _UNFINISHED != 0) for count, mark in zip(counts, marks, strict=True)]
        """How many messages end in each packet."""
        begun = [
            at for at, mark in enumerate(marks) if mark & _UNFINISHED and (mark >> 16 > 1 or not mark & _CONTINUES)
        ]
        self.begun = (begun[-1], bounds[begun[-1] + 1] - 1) if begun else None
        """The last packet that begins a message which does not end in it, and that entry."""

    def check(self, raw: bytes, at: int) -> tuple[int, ...]:
        """Refuses the packets at `at` unless each is filled by its entries. Gives the lengths of all of them."""
        entries = self.lengths(raw, at)
        sums = tuple(map(sum, map(entries.__getitem__, self.slices)))
        if sums != self.rooms:
            for room, filled in zip(self.rooms, sums, strict=True):
                if not 0 <= room - filled <= PADDING_MAX:
                    raise Malformed(f"data packet whose entries differ from its size by {room - filled} bytes")
        return entries

    def blobs(self, raw: bytes, at: int, entries: tuple[int, ...]) -> Sequence[bytes]:
        """The blob of each packet; `entries` has been checked."""
        bodies = self.bodies(raw, at)
        if sum(entries) == self.room:
            return bodies
        return [body[: sum(entries[part])] for body, part in zip(bodies, self.slices, strict=True)]

    @staticmethod
    def of(segment: int, last_bytes: int, marks: tuple[int, ...]) -> Layout | None:
        """The layout of packets without keys or headers, made when it is met for the second time."""
        key = segment, last_bytes, marks
        layout = _layouts.get(key)
        if layout is not None:
            return layout
        if key not in _layouts:
            if len(_layouts) >= LAYOUTS_MAX:
                _layouts.clear()
            _layouts[key] = None
            return None
        entries_max = (min(segment, last_bytes) - HEADER_BYTES) // 2
        constant = marks[0] & KEPT & ~_COLUMNS
        if not all(mark & _CONSTANT == constant and 0 < mark >> 16 <= entries_max for mark in marks):
            return None
        if [mark & _UNFINISHED != 0 for mark in marks[:-1]] != [mark & _CONTINUES != 0 for mark in marks[1:]]:
            return None
        _layouts[key] = layout = Layout(segment, last_bytes, marks)
        return layout


_layouts: dict[tuple[int, int, tuple[int, ...]], Layout | None] = {}
"""None: met once. Where messages are of many sizes hardly any layout comes again, and none is made."""


def entry_lengths(data: bytes, at: int, count: int) -> tuple[int, ...]:
    """The lengths column of the packet that begins at `at`."""
    return _lengths(count).unpack_from(data, at + HEADER_BYTES)


def check_packet(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    """Refuses the data packet in `data[at:end]` unless it is whole and consistent. Gives sender, seq and flags."""
    if end - at < HEADER_BYTES:
        raise Truncated(f"a data packet of {end - at} bytes is shorter than its header")
    sender, seq, first, _stamp, flags, count = _TAIL.unpack_from(data, at + RING_BYTES)
    if not 0 < seq <= SEQ_MAX or first > SEQ_MAX or not sender:
        raise Malformed(f"data packet with seq {seq}, first {first}, sender {sender}")
    if flags & ~_FLAGS_ALL:
        raise Malformed(f"data packet with unknown flags {flags:#x}")
    body = at + HEADER_BYTES + 2 * count
    if flags & _COLUMNS or not 0 < count <= ENTRIES_PLAIN or end < body:
        _check_columns(data, at, end, flags, count)
    else:
        slack = end - body - sum(UNPACK_LENGTHS[count](data, at + HEADER_BYTES))
        if slack < 0 or slack > PADDING_MAX:
            raise Malformed(f"data packet whose entries differ from its size by {slack} bytes")
    return sender, seq, flags


def _check_columns(data: bytes, at: int, end: int, flags: int, count: int) -> None:
    body = at + HEADER_BYTES + (2 + 4 * (flags & _COLUMNS).bit_count()) * count
    if not count or body > end:
        raise Truncated(f"data packet of {end - at} bytes with {count} entries")
    slack = end - body - sum(_lengths(count).unpack_from(data, at + HEADER_BYTES))
    if not 0 <= slack <= PADDING_MAX:
        raise Malformed(f"data packet whose entries differ from its size by {slack} bytes")


def parse_train(data: bytes, segment: int) -> Train | None:
    """The whole of `data` as one Train if it is one; None if it has to be looked at packet by packet.

    Equal rings, senders, consecutive sequence numbers and plain flags are checked for all packets with one call of
    `unpack_from`; what is left per packet is the sum of its lengths column.
    """
    size = len(data)
    count = -(-size // segment)
    if count == 1:
        sender, seq, flags = check_packet(data, 0, size)
        return Train(data, segment, (int.from_bytes(data[52:HEADER_BYTES], "little"),), seq, NodeKey(sender), flags)
    tail = (count - 1) * segment
    if segment < HEADER_BYTES or size - tail < HEADER_BYTES:
        return None
    fields = _headers(segment, count).unpack_from(data)
    origins, seqs, firsts, marks = fields[0::4], fields[1::4], fields[2::4], fields[3::4]
    first_seq, kept, sender = seqs[0], marks[0] & KEPT, sender_of(data)
    if (
        origins.count(origins[0]) != count
        or seqs != tuple(range(first_seq, first_seq + count))
        or not sender
        or not 0 < first_seq <= SEQ_MAX - count
        or max(firsts) > SEQ_MAX
    ):
        return None
    layout = Layout.of(segment, size - tail, marks) if count <= LAYOUT_PACKETS else None
    if layout is not None:
        train = Train(data, segment, marks, first_seq, sender, kept)
        train.entries = layout.check(data, 0)
        return train
    room, plain = segment - HEADER_BYTES, not kept & _COLUMNS
    for mark in dict.fromkeys(marks):
        if mark & _CONSTANT != kept:
            return None
        plain = plain and 0 < mark >> 16 <= ENTRIES_PLAIN and mark >> 15 <= room
    if not plain:
        for at, mark in zip(range(0, size, segment), marks, strict=True):
            _check_columns(data, at, min(at + segment, size), mark & 0xFFFF, mark >> 16)
        return Train(data, segment, marks, first_seq, sender, kept)
    column = HEADER_BYTES
    for mark in marks[:-1]:
        entries = mark >> 16
        slack = room - 2 * entries - sum(UNPACK_LENGTHS[entries](data, column))
        if slack < 0 or slack > PADDING_MAX:
            raise Malformed(f"data packet whose entries differ from its size by {slack} bytes")
        column += segment
    _check_columns(data, tail, size, kept, marks[-1] >> 16)
    return Train(data, segment, marks, first_seq, sender, kept)


def split_packets(data: bytes, segment: int) -> Iterator[bytes]:
    """The packets of a train that is not one Train, each on its own."""
    for at in range(0, len(data), segment):
        yield data[at : at + segment]
