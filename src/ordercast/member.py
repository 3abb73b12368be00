"""One membership: what the two faces of a group, asyncio and blocking, share.

The driver's thread fills a `Stream` (`stream.py`); the application's side takes it apart.
"""

from __future__ import annotations

import base64
import math
import os
import socket
import time
import warnings
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict

from ordercast.durable import Durable, Retention, change_submission, open_durable
from ordercast.engine.contract import Engine, GroupChange, NetworkedEngine, Submission
from ordercast.engine.totem import Phase, Totem, TotemConfig
from ordercast.errors import AuthError, DeliveryUncertain, GroupError, MessageTooLarge, NotMember, NotPrimary
from ordercast.events import (
    Headers,
    View,
    encode_headers,
)
from ordercast.net.addresses import Address, is_loopback, parse_local, split_peers
from ordercast.net.driver import READER_MESSAGE_BYTES, Driver
from ordercast.net.log_disk import LogDisk
from ordercast.net.presence import Presence, Request
from ordercast.net.recorder import Recorder
from ordercast.net.storage import Storage
from ordercast.net.udp import UdpNetwork
from ordercast.pledge import Pledge, Receipt
from ordercast.redundancy import NetworkConfig, Redundant, parse_replication
from ordercast.stream import Reader, Stream, StreamEnd
from ordercast.wire.ids import NodeId, Service
from ordercast.wire.keys import GroupKey, GroupKeyError, load_key
from ordercast.wire.layout import NETWORKS_MAX, WireError
from ordercast.wire.seal import AnyGuard, Guard, PlainGuard
from ordercast.wire.totem import check_name

MESSAGE_BYTES_MAX = 64 * 2**20 + 2**20
"""The longest message, its key and headers included."""
SEND_QUEUE_BYTES = 16 * 2**20
"""Bytes that may wait to be sent before `send` waits; what is sent in one call may exceed it."""
SEND_QUEUE_MESSAGES = 200_000
"""Messages on their way, from `send` to their delivery here, before `send` waits."""
UNORDERED_BYTES_MAX = 256 * 2**20
"""Bytes of own messages without a place in the global order before `send` waits, as in a minority (corel)."""
DISCOVERY_S = 0.5
"""How long `join` looks for others before it takes the view that there is."""
LEAVE_PATIENCE_S = 5.0
"""How long `leave` goes on when nothing of what it waits for makes progress."""
CANCELLED_LEAVE_US = 500_000
"""How long a join that was cancelled takes to tell the others."""
STOP_PATIENCE_S = 2.0
"""How long a stopped driver may take to end, which is the time of a write to disk."""
SLOW_READER_TIMEOUT_S = 30.0
RESERVED_ENGINES = ("sequencer", "mtp")
ENGINES = ("totem", "corel")

ServiceName = Literal["agreed", "safe"]
KeyLike = str | os.PathLike[str] | bytes
"""A group's secret: the path of a file that `ordercast keygen` made, or its contents."""
_SERVICES = {"agreed": Service.AGREED, "safe": Service.SAFE}


class JoinOptions(TypedDict, total=False):
    """What `join` takes beside the group's name; all of it may be left out."""

    name: str | None
    """Unique in the group; the default is the host's name and a suffix."""
    engine: str
    networks: Sequence[str]
    """One local address a network; the default is 127.0.0.1, processes of this machine. Two or more are redundant
    networks, which all members give in one order."""
    replication: str
    """How redundant networks are used, the same at all members: active, passive or active-passive:K."""
    peers: Sequence[str] | None
    """HOST:PORT of all members, where there is no multicast; with several networks one for each, by commas."""
    key: KeyLike | None
    """The group's secret, needed off loopback..."""
    insecure: bool
    """...unless this is said."""
    data_dir: str | os.PathLike[str] | None
    """Stable storage of this member; one process at a time."""
    trace: bool
    """Write a trace for `ordercast check` to data_dir/trace."""
    min_members: int
    """`join` waits until the view has so many."""
    start: int | str | None
    """With corel: show messages from this offset on, "earliest" or "latest" (what is ordered after `join`). By default
    from where this member's log ended."""
    founders: int | None
    """With corel, for a log that is new: so many members found the group together. 0: it is there already, and this
    member is to be added. The default is min_members, if that is above 1."""
    retention: Retention | None
    """With corel: what is removed from the log in time. By default nothing is."""
    discovery_s: float
    """How long `join` looks for others, half a second by default."""
    slow_reader_timeout: float
    """Seconds for which this application may hold the group up before it leaves with Evicted, 30 by default."""


class Options(NamedTuple):
    """What `join` was given, checked."""

    group: str
    name: NodeId
    engine: str
    networks: tuple[str, ...]
    copies: int
    """By how many of the networks everything is sent."""
    peers: tuple[tuple[str, ...] | None, ...]
    """Those of each network."""
    key: KeyLike | None
    data_dir: Path | None
    trace: bool
    min_members: int
    discovery_s: float
    slow_reader_timeout_s: float
    start: int | str | None
    founders: int | None
    retention: Retention | None


def check_options(
    group: str,
    *,
    name: str | None = None,
    engine: str = "totem",
    networks: Sequence[str] = ("127.0.0.1",),
    replication: str = "active",
    peers: Sequence[str] | None = None,
    key: KeyLike | None = None,
    insecure: bool = False,
    data_dir: str | os.PathLike[str] | None = None,
    trace: bool = False,
    min_members: int = 1,
    start: int | str | None = None,
    founders: int | None = None,
    retention: Retention | None = None,
    discovery_s: float = DISCOVERY_S,
    slow_reader_timeout: float = SLOW_READER_TIMEOUT_S,
) -> Options:
    """Refuses what cannot work, each with one clear line, before anything is opened."""
    if not group:
        raise GroupError("a group needs a name")
    if engine in RESERVED_ENGINES:
        raise GroupError(f"engine {engine!r} is not available in this version; there are 'totem' and 'corel'")
    if engine not in ENGINES:
        raise GroupError(f"there is no engine {engine!r}; there are 'totem' and 'corel'")
    if isinstance(networks, str) or not 1 <= len(networks) <= NETWORKS_MAX:
        raise GroupError(f"networks is a list of 1 to {NETWORKS_MAX} local addresses, one a network")
    durable = {"start": start, "founders": founders, "retention": retention}
    if engine != "corel" and (given := [option for option, value in durable.items() if value is not None]):
        raise GroupError(f"{given[0]} belongs to the engine 'corel'")
    if engine == "corel" and data_dir is None:
        raise GroupError("the engine 'corel' keeps a durable log under data_dir, which is not given")
    if isinstance(start, str) and start.isdecimal():
        start = int(start)
    if not (start in (None, "earliest", "latest") or (isinstance(start, int) and start >= 0)):
        raise GroupError(f"start is an offset, 'earliest' or 'latest', not {start!r}")
    if founders is not None and founders < 0:
        raise GroupError(f"founders is a number of members, or 0, not {founders}")
    if trace and data_dir is None:
        raise GroupError("a trace is written under data_dir, which is not given")
    if min_members < 1:
        raise GroupError(f"min_members is at least 1, not {min_members}")
    for option, seconds in (("discovery_s", discovery_s), ("slow_reader_timeout", slow_reader_timeout)):
        if not 0 <= seconds < math.inf:
            raise GroupError(f"{option} is a number of seconds, not {seconds}")
    try:
        addresses = [parse_local(network)[0] for network in networks]
        copies = parse_replication(replication, len(networks))
        peers_of = split_peers(peers, len(networks))
        checked = check_name(_default_name() if name is None else name)
        outside = [address for address in addresses if not is_loopback(address)]
    except (WireError, ValueError) as error:
        raise GroupError(str(error)) from None
    if len(networks) == 1 and replication != "active":
        raise GroupError(f"replication {replication!r} is for redundant networks, and there is one network")
    if len(set(addresses)) < len(addresses):
        raise GroupError(f"redundant networks have an address each: {', '.join(networks)}")
    if key is not None and insecure:
        raise AuthError("a key and insecure exclude each other")
    if key is None and not insecure and outside:
        raise AuthError(f"off loopback ({outside[0]}) a group needs a key; or say insecure to go without")
    return Options(
        group,
        checked,
        engine,
        tuple(networks),
        copies,
        peers_of,
        key,
        None if data_dir is None else Path(data_dir),
        trace,
        min_members,
        discovery_s,
        slow_reader_timeout,
        start,
        founders,
        retention,
    )


def _default_name() -> str:
    host = socket.gethostname().partition(".")[0] or "node"
    return f"{host}-{os.getpid():x}{os.urandom(2).hex()}"


class Member:
    """The driver, the stream that it fills, and the books: what was submitted, and what of it was delivered.

    The stream's `wake` is called in the driver's thread; the face sets it, and calls `settle` in its own time. Nobody
    but the application holds a face, so that one that is dropped without `leave` is noticed.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.stream = Stream(options.networks)
        self.reader = Reader(self.stream)
        self.durable: Durable | None = None
        self.unordered_bytes = 0
        """Of own messages that are not delivered yet."""
        self.submitted = 0
        self.delivered = 0
        """Own messages submitted, and delivered here."""
        self.ended: StreamEnd | None = None
        self.leaving = False
        self.error_shown = False
        """The application has been told what ended the group."""
        self._pledges: deque[Pledge] = deque()
        self._stack: list[UdpNetwork | Storage | Recorder | LogDisk] = []
        self._presence: Presence | None = None
        try:
            self._open(options)
        except OSError as error:
            self._close()
            raise GroupError(str(error.strerror or error)) from error
        except BaseException:
            self._close()
            raise
        self.stream.has_room = lambda: not self._is_full()
        _members.add(self)

    def _open(self, options: Options) -> None:
        self.guard = guard = _make_guard(options)
        storage: Storage | None = None
        recorder: Recorder | None = None
        if options.data_dir is not None:
            storage = Storage(options.data_dir)
            self._stack.append(storage)
            if options.trace:
                recorder = Recorder(options.data_dir / "trace", options.name)
                self._stack.append(recorder)
        self.networks = self._open_networks(options)
        for warning in dict.fromkeys(line for network in self.networks for line in network.warnings):
            warnings.warn(warning, RuntimeWarning, stacklevel=6)
        packet_bytes = min(network.packet_bytes_max for network in self.networks) - guard.overhead_bytes
        window = min(network.receive_window(packet_bytes) for network in self.networks)
        config = TotemConfig(packet_bytes=packet_bytes, receive_window=window)
        stored = {} if storage is None else storage.load()
        nonce = int.from_bytes(os.urandom(4), "little") or 1
        self.engine = Totem(options.name, config, stored=stored, nonce=nonce)
        self.redundant: Redundant | None = None
        if len(self.networks) > 1:
            layer = NetworkConfig(len(self.networks), options.copies, packet_bytes)
            self.redundant = Redundant(self.engine, layer, incarnation=int.from_bytes(os.urandom(4), "little"))
        self.top: Engine | NetworkedEngine = self.redundant or self.engine
        """What the driver hosts."""
        if options.engine == "corel":
            self._open_durable(options)
        self.driver = Driver(
            self.top,
            self.networks,
            guard,
            self.stream,
            group=options.group,
            storage=storage,
            recorder=recorder,
            listen_us=int(min(config.beacon_interval_us * 1.1, options.discovery_s * 500_000)),
            slow_reader_timeout_us=int(options.slow_reader_timeout_s * 1e6),
            log=None if self.durable is None else self.durable.disk,
        )

    def _open_durable(self, options: Options) -> None:
        assert options.data_dir is not None
        self.durable = durable = open_durable(
            self.top,
            options.data_dir / "log",
            group=options.group,
            start=options.start,
            founders=options.founders if options.founders is not None else options.min_members,
            sure=options.founders is not None or options.min_members > 1,
            retention=options.retention,
            networks=options.networks,
            traced=options.trace,
        )
        self._stack.append(durable.disk)
        self.top, self.stream, self.reader = durable.engine, durable.stream, durable.reader

    def _open_networks(self, options: Options) -> list[UdpNetwork]:
        networks: list[UdpNetwork] = []
        several = len(options.networks) > 1
        for address, peers in zip(options.networks, options.peers, strict=True):
            network = UdpNetwork(options.group, address, peers=peers, may_be_down=several)
            self._stack.append(network)
            networks.append(network)
        cards = [network.interface for network in networks if not is_loopback(network.own[0])]
        if len(set(cards)) < len(cards):
            raise GroupError(f"redundant networks have an interface each: {', '.join(options.networks)}")
        return networks

    def _close(self) -> None:
        for resource in self._stack:
            resource.close()

    # Joining

    def start(self) -> None:
        self._joined_from = time.monotonic()
        self._presence = Presence(self._answer)
        self.stream.on_end = self._presence.close
        self.driver.start()

    def found(self) -> bool:
        """Whether the discovery is over; raises what made it fail."""
        self._raise_if_ended()
        view = self.stream.current
        if view is None or time.monotonic() - self._joined_from < self.options.discovery_s:
            return False
        if len(view.members) == 1:
            error = self.driver.stranger()
            if error is not None:
                raise error
        return self.stream.members_most >= self.options.min_members and self.engine.phase is Phase.OPERATIONAL

    def _raise_if_ended(self) -> None:
        if self.stream.end is not None:
            raise self.stream.end.error or NotMember("the group has ended")

    # Sending

    def has_room(self) -> bool:
        """Whether `send` need not wait; if it does, the stream's wake comes as soon as that changes."""
        if not self._is_full():
            return True
        self.stream.room_wanted = True
        return self.ended is not None or not self._is_full()

    def _is_full(self) -> bool:
        return (
            self.driver.queued_bytes + self.top.backlog_bytes > SEND_QUEUE_BYTES
            or self.submitted - self.stream.own > SEND_QUEUE_MESSAGES
            or (self.durable is not None and self.unordered_bytes > UNORDERED_BYTES_MAX)
        )

    def send(
        self,
        bodies: Sequence[bytes],
        service: str,
        keys: Sequence[bytes | None] | None,
        headers: Sequence[Headers | None] | None,
    ) -> Pledge:
        """Hands messages to the driver, and makes what stands for them."""
        wanted = _SERVICES.get(service)
        if wanted is None:
            raise ValueError(f"service is 'agreed' or 'safe', not {service!r}")
        if isinstance(bodies, (bytes, bytearray, memoryview, str)):
            raise TypeError("send_many takes a sequence of messages, not one")
        if set(map(type, bodies)) - {bytes}:
            bodies = [bytes(memoryview(body)) for body in bodies]
        encoded = None if headers is None else [None if head is None else encode_headers(head) for head in headers]
        size = _check_sizes(bodies, keys, encoded)
        self._refuse_if_gone()
        self.submitted += len(bodies)
        pledge = Pledge(self.submitted, wanted is Service.SAFE, size, self.stream)
        if bodies:
            self.unordered_bytes += size
            self._pledges.append(pledge)
            self.driver.submit(Submission(bodies, wanted, time.time_ns() // 1000, keys, encoded))
        else:
            pledge.settle(Receipt("", 0))
        return pledge

    def _refuse_if_gone(self) -> None:
        if self.leaving:
            raise NotMember("this process has left the group")
        if self.ended is not None:
            raise NotMember("this process is no longer a member of the group") from self.ended.error

    def settle(self) -> None:
        """Own messages that were delivered since the last time complete their pledges, in order; so does the end."""
        end, done, pledges = self.stream.end, self.stream.done, self._pledges
        while done:
            count, view_id, seq, unsure, offset = done[0]
            self.delivered += count
            done.popleft()
            while pledges and pledges[0].end <= self.delivered:
                pledge = pledges.popleft()
                self.unordered_bytes -= pledge.size
                if pledge.safe and unsure:
                    why = f"the membership changed before the message was safe (in {view_id})"
                    pledge.settle(None, DeliveryUncertain(why))
                else:
                    later = self.delivered - pledge.end
                    pledge.settle(Receipt(view_id, seq - later, None if offset is None else offset - later))
        if end is not None and self.ended is None:
            self.ended = end
            while pledges:
                pledge = pledges.popleft()
                pledge.settle(None, self._undelivered(pledge, end.error))

    def _undelivered(self, pledge: Pledge, cause: GroupError | None) -> GroupError:
        """What becomes of messages at the end of this member."""
        error: GroupError = DeliveryUncertain("this process left the group before the message was delivered")
        if cause is None and pledge.state == "stable":
            error = NotPrimary(_LEFT_OUTSIDE)
        error.__cause__ = cause
        return error

    # The declared group, and the log

    def propose(self, change: GroupChange) -> Pledge:
        """Multicasts a change of the declared group, one message among this process's own."""
        durable = self._durable("the declared group")
        self._refuse_if_gone()
        if not durable.stream.primary:
            raise NotPrimary("the declared group is changed in its primary component, which this process is not in")
        self.submitted += 1
        pledge = Pledge(self.submitted, False, 0, self.stream)
        self._pledges.append(pledge)
        self.driver.submit(change_submission(change, time.time_ns() // 1000))
        return pledge

    def offer(self, offset: int, snapshot: bytes) -> None:
        """The application's state as of an offset."""
        durable = self._durable("a snapshot")
        if not 0 <= offset <= durable.stream.ordered_to:
            raise GroupError(
                f"a snapshot as of offset {offset}, while {durable.stream.ordered_to} messages are ordered"
            )
        engine, now = durable.engine, time.monotonic_ns() // 1000
        self.driver.call(lambda: engine.offer(now, offset, snapshot))
        durable.snapshot_at(offset)

    def _durable(self, what: str) -> Durable:
        if self.durable is None:
            raise GroupError(f"{what} belongs to the engine 'corel'")
        return self.durable

    # Leaving

    def progress(self) -> tuple[object, ...]:
        """Changes for as long as a leave comes nearer to its end."""
        return self.delivered, self.top.backlog_bytes, self.stream.progress_now

    def conclude(self) -> None:
        """The end of `leave`: the thread is gone; raises what nobody has been told."""
        self.driver.join(STOP_PATIENCE_S)
        self.settle()
        error = None if self.ended is None else self.ended.error
        if error is not None and not self.error_shown:
            self.error_shown = True
            raise error
        missing = self.submitted - self.delivered
        if error is None and missing and self.durable is not None and self.stream.progress_now.stable >= self.submitted:
            raise NotPrimary(_LEFT_OUTSIDE)
        if error is None and missing:
            raise DeliveryUncertain(f"left before {missing} messages of this process were delivered")

    def stream_error(self) -> GroupError | None:
        """What ended the group, for whoever is about to raise it."""
        assert self.stream.end is not None
        self.error_shown = True
        return self.stream.end.error

    def abandon(self) -> bool:
        """Stops without a leave; tells whether there was anything to stop."""
        if not self.driver.is_alive():
            return False
        self.driver.stop()
        return True

    def view(self) -> View:
        """The latest view, which the reader of events may not have reached yet."""
        view = self.stream.current
        if view is None:
            raise NotMember("there is no view yet")
        primary = None if self.durable is None else self.durable.stream.primary > 0
        return View(view.id, tuple(view.members), primary=primary)

    def status(self) -> dict[str, object]:
        """Figures of this member, for people and machines."""
        stream = self.stream
        view = stream.current
        return {
            "group": self.options.group,
            "name": self.options.name,
            "engine": self.options.engine,
            "view": None if view is None else view.id,
            "members": [] if view is None else list(view.members),
            "state": "ended" if self.stream.end is not None else self.engine.phase.name.lower(),
            "submitted": self.submitted,
            "delivered_own": self.delivered,
            "delivered": stream.messages_in,
            "delivered_bytes": stream.bytes_in - READER_MESSAGE_BYTES * stream.messages_in,
            "queued_messages": self.top.backlog,
            "queued_bytes": self.driver.queued_bytes + self.top.backlog_bytes,
            "unread_bytes": stream.reader_backlog(),
            "throttling": self.driver.throttling,
            "turns": self.driver.turns,
            "rotations": self.engine.rotations,
            "data_dir": None if self.options.data_dir is None else str(self.options.data_dir.absolute()),
            "replication": None if self.redundant is None else self.redundant.replication,
            "networks": self._status_of_networks(),
            "log": None if self.durable is None else self.durable.status(),
            "counters": dict(self.engine.state.counters),
            "guard": dict(self.guard.counters),
            "keys": [key.id for key in self.guard.keys],
            "key_change": self.driver.key_change(),
        }

    def _answer(self, request: Request | None) -> Mapping[str, object]:
        """What commands on this machine ask for, in the thread of the presence."""
        if request is None:
            return self.status()
        if request.get("do") != "rotate-key":
            return {"error": f"this member cannot do {request.get('do')!r}"}
        if self.options.key is None:
            return {"error": "it runs without a key, and cannot be given one while it runs"}
        try:
            self.driver.rotate(load_key(base64.b64decode(str(request.get("key")))))
        except ValueError as error:  # GroupKeyError among them
            return {"error": str(error)}
        return {"name": self.options.name}

    def _status_of_networks(self) -> list[dict[str, object]]:
        found: list[dict[str, object]] = [
            {
                "address": address,
                "interface": network.interface,
                "own": _endpoint(network.own),
                "sends_to": [*map(_endpoint, network.peers)],
                "members": {name: _endpoint(member) for name, member in members.copy().items()},
                "accelerated": network.accelerated,
                "send_drops": network.send_drops,
                "receive_drops": network.receive_drops,
                "warnings": list(network.warnings),
            }
            for address, network, members in zip(
                self.options.networks, self.networks, self.driver.addresses, strict=True
            )
        ]
        if self.redundant is not None:
            # The layer's: number, state, changes, diagnosis.
            for network, known in zip(found, self.redundant.networks(), strict=True):
                network.update(known)
        return found

    def after_fork(self) -> None:
        """In a forked child: it has no thread and is no member; what it shares with its parent is closed."""
        self.ended = self.stream.end = end = StreamEnd(NotMember("a forked process is no member of its parent's group"))
        self.stream.items.append(end)
        if self._presence is not None:
            self._presence.after_fork()
        self._close()


_LEFT_OUTSIDE = (
    "this process left outside a primary component: its messages are in the logs of its component, and get their place "
    "in the order when one of its members meets the others"
)
_members: weakref.WeakSet[Member] = weakref.WeakSet()


def _after_fork() -> None:
    for member in list(_members):
        member.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def _endpoint(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


def _check_sizes(
    bodies: Sequence[bytes], keys: Sequence[bytes | None] | None, headers: Sequence[bytes | None] | None
) -> int:
    """The bytes of all; raises if a message is too long."""
    sizes = list(map(len, bodies))
    for column in (keys, headers):
        if column is None:
            continue
        if len(column) != len(bodies):
            raise ValueError(f"{len(column)} keys or headers for {len(bodies)} messages")
        sizes = [size + len(cell or b"") for size, cell in zip(sizes, column, strict=True)]
    longest = max(sizes, default=0)
    if longest > MESSAGE_BYTES_MAX:
        raise MessageTooLarge(f"a message of {longest} bytes; at most {MESSAGE_BYTES_MAX} are accepted")
    return sum(sizes)


def read_key(key: KeyLike) -> GroupKey:
    try:
        found = load_key(key if isinstance(key, bytes) else Path(key))
    except GroupKeyError as error:
        raise AuthError(str(error)) from None
    for warning in found.warnings:
        warnings.warn(warning, RuntimeWarning, stacklevel=2)
    return found


def _make_guard(options: Options) -> AnyGuard:
    if options.key is None:
        return PlainGuard(options.group, options.name)
    key = read_key(options.key)
    return Guard(options.group, options.name, [key], os.urandom, networks=len(options.networks))
