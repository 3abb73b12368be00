"""Members that serve their log, by the option `serve`: a real group, read and published into from outside."""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import ordercast
from durable.party import Party, take, wait_until
from ordercast import sync
from ordercast.errors import AuthError, GroupError, NotPrimary
from ordercast.log import LogReader
from ordercast.serve import Client, RemoteLog, parse_server
from ordercast.serve import messages as m
from ordercast.serve.stages import encode_rows
from ordercast.wire.keys import load_key

HERE = "127.0.0.1:0"


def address(member: Any) -> tuple[str, int]:
    return parse_server(str(member.status()["serves"]))


def rows_of(bodies: list[bytes]) -> bytes:
    ends = [0]
    for body in bodies:
        ends.append(ends[-1] + len(body))
    return encode_rows((b"".join(end.to_bytes(4, "little") for end in ends), b"".join(bodies)), None, None)


def publish(client: Client, number: int, bodies: list[bytes]) -> m.Committed:
    stage = uuid.uuid4().hex
    client.ask(m.Stage(stage), type(None), [rows_of(bodies)])
    return client.ask(m.Commit(m.Batch("app", "query", number, len(bodies), uuid.uuid4().hex), (stage,)), m.Committed)


def data_of(log: Any) -> list[bytes]:
    return [bytes(data) for batch in log.read(log.earliest) for data in batch]


def test_a_group_is_read_and_published_into_from_outside(party: Party) -> None:
    one, two = party.join("n1", "n2", serve=HERE)
    one.send_many([b"%d" % number for number in range(1000)]).wait(60)
    remote = RemoteLog([address(two)])
    wait_until(lambda: remote.refresh() == 1000, "the order at the other member")
    assert remote.group == party.group
    assert data_of(remote) == [b"%d" % number for number in range(1000)]

    # A batch that is larger than the chunks which the engine makes is one chunk all the same: all of it or nothing.
    bodies = [b"%06d" % number * 200 for number in range(1000)]
    client = Client([address(one)])
    assert publish(client, 0, bodies) == m.Committed(False, 1000)
    assert publish(client, 0, bodies) == m.Committed(True, 1000)
    wait_until(lambda: remote.refresh() == 2000, "the batch at the other member")
    (chunk,) = remote.read(1000)
    assert len(chunk) == 1000
    assert data_of(LogReader(party.directory / "n2"))[1000:] == bodies
    assert [message.data for message in take(two, 2000)][1000:] == bodies
    client.close()
    remote.close()

    # What is served ends with the membership.
    port = address(one)
    one.leave()
    assert one.status()["serves"] is None
    with pytest.raises(GroupError, match="no member can be reached"):
        RemoteLog([port])
    assert not (party.directory / "n1" / "stages").exists()


def test_a_batch_that_was_published_is_known_after_restarts_and_elsewhere(party: Party) -> None:
    one, two = party.join("n1", "n2", serve=HERE)
    client = Client([address(one)])
    assert publish(client, 7, [b"once"]) == m.Committed(False, 1)
    client.close()
    with closing(RemoteLog([address(two)])) as remote:
        wait_until(lambda: remote.refresh() == 1, "the batch at the other member")
    party.stop("n1")
    (one,) = party.join("n1", serve=HERE)
    party.wait_for_primary()
    for member in (one, two):
        client = Client([address(member)])
        assert publish(client, 7, [b"once"]) == m.Committed(True, 1)
        client.close()
    assert data_of(LogReader(party.directory / "n2")) == [b"once"]


def test_a_minority_publishes_nothing(party: Party) -> None:
    (one, _, _) = party.join("n1", "n2", "n3", serve=HERE)
    party.wait_for_primary()
    party.stop("n2", "n3")
    wait_until(lambda: not one.view.primary, "the minority")
    client = Client([address(one)])
    with pytest.raises(NotPrimary, match="the member is in no primary component"):
        publish(client, 0, [b"x"])
    client.close()


def test_an_asynchronous_member_serves_too(tmp_path: Path) -> None:
    async def main() -> None:
        group = ordercast.join(
            f"serving {uuid.uuid4().hex}", name="n1", engine="corel", data_dir=tmp_path, founders=1, serve=HERE
        )
        async with group:
            while not group.view.primary:
                await asyncio.sleep(0.01)
            client = Client([address(group)])
            assert await asyncio.to_thread(publish, client, 0, [b"x", b"y"]) == m.Committed(False, 2)
            client.close()
            remote = await asyncio.to_thread(RemoteLog, [address(group)])
            assert data_of(remote) == [b"x", b"y"]
            remote.close()
        assert group.status()["serves"] is None

    asyncio.run(main())


def test_the_group_s_key_is_asked_for_and_rotated(party: Party) -> None:
    raw, new = os.urandom(32), os.urandom(32)
    (one,) = party.join("n1", serve=HERE, key=raw)
    for key, reason in ((None, "the group has a key"), (load_key(new), "the group has another key")):
        with pytest.raises(AuthError, match=reason):
            RemoteLog([address(one)], key)
    RemoteLog([address(one)], load_key(raw)).close()
    one.rotate_key(new)
    RemoteLog([address(one)], load_key(new)).close()


def test_a_forked_child_serves_nothing(party: Party) -> None:
    (one,) = party.join("n1", serve=HERE)
    remote = RemoteLog([address(one)])
    child = os.fork()
    if not child:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert remote.refresh() == 0
    RemoteLog([address(one)]).close()
    remote.close()


def test_an_address_that_is_taken_is_known_before_anybody_is_joined(party: Party) -> None:
    (one,) = party.join("n1", serve=HERE)
    host, port = address(one)
    with pytest.raises(GroupError, match=rf"cannot serve the log at {host}:{port}: Address already in use"):
        party.join("n2", serve=f"{host}:{port}", founders=0, min_members=1)
    assert list(one.view.members) == ["n1"]


BAD = {
    "no log": ({"engine": "totem", "founders": None}, HERE, GroupError, "serve belongs to the engine 'corel'"),
    "no port": ({}, "127.0.0.1", GroupError, "serve: '127.0.0.1' is not of the form HOST:PORT"),
    "no address": ({}, "here:7500", GroupError, "serve: 'here' is not an IPv4 address of this machine"),
    "no secret": ({}, "0.0.0.0:0", AuthError, r"off loopback \(0.0.0.0\) a group needs a key"),
    "not mine": ({"insecure": True}, "192.0.2.7:7500", GroupError, "cannot serve the log at 192.0.2.7:7500: Cannot"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_refused(case: str, tmp_path: Path) -> None:
    options, place, error, reason = BAD[case]
    with pytest.raises(error, match=reason):
        sync.join("some group", **{"engine": "corel", "data_dir": tmp_path, "founders": 1, "serve": place, **options})


def test_off_loopback_goes_with_a_word(party: Party) -> None:
    (one,) = party.join("n1", serve="0.0.0.0:0", insecure=True)
    _, port = address(one)
    with socket.create_connection(("127.0.0.1", port)):
        pass
    RemoteLog([("127.0.0.1", port)]).close()
