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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from ordercast.wire.chunk import Buffer
from ordercast.wire.ids import NodeId, Service
from ordercast.wire.train import Train

__all__ = [
    "Append",
    "Broadcast",
    "Component",
    "Deliver",
    "DurableEngine",
    "Effect",
    "Engine",
    "Fetch",
    "GroupChange",
    "Install",
    "Kind",
    "Left",
    "NetworkedEngine",
    "NodeId",
    "Ordered",
    "Originated",
    "Persist",
    "Progress",
    "Report",
    "Restored",
    "Run",
    "Service",
    "Stored",
    "Submission",
    "Transport",
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
    `headers`, where given, are as long as `bodies`; None in them means that the message has none. Messages that
    are a `whole` get one place in a durable order, all of them or none.
    """

    bodies: Sequence[bytes]
    service: Service = Service.AGREED
    stamp_us: int = 0
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[bytes | None] | None = None
    whole: bool = False


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


# What a durable layer (corel) asks of its host beside this; docs/design/corel.md.


class Component(NamedTuple):
    """A view for the application. `number` is that of the primary component that it is, 0 if it is none."""

    view: View
    number: int = 0


@dataclass(slots=True)
class Append:
    """One atomic entry of the durable log, then `written(write_id)`; None: that stays as it is.

    Appends become durable in their order; `written` of one covers those before it. `write_id` is negative.
    """

    write_id: int
    chunks: Sequence[Buffer] = ()
    """In their stored form, to be put at `rewind` or else at the end."""
    rewind: int | None = None
    """What stood at this position or behind it is void; never below the green line."""
    green: int | None = None
    yellow: int | None = None
    state: bytes | None = None
    component: Component | None = None
    """To be recorded as a view in front of the message at the green line."""
    base: int | None = None
    """The log begins anew at this position: all that it held before is void."""
    vector: Mapping[str, int] | None = None
    """With `base`: of each stream the last message before it."""


@dataclass(slots=True)
class Fetch:
    """Read at least one chunk, about `limit_bytes` of them, from position `start` on; then `fetched`.

    What is asked for lies before the green line of an Append that was reported as written, and its chunk begins there.
    """

    fetch_id: int
    start: int
    limit_bytes: int


@dataclass(slots=True)
class Ordered:
    """Messages whose place in the global order is final and that are durable here; the first has this offset."""

    offset: int
    chunks: Sequence[Buffer]


class Progress(NamedTuple):
    """How far the messages that were submitted in this life have come: counts, in the order of their submission."""

    queued: int
    """In the message queue here."""
    stable: int
    """Durable at all members of the component."""
    ordered: int
    """In the global order, and durable here."""


@dataclass(slots=True)
class Restored:
    """The log begins anew at `offset`; `snapshot` is the application's state there, empty if none was kept."""

    offset: int
    snapshot: bytes


@dataclass(slots=True)
class Transport:
    """What the engine below a layer said: an `Install` always, for addresses and names; the rest for traces alone.

    `bodies` are the messages of the layer that an `Originated` speaks of. Nothing of it is for the application.
    """

    effect: Originated | Deliver | Install
    bodies: Sequence[bytes] = ()


class GroupChange(NamedTuple):
    """Members of the declared group that are to be added, with their weights, or removed."""

    add: Mapping[str, int] = {}
    remove: tuple[str, ...] = ()


@dataclass(slots=True)
class Stored:
    """What the durable log held when the host opened it."""

    earliest: int = 0
    green: int = 0
    yellow: int = 0
    state: bytes | None = None
    vector: Mapping[str, int] = field(default_factory=dict)
    """Of each stream the last message before the green line."""
    tail: Sequence[Buffer] = ()
    """The chunks behind the green line, in their order."""


Effect = (
    Broadcast
    | Unicast
    | Persist
    | Originated
    | Deliver
    | Install
    | Report
    | Left
    | Append
    | Fetch
    | Ordered
    | Component
    | Progress
    | Restored
    | Transport
)


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


class DurableEngine(NetworkedEngine, Protocol):
    """A layer that keeps a durable log: corel."""

    def fetched(self, now: int, fetch_id: int, start: int, chunks: Sequence[Buffer]) -> None:
        """What a `Fetch` asked for; nothing if retention has removed it, which `trimmed` has said before."""

    def propose(self, now: int, change: GroupChange) -> None:
        """Multicast a change of the declared group; it takes effect at its place in the global order."""

    def offer(self, now: int, offset: int, snapshot: bytes) -> None:
        """The application's state as of `offset`, for members to come."""

    def trimmed(self, now: int, earliest: int) -> None:
        """The log begins with this offset now."""

    def status(self) -> dict[str, object]:
        """Phase, lines and the lag of each member, for people."""
