"""Other systems of total order under the load of `run.py`, on the same hosts: which there are, and a run of one.

Each node of a peer is a process that behaves as `node.py` does (ready, begin at a time, figures), so that what is
measured, and when, is the same on both sides. What has to be compiled is compiled once, before the first run.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ordercast.bench.corosync import start_script, write_hosts
from ordercast.bench.hosts import Place
from ordercast.bench.processes import Processes, RunFailed, python
from ordercast.bench.run import Tick, Work, latencies

if TYPE_CHECKING:
    from ordercast.bench.pysyncobj_node import PySyncObjOptions

FOREIGN = Path(__file__).parent / "foreign"
"""The nodes that are not Python."""
GONE_S = 10.0
"""How long the processes of a run may take to be gone from their hosts."""
_CPG_HEADER = Path("/usr/include/corosync/cpg.h")
_JAVA_LIBRARIES = Path("/usr/share/java")
_PYSYNCOBJ_PORT = 4321
_COMPILE_S = 120


class Peer(Protocol):
    """A system that can be measured."""

    @property
    def name(self) -> str: ...

    @property
    def encrypts(self) -> bool: ...

    @property
    def install(self) -> str:
        """What installs it."""

    @property
    def warm_s(self) -> float:
        """What it needs at least before figures mean something."""

    def missing(self) -> list[str]:
        """What of it is not installed."""

    def version(self) -> str: ...

    def prepare(self, directory: Path) -> None:
        """Compiles what is needed; raises RunFailed."""

    def commands(self, work: Work, at: Sequence[Place], built: Path, directory: Path) -> list[list[str]]:
        """One a host. `directory` is empty and belongs to this run."""


@dataclass(frozen=True)
class Corosync:
    """Totem in C. Both of its transports are the same protocol: multicasts of its own, or knet's unicasts."""

    transport: str
    encrypts: bool = False
    warm_s: float = 1.0
    install: str = "apt-get install corosync libcpg-dev gcc"

    @property
    def name(self) -> str:
        return f"corosync-{self.transport}" + ("-aes256" if self.encrypts else "")

    def missing(self) -> list[str]:
        found = _not_found("corosync", "gcc", "unshare")
        return found if _CPG_HEADER.exists() else [*found, str(_CPG_HEADER)]

    def version(self) -> str:
        return _first_line("corosync", "-v")

    def prepare(self, directory: Path) -> None:
        _compile("gcc", "-O2", "-o", str(directory / "cpg_load"), str(FOREIGN / "cpg_load.c"), "-lcpg")

    def commands(self, work: Work, at: Sequence[Place], built: Path, directory: Path) -> list[list[str]]:
        addresses = [place.addresses[0] for place in at]
        homes = write_hosts(directory, addresses, self.transport, work.mtu, self.encrypts)
        return [start_script(home, [str(built / "cpg_load"), *_words(work, index)]) for index, home in enumerate(homes)]


@dataclass(frozen=True)
class JGroups:
    """SEQUENCER: the members send to a coordinator, which multicasts."""

    name: str = "jgroups"
    encrypts: bool = False
    warm_s: float = 4.0
    """The virtual machine compiles what it runs often."""
    install: str = "apt-get install libjgroups-java libcommons-logging-java openjdk-17-jdk-headless"

    def missing(self) -> list[str]:
        found = _not_found("java", "javac")
        jars = [_JAVA_LIBRARIES / name for name in ("jgroups.jar", "commons-logging.jar")]
        return found + [str(jar) for jar in jars if not jar.exists()]

    def version(self) -> str:
        jar = (_JAVA_LIBRARIES / "jgroups.jar").resolve()
        return f"JGroups {jar.stem.removeprefix('jgroups-')}"

    def prepare(self, directory: Path) -> None:
        _compile("javac", "-cp", self._classes(), "-d", str(directory), str(FOREIGN / "GroupLoad.java"))

    def _classes(self) -> str:
        return f"{_JAVA_LIBRARIES}/jgroups.jar:{_JAVA_LIBRARIES}/commons-logging.jar"

    def commands(self, work: Work, at: Sequence[Place], built: Path, directory: Path) -> list[list[str]]:
        return [
            [
                "java",
                "-Xmx512m",
                "-Djava.net.preferIPv4Stack=true",
                f"-Djgroups.bind_addr={place.addresses[0]}",
                "-cp",
                f"{self._classes()}:{built}",
                "GroupLoad",
                "sequencer.xml",  # the stack that comes in JGroups' own archive
                *_words(work, index),
            ]
            for index, place in enumerate(at)
        ]


@dataclass(frozen=True)
class PySyncObj:
    """Raft in Python, in memory, over TCP."""

    name: str = "pysyncobj"
    encrypts: bool = False
    warm_s: float = 1.0
    install: str = "pip install 'ordercast[peers]'"

    def missing(self) -> list[str]:
        return [] if importlib.util.find_spec("pysyncobj") else ["pysyncobj"]

    def version(self) -> str:
        return f"PySyncObj {version('pysyncobj')}"

    def prepare(self, directory: Path) -> None:
        pass

    def commands(self, work: Work, at: Sequence[Place], built: Path, directory: Path) -> list[list[str]]:
        addresses = [f"{place.addresses[0]}:{_PYSYNCOBJ_PORT}" for place in at]
        return [
            python("ordercast.bench.pysyncobj_node", self._options(work, addresses, index)) for index in range(len(at))
        ]

    def _options(self, work: Work, addresses: list[str], index: int) -> PySyncObjOptions:
        return {
            "address": addresses[index],
            "others": [address for address in addresses if address != addresses[index]],
            "index": index,
            "nodes": work.nodes,
            "size": work.size,
            "rate": work.rate,
            "warm_s": work.warm_s,
            "seconds": work.seconds,
        }


PEERS: Mapping[str, Peer] = {
    peer.name: peer
    for peer in (Corosync("udp"), Corosync("knet"), Corosync("knet", encrypts=True), JGroups(), PySyncObj())
}


def run_peer(peer: Peer, work: Work, at: Sequence[Place], built: Path, tick: Tick = lambda: None) -> dict[str, Any]:
    """One run of a peer that was prepared, at places that are there already; the figures that `run_group` names."""
    work = replace(work, warm_s=max(work.warm_s, peer.warm_s))
    directory = built / f"run-{time.monotonic_ns():x}"
    directory.mkdir()
    try:
        commands = peer.commands(work, at, built, directory)
        with Processes(at, commands, peer.name) as processes:
            processes.ready()
            processes.go()
            figures = processes.figures(work.length_s, tick)
        _until_gone(at, peer.name)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return {
        "delivered_per_s": round(min(node["messages_per_s"] for node in figures)),
        "mb_per_s": round(min(node["bytes_per_s"] for node in figures) / 1e6, 2),
        "latency_ms": latencies(figures),
    }


def _until_gone(at: Sequence[Place], name: str) -> None:
    """A daemon ends a moment after the process that started it; the next run finds the hosts empty."""
    until = time.monotonic() + GONE_S
    for place in at:
        command = ["ip", "netns", "pids", str(place.namespace)]
        while place.namespace is not None and subprocess.run(command, capture_output=True, check=False).stdout:
            if time.monotonic() > until:
                raise RunFailed(f"{name}: its processes are still there after {GONE_S:g} s")
            time.sleep(0.02)


def _words(work: Work, index: int) -> list[str]:
    """The arguments of the nodes that are not Python."""
    return [f"{word:g}" for word in (work.size, work.nodes, index, work.rate, work.warm_s, work.seconds)]


def _not_found(*commands: str) -> list[str]:
    return [command for command in commands if shutil.which(command) is None]


def _first_line(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_S, check=False)
    return (done.stdout.splitlines() or ["unknown"])[0].strip()


def _compile(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_S, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["nothing was said"])[0]
        raise RunFailed(f"{command[0]} fails: {said}")
