"""Backpressure in both directions, large messages, and tickets."""

from __future__ import annotations

import asyncio
import os
import signal
from itertools import pairwise

import pytest
from tests.group.party import Party, messages, run, view_of

import ordercast
from ordercast import Batch, DeliveryUncertain, Evicted, NotMember, View, WouldBlock
from ordercast.member import SEND_QUEUE_BYTES
from ordercast.net.driver import READER_BYTES_MAX, READER_MESSAGE_BYTES

BLOCK = bytes(50_000)


def figure(group: ordercast.Group, name: str) -> int:
    value = group.status()[name]
    assert isinstance(value, int)
    return value


def fill(group: ordercast.Group) -> int:
    """Sends until there is no room, and tells how many messages that took."""
    for accepted in range(100 * SEND_QUEUE_BYTES // len(BLOCK)):
        try:
            group.send_nowait(BLOCK)
        except WouldBlock:
            return accepted
    raise AssertionError("the queue is never full")


def test_a_full_queue_makes_send_wait_and_send_nowait_refuse(party: Party) -> None:
    async def main() -> None:
        async with party.join("a", discovery_s=0.1) as a:
            accepted = fill(a)
            # The queue itself, and what left it meanwhile.
            assert accepted * len(BLOCK) > SEND_QUEUE_BYTES
            assert figure(a, "queued_bytes") < SEND_QUEUE_BYTES + 2 * len(BLOCK)
            sending = asyncio.create_task(a.send(b"waits for room"))
            await messages(a, accepted)
            await (await sending)
            assert [message.data for message in await messages(a, 1)] == [b"waits for room"]

    run(main())


def test_a_send_that_is_cancelled_while_it_waits_sends_nothing(party: Party) -> None:
    async def main() -> None:
        async with party.join("a", discovery_s=0.1) as a:
            accepted = fill(a)
            sending = asyncio.create_task(a.send(b"never"))
            await asyncio.sleep(0)
            while sending.done():
                # The ring was faster: room came before the task did.
                accepted += 1 + fill(a)
                sending = asyncio.create_task(a.send(b"never"))
                await asyncio.sleep(0)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            reading = asyncio.create_task(messages(a, accepted + 1))
            await a.send(b"end")
            assert (await reading)[-1].data == b"end"

    run(main())


def test_a_slow_reader_slows_the_group_and_misses_nothing(party: Party) -> None:
    async def main() -> None:
        async with party.join("a") as a, party.join("b", min_members=2) as b:
            total = 2 * READER_BYTES_MAX // len(BLOCK)

            async def send() -> None:
                for _ in range(total):
                    await a.send(BLOCK)
                await a.send(b"end")

            sending = asyncio.create_task(send())
            reading = asyncio.create_task(messages(a, total + 1))
            while not b.status()["throttling"]:
                await asyncio.sleep(0.01)
            while not sending.done() and figure(a, "queued_bytes") < SEND_QUEUE_BYTES - 2 * len(BLOCK):
                await asyncio.sleep(0.01)
            unread = figure(b, "unread_bytes")
            # What was on its way when the reader's limit was reached: a window of packets.
            assert unread < READER_BYTES_MAX + 8_000_000
            assert not reading.done()
            assert (await messages(b, total + 1))[-1].data == b"end"
            await reading
            assert a.view.members == ("a", "b")
            assert not b.status()["throttling"]

    run(main())


def test_who_stops_reading_for_good_is_evicted_and_the_others_go_on(party: Party) -> None:
    async def main() -> None:
        async with party.join("a") as a:
            b = await party.join("b", min_members=2, slow_reader_timeout=0.5)
            stop = False

            async def send() -> None:
                while not stop:
                    await a.send(BLOCK)
                    await asyncio.sleep(0)

            await view_of(a, ["a", "b"])
            sending = asyncio.create_task(send())
            await view_of(a, ["a"])
            await messages(a, 50)
            stop = True
            await asyncio.gather(sending, messages(a, 0))
            with pytest.raises(NotMember) as refused:
                await b.send(b"too late")
            assert isinstance(refused.value.__cause__, Evicted)
            # What was delivered before is still there.
            await messages(b, READER_BYTES_MAX // (len(BLOCK) + READER_MESSAGE_BYTES))
            with pytest.raises(Evicted, match=r"0\.5 s"):
                await view_of(b, ["b"])
            await b.leave()

    run(main())


def test_leave_tells_of_an_eviction_that_nobody_has_seen(party: Party) -> None:
    async def main() -> None:
        async with party.join("a") as a:
            reading = asyncio.create_task(view_of(a, ["x"]))
            b = await party.join("b", min_members=2, slow_reader_timeout=0.2)
            for _ in range(2 * READER_BYTES_MAX // len(BLOCK)):
                await a.send(BLOCK)
            while b.status()["state"] != "ended":
                await asyncio.sleep(0.01)
            with pytest.raises(Evicted):
                await b.leave()
            reading.cancel()

    run(main())


def test_64_mib_between_two_processes(party: Party) -> None:
    size = 64 << 20
    ends = [party.start("large", name, size) for name in "ab"]
    for end in ends:
        said = end.hear()
        assert said["intact"] == {"a": True, "b": True}
        # For each of the two messages its pieces and the whole; beside them the queue and the window.
        assert said["grown_mb"] < 2 * 2 * 64 + 96


def test_tickets_pipeline_without_tasks(party: Party) -> None:
    async def main() -> None:
        async with party.join("a") as a, party.join("b", min_members=2) as b:
            reading = [asyncio.create_task(messages(group, 20_000)) for group in (a, b)]
            before = len(asyncio.all_tasks())
            tickets = [await a.send(b"%d" % number) for number in range(20_000)]
            assert len(asyncio.all_tasks()) == before
            last = await tickets[-1]
            assert all(ticket.done for ticket in tickets)
            receipts = [ticket.result() for ticket in tickets]
            assert last == receipts[-1]
            # Numbers begin anew in each view, and two members in one process on a busy machine may see another one.
            for one, next_one in pairwise(receipts):
                assert next_one.seq == (one.seq + 1 if one.view_id == next_one.view_id else 1)
            assert await tickets[17] == tickets[17].result()
            assert [m.data for m in await reading[1]] == [b"%d" % number for number in range(20_000)]
            await reading[0]

    run(main())


def test_a_ticket_may_be_awaited_by_many_and_cancelled_by_one(party: Party) -> None:
    async def main() -> None:
        async with party.join("a", discovery_s=0.1) as a:
            ticket = a.send_nowait(b"x")
            with pytest.raises(WouldBlock):
                ticket.result()

            async def wait() -> int:
                return (await ticket).seq

            waiters = [asyncio.create_task(wait()) for _ in range(3)]
            await asyncio.sleep(0)
            waiters[0].cancel()
            assert await asyncio.gather(*waiters[1:]) == [1, 1]

    run(main())


def test_the_fate_of_a_safe_message_that_a_view_change_leaves_open(party: Party) -> None:
    async def main() -> None:
        async with party.join("a") as a:
            other = party.start("listen", "b", 2)
            await view_of(a, ["a", "b"])
            assert other.hear() == {"view": ["a", "b"]}
            # It cannot say that it has the message, and then it is gone.
            os.kill(other.pid, signal.SIGSTOP)
            safe, agreed = a.send_nowait(b"s", service="safe"), a.send_nowait(b"a")
            os.kill(other.pid, signal.SIGKILL)
            with pytest.raises(DeliveryUncertain, match="membership changed"):
                await safe
            await agreed
            await view_of(a, ["a"])
            await (await a.send(b"s", service="safe"))

    run(main())


def test_one_stream_for_batches_of_two_services(party: Party) -> None:
    async def main() -> None:
        async with party.join("a", discovery_s=0.1) as a:
            for number in range(10):
                await a.send_many([b"%d" % number] * 3, service="safe" if number % 2 else "agreed")
            read: list[Batch] = []
            async for batch in a.batches():
                if isinstance(batch, View):
                    continue
                assert isinstance(batch, Batch)
                read.append(batch)
                if sum(map(len, read)) == 30:
                    break
            assert [b for batch in read for b in batch.bodies] == [b"%d" % n for n in range(10) for _ in range(3)]
            assert {batch.service for batch in read} == {"safe", "agreed"}

    run(main())
