"""Fills data packets with messages: the sender's queue and its cut into packets.

Small messages share a packet, large ones span several, and every packet of a burst but the last is filled to the
same size, so that a burst leaves as one train. The work per message is one step of a loop; header and copies are
per packet.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from struct import pack

from ordercast.wire.ids import NodeKey, Service
from ordercast.wire.layout import PACKET_BYTES_MAX
from ordercast.wire.train import HEADER_BYTES, NONE_LENGTH, PADDING_MAX, Flag, pack_head, pack_tail

# Plain integers: arithmetic of IntFlag would cost more than the rest of a packet's header.
_SAFE, _CONTINUES, _UNFINISHED = int(Flag.SAFE), int(Flag.CONTINUES), int(Flag.UNFINISHED)
_KEYS, _HEADERS = int(Flag.KEYS), int(Flag.HEADERS)

PACKET_BYTES_MIN = HEADER_BYTES + 32
_ENTRY_BYTES = 2
"""What a message, or a piece of one, takes beside its bytes."""
_NEAR = 64
"""The end of a packet is looked for among so many messages first."""


class _Chunk:
    """Messages that were submitted together: one service, one stamp, the same optional columns."""

    __slots__ = ("_blob", "at", "bodies", "ends", "headers", "joined", "keys", "kind", "lengths", "offset", "stamp")

    def __init__(
        self,
        bodies: Sequence[bytes],
        service: Service,
        stamp: int,
        keys: Sequence[bytes | None] | None,
        headers: Sequence[bytes | None] | None,
    ) -> None:
        self.bodies = bodies
        columns = (Flag.KEYS if keys is not None else 0) | (Flag.HEADERS if headers is not None else 0)
        self.kind = (service, int(columns))
        """Only messages of one kind share a packet or a train."""
        self.stamp = stamp
        self.keys = keys
        self.headers = headers
        self.lengths = list(map(len, bodies))
        self.ends = list(accumulate(map(_ENTRY_BYTES.__add__, self.lengths)))
        """Where each message ends if all of them, with their entries, stood back to back; without keys and headers."""
        self.at = 0
        """The next message to be packed."""
        self.offset = 0
        """How many bytes of that message's body have been packed already."""
        self.joined: bytes | None = None
        """The body of the next message, once it was needed, where there are keys or headers."""
        self._blob: memoryview | None = None

    def blob(self) -> memoryview:
        """All messages back to back, joined when the first of them is packed; without keys and headers."""
        if self._blob is None:
            self._blob = memoryview(b"".join(self.bodies))
            self.bodies = ()
        return self._blob

    def body(self) -> bytes:
        """The body of the next message: its key, its headers and its data back to back, joined once."""
        if self.joined is None:
            self.joined = self._join()
        return self.joined

    def _join(self) -> bytes:
        body = self.bodies[self.at]
        if self.headers is not None:
            body = (self.headers[self.at] or b"") + body
        if self.keys is not None:
            body = (self.keys[self.at] or b"") + body
        return body


class Burst:
    """What one visit of the token sends: `count` packets in `data`, each `segment` bytes but the last of each stretch.

    `stretches` are the byte ranges that are trains: a change of service or of columns ends a packet early and with it
    the stretch. `finished` counts the messages whose last piece is in the burst, `first` is the number of the
    first of them.
    """

    __slots__ = ("count", "finished", "first", "marks", "stretches")

    def __init__(self, first: int) -> None:
        self.stretches: list[bytes] = []
        self.marks: list[tuple[int, ...]] = []
        """Those of each stretch's packets, as a receiver would read them."""
        self.count = 0
        self.first = first
        self.finished = 0


class Packer:
    """A queue of messages and the packets it becomes.

    Invariant: only the head of the queue can be partly packed. `void` puts such a message back whole, which is what
    a change of ring calls for: its earlier pieces are in a ring that will never see the last one.
    """

    def __init__(self, sender: NodeKey, packet_bytes: int, *, flags: int = 0) -> None:
        if not PACKET_BYTES_MIN <= packet_bytes <= PACKET_BYTES_MAX:
            raise ValueError(f"packets of {packet_bytes} bytes: allowed are {PACKET_BYTES_MIN} to {PACKET_BYTES_MAX}")
        self.sender = sender
        self.packet_bytes = packet_bytes
        self.messages = 0
        self.bytes = 0
        self._flags = flags
        self._chunks: deque[_Chunk] = deque()
        self._next_number = 1

    def add(
        self,
        bodies: Sequence[bytes],
        service: Service = Service.AGREED,
        stamp: int = 0,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[bytes | None] | None = None,
    ) -> None:
        if not bodies:
            return
        for column in (keys, headers):
            if column is not None and len(column) != len(bodies):
                raise ValueError(f"a column of {len(column)} beside {len(bodies)} messages")
            if column is not None:
                self.bytes += sum(len(cell) for cell in column if cell)
        self._chunks.append(_Chunk(bodies, service, stamp, keys, headers))
        self.messages += len(bodies)
        self.bytes += sum(self._chunks[-1].lengths)

    def packets_waiting(self) -> int:
        """About how many packets the queue would fill: the paper's backlog, counted in what the token counts."""
        if not self.messages:
            return 0
        return 1 + (self.bytes + 2 * self.messages) // (self.packet_bytes - HEADER_BYTES)

    def void(self) -> None:
        """A new ring: numbers begin again and a message partly sent on the old ring is to be sent whole."""
        self._next_number = 1
        if self._chunks and self._chunks[0].offset:
            self.bytes += self._chunks[0].offset
            self._chunks[0].offset = 0

    def burst(self, prefix: bytes, first_seq: int, packets_max: int) -> Burst:
        """Takes up to `packets_max` packets off the queue, for the ring of `prefix`, numbered from `first_seq`."""
        burst = Burst(self._next_number)
        parts: list[bytes | memoryview] = []
        marks: list[int] = []
        while burst.count < packets_max and self._chunks:
            seq = first_seq + burst.count
            if self._chunks[0].kind[1]:
                packets, full = 1, self._fill_with_columns(parts, marks, prefix, seq)
            else:
                packets, full = self._fill(parts, marks, prefix, seq, packets_max - burst.count)
            burst.count += packets
            if not full:
                burst.stretches.append(b"".join(parts))
                burst.marks.append(tuple(marks))
                parts, marks = [], []
        if parts:
            burst.stretches.append(b"".join(parts))
            burst.marks.append(tuple(marks))
        burst.finished = self._next_number - burst.first
        return burst

    def _fill(
        self, parts: list[bytes | memoryview], marks: list[int], prefix: bytes, seq: int, packets_max: int
    ) -> tuple[int, bool]:
        """Appends packets of one kind to `parts`, what they are to `marks`: how many, and whether another may follow.

        It may in the same train if they all have the full size, and the next message has the same service and columns.
        Which messages fit into a packet is looked up, not counted out: nothing here is done once for each of them.
        """
        chunks, sender = self._chunks, self.sender
        chunk = chunks[0]
        kind, at, offset = chunk.kind, chunk.at, chunk.offset
        ends, sizes, blob = chunk.ends, chunk.lengths, chunk.blob()
        count = len(ends)
        usual = self._flags | (_SAFE if kind[0] else 0)
        capacity = self.packet_bytes - HEADER_BYTES
        number, packets, full, taken = self._next_number, 0, True, 0
        begin = ends[at] - sizes[at] - _ENTRY_BYTES + offset
        cut = begin - _ENTRY_BYTES * at
        while full and packets < packets_max:
            inside = min((sizes[at] - offset - 1) // (capacity - _ENTRY_BYTES), packets_max - packets) if offset else 0
            if inside > 1:
                # Packets in the middle of a long message are alike but for their numbers and bytes.
                room = capacity - _ENTRY_BYTES
                flags = usual | _CONTINUES | _UNFINISHED
                pack, stamp, size = pack_head(1), chunk.stamp, inside * room
                row: list[bytes | memoryview] = [prefix] * (3 * inside)
                seqs = range(seq + packets, seq + packets + inside)
                row[1::3] = [pack(sender, each, number, stamp, flags, 1, room) for each in seqs]
                row[2::3] = [blob[place : place + room] for place in range(cut, cut + size, room)]
                parts += row
                marks += [flags | 1 << 16] * inside
                packets += inside
                offset += size
                begin += size
                cut += size
                taken += size
                continue
            first, stamp, room = number, chunk.stamp, capacity
            flags = usual | _CONTINUES if offset else usual
            lengths: list[int] = []
            bodies: list[memoryview] = []
            while True:
                near = at + _NEAR
                stop = bisect_right(ends, begin + room, at, near if near < count else count)
                if stop == near:
                    stop = bisect_right(ends, begin + room, near)
                if stop > at:
                    whole = sizes[at:stop]
                    if offset:
                        whole[0] -= offset
                        offset = 0
                    lengths += whole
                    number += stop - at
                    at, end = stop, ends[stop - 1]
                    room -= end - begin
                    begin = end
                if at < count:
                    if room > _ENTRY_BYTES:
                        room -= _ENTRY_BYTES
                        lengths.append(room)
                        offset += room
                        begin += room
                        room = 0
                        flags |= _UNFINISHED
                    bodies.append(blob[cut : (cut := begin - _ENTRY_BYTES * at)])
                    break
                bodies.append(blob[cut:])
                chunks.popleft()
                full = bool(chunks) and chunks[0].kind == kind
                if not full:
                    break
                chunk = chunks[0]
                ends, sizes, blob = chunk.ends, chunk.lengths, chunk.blob()
                count = len(ends)
                at = begin = cut = 0
                if room <= _ENTRY_BYTES:
                    break
            entries = len(lengths)
            marks.append(flags | entries << 16)
            parts += (
                prefix,
                pack_head(entries)(sender, seq + packets, first, stamp, flags, entries, *lengths),
                *bodies,
            )
            taken += capacity - room - _ENTRY_BYTES * entries
            packets += 1
            if room:
                if room <= PADDING_MAX:
                    parts.append(bytes(room))
                else:
                    full = False
        if chunks and chunks[0] is chunk:
            chunk.at, chunk.offset = at, offset
        self.bytes -= taken
        self.messages -= number - self._next_number
        self._next_number = number
        return packets, full

    def _fill_with_columns(self, parts: list[bytes | memoryview], marks: list[int], prefix: bytes, seq: int) -> bool:
        """The same for messages with keys or headers, one by one."""
        chunk = self._chunks[0]
        kind, stamp = chunk.kind, chunk.stamp
        service, columns = kind
        entry = 2 + 4 * columns.bit_count()
        flags = self._flags | columns | (_SAFE if service else 0) | (_CONTINUES if chunk.offset else 0)
        first, room = self._next_number, self.packet_bytes - HEADER_BYTES
        lengths: list[int] = []
        keys: list[int] = []
        headers: list[int] = []
        blob: list[bytes] = []
        while room > entry:
            keys.append(_cell(chunk.keys, chunk))
            headers.append(_cell(chunk.headers, chunk))
            body = chunk.body()
            left = len(body) - chunk.offset
            room -= entry
            if left > room:
                lengths.append(room)
                blob.append(body[chunk.offset : chunk.offset + room])
                chunk.offset += room
                self.bytes -= room
                room = 0
                flags |= _UNFINISHED
                break
            lengths.append(left)
            blob.append(body[chunk.offset :] if chunk.offset else body)
            room -= left
            self._next_number += 1
            self.messages -= 1
            self.bytes -= left
            chunk.offset = 0
            chunk.joined = None
            chunk.at += 1
            if chunk.at == len(chunk.bodies):
                self._chunks.popleft()
                if not self._chunks:
                    break
                chunk = self._chunks[0]
                if chunk.kind != kind:
                    break
        count = len(lengths)
        marks.append(flags | count << 16)
        parts.append(prefix)
        parts.append(pack_tail(self.sender, seq, first, stamp, flags, count))
        parts.append(pack(f"<{count}H", *lengths))
        if columns & _KEYS:
            parts.append(pack(f"<{count}I", *keys))
        if columns & _HEADERS:
            parts.append(pack(f"<{count}I", *headers))
        parts.extend(blob)
        if room and room <= PADDING_MAX:
            parts.append(bytes(room))
            room = 0
        return not room and (not self._chunks or self._chunks[0].kind == kind)


def _cell(column: Sequence[bytes | None] | None, chunk: _Chunk) -> int:
    """The length of a message's key or headers; none where the message has none or goes on from an earlier packet."""
    if column is None or chunk.offset:
        return NONE_LENGTH
    cell = column[chunk.at]
    return NONE_LENGTH if cell is None else len(cell)
