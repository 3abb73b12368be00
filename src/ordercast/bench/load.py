"""A load of durable writes on the peers of corel: so many outstanding, or on a fixed schedule, over raw connections.

    python -m ordercast.bench.load '{"peer": "etcd", "ports": [...], ...}'

The clients speak the peers' own protocols with bytes that are made once, so that as little as possible of the machine
goes to the load: etcd's gRPC over HTTP/2, NATS' text protocol. Each connection leads to another server.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol, TypedDict, cast

_READ_BYTES = 1 << 18


class LoadOptions(TypedDict):
    peer: str
    ports: list[int]
    size: int
    outstanding: int
    """Of all connections together."""
    rate: float
    """Writes a second on a fixed schedule; 0: as many as `outstanding` allows."""
    warm_s: float
    seconds: float


class Connection(Protocol):
    sock: socket.socket

    def put(self, number: int) -> bytes:
        """The bytes of write number `number`."""

    def take(self, data: bytes) -> Iterator[int]:
        """The writes that are acknowledged by what was received."""

    def answer(self) -> bytes:
        """What the protocol itself has to say."""


class Etcd:
    """Puts over HTTP/2, a stream each."""

    def __init__(self, port: int, size: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), 10)
        path, authority = b"/etcdserverpb.KV/Put", b"127.0.0.1:%d" % port
        # HPACK without a table: indexed fields of the static one, literals that nobody has to remember.
        block = b"\x83\x86\x04" + bytes((len(path),)) + path + b"\x01" + bytes((len(authority),)) + authority
        block += b"\x0f\x10\x10application/grpc" + b"\x00\x02te\x08trailers"
        self._head, self._value = block, b"v" * size
        settings = struct.pack(">HI", 4, 2**31 - 1)
        self._answer = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, settings)
        self._answer += _frame(8, 0, 0, struct.pack(">I", 2**30))
        self._buffer = b""
        self._window = 65_535
        self._waiting: deque[bytes] = deque()
        self._streams: dict[int, int] = {}
        self._answered: set[int] = set()
        self._next = 1

    def put(self, number: int) -> bytes:
        key = b"k%d" % (number % 10_000)
        message = b"\x0a" + _varint(len(key)) + key + b"\x12" + _varint(len(self._value)) + self._value
        body = struct.pack(">BI", 0, len(message)) + message
        stream, self._next = self._next, self._next + 2
        self._streams[stream] = number
        self._waiting.append(_frame(1, 4, stream, self._head) + _frame(0, 1, stream, body))
        return self._allowed()

    def _allowed(self) -> bytes:
        parts = []
        while self._waiting and len(self._waiting[0]) <= self._window:
            parts.append(self._waiting.popleft())
            self._window -= len(parts[-1])  # a little more than counts, and given back in full
        return b"".join(parts)

    def take(self, data: bytes) -> Iterator[int]:
        buffer = self._buffer + data
        at = 0
        while len(buffer) - at >= 9:
            size = int.from_bytes(buffer[at : at + 3], "big")
            if len(buffer) - at < 9 + size:
                break
            kind, flags, stream = buffer[at + 3], buffer[at + 4], int.from_bytes(buffer[at + 5 : at + 9], "big")
            payload = buffer[at + 9 : at + 9 + size]
            at += 9 + size
            if kind == 0:
                self._answered.add(stream)
            elif kind == 1 and flags & 1:
                if stream not in self._answered:
                    raise RuntimeError(f"etcd refused a put: {payload!r}")
                self._answered.discard(stream)
                self._window += len(self._head) + 9 + 9
                yield self._streams.pop(stream)
            elif kind == 4 and not flags & 1:
                self._answer += _frame(4, 1, 0, b"")
            elif kind == 6 and not flags & 1:
                self._answer += _frame(6, 1, 0, payload)
            elif kind == 8 and stream == 0:
                self._window += int.from_bytes(payload, "big")
            elif kind in (3, 7):
                raise RuntimeError(f"etcd ended a stream or the connection: {payload!r}")
        self._buffer = buffer[at:]

    def answer(self) -> bytes:
        said, self._answer = self._answer, b""
        return said + self._allowed()


class Nats:
    """Publishes to a JetStream stream, each with an inbox for its acknowledgement."""

    def __init__(self, port: int, size: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), 10)
        self._answer = b'CONNECT {"verbose":false,"pedantic":false,"headers":false}\r\n'
        self._inbox = b"_INBOX.b%d." % port
        self._answer += b"SUB " + self._inbox + b"* 1\r\n"
        self._tail = b" %d\r\n%s\r\n" % (size, b"v" * size)
        self._buffer = b""

    def put(self, number: int) -> bytes:
        return b"PUB bench.writes " + self._inbox + b"%d" % number + self._tail

    def take(self, data: bytes) -> Iterator[int]:
        buffer = self._buffer + data
        at = 0
        while (end := buffer.find(b"\r\n", at)) >= 0:
            line = buffer[at:end]
            if line.startswith(b"MSG "):
                words = line.split()
                size = int(words[-1])
                if len(buffer) < end + 4 + size:
                    break
                payload = buffer[end + 2 : end + 2 + size]
                if b'"error"' in payload:
                    raise RuntimeError(f"NATS refused a write: {payload!r}")
                at = end + 4 + size
                yield int(words[1].rpartition(b".")[2])
                continue
            if line == b"PING":
                self._answer += b"PONG\r\n"
            elif line.startswith(b"-ERR"):
                raise RuntimeError(f"NATS says {line!r}")
            at = end + 2
        self._buffer = buffer[at:]

    def answer(self) -> bytes:
        said, self._answer = self._answer, b""
        return said


_PEERS: dict[str, Callable[[int, int], Connection]] = {"etcd": Etcd, "nats": Nats}


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


class Load:
    """Writes spread evenly over connections; each is acknowledged by its server."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self.connections = connections
        self.sent_ns: dict[int, int] = {}
        self.took_ns: list[int] = []
        self.acknowledged = 0
        self.measuring = False
        self._next = 0
        self._selector = selectors.DefaultSelector()
        self._out: dict[int, bytearray] = {}
        for connection in connections:
            connection.sock.setblocking(False)
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._out[connection.sock.fileno()] = bytearray(connection.answer())
            self._selector.register(connection.sock, selectors.EVENT_READ, connection)

    def send(self, connection: Connection, due_ns: int) -> None:
        self.sent_ns[self._next] = due_ns
        self._out[connection.sock.fileno()] += connection.put(self._next)
        self._next += 1

    def flush(self) -> bool:
        """Whether all has left."""
        whole = True
        for connection in self.connections:
            out = self._out[connection.sock.fileno()]
            if out:
                with suppress(BlockingIOError):
                    del out[: connection.sock.send(out)]
                whole &= not out
        return whole

    def poll(self, timeout_s: float, again: bool) -> None:
        """Takes acknowledgements; with `again` each one is followed by the next write on its connection."""
        for key, _ in self._selector.select(timeout_s):
            connection = cast(Connection, key.data)
            data = connection.sock.recv(_READ_BYTES)
            if not data:
                raise RuntimeError("the server has closed the connection")
            now = time.monotonic_ns()
            for number in connection.take(data):
                begun = self.sent_ns.pop(number)
                if self.measuring:
                    self.acknowledged += 1
                    self.took_ns.append(now - begun)
                if again:
                    self.send(connection, now)
            self._out[connection.sock.fileno()] += connection.answer()

    def closed(self, outstanding: int, until_ns: int) -> None:
        for number in range(outstanding - len(self.sent_ns)):
            self.send(self.connections[number % len(self.connections)], time.monotonic_ns())
        while time.monotonic_ns() < until_ns:
            whole = self.flush()
            self.poll(0.05 if whole else 0.0005, True)

    def scheduled(self, rate: float, begin_ns: int, until_ns: int) -> None:
        interval_ns = 1e9 / rate
        number = 0
        while (now := time.monotonic_ns()) < until_ns:
            while (due := begin_ns + int(number * interval_ns)) <= now:
                self.send(self.connections[number % len(self.connections)], due)
                number += 1
            whole = self.flush()
            wait_ns = begin_ns + int(number * interval_ns) - time.monotonic_ns()
            self.poll(max(0.0, wait_ns / 1e9) if whole else 0.0005, False)


def run(options: LoadOptions) -> dict[str, object]:
    make = _PEERS[options["peer"]]
    load = Load([make(port, options["size"]) for port in options["ports"]])
    begin = time.monotonic_ns()
    warm = begin + int(options["warm_s"] * 1e9)
    end = warm + int(options["seconds"] * 1e9)
    for measuring, start, until in ((False, begin, warm), (True, warm, end)):
        load.measuring = measuring
        if options["rate"]:
            load.scheduled(options["rate"], start, until)
        else:
            load.closed(options["outstanding"], until)
    return {"acknowledged": load.acknowledged, "took_us": [took // 1000 for took in load.took_ns]}


if __name__ == "__main__":
    print(json.dumps(run(cast(LoadOptions, json.loads(sys.argv[1])))))
