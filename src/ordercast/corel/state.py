"""The variables of one member, under the paper's names where it has them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from ordercast.corel.journal import NEVER, Journal
from ordercast.corel.messages import Known, Round, StateMessage
from ordercast.corel.plan import Plan
from ordercast.corel.queue import Item, MessageQueue
from ordercast.corel.record import Record
from ordercast.engine.contract import Effect, Progress, Report, Submission, View
from ordercast.wire.chunk import LIFE_SHIFT, Buffer
from ordercast.wire.ids import NodeId, NodeKey


class Phase(Enum):
    """Where a member stands in Figure 2."""

    EXCHANGE = "exchange"
    """Steps 1 and 2: State messages."""
    RETRANSMISSION = "retransmission"
    """Steps 3 to 7."""
    ATTEMPT = "attempt"
    """Figure 3: it has attempted to establish a primary component, or is about to."""
    COMMIT = "commit"
    """It has committed to it, or is about to."""
    PRIMARY = "primary"
    """The primary component bit is set."""
    COMPONENT = "component"
    """Regular operation without a primary component."""
    PASSIVE = "passive"
    """It is being brought up, or waits for members that know more."""


REGULAR = (Phase.PRIMARY, Phase.COMPONENT)


class Reason(Enum):
    """Why a member changed its phase: for traces and status."""

    START = "start"
    CONFIGURATION_CHANGE = "configuration change"
    REGROUP = "regroup"
    ALL_STATES = "all state messages are here"
    BEHIND = "too far behind"
    NOT_DECLARED = "not in the declared group"
    HEARD_OF_MORE = "has heard of a later primary component than all who are here"
    ANOTHER_GROUP = "of another group of the same name"
    RECOVERED = "all retransmissions are here"
    NO_QUORUM = "no quorum"
    ALL_ATTEMPTED = "all have attempted"
    ALL_COMMITTED = "all have committed"


@dataclass(frozen=True, slots=True)
class CorelConfig:
    founders: int = 1
    """So many members found the group: all that it begins with. Later ones are added by an ordered change."""
    dynamic_voting: bool = False
    """Whether a majority of the last primary component makes the next one, or a majority of the declared group."""
    order_without_primary: bool = False
    """Whether messages that have reached everyone are ordered outside a primary component too. It counts on no disk
    being lost: who comes back with an empty one numbers its configurations from the beginning."""
    ack_delay_us: int = 300
    """How long an acknowledgement waits for a message to ride on (erratum 18)."""
    lines_delay_us: int = 5_000
    """How long lines that have moved wait for an entry of the log to ride on."""
    chunk_bytes: int = 128 * 2**10
    """Messages that wait are joined to chunks of about this size."""
    transport_bytes: int = 512 * 2**10
    """What the engine below may have queued before it gets another chunk."""
    lag_max: int = 20_000
    """A member that misses more ordered messages is brought up beside the group, which goes on."""
    retransmit_bytes: int = 128 * 2**10
    """What one message of a retransmission or of bringing up holds, about."""
    catchup_outstanding: int = 6
    """Messages of bringing up that may be on their way."""
    traced: bool = False
    """Whether what the engine below does is shown to the host, for traces."""


class Own(NamedTuple):
    """Messages of this member that were multicast and are not in its queue yet."""

    last: int
    messages: int
    bytes: int


@dataclass(slots=True)
class State:
    name: NodeId
    config: CorelConfig
    record: Record
    mq: MessageQueue
    journal: Journal
    send: Callable[[bytes, int], None]
    """Multicasts a message through the engine below; the number of the application's messages in it."""
    earliest: int = 0
    """Where the log begins."""
    now: int = 0
    effects: list[Effect] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)

    # The configuration
    view: View | None = None
    names: dict[NodeKey, NodeId] = field(default_factory=dict)
    round: Round = field(default_factory=lambda: Round(0, 0))
    phase: Phase = Phase.EXCHANGE
    transitional: bool = False
    """What is delivered now is delivered in the transitional configuration."""

    # The configuration change handler, of the present round
    states: dict[NodeId, StateMessage] = field(default_factory=dict)
    plan: Plan | None = None
    members: tuple[NodeId, ...] = ()
    """PM: those whose acknowledgements order a message; outside a primary component, those that make it stable."""
    buffered: list[tuple[Item, int]] = field(default_factory=list)
    """Regular messages that were delivered while the handler runs, with their places."""
    priority: list[Item] = field(default_factory=list)
    reds: list[Item] = field(default_factory=list)
    """Retransmissions that came before the priority messages were complete."""
    to_send: deque[tuple[Item, bool]] = field(default_factory=deque)
    """Step 7: what is to be retransmitted, in the order of MQ, and whether by me."""
    arrived: set[tuple[str, int]] = field(default_factory=set)
    """What others have retransmitted, by name."""
    attempted: set[NodeId] = field(default_factory=set)
    committed: set[NodeId] = field(default_factory=set)

    # Regular operation
    acks: dict[NodeId, int] = field(default_factory=dict)
    """Up to which place each member has everything on its disk."""
    placed: deque[tuple[int, int]] = field(default_factory=deque)
    """Place in this configuration and end position of what may become stable or green."""
    acked_place: int = 0
    """What the others were told."""
    ack_at: int = NEVER

    # This member's messages
    unsent: deque[Submission] = field(default_factory=deque)
    unsent_bytes: int = 0
    unsent_messages: int = 0
    own: deque[Own] = field(default_factory=deque)
    own_bytes: int = 0
    next_number: int = 1
    leaving: bool = False
    left: bool = False
    unreported: deque[tuple[int, Item]] = field(default_factory=deque)
    """Green, and not handed to the application yet: it waits for the disk. End positions and items."""
    progress: Progress = field(default_factory=lambda: Progress(0, 0, 0))
    told: Progress = field(default_factory=lambda: Progress(0, 0, 0))

    # Reading back, bringing up, order without a primary
    fetches: dict[int, Callable[[int, Sequence[Buffer]], None]] = field(default_factory=dict)
    next_fetch: int = 1
    pupils: dict[NodeId, int] = field(default_factory=dict)
    """Members that I bring up, and how far they are."""
    catch_at: int = 0
    catching: bool = False
    sent_catchups: deque[int] = field(default_factory=deque)
    regroup_sent: bool = False
    snapshot: tuple[int, bytes] | None = None
    known: dict[str, Known] = field(default_factory=dict)
    group_told: int = 0
    """The primary component whose declared group was last reported."""

    @property
    def stream(self) -> str:
        return f"{self.name} {self.record.life}" if self.record.life else str(self.name)

    @property
    def first_bits(self) -> int:
        return self.record.life << LIFE_SHIFT

    @property
    def primary_component_bit(self) -> bool:
        return self.phase is Phase.PRIMARY

    def report(self, what: str, reason: str, **detail: object) -> None:
        self.effects.append(Report(what, reason, detail))

    def report_group(self, reason: str) -> None:
        """The declared group that counts for the primary component after the last one that was committed to."""
        primary = self.record.last_committed_primary
        self.group_told = primary.number
        self.report("group", reason, members=sorted(dict(primary.group)), weights=dict(primary.group))

    def shift(self, phase: Phase, reason: Reason) -> None:
        self.phase = phase
        self.report("corel", f"{phase.value}, {reason.value}", view=self.round.view, epoch=self.round.epoch)

    def save(self) -> None:
        """The record goes into the entry of this step."""
        self.journal.state(self.record.encode())

    def move_lines(self) -> None:
        self.journal.lines(self.now, self.mq.green, self.mq.yellow)

    def write_lines(self) -> None:
        """Lines that must be on disk with this step, not later."""
        self.move_lines()
        self.save()
