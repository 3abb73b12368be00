"""Test hosts: network namespaces on one switch for each network, with faults between them.

    with make_hosts(3) as hosts:
        worker = hosts[0].python(["-c", "..."], stdout=subprocess.PIPE)
        hosts.cut(hosts[0], hosts[1])     # one way
        hosts.partition([hosts[0]], [hosts[1], hosts[2]])
        hosts.heal()

It needs root, iproute2 and, for faults, nftables; `require_namespaces()` skips a test visibly where they are missing.
The hosts of one process never meet those of another, whatever their addresses: host 1 has 10.201.0.1 on its first
network and 10.202.0.1 on its second one. All is removed at the end, processes included, also after failures; what a
killed test process has left behind is removed by the next one.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

PREFIX = "oc"
NETWORK_FIRST = 201
_SOURCES = Path(__file__).resolve().parents[2] / "src"
_NAMESPACES = Path("/run/netns")
_CLONE_NEWNET = 0x4000_0000
_FAULTS = f"""table inet {PREFIX} {{
    chain faults {{
        type filter hook input priority 0; policy accept;
    }}
}}
"""
_numbers = itertools.count(1)


class Host:
    """One of the hosts: `addresses` has one entry a network."""

    def __init__(self, namespace: str, addresses: list[str]) -> None:
        self.namespace = namespace
        self.addresses = addresses
        self._processes: list[subprocess.Popen[Any]] = []

    @property
    def address(self) -> str:
        return self.addresses[0]

    def run(self, *command: str) -> str:
        """Run a command on the host to its end; it must succeed."""
        return _run("ip", "netns", "exec", self.namespace, *command)

    def ip(self, *arguments: str) -> str:
        return _run("ip", "-n", self.namespace, *arguments)

    def popen(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command on the host; `ip netns exec` replaces itself by it, so that signals reach it."""
        process = subprocess.Popen(["ip", "netns", "exec", self.namespace, *command], **options)
        self._processes.append(process)
        return process

    def python(self, arguments: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start this Python on the host, with the sources that are tested and unbuffered output."""
        environment = os.environ | {"PYTHONPATH": f"{_SOURCES}:{Path(__file__).parent}", "PYTHONUNBUFFERED": "1"}
        return self.popen([sys.executable, *arguments], **{"env": environment, "text": True} | options)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """What this thread opens in the block belongs to the host: sockets stay where they were made."""
        with open("/proc/thread-self/ns/net") as before, open(_NAMESPACES / self.namespace) as here:
            _enter(here.fileno())
            try:
                yield
            finally:
                _enter(before.fileno())

    def refuse(self, condition: str) -> None:
        """Drop what arrives and meets a condition of nftables, such as `ip saddr 10.201.0.2`."""
        _run("nft", "-f", "-", host=self, text=_FAULTS)
        _run("nft", "add", "rule", "inet", PREFIX, "faults", *condition.split(), "counter", "drop", host=self)

    def accept_all(self) -> None:
        """End all that `refuse` began."""
        _run("nft", "-f", "-", host=self, text=f"table inet {PREFIX}\ndelete table inet {PREFIX}")

    def stop(self) -> None:
        """Kill what runs on the host."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        _kill_all(self.namespace)


class Hosts(Sequence[Host]):
    """The hosts of one test, and the faults between them. Faults add up until `heal`."""

    def __init__(self, hosts: list[Host], switch: str, networks: int) -> None:
        self._hosts = hosts
        self._switch = switch
        self._networks = networks

    def __getitem__(self, index: Any) -> Any:
        return self._hosts[index]

    def __len__(self) -> int:
        return len(self._hosts)

    def cut(self, source: Host, target: Host, *, network: int | None = None) -> None:
        """One way: the target hears nothing more of the source, on one network or all."""
        for address in source.addresses if network is None else [source.addresses[network]]:
            target.refuse(f"ip saddr {address}")

    def partition(self, *sides: Sequence[Host], network: int | None = None) -> None:
        """Hosts of different sides do not hear each other."""
        for one, other in itertools.permutations(sides, 2):
            for source, target in itertools.product(one, other):
                self.cut(source, target, network=network)

    def lose(self, percent: int, *, targets: Sequence[Host] | None = None) -> None:
        """Random loss of what arrives, of whole trains unless `single_packets` was called before."""
        chance = f" numgen random mod 100 < {percent}" if percent < 100 else ""  # nft refuses what is always true
        for host in self._hosts if targets is None else targets:
            host.refuse(f"iifname eth*{chance}")

    def heal(self) -> None:
        """End cuts, partitions and loss."""
        for host in self._hosts:
            host.accept_all()

    def single_packets(self) -> None:
        """Let trains be cut where they leave, so that loss and reordering hit packets; it lasts."""
        for host, network in itertools.product(self._hosts, range(self._networks)):
            host.ip("link", "set", f"eth{network}", "gso_max_segs", "1")

    def plug_in(self, host: Host, network: int = 0, mtu: int = 1500) -> None:
        """Give a host a new link to a network, in place of one that was deleted."""
        _make_links(self._switch, {self._hosts.index(host) + 1: host}, network, mtu)

    def network_down(self, network: int = 0) -> None:
        """The switch of a network fails; the hosts' own links stay up, as seen by them."""
        _run("ip", "-n", self._switch, "link", "set", f"br{network}", "down")

    def network_up(self, network: int = 0) -> None:
        _run("ip", "-n", self._switch, "link", "set", f"br{network}", "up")


@contextmanager
def make_hosts(count: int, *, networks: int = 1, mtu: int = 1500) -> Iterator[Hosts]:
    """Hosts for the length of a with block."""
    _remove_left_behind()
    base = f"{PREFIX}-{os.getpid()}-{next(_numbers)}"
    switch = f"{base}-sw"
    hosts = [
        Host(f"{base}-h{n}", [f"10.{NETWORK_FIRST + network}.0.{n}" for network in range(networks)])
        for n in range(1, count + 1)
    ]
    try:
        for namespace in (switch, *(host.namespace for host in hosts)):
            _run("ip", "netns", "add", namespace)
        for network in range(networks):
            _make_network(switch, hosts, network, mtu)
        yield Hosts(hosts, switch, networks)
    finally:
        for host in hosts:
            host.stop()
        for namespace in (switch, *(host.namespace for host in hosts)):
            _remove(namespace)


def _make_network(switch: str, hosts: list[Host], network: int, mtu: int) -> None:
    _batch(switch, f"link add br{network} type bridge mcast_snooping 0", f"link set br{network} mtu {mtu} up")
    _make_links(switch, dict(enumerate(hosts, 1)), network, mtu)


def _make_links(switch: str, hosts: dict[int, Host], network: int, mtu: int) -> None:
    for n, host in hosts.items():
        port, device = f"p{network}x{n}", f"eth{network}"
        _batch(
            switch,
            f"link add {port} mtu {mtu} type veth peer name {device} mtu {mtu} netns {host.namespace}",
            f"link set {port} master br{network} up",
        )
        _batch(
            host.namespace,
            "link set lo up",
            f"addr add {host.addresses[network]}/24 dev {device}",
            f"link set {device} up",
        )


@cache
def namespaces_missing() -> str | None:
    """Why there can be no test hosts here, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program, package in (("ip", "iproute2"), ("nft", "nftables")):
        if shutil.which(program) is None:
            return f"{program} is not installed (Debian package {package})"
    try:
        with make_hosts(2) as hosts:
            hosts.lose(1)
            hosts.heal()
    except (OSError, subprocess.CalledProcessError) as error:
        reason = str(getattr(error, "stderr", None) or error).strip().splitlines()
        return f"network namespaces are not permitted: {reason[-1] if reason else error}"
    return None


def require_namespaces() -> None:
    """Skip the test that calls this, with the reason, where there can be no test hosts."""
    reason = namespaces_missing()
    if reason is not None:
        import pytest

        pytest.skip(reason)


def _enter(namespace: int) -> None:
    """os.setns, which Python has from 3.12 on, for this thread."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _run(*command: str, host: Host | None = None, text: str | None = None) -> str:
    if host is not None:
        command = ("ip", "netns", "exec", host.namespace, *command)
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr or done.stdout)
    return done.stdout


def _batch(namespace: str, *lines: str) -> None:
    _run("ip", "-n", namespace, "-batch", "-", text="\n".join(lines) + "\n")


def _kill_all(namespace: str) -> None:
    """Kill the processes of one of our namespaces, children of those we started included."""
    with suppress(OSError, subprocess.CalledProcessError):
        for pid in _run("ip", "netns", "pids", namespace).split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def _remove(namespace: str) -> None:
    with suppress(OSError, subprocess.CalledProcessError):
        _run("ip", "netns", "del", namespace)


def _remove_left_behind() -> None:
    """Remove the namespaces of test processes that are gone."""
    for path in _NAMESPACES.glob(f"{PREFIX}-*-*-*"):
        pid = path.name.split("-")[1]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            _kill_all(path.name)
            _remove(path.name)
