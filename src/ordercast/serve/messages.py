"""What a client asks of a member, and what it answers. Heads of frames, in MessagePack; bytes travel in the body."""

from __future__ import annotations

import msgspec


class Request(msgspec.Struct, frozen=True, tag=True):
    """The base of all questions."""


class Info(Request, frozen=True):
    """Answered with `Log`."""


class Parts(Request, frozen=True):
    """Stretches of about so many bytes; answered with pairs of offsets."""

    start: int
    end: int
    target_bytes: int


class OffsetOfTime(Request, frozen=True):
    time_us: int


class Views(Request, frozen=True):
    start: int
    end: int


class Read(Request, frozen=True):
    """Chunks from the one that holds `start` on, up to `end` or about so many bytes; they are the body."""

    start: int
    end: int
    limit_bytes: int


class Stage(Request, frozen=True):
    """Rows that may be published later, as the body in the form of `stages.encode_rows`. Twice is as once."""

    stage: str


class Unstage(Request, frozen=True):
    """Forget these."""

    stages: tuple[str, ...]


class Fetch(Request, frozen=True):
    """A stage back, as the body: to take it to another member."""

    stage: str


class Batch(msgspec.Struct, frozen=True):
    """Names what a sink publishes as a whole: once for each application and number, and by one query alone."""

    app: str
    query: str
    number: int
    rows: int
    attempt: str
    """Tells this attempt from others that publish the same batch."""


class Commit(Request, frozen=True):
    """Publish a batch: all rows of these stages in this order, in one place of the order; answered with `Committed`."""

    batch: Batch
    stages: tuple[str, ...]


class Log(msgspec.Struct, frozen=True):
    group: str
    member: str
    earliest: int
    end: int
    dead: tuple[tuple[int, int], ...] = ()
    """Offsets of batches that repeat earlier ones, from, up to but excluding."""


class Committed(msgspec.Struct, frozen=True):
    duplicate: bool
    """The log had this batch already; nothing was added."""
    rows: int


class Failed(msgspec.Struct, frozen=True, tag=True):
    """In place of any answer."""

    kind: str
    message: str


AnyRequest = Info | Parts | OffsetOfTime | Views | Read | Stage | Unstage | Fetch | Commit
encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(AnyRequest).decode
