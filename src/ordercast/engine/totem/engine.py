"""The Totem engine: bytes, timers and submissions become events, and events find their handlers in the table."""

from __future__ import annotations

from collections.abc import Callable

from ordercast.engine.contract import Effect, Submission
from ordercast.engine.totem import links, operational
from ordercast.engine.totem.shifts import persist_ring_number
from ordercast.engine.totem.state import NEVER, RING_NUMBER_KEYS, RING_NUMBER_STEP, Event, Phase, State, TotemConfig
from ordercast.engine.totem.table import rows
from ordercast.wire.ids import NodeId
from ordercast.wire.layout import Malformed, PacketKind, WireError, packet_kind
from ordercast.wire.totem import (
    check_name,
    decode_beacon,
    decode_commit,
    decode_join,
    decode_leave,
    decode_ring_record,
    decode_token,
    decode_wake,
    token_seq_of_messages,
)
from ordercast.wire.train import RING_BYTES, parse_train, sender_of, split_packets

_TIMERS = (
    ("token_retransmission_at", Event.TOKEN_RETRANSMISSION_TIMEOUT),
    ("hold_at", Event.HOLD_TIMEOUT),
    ("token_loss_at", Event.TOKEN_LOSS_TIMEOUT),
    ("join_at", Event.JOIN_TIMEOUT),
    ("consensus_at", Event.CONSENSUS_TIMEOUT),
)

_REGULAR_MESSAGE = int(Event.REGULAR_MESSAGE)
"""A plain integer: as an index it costs a fifth of the enum's member."""


class Totem:
    """One process of the Totem single-ring protocol; see `ordercast.engine.contract` for what its host owes it.

    `stored` is what stable storage holds. `nonce` is a random number of 32 bits that the host draws at every start: it
    is used, and stored, only where `stored` has no sound ring number, so that a process whose storage is new cannot
    repeat an identifier.
    """

    def __init__(
        self, name: str, config: TotemConfig | None = None, *, stored: dict[str, bytes] | None = None, nonce: int = 0
    ) -> None:
        number, slot, storage = 0, 0, "new"
        for at, key in enumerate(RING_NUMBER_KEYS):
            record = (stored or {}).get(key)
            if record is None:
                continue
            try:
                found, found_nonce = decode_ring_record(record)
            except WireError:
                storage = "damaged" if storage == "new" else storage
                continue
            storage = "kept"
            if found > number:
                number, nonce, slot = found, found_nonce, at
        self.state = State(check_name(name), config or TotemConfig(), number + RING_NUMBER_STEP, nonce, rows())
        # The record that holds the number is not the next to be overwritten.
        self.state.writes = slot
        self.state.report("storage", storage, number=number)
        self._behind_us = 0
        """How far the host's clock has jumped back: the engine's time never does."""

    @property
    def name(self) -> NodeId:
        return self.state.name

    @property
    def deadline(self) -> int | None:
        s = self.state
        earliest = min(s.token_retransmission_at, s.hold_at, s.token_loss_at, s.join_at, s.consensus_at, s.beacon_at)
        return None if earliest >= NEVER else earliest - self._behind_us

    @property
    def backlog(self) -> int:
        return self.state.new_message_queue.messages

    @property
    def backlog_bytes(self) -> int:
        return self.state.new_message_queue.bytes

    @property
    def phase(self) -> Phase:
        return self.state.phase

    @property
    def rotations(self) -> int:
        """Of the token of the present ring, so far."""
        ring = self.state.active
        return ring.my_token_seq // ring.size

    def start(self, now: int) -> None:
        self._advance(now)
        persist_ring_number(self.state)

    def receive(self, now: int, data: bytes, segment: int) -> None:
        s = self.state
        if now + self._behind_us >= s.now:
            s.now = now + self._behind_us
        else:
            self._advance(now)
        try:
            if data[:RING_BYTES] == s.active.prefix:
                train = parse_train(data, segment)
                if train is not None:
                    s.row[_REGULAR_MESSAGE](s, train)
                    return
        except WireError:
            pass
        else:
            if len(data) <= segment:
                self._packet(data)
                return
        # Packets of several kinds or rings, or a bad one among them: each on its own.
        if len(data) > segment:
            for packet in split_packets(data, segment):
                self._packet(packet)
        else:
            s.counters["malformed"] += 1

    def submit(self, now: int, submission: Submission) -> None:
        self._advance(now)
        s = self.state
        if s.leaving:
            raise ValueError("messages submitted after the leave was announced")
        s.new_message_queue.add(
            submission.bodies, submission.service, submission.stamp_us, submission.keys, submission.headers
        )
        s.row[Event.SUBMIT](s, None)

    def written(self, now: int, write_id: int) -> None:
        self._advance(now)
        self.state.row[Event.WRITTEN](self.state, write_id)

    def timer(self, now: int) -> None:
        self._advance(now)
        s = self.state
        for name, event in _TIMERS:
            if getattr(s, name) <= s.now:
                setattr(s, name, NEVER)
                s.row[event](s, None)
        if s.beacon_at <= s.now:
            links.beacon_timeout_expired(s)

    def throttle(self, now: int, on: bool) -> None:
        self._advance(now)
        self.state.throttled = on

    def leave(self, now: int) -> None:
        self._advance(now)
        s = self.state
        s.leaving = True
        s.row[Event.SUBMIT](s, None)

    def due(self, token: bytes) -> int:
        """Up to which number messages were sent before this regular token, and are missing if they have not come."""
        s = self.state
        if token[4:RING_BYTES] != s.active.prefix[4:RING_BYTES]:
            return 0
        # Deviation D29: what is new since I forwarded the token may be on its way behind it.
        return s.active.forwarded_seq if s.phase is Phase.OPERATIONAL else token_seq_of_messages(token)

    def misses(self, token: bytes) -> bool:
        """Whether a retransmission would be requested if this regular token were received now: paper 001's
        anyMessagesMissing, which holds a token back that has overtaken messages on another network.

        What the token asks for already will be sent again in any case: each hop would wait for it in vain.
        """
        ring, due = self.state.active, self.due(token)
        if ring.my_aru >= due:
            return False
        try:
            asked = decode_token(token).rtr
        except WireError:
            return False  # it is refused when it is received
        return operational.would_request(ring, asked, due)

    def take_effects(self) -> list[Effect]:
        effects = self.state.effects
        self.state.effects = []
        return effects

    def _advance(self, now: int) -> None:
        s = self.state
        if now + self._behind_us < s.now:
            self._behind_us = s.now - now
        s.now = now + self._behind_us

    def _packet(self, data: bytes) -> None:
        """One packet of any kind."""
        try:
            kind = packet_kind(data)
            handle = _HANDLERS.get(kind)
            if handle is None:
                raise Malformed(f"a packet of unknown kind {kind}")
            handle(self, data)
        except WireError:
            self.state.counters["malformed"] += 1

    def _token(self, data: bytes) -> None:
        self.state.row[Event.REGULAR_TOKEN](self.state, decode_token(data))

    def _commit(self, data: bytes) -> None:
        commit = decode_commit(data)
        if self.name in commit.members:
            self.state.row[Event.COMMIT_TOKEN](self.state, commit)

    def _join(self, data: bytes) -> None:
        join = decode_join(data)
        if self._from_another(join.sender):
            self.state.row[Event.JOIN](self.state, join)

    def _leave(self, data: bytes) -> None:
        leave = decode_leave(data)
        if self._from_another(leave.sender):
            self.state.row[Event.LEAVE](self.state, leave)

    def _wake(self, data: bytes) -> None:
        self.state.row[Event.WAKE](self.state, decode_wake(data))

    def _data(self, data: bytes) -> None:
        train = parse_train(data, len(data))
        assert train is not None
        s = self.state
        if data[:RING_BYTES] == s.active.prefix:
            s.row[Event.REGULAR_MESSAGE](s, train)
            return
        digest = int.from_bytes(data[12:RING_BYTES], "little")
        sender = sender_of(data)
        name = s.directory.get(sender)
        if sender in s.active.keys or digest in s.past_rings or name is None or name == s.name:
            # Deviation D23: late messages of a ring that was mine, or of a member that is on its way to another ring;
            # or of a process of which no Join or beacon has told the name: its next beacon will.
            s.counters["stale"] += 1
            return
        s.row[Event.FOREIGN_MESSAGE](s, name)

    def _beacon(self, data: bytes) -> None:
        s = self.state
        beacon = decode_beacon(data)
        if not self._from_another(beacon.sender):
            return
        links.note_beacon(s, beacon)
        if beacon.sender not in s.active.members and beacon.ring_digest not in s.past_rings:
            s.row[Event.FOREIGN_MESSAGE](s, beacon.sender)

    def _from_another(self, sender: NodeId) -> bool:
        """Whether a packet that names its sender may count: not one with my own name or with a key that is taken."""
        s = self.state
        if sender == s.name:
            s.report("name_conflict", "a packet of another process with this name")
            return False
        return links.learn(s, sender)


_HANDLERS: dict[int, Callable[[Totem, bytes], None]] = {
    PacketKind.DATA: Totem._data,
    PacketKind.TOKEN: Totem._token,
    PacketKind.COMMIT: Totem._commit,
    PacketKind.JOIN: Totem._join,
    PacketKind.BEACON: Totem._beacon,
    PacketKind.LEAVE: Totem._leave,
    PacketKind.WAKE: Totem._wake,
}
