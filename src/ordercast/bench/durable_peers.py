"""Clusters of three of the systems that corel is measured against, on this machine and one disk."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ordercast.bench.load import LoadOptions
from ordercast.bench.processes import RunFailed

READY_S = 30.0
MEMBERS = 3
_FIRST_PORT = 21_300


def ports(count: int) -> list[int]:
    """Free ones, as far as can be told now."""
    found: list[int] = []
    port = _FIRST_PORT + os.getpid() % 500 * 16
    while len(found) < count:
        port += 1
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            found.append(port)
    return found


@contextmanager
def cluster(commands: Sequence[Sequence[str]], directory: Path) -> Iterator[None]:
    started = []
    try:
        for number, command in enumerate(commands):
            with (directory / f"{number}.out").open("wb") as output:
                started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output))
        yield
    finally:
        for process in started:
            process.send_signal(signal.SIGKILL)
        for process in started:
            process.wait()


@contextmanager
def etcd(directory: Path) -> Iterator[list[int]]:
    clients, peers = ports(2 * MEMBERS)[:MEMBERS], ports(2 * MEMBERS)[MEMBERS:]
    everyone = ",".join(f"n{number}=http://127.0.0.1:{port}" for number, port in enumerate(peers))
    commands = [
        ["etcd", "--name", f"n{number}", "--data-dir", str(directory / f"n{number}"), "--log-level", "error",
         "--logger", "zap", "--quota-backend-bytes", str(8 * 2**30), "--initial-cluster-state", "new",
         "--listen-client-urls", f"http://127.0.0.1:{client}",
         "--advertise-client-urls", f"http://127.0.0.1:{client}",
         "--listen-peer-urls", f"http://127.0.0.1:{peer}",
         "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}", "--initial-cluster", everyone]
        for number, (client, peer) in enumerate(zip(clients, peers, strict=True))
    ]  # fmt: skip
    with cluster(commands, directory):
        _until(lambda: all(_healthy(port) for port in clients), "etcd")
        yield clients


def _healthy(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as sock:
            sock.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            answer = b"".join(iter(lambda: sock.recv(4096), b""))
    except OSError:
        return False
    return b'"health":"true"' in answer


@contextmanager
def nats(directory: Path) -> Iterator[list[int]]:
    clients, routes = ports(2 * MEMBERS)[:MEMBERS], ports(2 * MEMBERS)[MEMBERS:]
    everyone = ",".join(f"nats://127.0.0.1:{port}" for port in routes)
    commands = [
        ["nats-server", "-a", "127.0.0.1", "-p", str(client), "-js", "-sd", str(directory / f"n{number}"),
         "-n", f"n{number}", "--cluster_name", "bench", "--cluster", f"nats://127.0.0.1:{route}",
         "--routes", everyone]
        for number, (client, route) in enumerate(zip(clients, routes, strict=True))
    ]  # fmt: skip
    with cluster(commands, directory):
        stream = {"name": "BENCH", "subjects": ["bench.>"], "num_replicas": MEMBERS, "storage": "file"}
        _until(lambda: _make_stream(clients[0], stream), "NATS")
        yield clients


def _make_stream(port: int, stream: dict[str, Any]) -> bool:
    body = json.dumps(stream).encode()
    request = b"CONNECT {}\r\nSUB _INBOX.m 1\r\nPUB $JS.API.STREAM.CREATE.BENCH _INBOX.m %d\r\n" % len(body)
    request += body + b"\r\n"
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as sock:
            sock.settimeout(5)
            sock.sendall(request)
            answer = b""
            while b"MSG _INBOX.m" not in answer or not answer.endswith(b"}\r\n"):
                block = sock.recv(65536)
                if not block:
                    return False
                answer += block
    except OSError:
        return False
    return b'"error"' not in answer or b"already in use" in answer


def _until(ready: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + READY_S
    while not ready():
        if time.monotonic() > until:
            raise RunFailed(f"{what} was not ready after {READY_S:g} s")
        time.sleep(0.1)


def load(options: LoadOptions) -> dict[str, Any]:
    """The load in a process of its own."""
    command = [sys.executable, "-m", "ordercast.bench.load", json.dumps(options)]
    limit = options["warm_s"] + options["seconds"] + READY_S
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    if done.returncode:
        raise RunFailed(f"{options['peer']}: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def installed() -> dict[str, str]:
    """What can run here, with its version."""
    found = {}
    for name, command in (("etcd", ["etcd", "--version"]), ("nats", ["nats-server", "--version"])):
        if shutil.which(command[0]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            found[name] = done.stdout.splitlines()[0]
    with suppress(PackageNotFoundError):
        found["pysyncobj"] = f"PySyncObj {version('pysyncobj')}"
    return found
