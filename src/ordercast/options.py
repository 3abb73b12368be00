"""What `join` takes, and what of it cannot work: refused with one clear line each, before anything is opened."""

from __future__ import annotations

import ipaddress
import math
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict

from ordercast.durable import Retention, check_retention
from ordercast.errors import AuthError, GroupError
from ordercast.net.addresses import is_loopback, parse_local, split_peers
from ordercast.redundancy import parse_replication
from ordercast.serve import parse_server
from ordercast.wire.ids import NodeId
from ordercast.wire.layout import NETWORKS_MAX, WireError
from ordercast.wire.totem import check_name

DISCOVERY_S = 0.5
"""How long `join` looks for others before it takes the view that there is."""
SLOW_READER_TIMEOUT_S = 30.0
RESERVED_ENGINES = ("sequencer", "mtp")
ENGINES = ("totem", "corel")

ServiceName = Literal["agreed", "safe"]
KeyLike = str | os.PathLike[str] | bytes
"""A group's secret: the path of a file that `ordercast keygen` made, or its contents."""


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
    serve: str | None
    """With corel: HOST:PORT at which this member serves its log, and takes in what jobs publish, from the end of `join`
    until it leaves: what Spark's option `servers` names. Port 0 is any that is free; `status` says which."""
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
    serve: tuple[str, int] | None


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
    serve: str | None = None,
    discovery_s: float = DISCOVERY_S,
    slow_reader_timeout: float = SLOW_READER_TIMEOUT_S,
) -> Options:
    """Refuses what cannot work, each with one clear line, before anything is opened."""
    if not group:
        raise GroupError("a group needs a name")
    if isinstance(networks, str) or not 1 <= len(networks) <= NETWORKS_MAX:
        raise GroupError(f"networks is a list of 1 to {NETWORKS_MAX} local addresses, one a network")
    _check_engine(engine, data_dir, {"start": start, "founders": founders, "retention": retention, "serve": serve})
    if founders is not None and founders < 0:
        raise GroupError(f"founders is a number of members, or 0, not {founders}")
    if retention is not None:
        check_retention(retention)
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
    place = None if serve is None else _serving(serve)
    if place is not None and not is_loopback(place[0]):
        outside.append(place[0])
    _check_secrecy(key, insecure, outside)
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
        _offset(start),
        founders,
        retention,
        place,
    )


def _check_engine(engine: str, data_dir: str | os.PathLike[str] | None, durable: Mapping[str, object]) -> None:
    """`durable` are the options that only an engine with a durable log has."""
    if engine in RESERVED_ENGINES:
        raise GroupError(f"engine {engine!r} is not available in this version; there are 'totem' and 'corel'")
    if engine not in ENGINES:
        raise GroupError(f"there is no engine {engine!r}; there are 'totem' and 'corel'")
    if engine != "corel" and (given := [option for option, value in durable.items() if value is not None]):
        raise GroupError(f"{given[0]} belongs to the engine 'corel'")
    if engine == "corel" and data_dir is None:
        raise GroupError("the engine 'corel' keeps a durable log under data_dir, which is not given")


def _offset(start: int | str | None) -> int | str | None:
    """Where to begin; offsets may come as text."""
    if isinstance(start, str) and start.isdecimal():
        start = int(start)
    if not (start in (None, "earliest", "latest") or (isinstance(start, int) and start >= 0)):
        raise GroupError(f"start is an offset, 'earliest' or 'latest', not {start!r}")
    return start


def _serving(text: str) -> tuple[str, int]:
    """An address of this machine and a port; 0.0.0.0 is all of its addresses."""
    try:
        host, port = parse_server(text)
        return str(ipaddress.IPv4Address("127.0.0.1" if host == "localhost" else host)), port
    except ValueError:
        raise GroupError(f"serve: {host!r} is not an IPv4 address of this machine, such as 127.0.0.1") from None
    except GroupError as error:
        raise GroupError(f"serve: {error}") from None


def _check_secrecy(key: KeyLike | None, insecure: bool, outside: Sequence[str]) -> None:
    """`outside` are the addresses that are not on loopback."""
    if key is not None and insecure:
        raise AuthError("a key and insecure exclude each other")
    if key is None and not insecure and outside:
        raise AuthError(f"off loopback ({outside[0]}) a group needs a key; or say insecure to go without")


def _default_name() -> str:
    host = socket.gethostname().partition(".")[0] or "node"
    return f"{host}-{os.getpid():x}{os.urandom(2).hex()}"
