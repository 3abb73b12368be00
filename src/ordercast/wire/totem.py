"""The control packets of Totem: token, Join, Commit token, leave, beacon, wake.

All begin with "OC", version, kind (see `layout`). Names are a length byte and UTF-8. Decoders take any bytes and
either give a packet that an engine may have sent or raise a `WireError`; they read no count before they have
checked it against the bytes that are there, so that memory is bounded by the packet's own size.

    TOKEN   ring number u64, ring digest u64, token_seq u64, seq u64, aru u64, aru_id u64 (a node key, 0: invalid),
            fcc u32, backlog u32, flags u8 (1 retrans_flg, 2 idle), 0 u8, ranges u16, ranges × (first u64, length u32)
    JOIN    ring_seq u64, attempts u16, sender name, members u16, members × name (proc_set, ascending),
            bitmap of the fail_set over the members
    COMMIT  ring number u64, nonce u32, rotation u8, memb_index u16, members u16, members ×
            (name, flags u8 (1 filled, 2 received_flg), old ring number u64, old ring nonce u32, old ring
            representative name, my_aru u64, high_delivered u64, window u32)
    LEAVE   ring number u64, ring digest u64, sender name
    BEACON  ring number u64, ring digest u64, sender name, members u16, heard u16, members × key u64, heard × key u64
    WAKE    ring number u64, ring digest u64, sender key u64
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from struct import Struct

from ordercast.wire.ids import NAME_BYTES_MAX, NO_NODE, NodeId, NodeKey, RingId, ring_digest
from ordercast.wire.layout import MAGIC, MEMBERS_MAX, SEQ_MAX, VERSION, Malformed, PacketKind, Truncated

RTR_RANGES_MAX = 64
"""Retransmission requests in one token; each is a range, the oldest come first."""
_DECODED_MAX = 128
"""Joins and beacons are repeated unchanged, and more than one reader looks into each: so many are remembered."""

_TOKEN = Struct("<2sBBQQQQQQIIBBH")
_SEQ = Struct("<28xQ")
_RANGE = Struct("<QI")
_JOIN = Struct("<2sBBQH")
_COMMIT = Struct("<2sBBQIBHH")
_ENTRY = Struct("<QI")
_ENTRY_REST = Struct("<QQI")
_RING = Struct("<2sBBQQ")
_KEY = Struct("<Q")
_COUNT = Struct("<H")
_COUNTS = Struct("<HH")


@dataclass(slots=True)
class Token:
    """The regular token (§5.1, §7.1, §8.1)."""

    ring_number: int
    ring_digest: int
    token_seq: int = 0
    seq: int = 0
    aru: int = 0
    aru_id: NodeKey = NO_NODE
    fcc: int = 0
    backlog: int = 0
    retrans_flg: bool = False
    idle: bool = False
    """The last rotation found nothing to do: whoever holds the token may rest, and nobody expects it soon."""
    rtr: list[tuple[int, int]] = field(default_factory=list)
    """Ranges (first, length) of requested sequence numbers, ascending and apart."""

    def encode(self) -> bytes:
        head = _TOKEN.pack(
            MAGIC,
            VERSION,
            PacketKind.TOKEN,
            self.ring_number,
            self.ring_digest,
            self.token_seq,
            self.seq,
            self.aru,
            self.aru_id,
            self.fcc,
            self.backlog,
            self.retrans_flg | self.idle << 1,
            0,
            len(self.rtr),
        )
        return head + b"".join([_RANGE.pack(*entry) for entry in self.rtr]) if self.rtr else head


def decode_token(data: bytes) -> Token:
    if len(data) < _TOKEN.size:
        raise Truncated(f"a token of {len(data)} bytes")
    _, _, _, number, digest, token_seq, seq, aru, aru_id, fcc, backlog, flags, zero, ranges = _TOKEN.unpack_from(data)
    if ranges > RTR_RANGES_MAX or len(data) != _TOKEN.size + ranges * _RANGE.size:
        raise Malformed(f"a token of {len(data)} bytes with {ranges} requests")
    if number > SEQ_MAX or token_seq > SEQ_MAX or not aru <= seq <= SEQ_MAX or flags > 3 or zero:
        raise Malformed(f"a token with ring {number}, token_seq {token_seq}, seq {seq}, aru {aru}, flags {flags}")
    rtr = list(_RANGE.iter_unpack(data[_TOKEN.size :]))
    end = 0
    for first, length in rtr:
        if first <= end or not length or first + length - 1 > seq:
            raise Malformed(f"a token up to {seq} that requests {length} from {first}")
        end = first + length - 1
    return Token(
        number, digest, token_seq, seq, aru, NodeKey(aru_id), fcc, backlog, bool(flags & 1), bool(flags & 2), rtr
    )


def token_seq_of_messages(data: bytes) -> int:
    """The field seq of a token that has at least its fixed part, without decoding the rest."""
    return _SEQ.unpack_from(data)[0]  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Join:
    """The Join message (§6.1)."""

    sender: NodeId
    proc_set: frozenset[NodeId]
    fail_set: frozenset[NodeId]
    ring_seq: int
    attempts: int = 0
    """How often the sender has seen this same membership fail to be installed (erratum 6)."""

    def encode(self) -> bytes:
        names = sorted(self.proc_set)
        bitmap = bytearray(-(-len(names) // 8))
        for at, name in enumerate(names):
            if name in self.fail_set:
                bitmap[at // 8] |= 1 << at % 8
        return b"".join(
            (
                _JOIN.pack(MAGIC, VERSION, PacketKind.JOIN, self.ring_seq, min(self.attempts, 0xFFFF)),
                encode_name(self.sender),
                _COUNT.pack(len(names)),
                *map(encode_name, names),
                bitmap,
            )
        )


@lru_cache(maxsize=_DECODED_MAX)
def decode_join(data: bytes) -> Join:
    read = Reader(data)
    _, _, _, ring_seq, attempts = read.unpack(_JOIN)
    sender = read.name()
    (count,) = read.unpack(_COUNT)
    names = read.names(count)
    bitmap = read.bytes(-(-count // 8))
    read.end()
    if ring_seq > SEQ_MAX or sender not in names:
        raise Malformed(f"a Join of {sender} that leaves it out, or with ring_seq {ring_seq}")
    if count % 8 and bitmap[-1] >> count % 8:
        raise Malformed("a Join whose fail_set names nobody")
    failed = frozenset(name for at, name in enumerate(names) if bitmap[at // 8] >> at % 8 & 1)
    if sender in failed:
        raise Malformed(f"a Join of {sender} that fails itself")
    return Join(sender, frozenset(names), failed, ring_seq, attempts)


NO_RING = RingId(0, NodeId("-"))


@dataclass(slots=True)
class CommitEntry:
    """A member's entry in the Commit token's memb_list (§6.1)."""

    name: NodeId
    filled: bool = False
    old_ring: RingId = NO_RING
    my_aru: int = 0
    high_delivered: int = 0
    received_flg: bool = False
    window: int = 0
    """The window of flow control that suits the member; the ring's window is the smallest."""


@dataclass(slots=True)
class CommitToken:
    """The Commit token (§6.1). Its first entry is the representative's, whose name and nonce identify the ring."""

    ring_number: int
    nonce: int
    rotation: int
    memb_index: int
    memb_list: list[CommitEntry]

    @property
    def ring_id(self) -> RingId:
        return RingId(self.ring_number, self.memb_list[0].name, self.nonce)

    @property
    def members(self) -> frozenset[NodeId]:
        return frozenset(entry.name for entry in self.memb_list)

    def encode(self) -> bytes:
        parts = [
            _COMMIT.pack(
                MAGIC,
                VERSION,
                PacketKind.COMMIT,
                self.ring_number,
                self.nonce,
                self.rotation,
                self.memb_index,
                len(self.memb_list),
            )
        ]
        for entry in self.memb_list:
            parts += (
                encode_name(entry.name),
                bytes((entry.filled | entry.received_flg << 1,)),
                _ENTRY.pack(entry.old_ring.number, entry.old_ring.nonce),
                encode_name(entry.old_ring.representative),
                _ENTRY_REST.pack(entry.my_aru, entry.high_delivered, entry.window),
            )
        return b"".join(parts)


def decode_commit(data: bytes) -> CommitToken:
    read = Reader(data)
    _, _, _, number, nonce, rotation, index, count = read.unpack(_COMMIT)
    if not 1 <= count <= MEMBERS_MAX or index >= count or rotation not in (1, 2) or not 0 < number <= SEQ_MAX:
        raise Malformed(f"a Commit token for ring {number}: entry {index} of {count}, rotation {rotation}")
    entries = []
    for _ in range(count):
        name = read.name()
        flags = read.bytes(1)[0]
        old_number, old_nonce = read.unpack(_ENTRY)
        old_ring = RingId(old_number, read.name(), old_nonce)
        aru, high, window = read.unpack(_ENTRY_REST)
        if flags > 3 or old_number > SEQ_MAX or not high <= aru <= SEQ_MAX:
            raise Malformed(f"a Commit token with a bad entry for {name}")
        entries.append(CommitEntry(name, bool(flags & 1), old_ring, aru, high, bool(flags & 2), window))
    read.end()
    names = [entry.name for entry in entries]
    if len(set(names)) != count or names != sorted(names):
        raise Malformed("a Commit token whose members are not in the order of their names")
    if rotation == 2 and not all(entry.filled for entry in entries):
        raise Malformed("a Commit token in its second rotation with an empty entry")
    return CommitToken(number, nonce, rotation, index, entries)


@dataclass(slots=True)
class Leave:
    """An announced departure from a ring; not in the paper."""

    ring_number: int
    ring_digest: int
    sender: NodeId

    def encode(self) -> bytes:
        return _RING.pack(MAGIC, VERSION, PacketKind.LEAVE, self.ring_number, self.ring_digest) + encode_name(
            self.sender
        )


def decode_leave(data: bytes) -> Leave:
    read = Reader(data)
    _, _, _, number, digest = read.unpack(_RING)
    sender = read.name()
    read.end()
    _check_ring(number)
    return Leave(number, digest, sender)


@dataclass(frozen=True, slots=True)
class Beacon:
    """A sign of life that also tells whom its sender hears: how rings find each other, and one-way links show."""

    ring_number: int
    ring_digest: int
    sender: NodeId
    members: frozenset[NodeKey]
    heard: frozenset[NodeKey]

    def encode(self) -> bytes:
        keys = [*sorted(self.members), *sorted(self.heard)]
        return b"".join(
            (
                _RING.pack(MAGIC, VERSION, PacketKind.BEACON, self.ring_number, self.ring_digest),
                encode_name(self.sender),
                _COUNTS.pack(len(self.members), len(self.heard)),
                *map(_KEY.pack, keys),
            )
        )


@lru_cache(maxsize=_DECODED_MAX)
def decode_beacon(data: bytes) -> Beacon:
    read = Reader(data)
    _, _, _, number, digest = read.unpack(_RING)
    sender = read.name()
    members, heard = read.unpack(_COUNTS)
    if not members or members > MEMBERS_MAX or heard > MEMBERS_MAX:
        raise Malformed(f"a beacon with {members} members that hears {heard}")
    keys = [NodeKey(key) for (key,) in _KEY.iter_unpack(read.bytes(8 * (members + heard)))]
    read.end()
    _check_ring(number)
    return Beacon(number, digest, sender, frozenset(keys[:members]), frozenset(keys[members:]))


@dataclass(slots=True)
class Wake:
    """A request to whoever rests with the token of an idle ring to send it on."""

    ring_number: int
    ring_digest: int
    sender: NodeKey

    def encode(self) -> bytes:
        return _RING.pack(MAGIC, VERSION, PacketKind.WAKE, self.ring_number, self.ring_digest) + _KEY.pack(self.sender)


def decode_wake(data: bytes) -> Wake:
    read = Reader(data)
    _, _, _, number, digest = read.unpack(_RING)
    (sender,) = read.unpack(_KEY)
    read.end()
    _check_ring(number)
    return Wake(number, digest, NodeKey(sender))


_RECORD_BYTES_MAX = 100
"""More than a record takes, and too little for a number that `int` would refuse to read."""


def encode_ring_record(number: int, nonce: int) -> bytes:
    """What stable storage keeps: the ring number and the nonce, with a check that tells a torn write."""
    body = f"{number} {nonce}"
    return f"ordercast-ring 1 {body} {ring_digest(RingId(number, NodeId('record'), nonce)):016x}\n".encode()


def decode_ring_record(record: bytes) -> tuple[int, int]:
    """Ring number and nonce, or a WireError for a record that is torn, empty or not ours."""
    fields = record.split() if len(record) <= _RECORD_BYTES_MAX else []
    if len(fields) != 5 or fields[:2] != [b"ordercast-ring", b"1"] or not (fields[2] + fields[3]).isdigit():
        raise Malformed("the record of the ring number is not one")
    number, nonce = int(fields[2]), int(fields[3])
    if number > SEQ_MAX or nonce >= 2**32 or encode_ring_record(number, nonce) != record:
        raise Malformed("the record of the ring number is damaged")
    return number, nonce


def check_name(name: str) -> NodeId:
    """A process name as it may stand in a packet."""
    size = len(name.encode(errors="replace"))
    if not 0 < size <= NAME_BYTES_MAX or not name.isprintable() or any(c.isspace() for c in name):
        raise Malformed(f"a name has 1 to {NAME_BYTES_MAX} bytes of printable text without spaces, not {name!r}")
    return NodeId(name)


def _check_ring(number: int) -> None:
    if number > SEQ_MAX:
        raise Malformed(f"a packet of ring {number}")


@lru_cache(maxsize=4096)
def _decode_name(text: bytes) -> NodeId:
    try:
        return check_name(text.decode())
    except UnicodeDecodeError as error:
        raise Malformed("a name that is not UTF-8") from error


@lru_cache(maxsize=4096)
def encode_name(name: str) -> bytes:
    text = name.encode()
    return bytes((len(text),)) + text


class Reader:
    """Takes fields off the front of a packet; every shortage is a Truncated."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def unpack(self, form: Struct) -> tuple[int, ...]:
        end = self.at + form.size
        if end > len(self.data):
            raise Truncated(f"a control packet of {len(self.data)} bytes ends within a field")
        fields = form.unpack_from(self.data, self.at)
        self.at = end
        return fields

    def bytes(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise Truncated(f"a control packet of {len(self.data)} bytes ends within a field")
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def name(self) -> NodeId:
        return _decode_name(self.bytes(self.bytes(1)[0]))

    def names(self, count: int) -> list[NodeId]:
        if not 1 <= count <= MEMBERS_MAX:
            raise Malformed(f"a set of {count} members; allowed are 1 to {MEMBERS_MAX}")
        names = [self.name() for _ in range(count)]
        if not _ascending(names):
            raise Malformed("a set of members that is not in ascending order")
        return names

    def end(self) -> None:
        if self.at != len(self.data):
            raise Malformed(f"a control packet with {len(self.data) - self.at} bytes too many")


def _ascending(names: Iterable[str]) -> bool:
    previous = ""
    for name in names:
        if name <= previous:
            return False
        previous = name
    return True
