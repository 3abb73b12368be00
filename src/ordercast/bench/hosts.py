"""Where the nodes of a run live: processes on loopback, or hosts made of network namespaces on one switch a network.

The hosts are named after this process, so that several runs on one machine do not meet. They are removed at the end,
and what a killed run has left behind is removed by the next one.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PREFIX = "ocbench"
SUBNET_FIRST = 77
"""Hosts have the addresses 10.77.0.1, .2 … on their first network, 10.78.0.1, .2 … on their second one."""
MTU_MIN = 576
MTU_MAX = 65_535


class HostsError(Exception):
    """There can be no hosts of this kind here; the text says why."""


class Place:
    """One node's place: its addresses, one a network, and how a command is started there."""

    def __init__(self, addresses: list[str], namespace: str | None = None) -> None:
        self.addresses = addresses
        self.namespace = namespace

    def popen(self, command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        prefix = [] if self.namespace is None else ["ip", "netns", "exec", self.namespace]
        return subprocess.Popen([*prefix, *command], **({"text": True} | options))


@contextmanager
def loopback(nodes: int) -> Iterator[list[Place]]:
    yield [Place(["127.0.0.1"]) for _ in range(nodes)]


@contextmanager
def namespaces(
    nodes: int, *, networks: int = 1, mtu: int = 1500, loss_percent: float = 0, single_packets: bool = False
) -> Iterator[list[Place]]:
    """Hosts for the length of a with block.

    `single_packets` lets trains be cut where they leave. Random loss hits whole trains otherwise.
    """
    refuse_without_namespaces()
    _remove_left_behind()
    base = f"{PREFIX}-{os.getpid()}"
    switch = f"{base}-sw"
    places = [
        Place([f"10.{SUBNET_FIRST + network}.0.{number}" for network in range(networks)], f"{base}-h{number}")
        for number in range(1, nodes + 1)
    ]
    names = [switch, *(str(place.namespace) for place in places)]
    try:
        for name in names:
            _run("ip", "netns", "add", name)
        for network in range(networks):
            _make_network(switch, places, network, mtu, single_packets)
        if loss_percent:
            set_loss(places, loss_percent)
        yield places
    except subprocess.CalledProcessError as error:
        reason = (error.stderr or str(error)).strip().splitlines()[-1]
        raise HostsError(f"hosts as network namespaces cannot be made here: {reason}") from error
    finally:
        for name in names:
            _remove(name)


def refuse_without_namespaces() -> None:
    if os.geteuid() != 0:
        raise HostsError("hosts as network namespaces need root; --hosts loopback does not")
    if shutil.which("ip") is None:
        raise HostsError("hosts as network namespaces need the command 'ip' (Debian package iproute2)")


def _make_network(switch: str, places: list[Place], network: int, mtu: int, single_packets: bool) -> None:
    bridge, device = f"br{network}", f"eth{network}"
    _batch(switch, f"link add {bridge} type bridge mcast_snooping 0", f"link set {bridge} mtu {mtu} up")
    for number, place in enumerate(places, 1):
        port = f"p{network}x{number}"
        _batch(
            switch,
            f"link add {port} mtu {mtu} type veth peer name {device} mtu {mtu} netns {place.namespace}",
            f"link set {port} master {bridge} up",
        )
        lines = ["link set lo up", f"addr add {place.addresses[network]}/24 dev {device}", f"link set {device} up"]
        if network == 0:
            lines.append(f"route add 224.0.0.0/4 dev {device}")
        if single_packets:
            lines.append(f"link set {device} gso_max_segs 1")
        _batch(str(place.namespace), *lines)


def set_loss(places: Sequence[Place], percent: float) -> None:
    """From now on so many of the packets that reach a host are lost, at random; 0: none."""
    if shutil.which("nft") is None:
        raise HostsError("loss between hosts needs the command 'nft' (Debian package nftables)")
    # Adding the table first lets it be deleted whether it was there or not.
    rules = f"""add table inet loss
    delete table inet loss
    table inet loss {{
        chain input {{
            type filter hook input priority 0; policy accept;
            iifname "eth*" numgen random mod 10000 < {round(percent * 100)} counter drop
        }}
    }}
    """
    for place in places:
        _run("ip", "netns", "exec", str(place.namespace), "nft", "-f", "-", text=rules)


def _batch(namespace: str, *lines: str) -> None:
    _run("ip", "-n", namespace, "-batch", "-", text="\n".join(lines) + "\n")


def _run(*command: str, text: str | None = None) -> str:
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=30, check=True).stdout


def _remove(namespace: str) -> None:
    with suppress(OSError, subprocess.CalledProcessError):
        for pid in _run("ip", "netns", "pids", namespace).split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    with suppress(OSError, subprocess.CalledProcessError):
        _run("ip", "netns", "del", namespace)


def _remove_left_behind() -> None:
    """Removes the namespaces of runs whose process is gone."""
    for path in Path("/run/netns").glob(f"{PREFIX}-*"):
        found = re.fullmatch(rf"{PREFIX}-(\d+)-\w+", path.name)
        if found and not Path(f"/proc/{found[1]}").exists():
            _remove(path.name)
