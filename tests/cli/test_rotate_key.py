"""`ordercast rotate-key`: another secret under load, without loss and without a view."""

from __future__ import annotations

import json

import pytest

from cli.processes import error_line, ordercast, unique, wait_until
from ordercast.cli import rotate_key
from ordercast.cli.main import main
from ordercast.wire.keys import load_key


@pytest.fixture
def runtime(tmp_path):
    path = tmp_path / "runtime"
    path.mkdir(mode=0o700)
    return {"ORDERCAST_RUNTIME_DIR": str(path)}


def keys(tmp_path, *names):
    for name in names:
        assert ordercast("keygen", tmp_path / name).returncode == 0
    return [tmp_path / name for name in names]


def test_members_go_over_to_another_secret_under_load(runtime, start, start_patient, tmp_path):
    old, new = keys(tmp_path, "old.key", "new.key")
    group = unique("rotation")
    a, b = (
        start_patient("pipe", group, "--name", name, "--members", "2", "--follow", "--key", old, **runtime)
        for name in "ab"
    )
    a.wait_for(lambda: bool(a.views))
    rotation = start("rotate-key", group, new, "--json", **runtime)
    sent = 0

    def all_come_back() -> bool:
        return len(a.messages) == sent

    while rotation.process.poll() is None:
        a.write(f"{sent}\n")
        sent += 1
        a.wait_for(all_come_back, "an own message")
    assert sent > 10
    assert rotation.wait() == 0
    assert json.loads(rotation.lines[0]) == {"group": group, "key": load_key(new).id, "done": True, "waiting": {}}
    b.wait_for(lambda: len(b.messages) == sent, "what was sent meanwhile")
    assert [message["data"] for message in b.messages] == [str(number) for number in range(sent)]
    assert len(a.views) == len(b.views) == 1
    newcomer = start("pipe", group, "--name", "c", "--members", "3", "--follow", "--key", new, **runtime)
    newcomer.wait_for(lambda: bool(newcomer.views), "one with the new secret joins")
    again = ordercast("rotate-key", group, new, **runtime)
    assert again.returncode == 0
    assert b"use key" in again.stdout


def test_a_member_that_is_told_nothing_holds_the_change_up(runtime, start_patient, tmp_path):
    old, new = keys(tmp_path, "old.key", "new.key")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    group = unique("half a rotation")
    options = ("--members", "2", "--follow", "--key", old)
    a = start_patient("pipe", group, "--name", "a", *options, **runtime)
    b = start_patient("pipe", group, "--name", "b", *options, ORDERCAST_RUNTIME_DIR=str(elsewhere))
    a.wait_for(lambda: bool(a.views))

    def a_waits_for_b() -> bool:
        first = ordercast("rotate-key", group, new, "--wait", "0.5", "--json", **runtime)
        assert first.returncode == 1
        return json.loads(first.stdout)["waiting"] == {"a": ["b"]}

    wait_until(a_waits_for_b, "a has taken the order, and says for whom it waits")
    a.write("still heard\n")
    b.wait_for(lambda: bool(b.messages))
    second = ordercast("rotate-key", group, new, ORDERCAST_RUNTIME_DIR=str(elsewhere))
    assert second.returncode == 0, second.stderr
    wait_until(lambda: ordercast("rotate-key", group, new, **runtime).returncode == 0, "the first one is done, too")
    assert len(a.views) == len(b.views) == 1


def test_a_member_that_is_busy_is_told_when_it_answers(tmp_path, monkeypatch):
    """It neither counts as done nor is it forgotten."""
    (new,) = keys(tmp_path, "new.key")
    a, b = tmp_path / "a", tmp_path / "b"
    b.touch()
    has = {a: ["old"], b: ["old"]}
    rounds = iter([{a, b}, {a}, {a, b}, {a, b}])
    silent = [b]

    def members_of(_group):
        return {path: {"name": path.name, "keys": [*has[path]], "key_change": None} for path in sorted(next(rounds))}

    def ask(path, _order):
        if path in silent:
            return silent.remove(path)
        has[path] = [load_key(new).id]
        return {"name": path.name}

    monkeypatch.setattr(rotate_key, "members_of", members_of)
    monkeypatch.setattr(rotate_key, "ask_patiently", ask)
    monkeypatch.setattr(rotate_key, "POLL_S", 0)
    assert main(["rotate-key", "group", str(new)]) == 0
    assert next(rounds, None) is None, "b was waited for"


def test_what_cannot_be_done_is_one_line(runtime, start, tmp_path):
    (new,) = keys(tmp_path, "new.key")
    group = unique("no key")
    none = ordercast("rotate-key", group, new, **runtime)
    assert (none.returncode, none.stdout.decode()) == (1, f"no members of {group} run on this machine\n")
    a = start("pipe", group, "--name", "a", "--follow", **runtime)
    a.wait_for(lambda: bool(a.views))
    assert "a: it runs without a key" in error_line(ordercast("rotate-key", group, new, **runtime))
    assert "cannot be read" in error_line(ordercast("rotate-key", group, tmp_path / "missing", **runtime))
    (tmp_path / "text").write_text("no key\n")
    assert str(tmp_path / "text") in error_line(ordercast("rotate-key", group, tmp_path / "text", **runtime))
