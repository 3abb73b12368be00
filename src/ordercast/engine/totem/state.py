"""The variables of the protocol, under the paper's names.

Two objects: a `Ring` holds what belongs to one ring (the ordering protocol of §5, the flow control of §8), `State` what
belongs to the process (the membership protocol of §6, the recovery protocol of §7). While a new ring forms the
process has two rings: `ring`, the one it installed last, the paper's *old ring*, and `new`, whose identifier came
with the Commit token. Keeping them apart is erratum 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import Enum, IntEnum
from typing import Any

from ordercast.engine.assemble import Assembler
from ordercast.engine.contract import Effect, Report, Run
from ordercast.wire.ids import NodeId, NodeKey, RingId, Service, node_key, ring_digest
from ordercast.wire.pack import Packer
from ordercast.wire.totem import Beacon, CommitToken, Token
from ordercast.wire.train import Flag, Train, ring_prefix

NEVER = 2**62
"""A deadline that does not come."""

RING_NUMBER_KEYS = ("ring.0", "ring.1")
"""The two records on stable storage, written in turn: a write that is torn leaves the one before (deviation D12)."""


@dataclass(frozen=True, slots=True)
class TotemConfig:
    """Constants of the protocol. Times are in microseconds, sizes in packets where nothing else is said."""

    packet_bytes: int = 1400
    """The size of a full data packet."""
    window_size: int = 800
    """Packets that all members together may broadcast in one rotation (§8.1)."""
    max_messages: int = 200
    """Packets that one member may broadcast in one visit of the token (§8.1)."""
    ahead_from: int = 16
    """A visit with so many new packets sends the token ahead of them; 0: none does, as in Figure 3."""
    receive_window: int = 8192
    """Packets that this member's receive buffer holds: the window of its rings is at most a third."""
    token_loss_timeout_us: int = 400_000
    token_retransmission_timeout_us: int = 20_000
    token_hold_us: int = 60_000
    """How long the representative rests with the token of an idle ring."""
    join_timeout_us: int = 10_000
    join_pace_us: int = 1_000
    """Joins follow one another no closer, however often the sets change."""
    consensus_timeout_us: int = 20_000
    """How long Gather waits for the Joins of members that have not been heard of lately."""
    consensus_patience_us: int = 150_000
    """How long it waits for those that have."""
    fail_to_rcv_const: int = 50
    """Rotations with an unchanged aru after which its owner is failed (§6.2.1)."""
    stall_pace_us: int = 2_000
    """Pause of the representative in each rotation while the aru stands still or the window is filled up by a member
    whose application lags: against a storm of retransmissions, and against a ring that spins in vain."""
    beacon_interval_us: int = 200_000
    attempts_max: int = 3
    """How often one membership may fail to be installed before a member is forced out (§6.2.2)."""
    suspect_backoff_us: int = 500_000
    """First pause before a merge that failed is tried again; it doubles up to `suspect_backoff_max_us`."""
    suspect_backoff_max_us: int = 8_000_000
    leave_copies: int = 3
    """How often an announced leave is broadcast: nobody acknowledges it."""

    def __post_init__(self) -> None:
        for field in fields(self):
            least = 0 if field.name in ("ahead_from", "token_hold_us", "join_pace_us", "attempts_max") else 1
            if getattr(self, field.name) < least:
                raise ValueError(f"{field.name} must be at least {least}")
        if self.token_hold_us + self.token_retransmission_timeout_us >= self.token_loss_timeout_us:
            raise ValueError(
                "token_hold_us and token_retransmission_timeout_us together must stay below token_loss_timeout_us"
            )
        if not 0 < self.max_messages <= self.window_size:
            raise ValueError("max_messages must be positive and at most window_size")


RING_NUMBER_STEP = 4
"""How much a new ring's number exceeds the highest one known (§6.2.2)."""


class Phase(IntEnum):
    """The four states of the membership protocol (§6.2.2), and the two ends of a process's life."""

    OPERATIONAL = 0
    GATHER = 1
    COMMIT = 2
    RECOVERY = 3
    STARTING = 4
    """The ring number of the singleton ring is on its way to stable storage."""
    STOPPED = 5
    """It has left."""


class Event(IntEnum):
    """What can happen to the membership protocol: the events of §6.2.1 and, after them, our own."""

    REGULAR_TOKEN = 0
    REGULAR_MESSAGE = 1
    FOREIGN_MESSAGE = 2
    JOIN = 3
    COMMIT_TOKEN = 4
    TOKEN_LOSS_TIMEOUT = 5
    TOKEN_RETRANSMISSION_TIMEOUT = 6
    JOIN_TIMEOUT = 7
    CONSENSUS_TIMEOUT = 8
    LEAVE = 9
    WAKE = 10
    HOLD_TIMEOUT = 11
    WRITTEN = 12
    SUBMIT = 13


Handler = Callable[["State", Any], None]
Rows = dict[Phase, tuple[Handler, ...]]
"""The dispatch table: for each phase the handlers by event."""


class Reason(Enum):
    """Why a process changed its state."""

    START = "started"
    TOKEN_LOSS = "token loss timeout"
    FOREIGN_MESSAGE = "message of another ring"
    JOIN = "Join that changes the sets"
    FAIL_TO_RECEIVE = "a member fails to receive"
    CONSENSUS_TIMEOUT = "consensus timeout"
    COMMIT_LOSS = "no Commit token after consensus"
    RECOVERY_LOSS = "token loss in recovery"
    LEAVE = "announced leave"
    CONSENSUS = "consensus reached"
    COMMIT_TOKEN = "Commit token"
    SECOND_ROTATION = "second rotation of the Commit token"
    INSTALLED = "old ring recovered"
    LEFT = "left"


class Ring:
    """One ring: its identity, its messages, its token (§5.1, §8.1)."""

    __slots__ = (
        "delivered",
        "digest",
        "forwarded",
        "forwarded_aru",
        "forwarded_idle",
        "forwarded_seq",
        "heard_us",
        "high_seq",
        "id",
        "keys",
        "last_own_seq",
        "low_seq",
        "members",
        "my_aru",
        "my_aru_count",
        "my_pbl",
        "my_token_seq",
        "my_trc",
        "next",
        "number",
        "prefix",
        "previous_aru",
        "received",
        "representative",
        "safe_seq",
        "stall_owner",
        "text",
        "window",
    )

    def __init__(self, ring_id: RingId, members: tuple[NodeId, ...], me: NodeId, window: int) -> None:
        self.id = ring_id
        self.text = ring_id.text
        self.number = ring_id.number
        self.digest = ring_digest(ring_id)
        self.prefix = ring_prefix(ring_id)
        self.members = members
        self.keys = {node_key(name): name for name in members}
        self.representative = members[0]
        self.next = members[(members.index(me) + 1) % len(members)]
        self.window = window
        self.received: dict[int, Train] = {}
        """The paper's received_message_queue, by sequence number; what is safe is discarded."""
        self.low_seq = 1
        """Everything below has been discarded."""
        self.high_seq = 0
        """The highest sequence number received."""
        self.my_aru = 0
        """Everything up to here has been received."""
        self.delivered = 0
        """The paper's my_high_delivered. Invariant: at most my_aru while the ring is installed."""
        self.safe_seq = 0
        """The lower aru of the last two tokens that I forwarded: everything up to here is safe (erratum 11)."""
        self.last_own_seq = 0
        self.my_token_seq = 0
        self.my_aru_count = 0
        self.forwarded: bytes | None = None
        """The token as I forwarded it last, for retransmission."""
        self.forwarded_seq = 0
        self.forwarded_aru = 0
        self.previous_aru = 0
        """The aru of the token that I forwarded before the last."""
        self.forwarded_idle = False
        self.stall_owner: NodeKey = NodeKey(0)
        """The aru_id of the last token, when its aru was below its seq."""
        self.my_trc = 0
        self.my_pbl = 0
        self.heard_us = 0
        """When the last token was accepted or the last new message received."""

    @property
    def size(self) -> int:
        return len(self.members)

    def holds(self, token: Token) -> bool:
        return token.ring_number == self.number and token.ring_digest == self.digest

    def add(self, train: Train) -> int:
        """Takes the packets of a train that are new and tells how many were."""
        first, last = train.first_seq, train.last_seq
        if first > self.high_seq:
            if first == self.my_aru + 1:
                # The common case: it follows what is there.
                if first == last:
                    self.received[first] = train
                else:
                    self.received.update(dict.fromkeys(range(first, last + 1), train))
                self.high_seq = self.my_aru = last
                return train.count
            self.received.update(dict.fromkeys(range(first, last + 1), train))
            self.high_seq = last
            new = train.count
        else:
            new = 0
            for seq in range(max(first, self.my_aru + 1), last + 1):
                if seq not in self.received:
                    self.received[seq] = train
                    new += 1
            self.high_seq = max(self.high_seq, last)
            if not new:
                return 0
        aru = self.my_aru
        while (known := self.received.get(aru + 1)) is not None:
            # A train that is there at its first packet is there as a whole, from wherever each packet came.
            aru = known.last_seq if known.first_seq == aru + 1 else aru + 1
        self.my_aru = aru
        return new

    def missing(self, up_to: int, ranges_max: int) -> list[tuple[int, int]]:
        """Ranges (first, length) of what has not been received, oldest first."""
        ranges: list[tuple[int, int]] = []
        seq = self.my_aru + 1
        while seq <= up_to and len(ranges) < ranges_max:
            if seq in self.received:
                seq += 1
                continue
            first = seq
            while seq <= up_to and seq not in self.received:
                if seq > self.high_seq:
                    seq = up_to + 1
                    break
                seq += 1
            ranges.append((first, seq - first))
        return ranges

    def take_deliverable(self) -> list[Run]:
        """The runs that can be delivered now: up to my_aru, and up to the first safe message that is not safe yet.

        An agreed message never overtakes an undelivered safe one (erratum 12; deviation D14).
        """
        runs: list[Run] = []
        seq, aru, safe = self.delivered + 1, self.my_aru, self.safe_seq
        while seq <= aru:
            train = self.received[seq]
            last = min(train.last_seq, aru)
            if train.service is Service.SAFE and last > safe:
                last = safe
                if last < seq:
                    break
            if not train.recovery:
                runs.append(Run(train, seq - train.first_seq, last - train.first_seq + 1))
            seq = last + 1
        self.delivered = seq - 1
        return runs

    def discard_safe(self) -> None:
        """What is safe and delivered will never be asked for again."""
        end = min(self.safe_seq, self.delivered) + 1
        if end > self.low_seq:
            received = self.received
            for seq in range(self.low_seq, end):
                del received[seq]
            self.low_seq = end


class State:
    """One process (§6.1, §7.1), its timers, its effects and its knowledge of who hears whom."""

    def __init__(self, name: NodeId, config: TotemConfig, highest_number: int, nonce: int, rows: Rows) -> None:
        self.name = name
        self.key = node_key(name)
        self.config = config
        self.nonce = nonce
        self.now = 0
        self.effects: list[Effect] = []
        self.phase = Phase.STARTING
        self.rows = rows
        self.row = rows[Phase.STARTING]
        """The row of the dispatch table for the phase."""

        self.ring: Ring = Ring(RingId(0, name, nonce), (name,), name, config.window_size)
        """my_ring_id and my_memb: the ring installed last. Overwritten by an installation only (erratum 4)."""
        self.new: Ring | None = None
        """my_new_memb and the identifier of the ring that is being formed, from Shift_to_Commit on."""
        self.active: Ring = self.ring
        """The ring whose token and messages the phase works with: `new` in Recovery, `ring` otherwise."""
        self.highest_number = highest_number
        """The highest ring number accepted so far. Invariant: durable before a packet that relies on it leaves."""
        self.join_number = 0
        """The highest ring_seq of the Joins received."""
        self.my_proc_set: set[NodeId] = {name}
        self.my_fail_set: set[NodeId] = set()
        self.consensus: set[NodeId] = set()
        """The members for which the paper's consensus[] is true."""
        self.commit: CommitToken | None = None
        """The Commit token as I forwarded it last."""
        self.commit_packet: bytes | None = None
        self.regular_token_made = False
        """As a representative I have made the first regular token from the Commit token (bug 5: once only)."""
        self.pending_write: int | None = None
        self.writes = 0
        """Durable writes begun; its parity tells which record is next."""
        self.attempts = 0
        self.attempted: frozenset[NodeId] = frozenset()

        self.my_trans_memb: frozenset[NodeId] = frozenset()
        self.my_deliver_memb: frozenset[NodeId] = frozenset()
        self.my_received_flg = False
        self.obliged = False
        """All transitional members have said received_flg: the old ring's messages are fixed (erratum 5)."""
        self.high_ring_delivered = 0
        self.my_install_seq = 0
        self.my_retrans_flg_count = 0
        self.retrans_flg_mine = False
        self.retrans_message_queue: dict[int, None] = {}
        """Sequence numbers of the old ring that I still have to retransmit on the new one, in order."""
        self.retrans_packer: Packer | None = None
        self.recovered = Assembler()
        self.recovered_seq = 0
        """Up to here the new ring's packets have been searched for messages of the old ring."""

        self.new_message_queue = Packer(self.key, config.packet_bytes)
        self.leaving = False
        self.throttled = False
        """My application lags: I fill the window of flow control up, so that nobody sends."""
        self.held: Token | None = None
        """A token with which I rest, not yet processed."""
        self.hold_is_pace = False
        self.wake_pending = False
        """Somebody has work: the representative does not rest when the token comes next."""
        self.wake_sent = False
        """I have asked for the token since I forwarded it last."""

        self.token_loss_at = NEVER
        self.token_retransmission_at = NEVER
        self.join_at = NEVER
        self.consensus_at = NEVER
        self.hold_at = NEVER
        self.beacon_at = NEVER
        self.gather_since = 0
        self.consensus_patient = False
        self.joined_us = -NEVER
        """When I broadcast my last Join."""

        self.directory: dict[NodeKey, NodeId] = {self.key: name}
        """Names by their keys, as far as heard: bounded by DIRECTORY_MAX."""
        self.heard_us: dict[NodeId, int] = {}
        """When a Join, a beacon or a leave last came directly from this process; anyone may retransmit its messages."""
        self.beacons: dict[NodeId, tuple[int, Beacon]] = {}
        self.suspects: dict[NodeId, Suspect] = {}
        self.past_rings: dict[int, None] = {}
        """Digests of the rings that I was in lately: their late messages are stale, not foreign."""
        self.counters: dict[str, int] = dict.fromkeys(
            (
                "malformed",
                "redundant_tokens",
                "token_retransmissions",
                "retransmissions",
                "duplicates",
                "stale",
                "views",
            ),
            0,
        )

    def emit(self, effect: Effect) -> None:
        self.effects.append(effect)

    def report(self, what: str, reason: str, **detail: object) -> None:
        self.effects.append(Report(what, reason, detail))

    def members_wanted(self) -> frozenset[NodeId]:
        """my_proc_set − my_fail_set: the membership that I propose."""
        return frozenset(self.my_proc_set - self.my_fail_set)

    def new_packer(self) -> Packer:
        return Packer(self.key, self.config.packet_bytes, flags=int(Flag.RECOVERY))


@dataclass(slots=True)
class Suspect:
    """A process that I heard while a ring formed without it: one of us may not hear the other."""

    since_us: int
    failures: int
    not_before_us: int
