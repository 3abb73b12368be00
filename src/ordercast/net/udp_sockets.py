"""How the sockets of a network are opened, and what Linux offers them beyond the names in Python's socket module."""

from __future__ import annotations

import array
import errno
import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from ordercast.net.addresses import Address, NetworkError

# From linux/udp.h, asm-generic/socket.h, linux/in.h, linux/filter.h and linux/sock_diag.h.
SOL_UDP, UDP_SEGMENT, UDP_GRO = 17, 103, 104
_SO_ATTACH_FILTER, _SO_MEMINFO = 26, 55
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_IP_MULTICAST_ALL = 49
_MEMINFO = struct.Struct("9I")
_MEMINFO_DROPS = 8
# Where the IP header begins for a filter that sees a UDP datagram from its UDP header on (SKF_NET_OFF).
_IP_HEADER = 0xFFF0_0000
_BPF_LOAD_HALF, _BPF_LOAD_WORD, _BPF_IF_EQUAL, _BPF_RETURN = 0x28, 0x20, 0x15, 0x06

BUFFER_USED_MAX = 0.75
"""The kernel may hand back what was read only once it is a quarter of the receive buffer."""
_BLOCK_OVERHEAD_BYTES, _SKB_BYTES = 384, 320
"""What stands beside a packet in the block of memory that holds it, and beside that block: measured on Linux 6.18."""
_PAGE_BYTES, _HEAD_BYTES = 4096, 768
_POWERS_UP_TO_BYTES = 16 << 10


class Buffer(NamedTuple):
    """One kind of socket buffer: the options that set it, and the limit that a system puts on it."""

    name: str
    option: int
    force: int
    limit: str


SEND_BUFFER = Buffer("send", socket.SO_SNDBUF, _SO_SNDBUFFORCE, "net.core.wmem_max")
RECEIVE_BUFFER = Buffer("receive", socket.SO_RCVBUF, _SO_RCVBUFFORCE, "net.core.rmem_max")


def open_own(address: str) -> socket.socket:
    """The socket that sends everything and receives unicasts, at a port that the kernel chooses."""
    own = _udp_socket()
    try:
        _bind(own, (address, 0), "")
        own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
        own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
        own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
    except BaseException:
        own.close()
        raise
    return own


def open_multicast(endpoint: Address, address: str, own: Address) -> tuple[socket.socket, bool]:
    """The data socket of a group that meets by multicast, and whether the kernel keeps own multicasts away from it.

    It is bound to the group's address, so that other groups at the same port are not heard, and to one interface.
    Processes on one host share it.
    """
    data = _udp_socket()
    try:
        data.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            data.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
        # Before the socket is bound, so that it never holds a multicast of its own.
        filtered = refuse_source(data, own)
        _bind(data, endpoint, "the group's ")
        join_group(data, endpoint, address)
    except BaseException:
        data.close()
        raise
    return data, filtered


def open_peer_data(candidates: Sequence[Address]) -> tuple[socket.socket, Address]:
    """The data socket of peers mode, at the first of the candidates that no other process has."""
    for candidate in candidates:
        data = _udp_socket()
        try:
            _bind(data, candidate, "")
        except BaseException as error:
            data.close()
            taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            if not taken or candidate == candidates[-1]:
                raise
        else:
            return data, candidate
    raise AssertionError("peers mode has at least one address to bind")


def join_group(data: socket.socket, endpoint: Address, address: str) -> None:
    """Ask the interface of `address` for what is sent to the group; asking again is harmless."""
    membership = socket.inet_aton(endpoint[0]) + socket.inet_aton(address)
    with suppress(OSError):
        data.setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, membership)
    try:
        data.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    except OSError as error:
        raise NetworkError(
            error.errno, f"the interface of {address} cannot join the multicast group {endpoint[0]}: {error.strerror}"
        ) from None


def grow(sock: socket.socket, buffer: Buffer, wanted_bytes: int) -> str | None:
    """Set a buffer, past the system's limit where that is permitted; otherwise the answer is a line that says so."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, buffer.force, wanted_bytes)
    except OSError:
        sock.setsockopt(socket.SOL_SOCKET, buffer.option, wanted_bytes)
    granted_bytes = granted(sock, buffer)
    if granted_bytes >= wanted_bytes:
        return None
    return (
        f"the system caps the {buffer.name} buffer at {granted_bytes} bytes where {wanted_bytes} are wanted: "
        f"sysctl -w {buffer.limit}={wanted_bytes} lifts the limit"
    )


def granted(sock: socket.socket, buffer: Buffer) -> int:
    """The size of a buffer on the scale on which it is asked for; the kernel doubles that for its overhead."""
    return sock.getsockopt(socket.SOL_SOCKET, buffer.option) // 2


def packets_held(sock: socket.socket, packet_bytes: int, *, loopback: bool) -> int:
    """How many packets of a size the receive buffer holds when each of them arrives alone."""
    room = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) * BUFFER_USED_MAX
    return max(1, int(room) // memory_of(packet_bytes, loopback=loopback))


def memory_of(packet_bytes: int, *, loopback: bool) -> int:
    """What a packet that arrives alone is charged to a receive buffer: the memory it lies in, not its bytes.

    What a process on this machine sends lies in a block whose size is a power of two, or in pages when it is large.
    The drivers of network cards may give each packet pages of its own. In a train a packet costs hardly more than its
    bytes, but nothing promises that trains stay together on their way.
    """
    block = packet_bytes + _BLOCK_OVERHEAD_BYTES
    if block <= _POWERS_UP_TO_BYTES:
        block = 1 << (block - 1).bit_length()
    cost = block + _SKB_BYTES
    return cost if loopback else max(cost, -(-packet_bytes // _PAGE_BYTES) * _PAGE_BYTES + _HEAD_BYTES)


def dropped(sock: socket.socket) -> int:
    """What the kernel has dropped at this socket: buffer overflows, and what a filter refused."""
    try:
        return int(_MEMINFO.unpack(sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))[_MEMINFO_DROPS])
    except (OSError, struct.error):
        return 0


def can_segment(sock: socket.socket) -> bool:
    """Whether UDP_SEGMENT is there; nothing is left set, since single packets leave from the same socket."""
    try:
        sock.setsockopt(SOL_UDP, UDP_SEGMENT, 0)
    except OSError:
        return False
    return True


def join_trains(sock: socket.socket) -> bool:
    """Ask for trains as one datagram each (UDP_GRO)."""
    try:
        sock.setsockopt(SOL_UDP, UDP_GRO, 1)
    except OSError:
        return False
    return True


def refuse_source(sock: socket.socket, source: Address) -> bool:
    """Let the kernel drop what comes from `source`, before it takes room in the buffer."""
    host = int.from_bytes(socket.inet_aton(source[0]), "big")
    program = [
        (_BPF_LOAD_HALF, 0, 0, 0),  # the source port, first in the UDP header
        (_BPF_IF_EQUAL, 0, 3, source[1]),
        (_BPF_LOAD_WORD, 0, 0, _IP_HEADER + 12),  # the source address in the IP header
        (_BPF_IF_EQUAL, 0, 1, host),
        (_BPF_RETURN, 0, 0, 0),  # keep nothing of the packet
        (_BPF_RETURN, 0, 0, 0xFFFF_FFFF),  # keep all of it
    ]
    code = array.array("B", b"".join(struct.pack("HBBI", *instruction) for instruction in program))
    try:
        # struct sock_fprog: the number of instructions, padding, and where they stand.
        sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", len(program), code.buffer_info()[0]))
    except OSError:
        return False
    return True


def _udp_socket() -> socket.socket:
    if not sys.platform.startswith("linux"):
        raise NetworkError("the network layer needs Linux")
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.setblocking(False)
    return opened


def _bind(sock: socket.socket, to: Address, what: str) -> None:
    try:
        sock.bind(to)
    except OSError as error:
        raise NetworkError(error.errno, _bind_failure(error, to, what)) from None


def _bind_failure(error: OSError, to: Address, what: str) -> str:
    match error.errno:
        case errno.EADDRNOTAVAIL:
            return f"{to[0]} is not an address of this machine"
        case errno.EADDRINUSE:
            return f"another program has {what}port {to[1]} at {to[0]}"
        case errno.EACCES | errno.EPERM:
            return f"no permission for {what}port {to[1]} at {to[0]}"
    return f"{what}port {to[1]} at {to[0]} cannot be used: {error.strerror}"
