"""Addresses: of peers, of groups, and the errors of both.

A group without peers meets at a multicast address and port that follow from its name, so nothing has to be configured:
the addresses are those of the organisation-local scope of RFC 2365, 239.192.0.0/14, whose Ethernet addresses do not
collide with the reserved 224.0.0.x; the ports are `GROUP_PORT_FIRST` and the `GROUP_PORTS - 1` behind it, below the
range from which Linux takes ephemeral ports. Together they tell 2^28 groups apart.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from hashlib import sha256

Address = tuple[str, int]
"""An IPv4 address in dotted form and a UDP port."""

PEER_PORT = 7400
"""The port of a peer that names none."""
GROUP_PORT_FIRST = 17_408
GROUP_PORTS = 1024
_GROUP_NETWORK = int(ipaddress.IPv4Address("239.192.0.0"))
_GROUP_MASK = (1 << 18) - 1


class NetworkError(OSError):
    """A network cannot be used as asked; the text is one clear line."""


class AddressError(NetworkError, ValueError):
    """Text that is not an address, or an address that cannot be used in its place."""


def group_endpoint(group: str, address: str) -> Address:
    """Where the processes of a group meet by multicast.

    Two loopback addresses are two networks, as the tests of redundant networks on one machine need them; all other
    networks are told apart by their interfaces.
    """
    scope = address if is_loopback(address) else ""
    digest = sha256(f"ordercast group\0{group}\0{scope}".encode()).digest()
    host = _GROUP_NETWORK | int.from_bytes(digest[:4], "big") & _GROUP_MASK
    return str(ipaddress.IPv4Address(host)), GROUP_PORT_FIRST + int.from_bytes(digest[4:6], "big") % GROUP_PORTS


def is_loopback(address: str) -> bool:
    """Whether an IPv4 address in dotted form never leaves this machine."""
    return ipaddress.IPv4Address(address).is_loopback


def parse_local(text: str) -> tuple[str, int | None]:
    """The local address of a network, `10.0.0.5`, and the port of `10.0.0.5:7400`, which only peers mode asks for."""
    host, port = _split(text, "network")
    return _usable(_ipv4(host, text), text), port


def resolve_peers(peers: Sequence[str]) -> list[Address]:
    """Peers as `10.0.0.2:7400`, `10.0.0.2`, `name:7400` or `name`; each is listed once, in the given order."""
    if isinstance(peers, str):
        raise AddressError(f"peers is a list of addresses, not one text: {peers!r}")
    return list(dict.fromkeys(_resolve(peer) for peer in peers))


def split_peers(peers: Sequence[str] | None, networks: int) -> tuple[tuple[str, ...] | None, ...]:
    """The peers of each of several networks: a peer is given by one address for each of them, separated by commas."""
    if peers is None:
        return (None,) * networks
    if isinstance(peers, str):
        raise AddressError(f"peers is a list of addresses, not one text: {peers!r}")
    columns = [tuple(part.strip() for part in peer.split(",")) for peer in peers]
    for peer, column in zip(peers, columns, strict=True):
        if len(column) != networks:
            raise AddressError(f"peer {peer!r} has {len(column)} addresses, and there are {networks} networks")
    return tuple(tuple(column[via] for column in columns) for via in range(networks))


def _resolve(peer: str) -> Address:
    host, port = _split(peer, "peer")
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a host name"
        raise NetworkError(f"peer {peer!r} cannot be resolved: {reason}") from None
    return _usable(str(found[0][4][0]), peer), PEER_PORT if port is None else port


def _split(text: str, what: str) -> tuple[str, int | None]:
    """HOST or HOST:PORT."""
    if text.count(":") > 1:
        raise AddressError(f"{what} {text!r}: IPv6 is not supported, give an IPv4 address")
    host, colon, digits = text.partition(":")
    if not host or host.strip() != host or (colon and not (digits.isascii() and digits.isdigit())):
        raise AddressError(f"{what} {text!r} is not of the form HOST or HOST:PORT")
    if not colon:
        return host, None
    port = int(digits)
    if not 0 < port < 65_536:
        raise AddressError(f"{what} {text!r}: ports are 1 to 65535")
    return host, port


def _ipv4(host: str, text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(host))
    except ValueError:
        raise AddressError(f"network {text!r} is not an IPv4 address of this machine, such as 10.0.0.5") from None


def _usable(host: str, text: str) -> str:
    address = ipaddress.IPv4Address(host)
    if address.is_unspecified or address.is_multicast or int(address) == 0xFFFFFFFF:
        raise AddressError(f"{text!r} is not the address of one machine")
    return host
