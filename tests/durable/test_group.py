"""A durable group by its public interface: offsets, tickets, states, restarts, replay, minorities, changes."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import ordercast
from durable.party import Party, places, take, views, wait_until
from ordercast import sync
from ordercast.durable import UNREAD_BYTES_MAX, Retention
from ordercast.errors import GroupError, LogCorrupt, NotPrimary
from ordercast.events import Batch, Message, Snapshot
from ordercast.log import LogReader

NAMES = ("n1", "n2", "n3")


def test_one_order_with_offsets_and_tickets(party: Party) -> None:
    members = party.join(*NAMES)
    first = views(members[0], lambda view: bool(view.primary))[-1]
    assert sorted(first.members) == list(NAMES)
    tickets = [
        member.send_many([b"%s %d" % (member.name.encode(), number) for number in range(50)]) for member in members
    ]
    streams = [take(member, 150) for member in members]
    assert places(streams[0]) == places(streams[1]) == places(streams[2])
    assert [message.offset for message in streams[0]] == list(range(150))
    for member, ticket in zip(members, tickets, strict=True):
        receipt = ticket.wait(60)
        assert receipt.offset is not None
        assert streams[0][receipt.offset].data == b"%s 49" % member.name.encode()
        assert ticket.state == "ordered"


def test_the_log_of_a_member_that_has_left_ends_with_what_was_ordered(party: Party) -> None:
    one, _ = party.join("n1", "n2")
    party.wait_for_primary()
    one.send_many([b"%d" % number for number in range(5000)])
    one.leave()
    assert LogReader(party.directory / "n1").end == 5000


def test_keys_headers_and_batches(party: Party) -> None:
    (one,) = party.join("n1")
    one.send_many([b"a", b"b"], keys=[b"k", None], headers=[None, [("h", b"v")]])
    one.send(b"c", "safe")
    found = take(one, 1)
    rest = next(batch for batch in one.batches() if isinstance(batch, Batch))
    found += [*rest]
    while len(found) < 3:
        found += take(one, 1)
    assert [(m.offset, m.data, m.key, m.headers, m.service) for m in found] == [
        (0, b"a", b"k", None, "agreed"),
        (1, b"b", None, [("h", b"v")], "agreed"),
        (2, b"c", None, None, "safe"),
    ]


def test_a_restart_goes_on_and_start_replays(party: Party) -> None:
    members = party.join(*NAMES)
    members[0].send_many([b"%d" % number for number in range(30)]).wait(60)
    for member in members:
        take(member, 30)
    party.stop(*NAMES)
    members = party.join(*NAMES, start=30)
    party.wait_for_primary()
    members[2].send(b"after").wait(60)
    assert [places(take(member, 1)) for member in members] == [[(30, b"after")]] * 3
    expected = [(number, b"%d" % number) for number in range(30)] + [(30, b"after")]
    for start, first in (("earliest", 0), (17, 17), ("25", 25)):
        party.stop("n2")
        (again,) = party.join("n2", start=start)
        assert places(take(again, 31 - first)) == expected[first:]
    party.stop("n2")
    (latest,) = party.join("n2", start="latest")
    party.wait_for_primary()
    latest.send(b"last").wait(60)
    assert places(take(latest, 1)) == [(31, b"last")]


def test_a_minority_sends_and_its_messages_are_ordered_later(party: Party) -> None:
    members = party.join(*NAMES)
    members[0].send(b"together").wait(60)
    party.stop(*NAMES)
    (alone,) = party.join("n1")
    assert alone.view.primary is False
    ticket = alone.send(b"alone")
    ticket.reached("stable", 60)
    assert ticket.state == "stable"
    with pytest.raises(TimeoutError):
        ticket.wait(0.05)
    with pytest.raises(NotPrimary):
        alone.add_member("n4")
    party.members.pop("n1")
    with pytest.raises(NotPrimary, match="outside a primary component"):
        alone.leave()
    with pytest.raises(NotPrimary):
        ticket.wait(60)
    others = party.join("n1", "n2", start=1)
    party.wait_for_primary()
    assert [places(take(member, 1)) for member in others] == [[(1, b"alone")]] * 2


def test_a_member_that_was_away_gets_what_it_missed(party: Party) -> None:
    members = party.join(*NAMES)
    members[0].send(b"0").wait(60)
    party.stop("n3")
    members[0].send_many([b"%d" % number for number in range(1, 200)]).wait(60)
    (back,) = party.join("n3", start=0)
    assert places(take(back, 200)) == [(number, b"%d" % number) for number in range(200)]


def test_a_slow_reader_holds_up_nobody_and_misses_nothing(party: Party) -> None:
    one, two = party.join("n1", "n2")
    size = UNREAD_BYTES_MAX // 40
    bodies = [b"%d " % number + bytes(size) for number in range(60)]
    for body in bodies:
        one.send(body)
    one.send(b"end").wait(60)
    assert two._member.stream.reader_backlog() == 0
    assert not two.status()["throttling"]
    assert [message.data.split(b" ")[0] for message in take(two, 60)] == [b"%d" % number for number in range(60)]
    one.send(b"later").wait(60)
    assert [message.data for message in take(two, 2)] == [b"end", b"later"]


def test_a_new_member_is_added_and_counts(party: Party) -> None:
    one, two = party.join("n1", "n2")
    one.send_many([b"%d" % number for number in range(10)]).wait(60)
    (new,) = party.join("n3", founders=0)
    one.add_member("n3").wait(60)
    assert places(take(new, 10)) == [(number, b"%d" % number) for number in range(10)]
    wait_until(lambda: bool(new.view.primary), "n3 is in the primary component")
    new.send(b"mine").wait(60)
    assert [message.data for message in take(two, 11)][-1] == b"mine"
    party.stop("n1")
    wait_until(lambda: len(two.view.members) == 2 and bool(two.view.primary), "n2 and n3 are a majority of three")
    two.remove_member("n1").wait(60)
    new.send(b"on").wait(60)


def test_a_member_is_brought_up_from_a_snapshot_when_the_log_is_gone(party: Party) -> None:
    one, two = party.join("n1", "n2", retention=Retention(snapshots=True))
    for disk in (one._member.durable.disk, two._member.durable.disk):  # type: ignore[union-attr]
        disk._writer.segment_bytes = 4096
    sent = 0
    while min(int(m.status()["log"]["earliest"]) for m in (one, two)) == 0:  # type: ignore[index, call-overload]
        one.send_many([b"x" * 100] * 50).wait(60)
        sent += 50
        for member in (one, two):
            take(member, 50)
            durable = member._member.durable
            assert durable is not None
            durable.disk._retain_at = 0.0
            member.offer_snapshot(sent, b"state %d" % sent)
        assert sent < 20_000
    (new,) = party.join("n3", founders=0, start=0)
    one.add_member("n3").wait(60)
    event = next(event for event in new if isinstance(event, (Snapshot, Message)))
    assert isinstance(event, Snapshot)
    assert event.data == b"state %d" % event.offset
    one.send(b"after").wait(60)
    assert take(new, sent - event.offset + 1)[-1].data == b"after"


def test_what_cannot_be_joined(party: Party, tmp_path: Path) -> None:
    with pytest.raises(GroupError, match="data_dir"):
        sync.join("g", engine="corel")
    with pytest.raises(GroupError, match="say how many members found the group"):
        sync.join("g", engine="corel", data_dir=tmp_path / "new")
    with pytest.raises(GroupError, match="belongs to the engine 'corel'"):
        sync.join("g", start=3)
    (one,) = party.join("n1")
    one.send_many([b"x" * 1000] * 20).wait(60)
    party.stop("n1")
    path = next((tmp_path / "n1" / "log").glob("*.seg"))
    data = bytearray(path.read_bytes())
    data[2000] ^= 1
    path.write_bytes(data)
    with pytest.raises(LogCorrupt, match=r"damaged at byte \d+"):
        party.join("n1")
    assert path.read_bytes() == bytes(data)


def test_a_failed_write_ends_the_member_and_the_others_go_on(party: Party) -> None:
    members = party.join(*NAMES)
    members[0].send(b"before").wait(60)
    durable = members[2]._member.durable
    assert durable is not None
    durable.disk._writer.broken = OSError(28, "No space left on device")
    members[0].send(b"after").wait(60)
    with pytest.raises(GroupError, match="the log has failed"):
        take(members[2], 10)
    with pytest.raises(GroupError):
        members[2].send(b"never").wait(60)
    assert [message.data for message in take(members[1], 2)] == [b"before", b"after"]
    party.members.pop("n3")
    (back,) = party.join("n3", start=0)
    assert [message.data for message in take(back, 2)] == [b"before", b"after"]


def test_the_log_is_read_beside_the_member(party: Party, tmp_path: Path) -> None:
    (one,) = party.join("n1")
    followed: list[bytes] = []
    done = threading.Event()

    def follow() -> None:
        for batch in LogReader(tmp_path / "n1").follow(0):
            followed.extend(batch)
            if len(followed) >= 100:
                break
        done.set()

    reader = threading.Thread(target=follow)
    reader.start()
    for number in range(100):
        one.send(b"%d" % number)
    assert done.wait(60)
    reader.join()
    assert followed == [b"%d" % number for number in range(100)]


def test_the_asynchronous_face(tmp_path: Path) -> None:
    async def main() -> None:
        async with ordercast.join("async corel", engine="corel", data_dir=tmp_path, founders=1) as group:
            ticket = await group.send(b"x")
            await ticket.reached("received")
            receipt = await ticket
            assert receipt.offset == 0
            async for event in group:
                if isinstance(event, Message):
                    assert (event.offset, event.data) == (0, b"x")
                    break
            (await group.add_member("n2"))
            assert group.view.primary

    asyncio.run(main())
