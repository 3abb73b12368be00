"""Packets of every kind from a run of the protocol: what a test flips, truncates and replays is what really travels."""

from __future__ import annotations

from functools import cache

from ordercast.wire.guard import Guard
from ordercast.wire.layout import PacketKind

from .world import Sent, World, make_guard

KINDS = tuple(kind.name for kind in PacketKind)
HELLOS = ("HELLO to all", "HELLO that asks", "HELLO that answers")


def play(world: World) -> None:
    """A group forms, works, idles, loses a member, gets it back and is left by it."""
    world.form()
    for number in range(60):
        world.submit("abc"[number % 3], b"%04d" % number * 50)
        world.run(100)
    world.run(900_000)
    world.submit("b", b"The token of the idle ring rests; this wakes it up.")
    world.run(100_000)
    world.kill("c")
    assert world.run(3_000_000, world.whole)
    world.start("c")
    world.form()
    world.processes["c"].engine.leave(world.now)
    assert world.run(1_000_000, lambda: world.processes["c"].left)
    world.kill("c")
    assert world.run(2_000_000, world.whole)


@cache
def recording() -> tuple[Sent, ...]:
    """All that was sent in such a life of a group."""
    world = World(networks=2)
    play(world)
    assert {sent.kind for sent in world.sent} == {*KINDS, "HELLO"}
    return tuple(world.sent)


@cache
def plain(kind: str) -> bytes:
    """A plaintext packet of one kind, the longest that was sent."""
    return max((sent.plain[: sent.segment - 36] for sent in recording() if sent.kind == kind), key=len)


def hello_case(form: str) -> tuple[Guard, bytes]:
    """A guard, and a HELLO that it has not received yet and that would change its state."""
    a, b = make_guard("a"), make_guard("b")
    (to_all,) = a.take_packets(0)
    if form == "HELLO to all":
        return b, to_all.packet
    b.receive(0, to_all.packet, len(to_all.packet), "a")
    _, asks = b.take_packets(0)
    if form == "HELLO that asks":
        return a, asks.packet
    a.receive(0, asks.packet, len(asks.packet), "b")
    (answers,) = a.take_packets(0)
    return b, answers.packet
