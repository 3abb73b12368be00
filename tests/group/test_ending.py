"""Leaving, being cancelled, being dropped, and what is refused."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.group.party import Party, messages, run, view_of, wait_until

import ordercast
from ordercast import AuthError, DeliveryUncertain, GroupError, Message, NotMember
from ordercast.options import check_options


def test_leave_comes_after_the_own_messages_are_everywhere(party: Party) -> None:
    async def main() -> None:
        async with party.join("a") as a:
            b = await party.join("b", min_members=2)
            tickets = [b.send_nowait(bytes(100_000)) for _ in range(50)] + [b.send_nowait(b"last", service="safe")]
            reading = asyncio.create_task(messages(a, 51))
            await b.leave()
            assert all(ticket.done for ticket in tickets)
            assert (await tickets[-1]).seq == 51
            assert (await reading)[-1].data == b"last"
            assert (await view_of(a, ["a"])).left == ("b",)
            # What was delivered before is still there, and then the stream ends.
            assert len([event async for event in b if isinstance(event, Message)]) == 51
            await b.leave()

    run(main())


def test_nothing_works_after_leave(party: Party) -> None:
    async def main() -> None:
        async with party.join("a", discovery_s=0.1) as a:
            pass
        with pytest.raises(NotMember, match="has left"):
            await a.send(b"")
        with pytest.raises(NotMember, match="has left"):
            await a.send_many([b""])
        with pytest.raises(NotMember, match="has left"):
            a.send_nowait(b"")
        with pytest.raises(GroupError, match="joined already"):
            await a
        assert not party.threads()

    run(main())
    with party.join_sync("b", discovery_s=0.1) as b:
        pass
    with pytest.raises(NotMember, match="has left"):
        b.send(b"")


def test_leaving_wakes_a_reader_and_a_sender(party: Party) -> None:
    async def main() -> None:
        a = await party.join("a", discovery_s=0.1)

        async def read() -> int:
            return len([event async for event in a if isinstance(event, Message)])

        async def send() -> int:
            sent = 0
            try:
                while True:
                    await a.send(bytes(1_000_000))
                    sent += 1
            except NotMember:
                return sent

        sending = asyncio.create_task(send())
        await asyncio.sleep(0.05)
        reading = asyncio.create_task(read())
        await asyncio.sleep(0)
        await a.leave()
        assert await reading == await sending

    run(main())


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.15, 0.3, 0.45])
def test_a_join_that_is_cancelled_leaves_nothing_behind(party: Party, after_s: float) -> None:
    async def main() -> None:
        joining = asyncio.create_task(party.join("a", min_members=2).__aenter__())
        await asyncio.sleep(after_s)
        joining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await joining

    before = _sockets()
    run(main())
    wait_until(lambda: not party.threads(), "the end of the thread")
    wait_until(lambda: _sockets() <= before, "the sockets' end")


def test_a_leave_that_is_cancelled_ends_all_the_same(party: Party) -> None:
    async def main() -> None:
        async with party.join("a") as a:
            b = await party.join("b", min_members=2)
            b.send_nowait(bytes(30_000_000))
            leaving = asyncio.create_task(b.leave())
            await asyncio.sleep(0)
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            await view_of(a, ["a", "b"])
            await view_of(a, ["a"])
            with pytest.raises(NotMember):
                await b.send(b"")

    run(main())


def test_an_iteration_that_is_cancelled_can_be_taken_up(party: Party) -> None:
    async def main() -> None:
        async with party.join("a", discovery_s=0.1) as a:
            for number in range(20):
                reading = asyncio.create_task(messages(a, 1))
                await asyncio.sleep(0)
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
                a.send_nowait(b"%d" % number)
                assert [message.data for message in await messages(a, 1)] == [b"%d" % number]

    run(main())


def test_an_error_in_the_block_is_the_one_that_comes_out(party: Party) -> None:
    async def main() -> None:
        async with party.join("a", discovery_s=0.1):
            raise LookupError("the application's own")

    with pytest.raises(LookupError):
        run(main())


async def forget(holder: list[Any], complaints: pytest.WarningsRecorder) -> None:
    """Drops what the list holds; whatever still uses it for a moment ends first. The complaint keeps it alive."""
    holder.clear()
    while not complaints.list:
        gc.collect()
        await asyncio.sleep(0)


def test_a_group_that_is_dropped_complains_and_stops(party: Party) -> None:
    async def main() -> None:
        group = await party.join("a", discovery_s=0.1)
        await group.send(b"x")
        holder = [group]
        del group
        with pytest.warns(ResourceWarning, match="never left") as complaints:
            await forget(holder, complaints)

    run(main())
    wait_until(lambda: not party.threads(), "the end of the thread")
    blocking = [party.join_sync("b", discovery_s=0.1)]
    with pytest.warns(ResourceWarning, match="never left") as complaints:
        run(forget(blocking, complaints))
    wait_until(lambda: not party.threads(), "the end of the thread")


def test_a_group_whose_loop_is_closed_stops(party: Party) -> None:
    kept: list[ordercast.Group] = []

    async def main() -> None:
        kept.append(await party.join("a", discovery_s=0.1))
        kept[0].send_nowait(b"x")

    run(main())
    # The ring of one wakes now and then; the next time that it has something to tell it finds nobody.
    kept[0].send_nowait(b"y")
    wait_until(lambda: not party.threads(), "the end of the thread")
    assert kept[0].status()["state"] == "ended"


def test_a_group_whose_loop_is_closed_before_it_took_a_call_stops(party: Party) -> None:
    """The loop has accepted the driver's call and never makes it, so the driver must not wait for that."""
    loop = asyncio.new_event_loop()
    group = loop.run_until_complete(party.join("a", discovery_s=0.1).__aenter__())
    group.send_nowait(b"x")
    wait_until(lambda: group._joined()._scheduled, "a call to the loop, which does not run")
    loop.close()
    group.send_nowait(b"y")
    wait_until(lambda: not party.threads(), "the end of the thread")
    with pytest.raises(GroupError, match="loop was closed"):
        group._joined().member.conclude()


@pytest.mark.parametrize("delay_s", [0.0, 0.1])
def test_a_name_that_is_taken_is_refused_and_its_owner_undisturbed(party: Party, delay_s: float) -> None:
    async def main() -> None:
        async with party.join("a") as a, party.join("b", min_members=2) as b:
            await view_of(a, ["a", "b"])
            await view_of(b, ["a", "b"])
            views = [group.status()["counters"]["views"] for group in (a, b)]  # type: ignore[index]
            await asyncio.sleep(delay_s)
            for name in ("a", "b"):
                claim = party.start("claim", name)
                said = await asyncio.to_thread(claim.hear)
                assert said["kind"] == "GroupError"
                assert f"the name '{name}' is taken" in said["error"]
            ticket = await a.send(b"still one view")
            (message,) = await messages(b, 1)
            assert message.view_id == (await ticket).view_id == b.view.id
            assert [type(event) for event in (await messages(a, 1))] == [Message]
            assert [group.status()["counters"]["views"] for group in (a, b)] == views  # type: ignore[index]

    run(main())


def test_of_two_that_start_together_with_one_name_at_most_one_is_in(party: Party) -> None:
    claims = [party.start("claim", "a") for _ in range(3)]
    said = [claim.hear() for claim in claims]
    members = [each for each in said if "view" in each]
    assert len(members) <= 1, said
    assert all("is taken" in each["error"] for each in said if "error" in each)


def test_the_same_data_dir_twice_is_refused(party: Party) -> None:
    with (
        party.join_sync("a", discovery_s=0.1),
        pytest.raises(GroupError, match="in use"),
    ):
        party.join_sync("b", discovery_s=0.1, data_dir=party.directory / "a", trace=False)


def test_a_restart_under_the_same_name_at_once(party: Party) -> None:
    async def main() -> None:
        async with party.join("a") as a:
            for _ in range(3):
                async with party.join("b", min_members=2) as b:
                    await (await b.send(b"x", service="safe"))
                    await messages(a, 1)

    run(main())


def test_two_groups_and_many_members_in_one_process(party: Party, tmp_path: Path) -> None:
    other = Party(tmp_path / "other")

    async def main() -> None:
        names = "abcde"
        async with asyncio.timeout(30):
            groups = await asyncio.gather(
                *(party.join(name, min_members=5) for name in names),
                *(other.join(name, min_members=5) for name in names),
            )
            for group in groups:
                await group.send(group.name.encode())
            orders = [[m.data for m in await messages(group, 5)] for group in groups]
            assert orders[0] == orders[1] == orders[4]
            assert sorted(orders[0]) == [name.encode() for name in names]
            assert orders[5] == orders[9]
            await asyncio.gather(*(group.leave() for group in groups))

    run(main())
    other.close()
    other.check()


def test_a_forked_child_is_no_member(party: Party) -> None:
    with party.join_sync("a", discovery_s=0.1) as a:
        pid = os.fork()
        if pid == 0:
            try:
                a.send(b"from the child")
            except NotMember:
                os._exit(7)
            finally:
                os._exit(1)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        a.send(b"from the parent").wait(20)


def _sockets() -> int:
    descriptors = Path("/proc/self/fd")
    return sum("socket" in os.readlink(each) for each in descriptors.iterdir() if each.is_symlink())


BAD_OPTIONS = [
    ({"engine": "mtp"}, GroupError, "not available"),
    ({"engine": "raft"}, GroupError, "there is no engine"),
    ({"networks": []}, GroupError, "1 to 8 local addresses"),
    ({"networks": "127.0.0.1"}, GroupError, "1 to 8 local addresses"),
    ({"networks": [f"127.0.0.{n}" for n in range(1, 10)]}, GroupError, "1 to 8 local addresses"),
    ({"networks": ["localhost"]}, GroupError, "not an IPv4 address"),
    ({"networks": ["127.0.0.1", "127.0.0.1"]}, GroupError, "an address each"),
    ({"networks": ["127.0.0.1", "10.1.2.3"]}, AuthError, "needs a key"),
    ({"replication": "passive"}, GroupError, "redundant"),
    ({"networks": ["127.0.0.1", "127.0.0.2"], "replication": "both"}, GroupError, "not 'both'"),
    ({"networks": ["127.0.0.1", "127.0.0.2"], "replication": "active-passive:2"}, GroupError, "three networks or more"),
    ({"networks": ["127.0.0.1", "127.0.0.2"], "peers": ["127.0.0.1:7400"]}, GroupError, "there are 2 networks"),
    ({"peers": ["127.0.0.1:7400,127.0.0.2:7400"]}, GroupError, "has 2 addresses"),
    ({"start": "earliest"}, GroupError, "corel"),
    ({"trace": True}, GroupError, "data_dir"),
    ({"min_members": 0}, GroupError, "min_members"),
    ({"discovery_s": -1}, GroupError, "discovery_s"),
    ({"slow_reader_timeout": float("nan")}, GroupError, "slow_reader_timeout"),
    ({"name": "two words"}, GroupError, "a name has"),
    ({"networks": ["10.1.2.3"]}, AuthError, "needs a key"),
    ({"key": b"short"}, AuthError, "key"),
    ({"key": "/no/such/file"}, AuthError, "key"),
    ({"key": bytes(32), "insecure": True}, AuthError, "exclude"),
    ({"networks": ["10.1.2.3"], "insecure": True}, GroupError, "10.1.2.3"),
    ({"data_dir": "/proc/nowhere"}, GroupError, "data_dir /proc/nowhere"),
]


@pytest.mark.parametrize(("options", "kind", "text"), BAD_OPTIONS, ids=[str(each[0]) for each in BAD_OPTIONS])
def test_what_cannot_work_is_refused_in_one_line(options: dict[str, object], kind: type[Exception], text: str) -> None:
    async def main() -> None:
        await ordercast.join("refused", **options)  # type: ignore[arg-type]

    with pytest.raises(kind, match=text) as refused:
        run(main())
    assert "\n" not in str(refused.value)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ordercast refused")]


def test_a_member_with_a_trace_has_a_name_for_a_file(party: Party) -> None:
    with pytest.raises(GroupError, match="slash"):
        party.join_sync("../a", data_dir=party.directory / "x")


def test_names_are_made_up(party: Party) -> None:
    assert check_options("g").name != check_options("g").name


def test_a_group_cut_short_says_that_messages_are_uncertain(party: Party) -> None:
    async def main() -> None:
        a = await party.join("a", discovery_s=0.1)
        ticket = a.send_nowait(b"x" * 60_000_000)
        a._joined().member.driver.stop()
        with pytest.raises(DeliveryUncertain):
            await ticket
        with pytest.raises(DeliveryUncertain, match="1 messages"):
            await a.leave()

    run(main())
