"""One ordered stream: what is read, in which form, and that nothing of it is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Literal

import pytest
from tests.group.party import Party, messages, run, view_of

from ordercast import Batch, Group, GroupError, Message, MessageTooLarge, NotMember, TransitionalView, View
from ordercast.member import MESSAGE_BYTES_MAX


def test_all_members_read_one_order(party: Party) -> None:
    async def main() -> None:
        async with (
            party.join("a") as a,
            party.join("b", min_members=2) as b,
            party.join("c", min_members=3) as c,
        ):
            groups = (a, b, c)
            await view_of(a, ["a", "b", "c"])
            tickets = []
            for number in range(300):
                service: Literal["safe", "agreed"] = "safe" if number % 7 == 0 else "agreed"
                for group in groups:
                    tickets.append(await group.send(f"{group.name}{number}".encode(), service=service))
            order = [[(m.sender, m.data) for m in await messages(group, 900)] for group in groups]
            assert order[0] == order[1] == order[2]
            for name in "abc":
                assert [data for sender, data in order[0] if sender == name] == [
                    f"{name}{number}".encode() for number in range(300)
                ]
            receipts = [await ticket for ticket in tickets]
            assert sorted(receipt.seq for receipt in receipts) == sorted([*range(1, 301)] * 3)

    run(main())


def test_the_first_view_is_that_of_the_group(party: Party) -> None:
    async def main() -> None:
        async with party.join("a") as a:
            first = await anext(aiter(a))
            assert isinstance(first, View)
            assert first.members == first.joined == ("a",)
            assert first.left == ()
            async with party.join("b") as b:
                seen = await anext(aiter(b))
                assert isinstance(seen, View)
                assert seen.members == seen.joined == ("a", "b")
                assert b.view.members == ("a", "b")
                events = aiter(a)
                between = await anext(events)
                assert isinstance(between, TransitionalView)
                assert between.members == ("a",)
                assert await anext(events) == View(seen.id, ("a", "b"), ("b",), ())
            gone = await view_of(a, ["a"])
            assert gone.left == ("b",)

    run(main())


def test_join_waits_for_min_members(party: Party) -> None:
    async def main() -> None:
        joining = asyncio.ensure_future(party.join("a", min_members=2).__aenter__())
        async with party.join("b"):
            a = await joining
            assert a.view.members == ("a", "b")
            await a.leave()

    run(main())


def test_leaving_the_loop_and_coming_back_loses_nothing(party: Party) -> None:
    async def main() -> None:
        async with party.join("a") as a:
            await (await a.send_many([b"%d" % number for number in range(100)]))
            got = [message.data for _ in range(20) for message in await messages(a, 2)]
            rest = [m.data async for batch in _batches(a, 60) for m in batch]
            assert got + rest == [b"%d" % number for number in range(100)]

    async def _batches(group: Group, count: int) -> AsyncIterator[Batch]:
        async for batch in group.batches():
            if isinstance(batch, Batch):
                yield batch
                count -= len(batch)
                if count <= 0:
                    return

    run(main())


def test_a_wait_that_times_out_leaves_the_iterator_usable(party: Party) -> None:
    async def main() -> None:
        async with party.join("a") as a:
            events = aiter(a)
            assert isinstance(await anext(events), View)
            for number in range(5):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(events), 0.01)
                await a.send(b"%d" % number)
                event = await anext(events)
                assert isinstance(event, Message)
                assert event.data == b"%d" % number

    run(main())


def test_batches_are_columns(party: Party) -> None:
    async def main() -> None:
        async with party.join("a") as a:
            ticket = await a.send_many([b"", b"x", b"yy" * 10_000, b"z"], keys=[None, b"k", b"", b"kk"])
            receipt = await ticket
            assert receipt[:2] == (a.view.id, 4)
            read: list[Message] = []
            async for batch in a.batches():
                if isinstance(batch, Batch):
                    assert len(batch.lengths) == len(batch)
                    assert sum(batch.lengths) == len(batch.blob)
                    assert (batch.sender, batch.view_id) == ("a", a.view.id)
                    assert batch.seq == len(read) + 1
                    assert list(batch.bodies) == [message.data for message in batch]
                    assert [message.data for message in batch.tail(1)] == list(batch.bodies)[-1:]
                    read += batch
                    if len(read) == 4:
                        break
            assert [message.data for message in read] == [b"", b"x", b"yy" * 10_000, b"z"]
            assert [message.key for message in read] == [None, b"k", b"", b"kk"]
            assert [message.seq for message in read] == [1, 2, 3, 4]

    run(main())


def test_key_headers_and_the_senders_clock_travel(party: Party) -> None:
    async def main() -> None:
        async with party.join("a") as a, party.join("b") as b:
            before = time.time_ns() // 1000
            await b.send(b"data", key=b"key", headers=[("h", b"1"), ("h", b""), ("ü", b"\xff")])
            await b.send(b"plain", service="safe")
            first, second = await messages(a, 2)
            assert (first.data, first.key, first.headers) == (
                b"data",
                b"key",
                [("h", b"1"), ("h", b""), ("ü", b"\xff")],
            )
            assert before <= first.timestamp_us <= time.time_ns() // 1000
            assert (second.data, second.key, second.headers, second.service) == (b"plain", None, None, "safe")

    run(main())


@pytest.mark.parametrize("size", [0, 1, 7_000, 7_800, 8_000, 65_536, 1_000_000])
def test_messages_of_all_sizes(party: Party, size: int) -> None:
    async def main() -> None:
        async with party.join("a", discovery_s=0.1) as a:
            data = bytes(number & 255 for number in range(size % 1000)) * (size // 1000 or 1)
            await a.send(memoryview(bytearray(data)))  # type: ignore[arg-type]
            (message,) = await messages(a, 1)
            assert message.data == data

    run(main())


def test_what_cannot_be_sent_is_refused_and_the_group_goes_on(party: Party) -> None:
    async def main() -> None:
        async with party.join("a", discovery_s=0.1) as a:
            with pytest.raises(MessageTooLarge, match="at most"):
                await a.send(bytes(MESSAGE_BYTES_MAX + 1))
            with pytest.raises(MessageTooLarge):
                await a.send(bytes(MESSAGE_BYTES_MAX), key=b"k")
            with pytest.raises(TypeError):
                await a.send("text")  # type: ignore[arg-type]
            with pytest.raises(TypeError):
                await a.send_many(b"one message")  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="service"):
                await a.send(b"", service="fast")  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="keys"):
                await a.send_many([b"1", b"2"], keys=[b"k"])
            assert (await (await a.send_many([]))).seq == 0
            await (await a.send(b"good"))
            (message,) = await messages(a, 1)
            assert message.data == b"good"

    run(main())


def test_status_tells_where_it_stands(party: Party) -> None:
    async def main() -> None:
        group = party.join("a", discovery_s=0.1)
        for use in (lambda: group.view, group.status, lambda: aiter(group), lambda: group.send_nowait(b"")):
            with pytest.raises(NotMember, match="not been joined"):
                use()
        async with group:
            await (await group.send(b"x"))
            status = group.status()
            assert status["members"] == ["a"]
            assert (status["submitted"], status["delivered_own"], status["state"]) == (1, 1, "operational")
            with pytest.raises(GroupError, match="joined already"):
                await group
        assert group.status()["state"] == "ended"

    run(main())


def test_the_blocking_twin(party: Party) -> None:
    with party.join_sync("a") as a, party.join_sync("b", min_members=2) as b:
        tickets = [b.send(b"%d" % number) for number in range(10)] + [b.send_many([b"x"] * 5, service="safe")]
        assert [ticket.wait(20).seq for ticket in tickets] == [*range(1, 11), 15]
        events = iter(a)
        seen = [next(events) for _ in range(3)]
        assert [type(event) for event in seen] == [View, TransitionalView, View]
        assert [next(events).data for _ in range(10)] == [b"%d" % number for number in range(10)]  # type: ignore[union-attr]
        rest = next(a.batches())
        assert isinstance(rest, Batch)
        assert rest.service == "safe"
        b.send_nowait(b"last").wait()
    # Both are left; what was delivered before is still there to be read.
    assert [event.data for event in a if isinstance(event, Message)][-1] == b"last"
