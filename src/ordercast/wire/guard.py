"""What stands between a process's networks and its engine: seals what leaves, opens what comes, proves who is live.

The packets and their keys are `seal`'s; when a HELLO is said, answered and forgotten is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ordercast.wire.ids import NO_NODE, NodeId, NodeKey
from ordercast.wire.keys import GroupKey, GroupKeyError
from ordercast.wire.layout import MAGIC, PACKET_BYTES_MAX
from ordercast.wire.seal import (
    DIRECT_MAGIC,
    HELLO_MAGIC,
    KIND_PACKET,
    NO_ANSWER,
    NOBODY,
    OVERHEAD_BYTES,
    PACKET_MAGIC,
    PREFIX_BYTES,
    SEALED_MAGIC,
    Hello,
    Realm,
    Session,
    direct,
)
from ordercast.wire.totem import check_name

HELLO_INTERVAL_US_MIN = 10_000
HELLO_INTERVAL_US_MAX = 250_000
HELLO_INTERVAL_US_PER_SESSION = 2_500
"""In large groups HELLOs become rarer, so that those of all members together stay below 400 a second."""
ANSWER_INTERVAL_US = 10_000
"""The least time between two answers to one session."""
ANSWER_COST_US = 250
"""The least time per answer: at most 4,000 a second, whoever asks."""
ANSWERS_PER_CALL = 32
ANSWERS_MAX = 1024
SESSIONS_MAX = 1024
REPORT_INTERVAL_US = 10_000_000
NEVER = 2**62

REFUSED = (
    "forged",
    "replayed",
    "unproven",
    "unknown_key",
    "plaintext",
    "malformed",
    "oversized",
    "truncated",
    "foreign",
)
"""Counters of what is dropped. `unproven`: of a session that has not answered, be it new or of another time."""


class Opened(NamedTuple):
    """Packets in the form that an engine's `receive` takes, and who transmitted them (in plain mode: not known)."""

    data: bytes
    segment: int
    transmitter: NodeKey


class Outgoing(NamedTuple):
    """A packet of this layer, sealed; `destination` is a source that was given to `receive`, None means everybody."""

    destination: object | None
    packet: bytes
    via: int = 0
    """The network by which it leaves."""


class _Answer(NamedTuple):
    due: int
    realm: Realm
    source: object | None
    challenge: bytes


_Asker = tuple[bytes, int]
"""The prefix of a session, and the network by which its HELLO came."""


class Guard:
    """Seals what a process sends and opens what it receives; a pure state machine, told the time and handed entropy.

    The host calls `seal` on every train that leaves, `receive` on every train that arrives, and `take_packets` after
    each batch and when `deadline` has passed; it sends what that returns as it stands. One Guard serves one process
    in one group, on all its `networks`; a copy of it (a fork) must not seal. What leaves by several networks is sealed
    for each of them by itself, HELLOs too, so that no copy looks like a replay.

    `keys` are accepted all; the first one seals. `random_bytes` gives so many bytes fit for keys (`os.urandom`).
    """

    overhead_bytes = OVERHEAD_BYTES

    def __init__(
        self,
        group: str,
        name: NodeId,
        keys: Sequence[GroupKey],
        random_bytes: Callable[[int], bytes],
        *,
        networks: int = 1,
    ) -> None:
        if not keys:
            raise GroupKeyError("a group needs at least one key")
        self.group = group
        self.name = check_name(name)
        self.networks = networks
        counted = (*REFUSED, "opened", "own", "hellos", "late_hellos", "answers", "accepted", "forgotten")
        self.counters = dict.fromkeys(counted, 0)
        self._random_bytes = random_bytes
        self._realms: dict[bytes, Realm] = {}
        self._sessions: dict[bytes, Session] = {}
        """Those of all realms by their prefix, and by the one for packets to one member."""
        self._answers: dict[_Asker, _Answer] = {}
        """Owed, by the session that they go to and the network: which of the networks bring them is not known."""
        self._answered: dict[_Asker, int] = {}
        """When a session was answered last; swept with every tick."""
        self._answers_from = 0
        """When the next answer may leave, to whomever."""
        self._answers_due = NEVER
        """No answer is due before this."""
        self._hello_at = 0
        self._hello_interval = HELLO_INTERVAL_US_MIN
        self._tick = 0
        self._report_at = 0
        self._reported = dict.fromkeys(REFUSED, 0)
        for key in keys:
            self.add_key(key)
        self._current = next(iter(self._realms.values()))

    # Keys.

    @property
    def keys(self) -> tuple[GroupKey, ...]:
        """Those that are accepted, the one that seals first."""
        # Status reads this beside the running member: the copy is made at once.
        others = (realm.key for realm in [*self._realms.values()] if realm is not self._current)
        return (self._current.key, *others)

    def add_key(self, key: GroupKey) -> None:
        """Accept what is sealed with `key` from now on, and make this process known under it."""
        realm = Realm(key, self.group, self.name, self._random_bytes)
        held = self._realms.get(realm.id)
        if held is not None:
            if held.key != key:
                raise GroupKeyError(f"key {key.id} looks like another one in packets; make a new one")
            return
        self._realms[realm.id] = realm
        self._hello_at = 0
        self._hello_interval = HELLO_INTERVAL_US_MIN

    def use_key(self, key: GroupKey) -> None:
        """Seal with `key`, which has been added, from now on."""
        self._current = self._realm(key)

    def retire_key(self, key: GroupKey) -> None:
        """Accept nothing any more that is sealed with `key`."""
        realm = self._realm(key)
        if realm is self._current:
            raise GroupKeyError(f"key {key.id} is in use and cannot be retired")
        del self._realms[realm.id]
        for prefix in realm.sessions:
            del self._sessions[prefix], self._sessions[direct(prefix)]
        self._answers = {asker: answer for asker, answer in self._answers.items() if answer.realm is not realm}

    def proven(self, key: GroupKey | None = None) -> frozenset[NodeId]:
        """Whose packets would be opened now if they were sealed with `key` (the current one if not given)."""
        realm = self._current if key is None else self._realm(key)
        return frozenset(session.name for session in realm.sessions.values())

    def _realm(self, key: GroupKey) -> Realm:
        for realm in self._realms.values():
            if realm.key == key:
                return realm
        raise GroupKeyError(f"key {key.id} has not been added")

    # Packets that leave and arrive.

    def seal(self, data: bytes, segment: int, to: NodeId | None = None) -> tuple[bytes, int]:
        """A train as it may leave, and the size of its packets then.

        `to` must be given for what the engine addresses to one member, and only that member will open it. Without it
        the train is for all and may be sent to many, sealed once.
        """
        return self._current.sealer.seal_train(data, segment, to)

    def receive(self, now: int, data: bytes, segment: int, source: object | None = None, via: int = 0) -> list[Opened]:
        """What of a train by network `via` may go to the engine: at most one train a transmitter, in its order."""
        if len(data) > segment > 0:
            session = self._sessions.get(data[:PREFIX_BYTES])
            if session is not None and data[3] == KIND_PACKET:
                opened = session.open_train(data, segment)
                if opened is not None:
                    self.counters["opened"] += -(-len(data) // segment)
                    return [Opened(opened, segment - OVERHEAD_BYTES, session.transmitter)]
            return self._receive_each(now, data, segment, source, via)
        packet = self._open(now, data, source, via)
        return [] if packet is None else [packet]

    def _receive_each(self, now: int, data: bytes, segment: int, source: object | None, via: int) -> list[Opened]:
        """The packets of a train with a flaw: what is sound is joined again where it has one transmitter."""
        trains: list[Opened] = []
        pieces: list[bytes] = []
        transmitter = NO_NODE
        for at in range(0, len(data), segment):
            opened = self._open(now, data[at : at + segment], source, via)
            if opened is None:
                continue
            if opened.transmitter != transmitter and pieces:
                trains.append(Opened(b"".join(pieces), segment - OVERHEAD_BYTES, transmitter))
                pieces = []
            transmitter = opened.transmitter
            pieces.append(opened.data)
        if pieces:
            trains.append(Opened(b"".join(pieces), segment - OVERHEAD_BYTES, transmitter))
        return trains

    def _open(self, now: int, packet: bytes, source: object | None, via: int) -> Opened | None:
        """One packet; None if there is nothing in it for the engine."""
        session = self._sessions.get(packet[:PREFIX_BYTES])
        if session is None:
            if packet[:4] == HELLO_MAGIC:
                self._receive_hello(now, packet, source, via)
            else:
                self._refuse(packet)
            return None
        if len(packet) <= OVERHEAD_BYTES:
            self.counters["truncated"] += 1
            return None
        if len(packet) > PACKET_BYTES_MAX + OVERHEAD_BYTES:
            self.counters["oversized"] += 1
            return None
        opened = session.open_packet(packet)
        if isinstance(opened, str):
            self.counters[opened] += 1
            return None
        self.counters["opened"] += 1
        return Opened(opened, len(opened), session.transmitter)

    def _refuse(self, packet: bytes) -> None:
        """Counts a packet that belongs to no accepted session."""
        if packet[:2] == MAGIC:
            reason = "plaintext"
        elif packet[:4] != PACKET_MAGIC and packet[:4] != DIRECT_MAGIC:
            reason = "foreign"
        elif len(packet) <= OVERHEAD_BYTES:
            reason = "truncated"
        elif len(packet) > PACKET_BYTES_MAX + OVERHEAD_BYTES:
            reason = "oversized"
        elif any(packet[4:PREFIX_BYTES] == realm.sealer.prefix[4:] for realm in self._realms.values()):
            reason = "own"
        elif any(packet[4:6] == realm.id[:2] for realm in self._realms.values()):
            reason = "unproven"
        else:
            reason = "unknown_key"
        self.counters[reason] += 1

    # The proof that a session is live.

    def _receive_hello(self, now: int, packet: bytes, source: object | None, via: int) -> None:
        realm = self._realms.get(packet[4:8])
        hello = "unknown_key" if realm is None else realm.open_hello(packet)
        if realm is None or isinstance(hello, str):
            self.counters[str(hello)] += 1
            return
        if hello.epoch == realm.epoch:
            self.counters["own"] += 1
            return
        self.counters["hellos"] += 1
        me = realm.sealer.prefix[4:]
        prefix = realm.prefix_of(hello.name, hello.epoch)
        session = realm.sessions.get(prefix)
        if session is not None:
            if hello.counter <= session.hello:
                # Of several networks one is behind the others; what it brings late does no more than a replay does.
                self.counters["replayed" if self.networks == 1 else "late_hellos"] += 1
                return
            session.hello, session.heard = hello.counter, self._tick
        elif hello.to == me and hello.answer == realm.challenge and prefix not in self._sessions:
            self._accept(realm, hello, prefix)
        if prefix not in realm.sessions or (hello.to == me and hello.ask):
            self._owe(now, _Answer(0, realm, source, hello.challenge), (prefix, via))

    def _accept(self, realm: Realm, hello: Hello, prefix: bytes) -> None:
        if len(realm.sessions) >= SESSIONS_MAX:
            self._forget(realm, min(realm.sessions.values(), key=lambda session: session.heard))
        self._sessions[prefix] = self._sessions[direct(prefix)] = realm.accept(hello, prefix, self._tick)
        self.counters["accepted"] += 1

    def _forget(self, realm: Realm, session: Session) -> None:
        realm.forget(session)
        del self._sessions[session.prefix], self._sessions[direct(session.prefix)]
        self.counters["forgotten"] += 1

    def _owe(self, now: int, answer: _Answer, asker: _Asker) -> None:
        """An answer to a HELLO: soon, but not more often than the limits allow."""
        if asker not in self._answers and len(self._answers) >= ANSWERS_MAX:
            return
        due = now
        if asker in self._answered:
            due = max(now, self._answered[asker] + ANSWER_INTERVAL_US)
        self._answers[asker] = answer._replace(due=due)
        self._answers_due = min(self._answers_due, due)

    # Packets of this layer's own.

    @property
    def deadline(self) -> int:
        """When `take_packets` will have something to send, on the clock of the `now` arguments."""
        return min(self._hello_at, max(self._answers_due, self._answers_from))

    def take_packets(self, now: int) -> list[Outgoing]:
        """HELLOs that are due, to everybody, and answers to HELLOs, to where those came from."""
        if self._hello_at > now + max(self._hello_interval, HELLO_INTERVAL_US_MAX):
            self._clock_went_back(now)
        packets: list[Outgoing] = []
        if now >= self._hello_at:
            self._advance_tick(now)
            packets += [
                Outgoing(None, realm.seal_hello(NOBODY, NO_ANSWER, ask=False), via)
                for realm in self._realms.values()
                for via in range(self.networks)
            ]
        if now >= max(self._answers_due, self._answers_from):
            self._take_answers(now, packets)
        return packets

    def _take_answers(self, now: int, packets: list[Outgoing]) -> None:
        ready = [asker for asker, answer in self._answers.items() if answer.due <= now][:ANSWERS_PER_CALL]
        for asker in ready:
            prefix, via = asker
            _, realm, source, challenge = self._answers.pop(asker)
            self._answered[asker] = now
            ask = prefix not in realm.sessions
            packets.append(Outgoing(source, realm.seal_hello(prefix[4:], challenge, ask=ask), via))
        self._answers_from = now + ANSWER_COST_US * len(ready)
        self._answers_due = min((answer.due for answer in self._answers.values()), default=NEVER)
        self.counters["answers"] += len(ready)

    def _advance_tick(self, now: int) -> None:
        self._tick += 1
        for realm in self._realms.values():
            for session in realm.silent(self._tick):
                self._forget(realm, session)
        self._answered = {asker: at for asker, at in self._answered.items() if at + ANSWER_INTERVAL_US > now}
        ceiling = max(HELLO_INTERVAL_US_MAX, HELLO_INTERVAL_US_PER_SESSION * len(self._sessions) // 2)
        self._hello_at = now + min(self._hello_interval, ceiling)
        self._hello_interval = min(2 * self._hello_interval, ceiling)

    def _clock_went_back(self, now: int) -> None:
        self._hello_at = self._answers_from = self._answers_due = self._report_at = now
        self._answered.clear()
        self._answers = {asker: answer._replace(due=now) for asker, answer in self._answers.items()}

    def report(self, now: int) -> str | None:
        """One line on what was dropped since the last one, for a log; at most every ten seconds, however much it is."""
        if now < self._report_at:
            return None
        since = {name: self.counters[name] - self._reported[name] for name in REFUSED}
        if not any(since.values()):
            return None
        self._report_at = now + REPORT_INTERVAL_US
        self._reported = {name: self.counters[name] for name in REFUSED}
        return "packets dropped: " + ", ".join(f"{count} {name}" for name, count in since.items() if count)


class PlainGuard:
    """No security, asked for by `insecure`: packets pass as they are, sealed ones are dropped: the two never mix."""

    overhead_bytes = 0

    def __init__(self, group: str, name: NodeId) -> None:
        self.group = group
        self.name = check_name(name)
        self.counters = {"sealed": 0}
        self.keys: tuple[GroupKey, ...] = ()
        self.deadline: int | None = None
        self._report_at = 0
        self._reported = 0

    def seal(self, data: bytes, segment: int, to: NodeId | None = None) -> tuple[bytes, int]:
        return data, segment

    def receive(self, now: int, data: bytes, segment: int, source: object | None = None, via: int = 0) -> list[Opened]:
        if data[:2] == SEALED_MAGIC:
            self.counters["sealed"] += -(-len(data) // segment) if segment > 0 else 1
            return []
        return [Opened(data, segment, NO_NODE)]

    def take_packets(self, now: int) -> list[Outgoing]:
        return []

    def add_key(self, key: GroupKey) -> None:
        raise GroupKeyError("a group without a key cannot be given one while it runs")

    use_key = retire_key = add_key

    def proven(self, key: GroupKey | None = None) -> frozenset[NodeId]:
        return frozenset()

    def report(self, now: int) -> str | None:
        """One line, at most every ten seconds: others in reach use a key and this process does not."""
        since = self.counters["sealed"] - self._reported
        if not since or now < self._report_at:
            return None
        self._report_at = now + REPORT_INTERVAL_US
        self._reported = self.counters["sealed"]
        return f"packets dropped: {since} sealed with a key, and this process has none"


AnyGuard = Guard | PlainGuard
