"""`ordercast pipe --engine corel` with `status` and `members`: offsets, minorities, restarts, changes of the group."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from cli.processes import error_line, ordercast, unique, wait_until
from ordercast.serve import RemoteLog, parse_server


@pytest.fixture
def runtime(tmp_path):
    path = tmp_path / "runtime"
    path.mkdir(mode=0o700)
    return {"ORDERCAST_RUNTIME_DIR": str(path)}


@pytest.fixture
def member(start, tmp_path, runtime):
    """Starts a member of one group; its data_dir has its name."""
    group = unique("corel")

    def member(name, *more, members=1):
        data = ("--data-dir", tmp_path / name, "--members", str(members))
        return start("pipe", group, "--name", name, "--engine", "corel", *data, "--follow", *more, **runtime)

    member.group, member.data = group, tmp_path
    return member


def places(process):
    return [(message["offset"], message["data"]) for message in process.messages]


def primaries(process):
    return [(event["members"], event["primary"]) for event in process.events if event["event"] == "view"]


def states(process):
    return [(event["state"], event["first"], event["last"]) for event in process.events if event["event"] == "state"]


def kill(*processes):
    for process in processes:
        process.signal(signal.SIGKILL)
    for process in processes:
        process.wait()


def test_a_durable_group_from_its_founding_to_a_new_member(member, runtime):
    names = ["n1", "n2", "n3"]
    one, two, _ = members = [member(name, members=3) for name in names]
    for each in members:
        each.wait_for(lambda each=each: (names, True) in primaries(each), "the primary component")
    one.write("a\nb\n")
    two.wait_for(lambda: len(two.messages) == 2)
    two.write("c\n")
    for each in members:
        each.wait_for(lambda each=each: places(each) == [(0, "a"), (1, "b"), (2, "c")], "one order")
    first = one.messages[0]
    assert list(first) == ["event", "sender", "seq", "offset", "view", "service", "data"]

    report = json.loads(ordercast("status", "--json", **runtime).stdout)
    logs = [each["log"] for each in report["groups"][0]["members"]]
    assert [(log["phase"], log["primary"], log["green"], log["end"]) for log in logs] == [("primary", 1, 3, 3)] * 3
    assert all(log["lag"] == {"n1": 0, "n2": 0, "n3": 0} for log in logs)
    table = ordercast("status", **runtime).stdout.decode().splitlines()
    row = next(line.split() for line in table if line.split()[:2] == ["n1", "primary"])
    assert row == ["n1", "primary", "1", "0", "3", "3", "3", "3", "0", "n1", "0,", "n2", "0,", "n3", "0"]

    # All die. One of three is a minority: what it sends is kept, and seen to be.
    kill(*members)
    alone = member("n1", "--states")
    alone.wait_for(lambda: primaries(alone) == [(["n1"], False)], "no primary component")
    alone.write("d\ne\n")
    alone.wait_for(lambda: ("stable", 1, 2) in states(alone), "its lines are on its own disk")
    assert not [state for state in states(alone) if state[0] == "ordered"]
    table = ordercast("status", **runtime).stdout.decode()
    assert "not primary, component" in table
    declared = json.loads(ordercast("members", member.group, "--json", **runtime).stdout)
    assert declared["primary"] is False
    assert {name: each["here"] for name, each in declared["declared"].items()} == {"n1": True, "n2": False, "n3": False}
    refused = ordercast("members", member.group, "--add", "n4", **runtime)
    assert "in no primary component" in error_line(refused)

    # With another one it is a majority; the restarted replay as they were asked to.
    two = member("n2", "--start", "1")
    alone.wait_for(lambda: ("ordered", 1, 2) in states(alone), "the order of what was sent in the minority")
    two.wait_for(lambda: places(two) == [(1, "b"), (2, "c"), (3, "d"), (4, "e")], "a replay")
    alone.wait_for(lambda: (["n1", "n2"], True) in primaries(alone))

    four = member("n4", "--founders", "0", "--start", "earliest")
    alone.wait_for(lambda: primaries(alone)[-1] == (["n1", "n2", "n4"], True), "n4 is here")
    added = ordercast("members", member.group, "--add", "n4=2", "--remove", "n3", "--json", **runtime)
    assert (added.returncode, added.stderr) == (0, b"")
    assert {name: each["weight"] for name, each in json.loads(added.stdout)["declared"].items()} == {
        "n1": 1, "n2": 1, "n4": 2,
    }  # fmt: skip
    four.wait_for(lambda: len(four.messages) == 5, "what was ordered before it came")
    assert places(four) == [(0, "a"), (1, "b"), (2, "c"), (3, "d"), (4, "e")]
    four.wait_for(lambda: primaries(four)[-1] == (["n1", "n2", "n4"], True))
    four.write("f\n")
    for each in (alone, two, four):
        each.wait_for(lambda each=each: places(each)[-1][1] == "f", "a line of the new member")

    two.end_input()
    two.signal(signal.SIGTERM)
    assert two.wait() == 0


def test_a_member_that_serves_its_log(member, runtime):
    one = member("n1", "--founders", "1", "--serve", "127.0.0.1:0")
    one.wait_for(lambda: primaries(one) == [(["n1"], True)], "the primary component")
    one.write("a\nb\n")
    one.wait_for(lambda: len(one.messages) == 2)
    report = json.loads(ordercast("status", "--json", **runtime).stdout)
    place = report["groups"][0]["members"][0]["serves"]
    assert f"    n1 serves its log at {place}\n" in ordercast("status", **runtime).stdout.decode()
    remote = RemoteLog([parse_server(place)])
    wait_until(lambda: remote.refresh() == 2, "the order on disk")
    assert [bytes(data) for batch in remote.read(0) for data in batch] == [b"a", b"b"]
    remote.close()
    taken = ordercast("pipe", member.group, "--engine", "corel", "--data-dir", member.data / "n2", "--founders", "0",
                      "--serve", place)  # fmt: skip
    assert f"cannot serve the log at {place}: Address already in use" in error_line(taken)
    one.signal(signal.SIGTERM)
    assert one.wait() == 0


def test_lines_that_never_became_ordered_are_told(member, runtime, tmp_path):
    kill(*_founded(member, "n1", "n2"))
    alone = member("n1")
    alone.write("x\n")
    alone.wait_for(lambda: primaries(alone) == [(["n1"], False)])
    alone.signal(signal.SIGTERM)
    assert alone.wait() == 1
    (line,) = alone.errors
    assert "left outside a primary component" in line


def _founded(member, *names):
    members = [member(name, members=len(names)) for name in names]
    for each in members:
        each.wait_for(lambda each=each: (sorted(names), True) in primaries(each), "the primary component")
    return members


def test_what_is_refused_is_one_line(member, runtime, tmp_path):
    pipe = ("pipe", "some group", "--engine", "corel")
    new = tmp_path / "new"
    assert "say how many members found the group" in error_line(ordercast(*pipe, "--data-dir", new))
    assert "not -1" in error_line(ordercast(*pipe, "--data-dir", new, "--founders", "1", "--keep-bytes", "-1"))
    assert "--states" in error_line(ordercast("pipe", "some group", "--states"))
    kill(*_founded(member, "n1", "n2"))
    found = (tmp_path / "n1" / "log").iterdir()
    before = {path: Path(path).read_bytes() for path in found}
    another = ordercast(*pipe, "--name", "n1", "--data-dir", tmp_path / "n1")
    assert f"the log of group {member.group!r}, not of 'some group'" in error_line(another)
    another = ordercast("pipe", member.group, "--engine", "corel", "--name", "n9", "--data-dir", tmp_path / "n1")
    assert "the log of member 'n1', not of 'n9'" in error_line(another)
    assert {path: path.read_bytes() for path in before} == before
    none = ordercast("members", member.group, "--add", "n2", **runtime)
    assert (none.returncode, none.stdout) == (1, b"")
    for bad, what in ((("--add", "n2=0"), "not 0"), (("--remove", "a b"), "name")):
        assert what in error_line(ordercast("members", member.group, *bad, **runtime))
