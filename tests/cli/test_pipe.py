"""`ordercast pipe` in pipelines, together with others, and up to its end in every way that it can end."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess

import pytest

from cli.processes import DEADLINE_S, ORDERCAST, environment, ordercast, shell, unique
from ordercast.check import check_trace
from ordercast.cli.pipe import render
from ordercast.events import NetworkFault, NetworkRepaired


def events(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_pipeline(tmp_path):
    group = shlex.quote(unique("pipeline"))
    result = shell(f"set -o pipefail; seq 20000 | ordercast pipe {group} --name n1")
    assert (result.returncode, result.stderr) == (0, "")
    first, *rest = events(result.stdout)
    assert first["event"] == "view"
    assert first["kind"] == "regular"
    assert first["members"] == ["n1"]
    assert rest[11] == {
        "event": "message",
        "sender": "n1",
        "seq": 12,
        "view": first["view"],
        "service": "agreed",
        "data": "12",
    }
    assert list(rest[11]) == ["event", "sender", "seq", "view", "service", "data"]
    assert [message["data"] for message in rest] == [str(number) for number in range(1, 20001)]


def test_two_started_together_agree_on_one_order():
    group = shlex.quote(unique("two"))
    one = f"seq 3000 | ordercast pipe {group} --members 2"
    result = shell(f"({one} > /dev/fd/3) 3>&1 & {one} >&2; status=$?; wait $! && exit $status")
    assert result.returncode == 0
    a, b = events(result.stdout), events(result.stderr)
    assert a[0] == b[0]
    assert len(a[0]["members"]) == 2
    a, b = ([event for event in each if event["event"] == "message"] for each in (a, b))
    short, long = sorted((a, b), key=len)
    assert len(short) >= 3000, "its own lines at least"
    assert long[: len(short)] == short, "one order"
    assert len(long) == 6000, "who stayed longer got all"


def test_two_networks():
    networks = ("--network", "127.0.0.1", "--network", "127.0.0.2", "--replication", "passive")
    group = shlex.quote(unique("networks"))
    one = f"seq 3000 | ordercast pipe {group} --members 2 {' '.join(networks)}"
    result = shell(f"({one} > /dev/fd/3) 3>&1 & {one} >&2; status=$?; wait $! && exit $status")
    assert result.returncode == 0
    a, b = (
        [event["data"] for event in events(each) if event["event"] == "message"]
        for each in (result.stdout, result.stderr)
    )
    assert sorted(max(a, b, key=len), key=int) == sorted([str(n) for n in range(1, 3001)] * 2, key=int)


def test_reports_of_networks_are_lines():
    fault = NetworkFault("10.0.2.1", "messages are missing", 2, {"silent": ["n3"], "hears": []})
    (line,) = events(render(fault).decode())
    assert line == {
        "event": "network_fault",
        "network": "10.0.2.1",
        "number": 2,
        "reason": "messages are missing",
        "evidence": {"silent": ["n3"], "hears": []},
    }
    (line,) = events(render(NetworkRepaired("10.0.2.1", 2)).decode())
    assert line == {"event": "network_repaired", "network": "10.0.2.1", "number": 2}


def test_lines_as_they_are():
    long = b"x" * 3_000_000
    stdin = b'plain\n\n\xff\xfe\ntab\t"quoted" \\ \xc3\xa4\xe2\x80\xa8\r\n' + long + b"\nno newline"
    result = ordercast("pipe", unique("lines"), "--service", "safe", stdin=stdin)
    assert result.returncode == 0, result.stderr
    messages = [event for event in events(result.stdout.decode()) if event["event"] == "message"]
    assert [message["seq"] for message in messages] == [1, 2, 3, 4, 5, 6]
    assert {message["service"] for message in messages} == {"safe"}
    assert [message.get("data") for message in messages] == [
        "plain",
        "",
        None,
        'tab\t"quoted" \\ ä\u2028\r',
        long.decode(),
        "no newline",
    ]
    assert messages[2]["data_base64"] == "//4="


def test_no_input_at_all():
    group = shlex.quote(unique("nothing"))
    for source in ("< /dev/null", "<&-"):
        result = shell(f"ordercast pipe {group} {source}")
        assert (result.returncode, result.stderr) == (0, "")
        assert [event["event"] for event in events(result.stdout)] == ["view"]


def test_a_line_appears_as_soon_as_it_is_written(start):
    group = unique("prompt")
    a = start("pipe", group, "--name", "a", "--members", "2")
    b = start("pipe", group, "--name", "b", "--members", "2")
    for number in range(3):
        a.write(f"{number}\n")
        for each in (a, b):
            each.wait_for(lambda each=each, number=number: [m["data"] for m in each.messages][number:] == [str(number)])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_makes_it_leave(start, number):
    group = unique("signal")
    a = start("pipe", group, "--name", "a", "--members", "2", "--follow")
    b = start("pipe", group, "--name", "b", "--members", "2")
    a.write("before the end\n")
    a.end_input()
    b.wait_for(lambda: bool(b.messages), "the message of a")
    assert a.process.poll() is None, "--follow stays at the end of the input"
    a.signal(number)
    assert a.wait() == 0
    assert a.errors == []
    b.wait_for(lambda: ["b"] in b.views, "the view without a")
    b.signal(number)
    assert b.wait() == 0, "its input is open, and nothing came from it"


def test_a_signal_while_it_waits_for_members(start):
    group = unique("waiting")
    b = start("pipe", group, "--name", "b", "--follow")
    b.wait_for(lambda: bool(b.views))
    a = start("pipe", group, "--name", "a", "--members", "3")
    b.wait_for(lambda: ["a", "b"] in b.views, "a is there, and waits for the third")
    a.signal(signal.SIGTERM)
    assert a.wait() == 0
    assert (a.lines, a.errors) == ([], [])
    b.wait_for(lambda: b.views[-1] == ["b"], "a has left")


def test_the_end_of_the_output_ends_it_quietly():
    group = shlex.quote(unique("head"))
    result = shell(f"seq 200000 | ordercast pipe {group} | head -n 2; echo ${{PIPESTATUS[1]}}")
    assert result.stderr == ""
    *lines, status = result.stdout.splitlines()
    assert status == "1"
    assert [json.loads(line)["event"] for line in lines] == ["view", "message"]


def test_an_output_that_cannot_be_written():
    result = shell(f"echo x | ordercast pipe {shlex.quote(unique('full'))} > /dev/full")
    assert result.returncode == 1
    assert result.stderr == "ordercast pipe: the output failed: No space left on device\n"
    result = shell(f"echo x | ordercast pipe {shlex.quote(unique('closed'))} >&-")
    assert (result.returncode, result.stderr) == (2, "ordercast pipe: the output is closed\n")


def test_a_reader_that_does_not_read_does_not_keep_it_after_a_signal():
    command = [*ORDERCAST, "pipe", unique("stuck"), "--name", "a"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"x" * 999 + b"\n")
        process.stdin.flush()
        assert b"view" in process.stdout.readline()
        assert b"xxx" in process.stdout.readline(), "it has joined, and reads"
        process.stdin.write((b"x" * 999 + b"\n") * 5000)
        process.stdin.flush()
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 1
        assert process.stderr.read() == b"ordercast pipe: nobody reads the output: events are lost\n"
        process.stdin.close()


def test_with_a_secret(tmp_path, start):
    key = tmp_path / "group.key"
    assert ordercast("keygen", key).returncode == 0
    group = unique("secret")
    a = start("pipe", group, "--name", "a", "--key", key, "--members", "2")
    b = start("pipe", group, "--name", "b", "--key", key, "--members", "2")
    a.write("sealed\n")
    b.wait_for(lambda: [message["data"] for message in b.messages] == ["sealed"])
    a.end_input()
    b.end_input()
    assert a.wait() == b.wait() == 0


def test_peers_instead_of_multicast(start):
    group = unique("peers")
    peers = ("--peer", "127.0.0.1:17391", "--peer", "127.0.0.1:17392", "--members", "2")
    a = start("pipe", group, "--name", "a", *peers)
    b = start("pipe", group, "--name", "b", *peers)
    a.write("by unicast\n")
    b.wait_for(lambda: [message["data"] for message in b.messages] == ["by unicast"])
    a.end_input()
    b.end_input()
    assert a.wait() == b.wait() == 0


def test_its_trace_passes_the_check(tmp_path, start):
    group = unique("trace")
    (tmp_path / "trace").mkdir()
    members = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "trace").symlink_to(tmp_path / "trace")
        options = ("--name", name, "--members", "2", "--data-dir", tmp_path / name, "--trace")
        members.append(start("pipe", group, *options))
    for member in members:
        member.write("".join(f"{number}\n" for number in range(500)))
        member.end_input()
    assert [member.wait() for member in members] == [0, 0]
    verdict = check_trace(tmp_path / "trace")
    assert verdict.ok
    assert verdict.events > 2000
