"""Which interface owns an address, and how large its packets are: two ioctls, nothing to install."""

from __future__ import annotations

import array
import errno
import fcntl
import socket
import struct
from typing import NamedTuple

from ordercast.net.addresses import NetworkError, is_loopback

_SIOCGIFCONF, _SIOCGIFFLAGS, _SIOCGIFMTU = 0x8912, 0x8913, 0x8921
_IFF_UP, _IFF_LOOPBACK, _IFF_MULTICAST = 0x1, 0x8, 0x1000
_NAME_BYTES = 16
_IFREQ_BYTES = _NAME_BYTES + (24 if struct.calcsize("P") == 8 else 16)


class Interface(NamedTuple):
    """One interface of this machine, as it was when it was asked for."""

    name: str
    mtu: int
    is_up: bool
    is_loopback: bool
    has_multicast: bool


def interface_of(address: str) -> Interface:
    """The interface that owns `address`; all of 127.0.0.0/8 belongs to the loopback interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        addresses = _addresses(asking)
        name = addresses.get(address)
        if name is None and is_loopback(address):
            name = next((name for other, name in addresses.items() if is_loopback(other)), None)
        if name is None:
            raise NetworkError(errno.EADDRNOTAVAIL, f"{address} is not an address of this machine")
        flags = _ask(asking, _SIOCGIFFLAGS, name, "H")
        mtu = _ask(asking, _SIOCGIFMTU, name, "i")
    return Interface(
        name, mtu, bool(flags & _IFF_UP), bool(flags & _IFF_LOOPBACK), bool(flags & (_IFF_MULTICAST | _IFF_LOOPBACK))
    )


def _addresses(asking: socket.socket) -> dict[str, str]:
    """Address to interface, aliases under the name of their interface."""
    count = 64
    while True:
        table = array.array("B", bytes(count * _IFREQ_BYTES))
        # struct ifconf: the length of the table, padding, and where it stands.
        request = struct.pack("iP", len(table), table.buffer_info()[0])
        used: int = struct.unpack("iP", fcntl.ioctl(asking, _SIOCGIFCONF, request))[0]
        if used < len(table):
            break
        count *= 2
    raw = table.tobytes()
    found: dict[str, str] = {}
    for at in range(0, used, _IFREQ_BYTES):
        label = raw[at : at + _NAME_BYTES].partition(b"\0")[0].decode()
        # Of the struct sockaddr_in behind the name: family, port, address.
        found.setdefault(socket.inet_ntoa(raw[at + _NAME_BYTES + 4 : at + _NAME_BYTES + 8]), label.partition(":")[0])
    return found


def _ask(asking: socket.socket, request: int, name: str, form: str) -> int:
    answer = fcntl.ioctl(asking, request, name.encode().ljust(_IFREQ_BYTES, b"\0"))
    value: int = struct.unpack_from(form, answer, _NAME_BYTES)[0]
    return value
