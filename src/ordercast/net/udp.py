"""One network of one process in one group: plain UDP sockets, synchronous and non-blocking.

There are two sockets. The *data socket* receives what is broadcast, at the group's multicast address, or in peers
mode at this process's entry in the list of peers. The *own socket* sends everything, so that its address is the
source of every packet and stands for this process; tokens and other unicasts arrive there, past any queue of data.

A broadcast is a train: packets of one size back to back. It leaves in calls of up to 64 packets (UDP_SEGMENT) and
arrives as one datagram with its packet size beside it (UDP_GRO), which is what makes Python fast enough; without
these options every packet is a call, and the results are the same. Why things are as they are, with the
measurements: docs/design/network.md.

Nothing that happens to a packet on its way raises: it is counted, and the protocol repairs it.
"""

from __future__ import annotations

import errno
import select
import socket
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ordercast.net.addresses import (
    PEER_PORT,
    Address,
    AddressError,
    NetworkError,
    group_endpoint,
    parse_local,
    resolve_peers,
)
from ordercast.net.interfaces import interface_of
from ordercast.net.udp_sockets import (
    RECEIVE_BUFFER,
    SEND_BUFFER,
    SOL_UDP,
    UDP_GRO,
    UDP_SEGMENT,
    can_segment,
    dropped,
    grow,
    join_group,
    join_trains,
    open_multicast,
    open_own,
    open_peer_data,
    packets_held,
)

HEADER_BYTES = 28
"""IPv4 and UDP."""
PACKET_BYTES_MAX = 65_000
LOOPBACK_PACKET_BYTES = 7_800
"""What a packet has on loopback, where the MTU of 65536 sets no useful limit; see docs/design/network.md."""
CALL_BYTES_MAX = 65_000
CALL_SEGMENTS_MAX = 64
"""UDP_MAX_SEGMENTS of kernels before 6.9."""
DRAIN_TRAINS_MAX = 128
"""Datagrams that one `drain` takes; it matters where packets come one by one."""
DRAIN_BYTES_MAX = 1 << 20
"""Bytes after which one `drain` stops: under a millisecond of work, so that the token does not wait for long."""
SEND_WAIT_S = 0.005
"""How long one `broadcast` or `unicast` waits, all its calls together, for room in a full send buffer."""
_RECEIVE_BYTES = 128 << 10
_CONTROL_BYTES = socket.CMSG_SPACE(4)

_NO_ROOM = (errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM)
_ROOM_PAUSE_S = 0.0002

Train = tuple[bytes, int, Address]
"""Packets of a segment's size back to back, the last one possibly shorter; the segment; where they came from."""
_Ancillary = Sequence[tuple[int, int, bytes]]
_NO_ANCILLARY: _Ancillary = ()


@dataclass(slots=True)
class SendLosses:
    """Packets that did not leave, by what kept them; counted in packets, not in calls."""

    buffer_full: int = 0
    refused: int = 0
    """A peer's machine said that nobody listens at the port."""
    unreachable: int = 0
    """The interface is down, there is no route, a firewall said no: the network is away and may come back."""
    too_large: int = 0


class UdpNetwork:
    """The sockets, and what may be asked of them.

    With `peers` every broadcast goes to each of them by unicast. Entries at `address` name this process: it takes the
    first of their ports that is free, so that several processes of a host may be given the same list; `address` may
    carry a port of its own to decide that, as in `10.0.0.5:7401`. Names are resolved once, here, which may block.
    """

    def __init__(
        self,
        group: str,
        address: str,
        *,
        peers: Sequence[str] | None = None,
        receive_buffer_bytes: int = 16 << 20,
        send_buffer_bytes: int = 8 << 20,
        accelerated: bool | None = None,
        may_be_down: bool = False,
    ) -> None:
        """`accelerated` is decided by the system (None), demanded (True), or left out (False).

        With `may_be_down` an interface that is down now is waited for, as one that goes down later is.
        """
        host, port = parse_local(address)
        if peers is None and port is not None:
            raise AddressError(f"network {address!r}: a port belongs to peers mode only")
        interface = interface_of(host)
        self.warnings: list[str] = []
        if not interface.is_up:
            down = f"the interface {interface.name} of {host} is down"
            if not may_be_down:
                raise NetworkError(errno.ENETDOWN, down)
            self.warnings.append(down)
        self.group = group
        self.interface = interface.name
        self.losses = SendLosses()
        self.packet_bytes_max = min(interface.mtu - HEADER_BYTES, PACKET_BYTES_MAX)
        self._loopback = interface.is_loopback
        if self._loopback:
            self.packet_bytes_max = min(self.packet_bytes_max, LOOPBACK_PACKET_BYTES)
        self._host = host
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._view = memoryview(self._buffer)
        self._ancillary: tuple[int, _Ancillary] = (0, ())
        self._send_wait_left_s = 0.0
        self._away_since: int | None = None  # the count of unreachable packets when it was last looked at
        self._warned: set[str] = set()
        self._loops = 0  # datagrams and trains that came back to the data socket and were refused there
        self._own = open_own(host)
        try:
            self.own: Address = self._own.getsockname()
            self._open_data(group, port, peers)
            self._set_buffers(receive_buffer_bytes, send_buffer_bytes)
            self._set_acceleration(accelerated)
        except BaseException:
            self.close()
            raise

    def _open_data(self, group: str, port: int | None, peers: Sequence[str] | None) -> None:
        self._endpoint: Address | None = None
        self._drop_in_drain: Address | None = None
        self._data = self._own  # until it is open, so that close() has something to close
        if peers is None:
            self._endpoint = group_endpoint(group, self._host)
            self._data, filtered = open_multicast(self._endpoint, self._host, self.own)
            self._drop_in_drain = None if filtered else self.own
            self._filtered = filtered
            self.data: Address = self._endpoint
            self._destinations = [self._endpoint]
            return
        self._filtered = False
        resolved = resolve_peers(peers)
        here = [peer for peer in resolved if peer[0] == self._host]
        if port is not None:
            here = [(self._host, port)]
        self._data, self.data = open_peer_data(here or [(self._host, PEER_PORT)])
        self._destinations = [peer for peer in resolved if peer != self.data]

    def _set_buffers(self, receive_bytes: int, send_bytes: int) -> None:
        said = [
            grow(self._data, RECEIVE_BUFFER, receive_bytes),
            grow(self._own, RECEIVE_BUFFER, receive_bytes),
            grow(self._own, SEND_BUFFER, send_bytes),
        ]
        self.warnings += dict.fromkeys(line for line in said if line is not None)

    def _set_acceleration(self, accelerated: bool | None) -> None:
        self._segmenting = accelerated is not False and can_segment(self._own)
        self._joining = accelerated is not False and join_trains(self._data)
        missing = [
            name
            for name, there in (("UDP_SEGMENT", self._segmenting), ("UDP_GRO", self._joining))
            if accelerated is not False and not there
        ]
        if missing and accelerated:
            raise NetworkError(errno.EOPNOTSUPP, f"this system has no {' and no '.join(missing)}")
        if missing:
            self.warnings.append(f"this system has no {' and no '.join(missing)}: packets cost a call each")

    @property
    def accelerated(self) -> bool:
        """Whether trains leave and arrive as trains."""
        return self._segmenting and self._joining

    @property
    def peers(self) -> tuple[Address, ...]:
        """Where a broadcast goes: the group's multicast address, or the peers without this process."""
        return tuple(self._destinations)

    @property
    def send_drops(self) -> int:
        """Packets given up because the send buffer stayed full."""
        return self.losses.buffer_full

    @property
    def receive_drops(self) -> int:
        """Datagrams and trains that the kernel had no room for, at both sockets; a system call, for now and then."""
        return max(0, dropped(self._data) - (self._loops if self._filtered else 0)) + dropped(self._own)

    def receive_window(self, packet_bytes: int) -> int:
        """How many packets of this size the receive buffer of the data socket holds, whoever sends them."""
        return packets_held(self._data, packet_bytes, loopback=self._loopback)

    def filenos(self) -> tuple[int, int]:
        """The data socket and the own socket, for `poll`."""
        return self._data.fileno(), self._own.fileno()

    def broadcast(self, data: bytes, segment: int) -> None:
        """Send packets of `segment` bytes back to back, the last one possibly shorter, to everyone."""
        self._send_wait_left_s = SEND_WAIT_S
        total = len(data)
        if total <= segment:
            call_bytes, ancillary = segment, _NO_ANCILLARY
        elif self._segmenting:
            call_bytes = min(CALL_SEGMENTS_MAX, CALL_BYTES_MAX // segment) * segment
            if self._ancillary[0] != segment:
                self._ancillary = segment, [(SOL_UDP, UDP_SEGMENT, struct.pack("H", segment))]
            ancillary = self._ancillary[1]
        else:
            call_bytes, ancillary = 0, _NO_ANCILLARY
        if call_bytes <= segment:
            self._broadcast_singly(memoryview(data), segment)
            return
        send, view = self._own.sendmsg, memoryview(data)
        for at in range(0, total, call_bytes):
            chunk = view[at : at + call_bytes]
            for to in self._destinations:
                try:
                    send([chunk], ancillary, 0, to)
                    self._loops += 1 if self._joining else -(-len(chunk) // segment)
                except OSError as error:
                    self._train_failed(error, chunk, segment, ancillary, to)
        if self._away_since is not None:
            self._look_again()

    def _broadcast_singly(self, view: memoryview, segment: int) -> None:
        for at in range(0, len(view), segment):
            for to in self._destinations:
                self._loops += self._send(view[at : at + segment], to)
        if self._away_since is not None:
            self._look_again()

    def unicast(self, to: Address, packet: bytes) -> None:
        """Send one packet to the own socket of another process."""
        self._send_wait_left_s = SEND_WAIT_S
        self._send(packet, to)

    def drain(self) -> list[Train]:
        """What waits at the data socket: at most DRAIN_TRAINS_MAX datagrams, and not much more than DRAIN_BYTES_MAX."""
        receive, into, view, skip = self._data.recvmsg_into, [self._buffer], self._view, self._drop_in_drain
        trains: list[Train] = []
        left = DRAIN_BYTES_MAX
        for _ in range(DRAIN_TRAINS_MAX):
            try:
                length, control, _flags, source = receive(into, _CONTROL_BYTES)
            except BlockingIOError:
                break
            except OSError:
                continue  # an error that ICMP left at the socket; reading it has cleared it
            if length == 0 or source == skip:
                continue
            segment = length
            for _level, kind, value in control:
                if kind == UDP_GRO:
                    segment = int.from_bytes(value, sys.byteorder)
            trains.append((bytes(view[:length]), segment, source))
            left -= length
            if left <= 0:
                break
        return trains

    def drain_unicast(self) -> list[Train]:
        """What waits at the own socket, with the same bounds; packets come one by one here."""
        # The buffer is shared with `drain`: asking for so many bytes anew each time costs more than a packet does.
        receive, buffer, view = self._own.recvfrom_into, self._buffer, self._view
        packets: list[Train] = []
        left = DRAIN_BYTES_MAX
        for _ in range(DRAIN_TRAINS_MAX):
            try:
                length, source = receive(buffer)
            except BlockingIOError:
                break
            except OSError:
                continue
            if length:
                packets.append((bytes(view[:length]), length, source))
                left -= length
                if left <= 0:
                    break
        return packets

    def _send(self, packet: bytes | memoryview, to: Address) -> bool:
        """Send one packet; whether it left."""
        try:
            self._own.sendto(packet, to)
        except OSError as error:
            return self._again(error, packet, _NO_ANCILLARY, to) or self._lose(error, 1, len(packet), to)
        return True

    def _train_failed(
        self, error: OSError, chunk: memoryview, segment: int, ancillary: _Ancillary, to: Address
    ) -> None:
        """A call with a train was refused: wait for room, send its packets singly, or count them as lost."""
        if self._again(error, chunk, ancillary, to):
            return
        if error.errno in (errno.EIO, errno.EOPNOTSUPP):
            self._segmenting = False
            self._warn(f"the interface {self.interface} cannot cut trains into packets: packets cost a call each")
        elif error.errno not in (errno.EINVAL, errno.EMSGSIZE):
            self._lose(error, -(-len(chunk) // segment), segment, to)
            return
        # A packet may have become larger than the interface's MTU; alone it may still go, in fragments.
        for at in range(0, len(chunk), segment):
            self._loops += self._send(chunk[at : at + segment], to)

    def _again(self, error: OSError, data: bytes | memoryview, ancillary: _Ancillary, to: Address) -> bool:
        """Wait for room in the send buffer, within what is left of SEND_WAIT_S, and send; whether it left."""
        if error.errno not in _NO_ROOM:
            return False
        begun = now = time.monotonic()
        until = begun + self._send_wait_left_s
        room = select.poll()
        room.register(self._own, select.POLLOUT)
        left = False
        while not left and now < until:
            room.poll((until - now) * 1000)
            try:
                self._own.sendmsg([data], ancillary, 0, to)
                left = True
            except OSError as again:
                if again.errno not in _NO_ROOM:
                    break
                # A full queue of the interface does not show in the socket: poll would answer at once.
                time.sleep(_ROOM_PAUSE_S)
            now = time.monotonic()
        self._send_wait_left_s -= now - begun
        return left

    def _lose(self, error: OSError, packets: int, packet_bytes: int, to: Address) -> bool:
        """Count packets that did not leave; False, as the answer of those who tried."""
        match error.errno:
            case errno.EBADF:
                raise error
            case errno.EAGAIN | errno.ENOBUFS | errno.ENOMEM:
                self.losses.buffer_full += packets
            case errno.ECONNREFUSED:
                self.losses.refused += packets
            case errno.EMSGSIZE:
                self.losses.too_large += packets
                self._warn(f"packets of {packet_bytes} bytes are too large for the interface {self.interface}")
            case _:
                self.losses.unreachable += packets
                self._away_since = 0 if self._away_since is None else self._away_since
                self._warn(f"{to[0]} cannot be reached from {self._host}: {error.strerror}")
        return False

    def _look_again(self) -> None:
        """After a broadcast while the network is away: mend what an interface that was gone leaves behind.

        An interface that is made anew is another one to the kernel: multicasts must be told to leave by it, and once
        they do the group must be joined again.
        """
        away = self.losses.unreachable > (self._away_since or 0)
        self._away_since = self.losses.unreachable
        if self._endpoint is None:
            self._away_since = self._away_since if away else None
            return
        try:
            address = socket.inet_aton(self._host)
            if away:
                self._own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, address)
            else:
                join_group(self._data, self._endpoint, self._host)
                self._away_since = None
        except OSError:
            return  # still away

    def _warn(self, line: str) -> None:
        if line not in self._warned:
            self._warned.add(line)
            self.warnings.append(line)

    def close(self) -> None:
        """Close the sockets; again is harmless."""
        self._data.close()
        self._own.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
