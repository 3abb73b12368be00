"""The bare ring: a token and multicasts over the sockets of this kernel, without a protocol.

    python -m ordercast.bench.ring '{"address": …}'

It shows what plain Python can do on a machine when nothing goes wrong: no membership, no repair, no flow control but a
fixed number of packets a visit. Each message is packed, and cut out of its packet at every node, as an application
would see it. *Classic*: the holder sends its packets and then the token; *accelerated*: the token goes first, so that
the next node sends while this one does.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from collections.abc import Callable
from struct import Struct, pack, unpack_from
from typing import Any, TypedDict, cast

from ordercast.net.udp_sockets import RECEIVE_BUFFER, SEND_BUFFER, SOL_UDP, UDP_GRO, UDP_SEGMENT, grow

HEAD = Struct("<QHH")
"""Sequence number, sender, messages."""
TOKEN = Struct("<QQ")
"""Its own number, and the last sequence number used."""
CALL_BYTES = 65_000
CALL_PACKETS = 64
BUFFER_BYTES = 16 << 20
POLL_MS = 50


class RingOptions(TypedDict):
    group: str
    port: int
    address: str
    successor: str
    own_port: int
    successor_port: int
    index: int
    size: int
    packet_bytes: int
    visit: int
    accelerated: bool
    warm_s: float
    seconds: float


class BareRing:
    def __init__(self, options: RingOptions) -> None:
        self.options = options
        self.sender = options["index"]
        self.endpoint = options["group"], options["port"]
        self.successor = options["successor"], options["successor_port"]
        self.packet_bytes = options["packet_bytes"]
        room = self.packet_bytes - HEAD.size - 2
        self.pieces_per_message = max(1, -(-options["size"] // room))
        self.piece = bytes(min(options["size"], room))
        whole = self.pieces_per_message == 1
        self.per_packet = (self.packet_bytes - HEAD.size) // (len(self.piece) + 2) if whole else 1
        self.per_call = min(CALL_PACKETS, CALL_BYTES // self.packet_bytes)
        self.delivered = self.payload_bytes = self.rotations = 0
        self._open()
        self._buffer = bytearray(1 << 17)
        self._view = memoryview(self._buffer)
        self._poll = select.poll()
        self._poll.register(self.data, select.POLLIN)
        self._poll.register(self.own, select.POLLIN)

    def _open(self) -> None:
        address = self.options["address"]
        self.data = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.data.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        grow(self.data, RECEIVE_BUFFER, BUFFER_BYTES)
        self.data.bind(self.endpoint)
        membership = socket.inet_aton(self.endpoint[0]) + socket.inet_aton(address)
        self.data.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        self.data.setsockopt(SOL_UDP, UDP_GRO, 1)
        self.data.setblocking(False)
        self.own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.own.bind((address, self.options["own_port"]))
        self.own.setblocking(False)
        self.out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.out.bind((address, 0))
        self.out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
        # Only processes of one host share an interface; they hear one another through the loop.
        self.out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, address.startswith("127."))
        grow(self.out, SEND_BUFFER, BUFFER_BYTES // 2)

    def deliver(self, messages: list[tuple[int, bytes]]) -> None:
        for _sender, data in messages:
            self.delivered += 1
            self.payload_bytes += len(data)

    def drain(self) -> None:
        receive, into, view = self.data.recvmsg_into, [self._buffer], self._view
        while True:
            try:
                length, control, _flags, _source = receive(into, 64)
            except BlockingIOError:
                return
            segment = length
            for _level, kind, value in control:
                if kind == UDP_GRO:
                    segment = int.from_bytes(value, sys.byteorder)
            train = bytes(view[:length])
            for at in range(0, length, segment):
                self.on_packet(train, at)

    def on_packet(self, train: bytes, at: int) -> None:
        _seq, sender, count = HEAD.unpack_from(train, at)
        if sender == self.sender:
            return
        at += HEAD.size
        messages = []
        end = at + 2 * count
        for length in unpack_from(f"<{count}H", train, at):
            messages.append((sender, train[end : end + length]))
            end += length
        self.deliver(messages)

    def multicast(self, seq: int, packets: int) -> None:
        for first in range(0, packets, self.per_call):
            burst = []
            for _ in range(min(self.per_call, packets - first)):
                seq += 1
                pieces = [self.piece] * self.per_packet
                count = len(pieces)
                burst.append(
                    HEAD.pack(seq, self.sender, count) + pack(f"<{count}H", *map(len, pieces)) + b"".join(pieces)
                )
                self.deliver([(self.sender, data) for data in pieces])
            ancillary = [(SOL_UDP, UDP_SEGMENT, pack("H", len(burst[0])))] if len(burst) > 1 else []
            self.out.sendmsg(burst, ancillary, 0, self.endpoint)

    def visit(self) -> bool:
        """Waits for the token, uses it, passes it on; whether it came."""
        self._poll.poll(POLL_MS)
        self.drain()
        try:
            token_seq, seq = TOKEN.unpack(self.own.recv(64))
        except BlockingIOError:
            return False
        self.rotations += 1
        packets = self.options["visit"]
        forward = TOKEN.pack(token_seq + 1, seq + packets)
        if self.options["accelerated"]:
            self.own.sendto(forward, self.successor)
            self.multicast(seq, packets)
        else:
            self.drain()
            self.multicast(seq, packets)
            self.own.sendto(forward, self.successor)
        return True

    def run(self, begin_ns: int) -> dict[str, Any]:
        warm_ns = begin_ns + int(self.options["warm_s"] * 1e9)
        end_ns = warm_ns + int(self.options["seconds"] * 1e9)
        now: Callable[[], int] = time.monotonic_ns
        while now() < begin_ns:
            self._poll.poll(max(0, (begin_ns - now()) // 1_000_000))
        if self.options["index"] == 0:
            self.own.sendto(TOKEN.pack(1, 0), self.successor)
        while now() < warm_ns:
            self.visit()
        before = now(), self.delivered, self.payload_bytes, self.rotations, time.process_time()
        while now() < end_ns:
            self.visit()
        span_s = (now() - before[0]) / 1e9
        return {
            "messages_per_s": (self.delivered - before[1]) / span_s / self.pieces_per_message,
            "bytes_per_s": (self.payload_bytes - before[2]) / span_s,
            "rotations_per_s": (self.rotations - before[3]) / span_s,
            "cpu_s": time.process_time() - before[4],
        }


def main(options: RingOptions) -> None:
    ring = BareRing(options)
    print(json.dumps({"ready": True}), flush=True)
    print(json.dumps(ring.run(int(sys.stdin.readline()))), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main(cast(RingOptions, json.loads(sys.argv[1])))
