"""One membership: what the two faces of a group, asyncio and blocking, share.

The driver's thread fills a `Stream` (`stream.py`); the application's side takes it apart.
"""

from __future__ import annotations

import base64
import os
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

from ordercast.durable import Durable, change_submission, check_change, open_durable, parse_change
from ordercast.engine.contract import Engine, GroupChange, NetworkedEngine, Submission
from ordercast.engine.totem import Phase, Totem, TotemConfig
from ordercast.errors import AuthError, DeliveryUncertain, GroupError, MessageTooLarge, NotMember, NotPrimary
from ordercast.events import (
    Headers,
    View,
    encode_headers,
)
from ordercast.net.addresses import Address, is_loopback
from ordercast.net.driver import READER_MESSAGE_BYTES, Driver
from ordercast.net.log_disk import LogDisk
from ordercast.net.presence import Presence, Request
from ordercast.net.recorder import Recorder
from ordercast.net.storage import Storage
from ordercast.net.udp import UdpNetwork
from ordercast.options import KeyLike, Options
from ordercast.pledge import Pledge, Receipt
from ordercast.redundancy import NetworkConfig, Redundant
from ordercast.serve import LogServer
from ordercast.stream import Reader, Stream, StreamEnd
from ordercast.wire.guard import AnyGuard, Guard, PlainGuard
from ordercast.wire.ids import Service
from ordercast.wire.keys import GroupKey, GroupKeyError, load_key

MESSAGE_BYTES_MAX = 64 * 2**20 + 2**20
"""The longest message, its key and headers included."""
SEND_QUEUE_BYTES = 16 * 2**20
"""Bytes that may wait to be sent before `send` waits; what is sent in one call may exceed it."""
SEND_QUEUE_MESSAGES = 200_000
"""Messages on their way, from `send` to their delivery here, before `send` waits."""
UNORDERED_BYTES_MAX = 256 * 2**20
"""Bytes of own messages without a place in the global order before `send` waits, as in a minority (corel)."""
LEAVE_PATIENCE_S = 5.0
"""How long `leave` goes on when nothing of what it waits for makes progress."""
CANCELLED_LEAVE_US = 500_000
"""How long a join that was cancelled takes to tell the others."""
WINDOW_BYTES = 1_800_000
"""What all members together may send in a rotation, if three times as much fits the receive buffers: what a rotation
costs beside its packets is a small part of it then."""
WINDOW_PACKETS_MIN = 200
STOP_PATIENCE_S = 2.0
"""How long a stopped driver may take to end, which is the time of a write to disk."""

_SERVICES = {"agreed": Service.AGREED, "safe": Service.SAFE}


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
        self.in_face: Callable[[Callable[[], None]], None] = lambda function: function()
        """Runs a function of another thread where the application's calls run; the face sets it."""
        self._pledges: deque[Pledge] = deque()
        self._stack: list[UdpNetwork | Storage | Recorder | LogDisk] = []
        self._presence: Presence | None = None
        self.server: LogServer | None = None
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
        if options.serve is not None:
            assert options.data_dir is not None
            self.server = LogServer(options.data_dir, options.serve, lambda: self.guard.keys, self._publish)
        self.networks = self._open_networks(options)
        for warning in dict.fromkeys(line for network in self.networks for line in network.warnings):
            warnings.warn(warning, RuntimeWarning, stacklevel=6)
        packet_bytes = min(network.packet_bytes_max for network in self.networks) - guard.overhead_bytes
        held = min(network.receive_window(packet_bytes) for network in self.networks)
        window = max(WINDOW_BYTES // packet_bytes, WINDOW_PACKETS_MIN)
        config = TotemConfig(
            packet_bytes=packet_bytes, window_size=window, max_messages=window // 2, receive_window=held
        )
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
            self._open_durable(options, recorder)
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
            books=None if self.durable is None else self.durable.books,
        )

    def _open_durable(self, options: Options, recorder: Recorder | None) -> None:
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
            recorder=recorder,
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
        if self.server is not None:
            self.server.close()
        for resource in self._stack:
            resource.close()

    # Joining

    def start(self) -> None:
        self._joined_from = time.monotonic()
        self._presence = Presence(self._answer)
        self.stream.on_end = self._at_end
        self.driver.start()

    def _at_end(self) -> None:
        assert self._presence is not None
        self._presence.close()
        self.stop_serving()

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

    def begin(self) -> None:
        """The end of `join`: the application's stream begins, and the log is served."""
        self.reader.begin()
        if self.server is not None:
            self.server.start()

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
        whole: bool = False,
    ) -> Pledge:
        """Hands messages to the driver, and makes what stands for them; a `whole` has one place in the global order."""
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
            self.driver.submit(Submission(bodies, wanted, time.time_ns() // 1000, keys, encoded, whole))
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
        check_change(change)
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

    # Serving

    def _publish(
        self,
        bodies: Sequence[bytes],
        keys: Sequence[bytes | None] | None,
        headers: Sequence[Headers | None] | None,
        within_s: float,
    ) -> None:
        """What a job hands in goes the way of this process's own messages. Called in a thread of the server."""
        durable = self._durable("what is published")
        ordered: Future[None] = Future()

        def settle(pledge: Pledge) -> None:
            try:
                pledge.result()
                ordered.set_result(None)
            except GroupError as error:
                ordered.set_exception(error)

        def send() -> None:
            try:
                if not durable.stream.primary:
                    raise NotPrimary("the member is in no primary component, and cannot order what is published")
                pledge = self.send(bodies, "agreed", keys, headers, whole=True)
            except (GroupError, ValueError) as error:
                ordered.set_exception(error if isinstance(error, GroupError) else GroupError(str(error)))
                return
            if pledge.done:
                settle(pledge)
            else:
                pledge.when_done = [*(pledge.when_done or ()), lambda: settle(pledge)]

        try:
            self.in_face(send)
            ordered.result(within_s)
        except TimeoutError:
            raise DeliveryUncertain(f"what was published is not ordered after {within_s:.0f} s: try again") from None
        except RuntimeError as error:  # the event loop is closed
            raise NotMember(f"the member's program is ending: {error}") from None

    def stop_serving(self) -> None:
        if self.server is not None:
            self.server.close()

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
            "serves": None if self.server is None or not self.server.running else _endpoint(self.server.address),
            "counters": dict(self.engine.state.counters),
            "guard": dict(self.guard.counters),
            "keys": [key.id for key in self.guard.keys],
            "key_change": self.driver.key_change(),
        }

    def _answer(self, request: Request | None) -> Mapping[str, object]:
        """What commands on this machine ask for, in the thread of the presence."""
        if request is None:
            return self.status()
        if request.get("do") == "change-group":
            return self._change_group(request)
        if request.get("do") != "rotate-key":
            return {"error": f"this member cannot do {request.get('do')!r}"}
        if self.options.key is None:
            return {"error": "it runs without a key, and cannot be given one while it runs"}
        try:
            self.driver.rotate(load_key(base64.b64decode(str(request.get("key")))))
        except ValueError as error:  # GroupKeyError among them
            return {"error": str(error)}
        return {"name": self.options.name}

    def _change_group(self, request: Request) -> Mapping[str, object]:
        """The books belong to the application's side, so it is done there; one that is busy does it later."""
        asked: Future[None] = Future()

        def propose() -> None:
            try:
                self.propose(parse_change(request))
                asked.set_result(None)
            except GroupError as error:
                asked.set_exception(error)

        self.in_face(propose)
        with suppress(TimeoutError):
            try:
                asked.result(STOP_PATIENCE_S)
            except GroupError as error:
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
        if self.server is not None:
            self.server.after_fork()
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
