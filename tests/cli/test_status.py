"""`ordercast status`: who runs here, what they see, and how fast."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys

import pytest

from cli.processes import Process, ordercast, unique, wait_until
from ordercast.net.presence import Presence, ask, own_directory, sockets


@pytest.fixture
def runtime(tmp_path):
    """A directory of this test's own: its members, and no others, are on the machine."""
    path = tmp_path / "runtime"
    path.mkdir(mode=0o700)
    return {"ORDERCAST_RUNTIME_DIR": str(path)}


def groups(runtime, *arguments):
    result = ordercast("status", "--json", *arguments, **runtime)
    assert result.stderr == b""
    report = json.loads(result.stdout)
    return result.returncode, {group["group"]: group["members"] for group in report["groups"]}, report["silent"]


def test_members_views_links_and_rates(runtime, start, tmp_path):
    group, other = unique("status"), unique("status")
    a = start("pipe", group, "--name", "a", "--members", "2", "--follow", **runtime)
    b = start("pipe", group, "--name", "b", "--members", "2", "--follow", "--data-dir", tmp_path / "b", **runtime)
    c = start("pipe", other, "--name", "c", "--follow", **runtime)
    a.write("x\n" * 1000)
    b.wait_for(lambda: len(b.messages) == 1000)
    c.wait_for(lambda: bool(c.views))

    _, found, silent = groups(runtime)
    assert {group: [member["name"] for member in found[group]], other: [member["name"] for member in found[other]]} == {
        group: ["a", "b"],
        other: ["c"],
    }
    assert silent == []
    first, second = found[group]
    assert first["pid"] == a.process.pid
    assert first["view"] == second["view"] == a.events[0]["view"]
    assert first["members"] == ["a", "b"]
    assert first["state"] == "operational"
    assert (first["delivered"], first["delivered_bytes"], first["delivered_own"]) == (1000, 1000, 1000)
    assert (second["delivered"], second["delivered_own"]) == (1000, 0)
    assert second["data_dir"] == str(tmp_path / "b")
    (link,) = first["networks"]
    assert link["interface"] == "lo"
    assert link["members"]["b"] == second["networks"][0]["own"]
    assert set(first["rates"]) == {"sent_per_s", "delivered_per_s", "delivered_bytes_per_s"}

    text = ordercast("status", **runtime).stdout.decode()
    assert f"{group}\n  view {first['view']}: 2 members: a, b\n" in text
    assert other in text
    _, found, _ = groups(runtime, "--data-dir", tmp_path)
    assert [member["name"] for members in found.values() for member in members if group in found] == ["b"]


def test_rates_are_of_now(runtime, start):
    group = unique("rates")
    a = start("pipe", group, "--name", "a", **runtime)
    a.write("x\n" * 1000)
    a.wait_for(lambda: len(a.messages) == 1000)
    _, found, _ = groups(runtime)
    assert found[group][0]["rates"] == {"sent_per_s": 0, "delivered_per_s": 0, "delivered_bytes_per_s": 0}


def test_members_that_have_died_are_not_there(runtime, start):
    group = unique("dead")
    a = start("pipe", group, "--name", "a", "--follow", **runtime)
    b = start("pipe", group, "--name", "b", "--members", "2", "--follow", **runtime)
    b.wait_for(lambda: bool(b.views))
    a.signal(signal.SIGKILL)
    a.wait()
    _, found, silent = groups(runtime)
    assert [member["name"] for member in found[group]] == ["b"]
    assert silent == []
    b.signal(signal.SIGTERM)
    b.wait()
    assert not os.listdir(runtime["ORDERCAST_RUNTIME_DIR"])
    assert ordercast("status", "--data-dir", runtime["ORDERCAST_RUNTIME_DIR"], **runtime).returncode == 1


def test_who_comes_clears_away_what_the_killed_left(runtime, start):
    directory = runtime["ORDERCAST_RUNTIME_DIR"]
    a = start("pipe", unique("killed"), "--follow", **runtime)
    a.wait_for(lambda: bool(a.views))
    a.signal(signal.SIGKILL)
    a.wait()
    assert os.listdir(directory) == [f"{a.process.pid}-1.member"]
    b = start("pipe", unique("next"), "--follow", **runtime)
    b.wait_for(lambda: bool(b.views))
    assert os.listdir(directory) == [f"{b.process.pid}-1.member"]


def test_a_member_that_is_stopped_is_silent(runtime, start):
    group = unique("stopped")
    a = start("pipe", group, "--name", "a", "--follow", **runtime)
    a.wait_for(lambda: bool(a.views))
    a.signal(signal.SIGSTOP)
    status, _, silent = groups(runtime)
    assert (status, a.process.pid in silent) == (1, True)
    assert f"process {a.process.pid}: does not answer" in ordercast("status", **runtime).stdout.decode()
    a.signal(signal.SIGCONT)
    wait_until(lambda: groups(runtime)[2] == [], "it answers again")


def test_only_the_user_can_ask(runtime, monkeypatch):
    monkeypatch.setenv("ORDERCAST_RUNTIME_DIR", runtime["ORDERCAST_RUNTIME_DIR"])
    presence = Presence(lambda request: {"name": "a"} if request is None else {"asked": request["do"]})
    try:
        assert presence.failure is None
        assert stat.S_IMODE(own_directory().stat().st_mode) == 0o700
        (path,) = [path for path in sockets() if path.parent == own_directory()]
        assert ask(path) == {"pid": os.getpid(), "name": "a"}
        assert ask(path, {"do": "this"}) == {"pid": os.getpid(), "asked": "this"}
    finally:
        presence.close()
    assert ask(path) is None


def test_a_directory_that_others_can_use_is_not_used(runtime, monkeypatch):
    monkeypatch.setenv("ORDERCAST_RUNTIME_DIR", runtime["ORDERCAST_RUNTIME_DIR"])
    own_directory().chmod(0o755)
    presence = Presence(lambda _: {})
    assert presence.failure is not None
    assert "only its owner" in presence.failure
    presence.close()
    assert own_directory() not in {path.parent for path in sockets()}


def test_a_forked_child_does_not_stand_in_for_its_parent(runtime):
    """The parent dies, the child has all its files: nobody must take the child for a member."""
    program = """if True:
        import os, signal, sys
        from ordercast import sync
        group = sync.join(sys.argv[1], name="a")
        child = os.fork()
        if child == 0:
            signal.pause()
        print(child, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    parent = Process(sys.executable, "-W", "ignore", "-c", program, unique("fork"), **runtime)
    try:
        parent.wait_for(lambda: bool(parent.lines), "the child")
        parent.process.wait()
        assert groups(runtime)[2] == []
    finally:
        if parent.lines:
            os.kill(int(parent.lines[0]), signal.SIGKILL)
        parent.close()


def test_a_status_that_fails_says_so(runtime, monkeypatch):
    monkeypatch.setenv("ORDERCAST_RUNTIME_DIR", runtime["ORDERCAST_RUNTIME_DIR"])

    def broken(_: object) -> dict[str, object]:
        raise RuntimeError("dictionary changed size during iteration")

    presence = Presence(broken)
    try:
        (path,) = [path for path in sockets() if path.parent == own_directory()]
        answer = ask(path)
        assert answer is not None
        assert answer["error"] == "RuntimeError: dictionary changed size during iteration"
    finally:
        presence.close()


def test_where_members_are_found(tmp_path, monkeypatch):
    monkeypatch.delenv("ORDERCAST_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert own_directory() == tmp_path / "ordercast"
    presence = Presence(lambda _: {})
    try:
        monkeypatch.delenv("XDG_RUNTIME_DIR")
        assert str(own_directory()) == f"/tmp/ordercast-{os.getuid()}"
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        assert [path.parent for path in sockets() if path.is_relative_to(tmp_path)] == [tmp_path / "ordercast"]
    finally:
        presence.close()


def test_redundant_networks_are_shown_one_by_one(runtime, start):
    group = unique("networks")
    options = ("--members", "2", "--network", "127.0.0.1", "--network", "127.0.0.2", "--replication", "passive")
    a = start("pipe", group, "--name", "a", "--follow", *options, **runtime)
    b = start("pipe", group, "--name", "b", "--follow", *options, **runtime)
    a.write("x\n")
    b.wait_for(lambda: len(b.messages) == 1)
    lines = ordercast("status", **runtime).stdout.decode().splitlines()
    assert "    a: network 1 (127.0.0.1) sound: all hear each other" in lines
    assert "    b: network 2 (127.0.0.2) sound: all hear each other" in lines
