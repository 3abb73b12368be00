"""Groups over redundant networks, on loopback: the application notices nothing but the reports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.group.party import Party, messages, run

import ordercast
from ordercast import Message, NetworkFault, NetworkRepaired, TransitionalView, View

NETWORKS = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
pytestmark = pytest.mark.usefixtures("patient")

STYLES = [("active", 2), ("passive", 2), ("active-passive:2", 3)]
KEY = bytes(range(32))


def cut(group: ordercast.Group, via: int) -> None:
    """One network brings this member nothing, and takes nothing of it."""
    network: Any = group._joined().member.networks[via]
    network.drain = network.drain_unicast = lambda: _emptied(network)
    network.broadcast = network.unicast = lambda *_: None


def mend(group: ordercast.Group, via: int) -> None:
    network: Any = group._joined().member.networks[via]
    del network.drain, network.drain_unicast, network.broadcast, network.unicast


def _emptied(network: Any) -> list[Any]:
    type(network).drain(network)
    type(network).drain_unicast(network)
    return []


async def report_of(group: ordercast.Group, kind: type[Any], got: list[Message]) -> Any:
    """Reads on to a report; views on the way there are a failure, messages are kept."""
    async for event in group:
        if isinstance(event, kind):
            return event
        if isinstance(event, Message):
            got.append(event)
        else:
            assert not isinstance(event, (View, TransitionalView)), event
    raise AssertionError("the stream ended")


@pytest.mark.parametrize(("replication", "count"), STYLES, ids=[style for style, _ in STYLES])
def test_a_network_is_cut_and_mended_under_load(party: Party, replication: str, count: int) -> None:
    networks = NETWORKS[:count]

    async def talk(group: ordercast.Group, stop: asyncio.Event) -> int:
        sent = 0
        while not stop.is_set():
            tickets = [await group.send(b"%d" % (sent + n)) for n in range(20)]
            sent += 20
            for ticket in tickets:
                await ticket
        return sent

    async def main() -> None:
        async with AsyncExitStack() as stack:
            members = await asyncio.gather(
                *(
                    stack.enter_async_context(
                        party.join(name, networks=networks, replication=replication, key=KEY, min_members=3)
                    )
                    for name in "abc"
                )
            )
            for member in members:
                assert isinstance(await anext(aiter(member)), View)
            stop = asyncio.Event()
            talkers = [asyncio.create_task(talk(member, stop)) for member in members]
            got: list[list[Message]] = [[], [], []]
            cut(members[1], 1)
            faults = await asyncio.gather(*map(report_of, members, [NetworkFault] * 3, got))
            assert {(fault.number, fault.network) for fault in faults} == {(2, networks[1])}
            assert all(set(fault.evidence) >= {"silent", "hears"} for fault in faults)
            mend(members[1], 1)
            repairs = await asyncio.gather(*map(report_of, members, [NetworkRepaired] * 3, got))
            assert {(repair.number, repair.network) for repair in repairs} == {(2, networks[1])}
            stop.set()
            sent = sum(await asyncio.gather(*talkers))
            for member, so_far in zip(members, got, strict=True):
                so_far += await messages(member, sent - len(so_far))
            orders = [[(message.sender, message.data) for message in each] for each in got]
            assert orders[0] == orders[1] == orders[2]
            assert len(set(orders[0])) == sent

    run(main())
    lines = (party.directory / "b" / "trace" / "b.jsonl").read_text().splitlines()
    reported = [json.loads(line) for line in lines if '"event":"x-network-' in line]
    assert [event["event"] for event in reported] == ["x-network-fault", "x-network-repaired"]
    assert [event["network"] for event in reported] == [2, 2]


def test_with_one_network_the_layer_is_not_there(party: Party) -> None:
    async def main() -> None:
        async with party.join("a", networks=NETWORKS[:1]) as a:
            member = a._joined().member
            assert member.top is member.engine
        async with party.join("b", networks=NETWORKS[:2]) as b:
            assert b._joined().member.top is b._joined().member.redundant

    run(main())


def test_a_member_finds_the_group_by_the_network_that_is_left(party: Party) -> None:
    async def main() -> None:
        async with party.join("a", networks=NETWORKS[:2]) as a:
            for via, network in enumerate(a._joined().member.networks):
                if via == 0:
                    cut(a, via)
                assert network.own[0] == NETWORKS[via]
            async with party.join("b", networks=NETWORKS[:2], min_members=2) as b:
                assert (await anext(aiter(b))).members == ("a", "b")
                ticket = await b.send(b"x", service="safe")
                await ticket

    run(main())


def test_status_names_each_network_and_what_is_wrong_with_it(party: Party) -> None:
    async def main() -> None:
        async with (
            party.join("a", networks=NETWORKS[:2], replication="passive") as a,
            party.join("b", networks=NETWORKS[:2], replication="passive", min_members=2) as b,
        ):
            found: list[dict[str, Any]] = a.status()["networks"]  # type: ignore[assignment]
            assert a.status()["replication"] == "passive"
            assert [(each["number"], each["address"], each["state"]) for each in found] == [
                (1, "127.0.0.1", "sound"),
                (2, "127.0.0.2", "sound"),
            ]
            cut(b, 0)
            await report_after_views(a)
            broken: dict[str, Any] = a.status()["networks"][0]  # type: ignore[index]
            assert broken["state"] == "faulty"
            while "b" not in broken["diagnosis"] and "nobody" not in broken["diagnosis"]:
                await asyncio.sleep(0.05)
                broken = a.status()["networks"][0]  # type: ignore[index]

    run(main())


async def report_after_views(group: ordercast.Group) -> NetworkFault:
    async for event in group:
        if isinstance(event, NetworkFault):
            return event
    raise AssertionError("the stream ended")


def test_peers_have_an_address_on_each_network(party: Party) -> None:
    ports = _free_ports(4)
    peers = [f"127.0.0.1:{ports[0]},127.0.0.2:{ports[1]}", f"127.0.0.1:{ports[2]},127.0.0.2:{ports[3]}"]

    def options(member: int) -> dict[str, Any]:
        own = ports[2 * member : 2 * member + 2]
        return {"networks": [f"127.0.0.{n + 1}:{port}" for n, port in enumerate(own)], "peers": peers}

    async def main() -> None:
        async with party.join("a", **options(0)) as a, party.join("b", **options(1), min_members=2) as b:
            await (await b.send(b"x"))
            assert [message.data for message in await messages(a, 1)] == [b"x"]
            networks: Sequence[dict[str, Any]] = b.status()["networks"]  # type: ignore[assignment]
            assert [network["sends_to"] for network in networks] == [
                [f"127.0.0.1:{ports[0]}"],
                [f"127.0.0.2:{ports[1]}"],
            ]

    run(main())


def _free_ports(count: int) -> list[int]:
    import socket

    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports
