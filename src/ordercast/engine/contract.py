"""What a protocol engine is told and what it answers.

An engine is pure: no clock, no randomness, no socket, no file. A *host* (the network driver or the
simulator) owns those and calls the engine; the engine appends *effects* to a list that the host takes and
carries out **in order**. The same engine therefore runs on real sockets and in the simulator.

The host's duties:

1. Call one input method at a time (`start`, `receive`, `submit`, `written`, `timer`, `leave`), each with
   the local time in integer microseconds. Several inputs may follow one another before the effects are
   taken, as when a socket is drained: the batch, not the packet, is the unit of work.
2. After each batch call `take_effects()` and carry the effects out in their order. An effect may rely on
   those before it: `Originated` is logged before the `Broadcast` behind it leaves, `Install` is handed
   to the application before the `Unicast` that forwards the token.
3. `Persist` starts a durable write. Writes become durable in their order, each as a whole. The host tells
   `written(write_id)` when one is durable, at once or later;
   the engine keeps back whatever must not leave before that, so the host never has to reorder. A failed
   write is never reported as written: the host stops the engine, as after a crash.
4. `deadline` is the time at which `timer()` wants to be called; None if never. It may move in either
   direction after any input; calling `timer()` early does nothing. (The deadline is pulled instead of being
   pushed as an effect because the timers of a token ring move with every token: an attribute costs nothing.)
5. A packet that the engine addresses to itself (`Unicast` to its own name) is handed back through
   `receive`, after the effects behind it. Broadcasts do not come back: the engine has its own packets.
6. Packets arrive as *trains*: `receive(now, data, segment)` holds packets of `segment` bytes back to back, the last
   one possibly shorter. One packet alone is a train with `segment == len(data)`.
7. A clock that jumps backwards is the engine's problem: it treats time as standing still.

Layers compose over the same two faces: redundancy is an engine to its host, which tells it by which network each
train came, and fills in by which network each packet leaves; corel is a host of the engine below it and an engine to
the host above it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from ordercast.wire.ids import NodeId, Service
from ordercast.wire.train import Train

__all__ = [
    "Broadcast",
    "Deliver",
    "Effect",
    "Engine",
    "Install",
    "Kind",
    "Left",
    "NetworkedEngine",
    "NodeId",
    "Originated",
    "Persist",
    "Report",
    "Run",
    "Service",
    "Submission",
    "Unicast",
    "View",
]


class Kind(Enum):
    """The two kinds of configuration of extended virtual synchrony."""

    REGULAR = "regular"
    TRANSITIONAL = "transitional"


class View(NamedTuple):
    """A configuration as the application sees it."""

    kind: Kind
    id: str
    number: int
    members: tuple[NodeId, ...]


class Submission(NamedTuple):
    """Messages of one service that enter the engine's queue together, oldest first.

    `bodies` are the messages; `stamp_us` is the sender's wall clock, for people and never for order. `keys` and
    `headers`, where given, are as long as `bodies`; None in them means that the message has none.
    """

    bodies: Sequence[bytes]
    service: Service = Service.AGREED
    stamp_us: int = 0
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[bytes | None] | None = None


@dataclass(slots=True)
class Run:
    """Packets `start` up to but excluding `stop` of one train: consecutive sequence numbers from one sender."""

    train: Train
    start: int
    stop: int


@dataclass(slots=True)
class Broadcast:
    """Send a train to every process in reach: packets of `segment` bytes back to back, the last one possibly shorter.

    It has the form that `receive` takes, so that a host can hand it to UDP_SEGMENT as it stands. `via` is the network
    by which it leaves: engines know of one only, the redundancy layer fills it in.
    """

    data: bytes
    segment: int
    via: int = 0


@dataclass(slots=True)
class Unicast:
    """Send one packet to one process (the token's path), by network `via`."""

    to: NodeId
    packet: bytes
    via: int = 0


@dataclass(slots=True)
class Persist:
    """Make `record` durable under `key`, replacing what stood there, then call `written(write_id)`."""

    write_id: int
    key: str
    record: bytes


@dataclass(slots=True)
class Originated:
    """The next `count` messages of the queue have got their place in regular configuration `view_id`.

    The first of them is the sender's message number `first` in that configuration; they follow the order of `submit`.
    """

    view_id: str
    first: int
    count: int


@dataclass(slots=True)
class Deliver:
    """Packets whose messages are delivered now, in this order, in configuration `view_id`.

    A message may span packets of its sender; it is delivered where its last packet stands. `engine.assemble` cuts the
    messages out; what is unfinished when an `Install` arrives is void.
    """

    view_id: str
    runs: list[Run]


@dataclass(slots=True)
class Install:
    """Two configuration changes in one atomic step.

    In this order: `before` is delivered in the old regular configuration, `transitional` is delivered, `between` is
    delivered in it, `regular` is delivered. A process that has just started has only `regular`.
    """

    regular: View
    transitional: View | None = None
    before: list[Run] = field(default_factory=list)
    between: list[Run] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """A change of state or a noteworthy event, with its reason: for traces, status and tests, never for control."""

    what: str
    reason: str
    detail: dict[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class Left:
    """The announced leave is complete: all members have what this process originated. Stop the engine."""


Effect = Broadcast | Unicast | Persist | Originated | Deliver | Install | Report | Left


class Engine(Protocol):
    """One process's part in one protocol."""

    @property
    def name(self) -> NodeId:
        """The process that this is."""

    @property
    def deadline(self) -> int | None:
        """When `timer` wants to be called, on the clock of the `now` arguments."""

    @property
    def backlog(self) -> int:
        """Messages submitted and not yet originated."""

    @property
    def backlog_bytes(self) -> int:
        """Bytes of those messages; a host holds submissions back while this is above its limit."""

    def start(self, now: int) -> None:
        """Begin. What stable storage held was given to the constructor."""

    def receive(self, now: int, data: bytes, segment: int) -> None:
        """A train of packets arrived. Malformed and foreign bytes are counted and dropped, never raised."""

    def submit(self, now: int, submission: Submission) -> None:
        """Queue messages to be multicast."""

    def written(self, now: int, write_id: int) -> None:
        """The durable write of `Persist` is complete."""

    def timer(self, now: int) -> None:
        """The deadline has passed."""

    def throttle(self, now: int, on: bool) -> None:
        """The application lags behind: no member may send anything new until it has caught up (`on` False)."""

    def leave(self, now: int) -> None:
        """Announce a departure; `Left` follows once it owes nothing."""

    def take_effects(self) -> list[Effect]:
        """The effects since the last call, in order."""


class NetworkedEngine(Engine, Protocol):
    """An engine that knows of several networks: the redundancy layer around one that does not."""

    def receive(self, now: int, data: bytes, segment: int, via: int | None = None) -> None:
        """A train that came by network `via`, counted from 0; None: a packet of this process to itself."""
