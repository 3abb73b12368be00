"""A member's log over TCP: what is read, who may, and what is said when it does not work."""

from __future__ import annotations

import contextlib
import socket
import threading
from itertools import pairwise
from struct import pack

import pytest

from ordercast.errors import AuthError, GroupError
from ordercast.log import LogReader
from ordercast.serve import Client, LogServer, RemoteLog, channel, parse_server, server
from ordercast.serve import messages as m
from ordercast.serve.channel import HELLO, Channel, ChannelClosed, connect
from ordercast.wire.keys import GroupKey
from serve.member import Member

KEY, OTHER = GroupKey(bytes(range(32))), GroupKey(bytes(32))


@pytest.fixture(params=[(), (KEY,)], ids=["plain", "sealed"])
def member(request, tmp_path):
    member = Member(tmp_path / "data", request.param)
    member.log.add_view(["n1"], 1)
    member.log.add_many(30, 100)
    member.log.add([b"keyed", b"x"], [b"k", None])
    yield member
    member.close()


def key_of(member):
    return member._keys[0] if member._keys else None


@pytest.fixture
def remote():
    """Makes remote logs; they are closed with the test."""
    made = []

    def remote(member, *servers, key=None) -> RemoteLog:
        made.append(RemoteLog(servers or [member.server.address], key or key_of(member)))
        return made[-1]

    yield remote
    for log in made:
        log.close()


def rows(log, start, end):
    return [(batch.offset, batch.sender, batch.seq, *batch.records()) for batch in log.read(start, end)]


def test_a_remote_log_is_the_log(remote, member):
    mine, theirs = LogReader(member.log.folder), remote(member)
    assert (theirs.group, theirs.earliest, theirs.end) == ("orders", 0, 3002)
    for start, end in ((0, 3002), (150, 151), (99, 2901), (3002, 3002)):
        assert rows(theirs, start, end) == rows(mine, start, end)
    assert [*theirs.views(0)] == [*mine.views(0)]
    assert theirs.offset_of_time(1_700_000_000_005_000) == mine.offset_of_time(1_700_000_000_005_000) == 500
    parts = theirs.parts(10, 3000, 10_000)
    assert len(parts) > 3
    assert parts[0].start == 10
    assert parts[-1].end == 3000
    assert all(one.end == two.start for one, two in pairwise(parts))
    member.log.add_many(1, 10)
    assert theirs.refresh() == 3012


def test_ranges_come_in_many_answers(remote, member, monkeypatch):
    monkeypatch.setattr(server, "READ_BYTES_MAX", 5000)
    assert rows(remote(member), 0, 3002) == rows(LogReader(member.log.folder), 0, 3002)


def test_a_connection_that_breaks_is_made_anew(remote, member):
    log = remote(member)
    member.restart()
    assert log.refresh() == 3002


def test_what_retention_removed(remote, member):
    log = remote(member)
    member.log.drop_before(3000)
    log.refresh()
    with pytest.raises(GroupError, match="offset 0 is no longer in the log, which begins with"):
        next(log.read(0))


def test_the_next_member_answers_when_one_is_gone(remote, member):
    nobody = unused()
    log = remote(member, nobody, member.server.address)
    assert log.end == 3002
    with pytest.raises(GroupError, match=r"no member can be reached \(127\.0\.0\.1:\d+: Connection refused\)"):
        RemoteLog([nobody])


def unused() -> tuple[str, int]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()


@pytest.mark.parametrize(
    ("mine", "theirs", "reason"),
    [
        ((KEY,), None, "the group has a key: use option key"),
        ((KEY,), OTHER, "the group has another key"),
        ((), KEY, "the group has no key"),
    ],
)
def test_who_has_another_key_is_refused(tmp_path, mine, theirs, reason):
    member = Member(tmp_path, mine)
    with pytest.raises(AuthError, match=reason):
        RemoteLog([member.server.address], theirs)
    member.close()


def test_a_key_can_be_rotated(remote, tmp_path):
    member = Member(tmp_path, [KEY, OTHER])
    for key in (KEY, OTHER):
        assert remote(member, key=key).end == 0
    member.close()


def test_a_client_that_only_claims_to_have_the_key_gets_nothing(tmp_path):
    member = Member(tmp_path, [KEY])
    with socket.create_connection(member.server.address) as sock:
        sock.settimeout(5)
        sock.sendall(HELLO.pack(b"OCSV", 1, bytes.fromhex(KEY.id), bytes(16)))
        assert len(sock.recv(1000)) == HELLO.size
        head = m.encode(m.Info())
        sock.sendall(pack("<II", 4 + len(head), len(head)) + head)
        assert sock.recv(1000) == b""
    member.close()


@pytest.mark.parametrize("damage", ["changed", "repeated", "dropped"])
def test_tampering_is_noticed(tmp_path, damage):
    """Somebody in between changes a sealed frame, sends one twice, or leaves one out."""
    member = Member(tmp_path, [KEY])
    member.log.add_many(1, 10)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    out = socket.create_connection(member.server.address)
    client: list[Channel] = []
    maker = threading.Thread(target=lambda: client.append(connect(near, KEY)))
    maker.start()
    out.sendall(far.recv(HELLO.size))
    far.sendall(out.recv(HELLO.size))
    maker.join()
    client[0].send(m.encode(m.Info()))
    first = far.recv(65536)
    if damage == "changed":
        out.sendall(first[:-1] + bytes([first[-1] ^ 1]))
    else:
        client[0].send(m.encode(m.Info()))
        second = far.recv(65536)
        out.sendall(first + first if damage == "repeated" else second)
    out.settimeout(5)
    seen = b""
    while data := out.recv(65536):
        seen += data
    # Of what was tampered with nothing is answered, and the connection ends.
    frames = 0
    while seen:
        seen = seen[4 + int.from_bytes(seen[:4], "little") :]
        frames += 1
    assert frames == (1 if damage == "repeated" else 0)
    client[0].close()
    out.close()
    far.close()
    member.close()


@pytest.mark.parametrize(
    "bytes_",
    [b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", b"OCSV\x09" + bytes(20), b"\0" * 100],
    ids=["web", "version", "zeros"],
)
def test_strangers_do_no_harm(remote, tmp_path, bytes_):
    member = Member(tmp_path)
    member.log.add_many(1, 10)
    with socket.create_connection(member.server.address) as sock:
        sock.settimeout(5)
        sock.sendall(bytes_)
        with contextlib.suppress(ConnectionResetError):
            while sock.recv(1000):
                pass
    assert remote(member).end == 10
    member.close()


def test_what_answers_is_no_member(tmp_path):
    def answer() -> None:
        sock, _ = listener.accept()
        sock.recv(1000)
        sock.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        sock.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(GroupError, match="is no member of an ordercast group"):
            RemoteLog([listener.getsockname()])
        thread.join()


def test_bad_questions_are_answered_and_change_nothing(remote, member):
    client = Client([member.server.address], key_of(member))
    for request, reason in (
        (m.Stage("../../etc/passwd"), "a stage without a proper name"),
        (m.Fetch("0" * 32), "is not here"),
        (m.Read(0, 10**9, 100), "is not in the log yet, which ends at 3002"),
    ):
        with pytest.raises(GroupError, match=reason):
            client.ask(request, type(None))
    raw = connect(socket.create_connection(member.server.address), key_of(member))
    raw.send(b"\xc1 nonsense")
    head, _ = raw.receive()
    assert b"not a question of this protocol" in head
    raw.close()
    client.close()


def test_an_address_that_is_taken(remote, member):
    with pytest.raises(GroupError, match=r"cannot serve the log at 127\.0\.0\.1:\d+: .*in use"):
        LogServer(member.log.folder, member.server.address, lambda: ())


@pytest.mark.parametrize("text", ["", "host", ":5", "host:", "host:http", "host:70000"])
def test_what_is_no_server(text):
    with pytest.raises(GroupError, match="is not of the form HOST:PORT"):
        parse_server(text)


def test_a_member_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(channel, "HANDSHAKE_TIMEOUT_S", 0.05)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(GroupError, match=r"no member can be reached .*the other side does not answer"),
    ):
        RemoteLog([silent.getsockname()])
    assert issubclass(ChannelClosed, GroupError)
