"""What members multicast to each other through the engine below.

| message | when | what it says |
| --- | --- | --- |
| CHUNK | regular operation | messages of the application |
| ACK | regular operation, nothing to ride on | the acknowledgement alone |
| STATE | step 1 of the recovery | all that the others must know of the sender |
| PRIORITY | step 5 | the representative's order: data, or names of what all have |
| RED | step 7 | messages that not all members have |
| ATTEMPT, COMMIT | establishing | the phases of Figure 3 |
| REGROUP | anywhere | run the handler again in this configuration |
| CATCHUP, PACE | a member far behind | ordered messages for it; how far it is |

All begin with the same head: kind, the round (number of the configuration, epoch in it) and an acknowledgement: the
sender has everything of this round up to this place on its disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from ordercast.corel.codec import Reader, Writer
from ordercast.corel.record import Primary, read_primaries, write_primaries
from ordercast.wire.chunk import Body, Chunk, Stamp, make_chunk
from ordercast.wire.layout import Malformed


class MessageKind(IntEnum):
    CHUNK = 1
    ACK = 2
    STATE = 3
    PRIORITY = 4
    RED = 5
    ATTEMPT = 6
    COMMIT = 7
    REGROUP = 8
    CATCHUP = 9
    PACE = 10


HEAD = Struct("<B3xIQQ")
CHUNK_HEAD = Struct("<HxxIQQIII")
_KINDS = {int(kind): kind for kind in MessageKind}


class Round(NamedTuple):
    """One run of the configuration change handler and what follows it: the configuration's number, and which run."""

    view: int
    epoch: int


class Head(NamedTuple):
    kind: MessageKind
    round: Round
    ack: int


def encode_head(kind: MessageKind, round_: Round, ack: int) -> bytes:
    return HEAD.pack(kind, round_.epoch, round_.view, ack)


def decode_head(raw: bytes) -> Head:
    if len(raw) < HEAD.size:
        raise Malformed(f"a message of {len(raw)} bytes")
    kind, epoch, view, ack = HEAD.unpack_from(raw)
    if kind not in _KINDS:
        raise Malformed(f"a message of kind {kind}")
    return Head(_KINDS[kind], Round(view, epoch), ack)


# Regular messages


def encode_chunk(round_: Round, ack: int, first: int, stamp_us: int, body: Body) -> bytes:
    head = CHUNK_HEAD.pack(body.flags, body.messages, first, stamp_us, *body.sizes)
    return b"".join((encode_head(MessageKind.CHUNK, round_, ack), head, body.columns))


def decode_chunk(raw: bytes, sender: str, place: Stamp) -> Chunk:
    """The chunk in its stored form, with its timestamp."""
    at = HEAD.size
    if len(raw) < at + CHUNK_HEAD.size:
        raise Malformed("a chunk without its head")
    flags, count, first, stamp_us, data, keys, headers = CHUNK_HEAD.unpack_from(raw, at)
    body = Body(count, flags, (data, keys, headers), raw[at + CHUNK_HEAD.size :])
    chunk = Chunk(make_chunk(sender, first, stamp_us, place, body))
    if len(chunk.raw) != chunk.size:
        raise Malformed("a chunk with bytes behind its end")
    chunk.check_columns()
    return chunk


def numbers_of(raw: bytes) -> tuple[int, int]:
    """Of a CHUNK: how many messages it holds, and the first one's number."""
    if len(raw) < HEAD.size + CHUNK_HEAD.size:
        raise Malformed("a chunk without its head")
    _, count, first, *_ = CHUNK_HEAD.unpack_from(raw, HEAD.size)
    return count, first


# State


class Known(NamedTuple):
    """What is known of a member, perhaps through others: its state in a round."""

    round: Round
    last_committed_primary: int
    green: int
    yellow: int
    vector: Mapping[str, int]


@dataclass(slots=True)
class StateMessage:
    """Step 1 of the recovery procedure."""

    last_committed_primary: Primary
    last_attempted_primary: int
    vector: Mapping[str, int]
    """The last message that the sender has of every stream."""
    green: int
    yellow: int
    attempts: list[Primary] = field(default_factory=list)
    heard: int = 0
    founding: str = ""
    group: dict[str, int] = field(default_factory=dict)
    """The declared group as of the green line."""
    earliest: int = 0
    """Where the sender's log begins."""
    known: dict[str, Known] = field(default_factory=dict)


def encode_state(round_: Round, ack: int, state: StateMessage) -> bytes:
    w = Writer()
    w.parts.append(encode_head(MessageKind.STATE, round_, ack))
    for number in (state.last_attempted_primary, state.green, state.yellow, state.heard, state.earliest):
        w.u64(number)
    w.numbers(state.vector)
    write_primaries(w, [state.last_committed_primary, *state.attempts])
    w.text(state.founding)
    w.numbers(state.group)
    w.u32(len(state.known))
    for name in sorted(state.known):
        known = state.known[name]
        w.text(name)
        for number in (known.round.view, known.round.epoch, known.last_committed_primary, known.green, known.yellow):
            w.u64(number)
        w.numbers(known.vector)
    return w.take()


def decode_state(raw: bytes) -> StateMessage:
    r = Reader(raw, HEAD.size)
    attempted, green, yellow, heard, earliest = (r.u64() for _ in range(5))
    vector = r.numbers()
    committed, *attempts = read_primaries(r)
    state = StateMessage(committed, attempted, vector, green, yellow, attempts, heard, r.text(), r.numbers(), earliest)
    for _ in range(r.count()):
        name = r.text()
        view, epoch, last_committed, known_green, known_yellow = (r.u64() for _ in range(5))
        state.known[name] = Known(Round(view, epoch), last_committed, known_green, known_yellow, r.numbers())
    r.end()
    return state


# Retransmission


class Reference(NamedTuple):
    """A chunk that every member has: its header, without its data."""

    stream: str
    last: int


@dataclass(slots=True)
class Priority:
    """Step 5: items from position `start` on, in the representative's order."""

    start: int
    items: list[bytes | Reference]
    last: bool
    vector: Mapping[str, int]
    """With the last one: of each stream the last message before the new green line."""
    group: Mapping[str, int] = field(default_factory=dict)
    """With the last one: the declared group as of the new green line."""


def encode_priority(round_: Round, ack: int, message: Priority) -> bytes:
    w = Writer()
    w.parts.append(encode_head(MessageKind.PRIORITY, round_, ack))
    w.u64(message.start)
    w.u32(message.last)
    w.u32(len(message.items))
    for item in message.items:
        if isinstance(item, Reference):
            w.u32(0)
            w.text(item.stream)
            w.u64(item.last)
        else:
            w.blob(item)
    w.numbers(message.vector)
    w.numbers(message.group)
    return w.take()


def decode_priority(raw: bytes) -> Priority:
    r = Reader(raw, HEAD.size)
    start, last = r.u64(), bool(r.u32())
    items: list[bytes | Reference] = []
    for _ in range(r.count()):
        blob = r.blob()
        items.append(blob or Reference(r.text(), r.u64()))
    message = Priority(start, items, last, r.numbers(), r.numbers())
    r.end()
    return message


def encode_red(round_: Round, ack: int, chunks: Sequence[bytes]) -> bytes:
    w = Writer()
    w.parts.append(encode_head(MessageKind.RED, round_, ack))
    w.blobs(chunks)
    return w.take()


def decode_red(raw: bytes) -> list[Chunk]:
    r = Reader(raw, HEAD.size)
    chunks = [Chunk(blob) for blob in r.blobs()]
    r.end()
    return chunks


# Numbers


def encode_number(kind: MessageKind, round_: Round, ack: int, number: int = 0) -> bytes:
    """ATTEMPT and COMMIT name a primary component, PACE a position; ACK and REGROUP say nothing more."""
    return encode_head(kind, round_, ack) + number.to_bytes(8, "little")


def decode_number(raw: bytes) -> int:
    r = Reader(raw, HEAD.size)
    number = r.u64()
    r.end()
    return number


# Bringing up


@dataclass(slots=True)
class Catchup:
    """Ordered messages from `start` on. With `base` the receiver's log begins anew at `start`."""

    start: int
    green: int
    """The sender's green line."""
    primary: int
    """The primary component in which the sender knows all this to be ordered."""
    chunks: list[bytes]
    base: bool = False
    snapshot: bytes = b""
    vector: Mapping[str, int] = field(default_factory=dict)
    """With `base`: of each stream the last message before the sender's green line."""


def encode_catchup(round_: Round, ack: int, message: Catchup) -> bytes:
    w = Writer()
    w.parts.append(encode_head(MessageKind.CATCHUP, round_, ack))
    w.u64(message.start)
    w.u64(message.green)
    w.u64(message.primary)
    w.u32(message.base)
    w.blobs(message.chunks)
    w.blob(message.snapshot)
    w.numbers(message.vector)
    return w.take()


def decode_catchup(raw: bytes) -> Catchup:
    r = Reader(raw, HEAD.size)
    message = Catchup(r.u64(), r.u64(), r.u64(), [])
    message.base = bool(r.u32())
    message.chunks, message.snapshot, message.vector = r.blobs(), r.blob(), r.numbers()
    r.end()
    return message
