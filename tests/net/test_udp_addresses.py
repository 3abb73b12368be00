"""Addresses and interfaces: what is accepted, and the one clear line where something is not."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from typing import Any

import pytest

from ordercast.net.addresses import (
    GROUP_PORT_FIRST,
    GROUP_PORTS,
    AddressError,
    NetworkError,
    group_endpoint,
    is_loopback,
    parse_local,
    resolve_peers,
)
from ordercast.net.interfaces import interface_of


def test_a_group_has_one_endpoint_on_all_machines() -> None:
    assert group_endpoint("orders", "10.0.0.1") == group_endpoint("orders", "10.9.9.9") == ("239.195.109.46", 18144)
    assert group_endpoint("orders", "127.0.0.1") != group_endpoint("orders", "127.0.0.2")
    assert group_endpoint("Größe", "10.0.0.1") != group_endpoint("groesse", "10.0.0.1")


def test_endpoints_lie_in_the_documented_range_and_differ() -> None:
    endpoints = [group_endpoint(f"group {n}", "10.0.0.1") for n in range(2000)]
    assert len(set(endpoints)) == len(endpoints)
    scope = ipaddress.IPv4Network("239.192.0.0/14")
    for host, port in endpoints:
        assert ipaddress.IPv4Address(host) in scope
        assert GROUP_PORT_FIRST <= port < GROUP_PORT_FIRST + GROUP_PORTS


def test_local_addresses() -> None:
    assert parse_local("10.0.0.5") == ("10.0.0.5", None)
    assert parse_local("10.0.0.5:7401") == ("10.0.0.5", 7401)
    assert is_loopback("127.9.9.9")
    assert not is_loopback("10.0.0.5")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("::1", "IPv6 is not supported"),
        ("[fe80::1]:7400", "IPv6 is not supported"),
        ("eth0", "'eth0' is not an IPv4 address of this machine"),
        ("10.0.0.256", "not an IPv4 address"),
        ("10.0.0.5/24", "not an IPv4 address"),
        ("", "not of the form HOST or HOST:PORT"),
        (" 10.0.0.5", "not of the form"),
        ("10.0.0.5:", "not of the form"),
        ("10.0.0.5:x", "not of the form"),
        ("10.0.0.5:-1", "not of the form"),
        ("10.0.0.5:²", "not of the form"),
        ("10.0.0.5:0", "ports are 1 to 65535"),
        ("10.0.0.5:65536", "ports are 1 to 65535"),
        ("0.0.0.0", "not the address of one machine"),
        ("239.1.2.3", "not the address of one machine"),
        ("255.255.255.255", "not the address of one machine"),
    ],
)
def test_text_that_is_no_local_address(text: str, says: str) -> None:
    with pytest.raises(AddressError, match=says) as caught:
        parse_local(text)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, OSError)


def test_peers_are_listed_once_and_have_a_default_port(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"db1.example": "10.0.0.9"}

    def resolve(host: str, *_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_DGRAM, 17, "", (known.get(host, host), 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    peers = ["10.0.0.2:7500", "10.0.0.3", "db1.example", "db1.example:7400", "10.0.0.2:7500"]
    assert resolve_peers(peers) == [("10.0.0.2", 7500), ("10.0.0.3", 7400), ("10.0.0.9", 7400)]


def test_a_peer_that_cannot_be_resolved_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(NetworkError, match="peer 'db9:7400' cannot be resolved: Name or service not known"):
        resolve_peers(["db9:7400"])


@pytest.mark.parametrize(
    ("peers", "says"),
    [
        (["a..b:7400"], "cannot be resolved"),
        (["10.0.0.2:99999"], "ports are 1 to 65535"),
        (["10.0.0.2:7400:1"], "IPv6 is not supported"),
        ([":7400"], "not of the form HOST or HOST:PORT"),
        (["224.0.0.1:7400"], "not the address of one machine"),
        ("10.0.0.2:7400", "peers is a list of addresses"),
    ],
)
def test_text_that_is_no_peer(peers: Any, says: str) -> None:
    with pytest.raises(NetworkError, match=says):
        resolve_peers(peers)


def test_the_loopback_interface_owns_all_loopback_addresses() -> None:
    lo = interface_of("127.0.0.1")
    assert lo.is_loopback
    assert lo.is_up
    assert interface_of("127.200.1.1") == lo
    assert lo.mtu == int(Path(f"/sys/class/net/{lo.name}/mtu").read_text())


def test_an_address_that_no_interface_owns() -> None:
    with pytest.raises(NetworkError, match=r"203\.0\.113\.9 is not an address of this machine"):
        interface_of("203.0.113.9")
