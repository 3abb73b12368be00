"""A flood of forged packets changes nothing and is answered by nothing: no view change, no reply, bounded log."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from random import Random

from ordercast.wire.guard import REPORT_INTERVAL_US, Guard

from .samples import recording
from .world import World, make_guard, make_key, make_pair, remembered

FLOOD = 20_000


def forgeries(seed: int) -> Iterator[bytes]:
    """What one can make who sees all packets and does not hold the key, without end."""
    chance = Random(seed)
    seen = [sent.data[: sent.segment] for sent in recording()]
    stranger = make_guard("evil", make_key("evil"))
    while True:
        packet = chance.choice(seen)
        yield packet[:20] + chance.randbytes(len(packet) - 20)
        yield packet[:8] + chance.randbytes(len(packet) - 8)
        yield packet[:-1] + bytes((packet[-1] ^ 1,))
        yield chance.randbytes(chance.randrange(1500))
        yield b"OC\1" + chance.randbytes(chance.randrange(200))
        yield b"OS\1" + chance.randbytes(chance.randrange(200))
        yield stranger.seal(chance.randbytes(100), 100)[0]
        yield from (out.packet for out in stranger.take_packets(chance.randrange(2**40)))


def test_a_flood_changes_no_view_and_gets_no_reply() -> None:
    """The forgeries have the prefixes of the group's living sessions, because it is the recorded group itself."""
    world = World()
    world.form()
    views = {name: list(process.views) for name, process in world.processes.items()}
    source = forgeries(1)
    live = [sent.data for sent in world.sent]
    sent_before = 0
    for number in range(FLOOD // 10):
        for name, process in world.processes.items():
            told = process.told
            mark = len(world.sent)
            for packet in (next(source), live[number % len(live)][:20] + bytes(100)):
                world.inject(name, packet, len(packet), "flooder")
            assert process.told == told
            assert len(world.sent) == mark, "a forged packet was answered"
        if number % 20 == 0:
            world.submit("a", b"%d" % number)
            world.run(1_000)
            sent_before += 1
    world.run(200_000)
    assert {name: list(process.views) for name, process in world.processes.items()} == views
    assert all(len(process.delivered) == sent_before for process in world.processes.values())
    assert not any(sent.to == "flooder" for sent in world.sent)


def test_a_flood_takes_no_memory() -> None:
    a, b = make_pair()
    b.take_packets(0)
    before = remembered(b)
    source = forgeries(2)
    for _ in range(1_000):
        packet = next(source)
        b.receive(0, packet, len(packet), "flooder")
    tracemalloc.start()
    try:
        for _ in range(FLOOD):
            packet = next(source)
            assert b.receive(0, packet, len(packet), "flooder") == []
            assert b.take_packets(0) == []
        current, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert current < 64 * 1024
    assert remembered(b) == before
    assert len(b.receive(0, *a.seal(b"x", 1))) == 1


def test_the_log_of_a_flood_is_one_line_in_ten_seconds() -> None:
    _, b = make_pair()
    assert b.report(0) is None
    source = forgeries(3)
    lines = []
    for now in range(0, 60_000_000, 10_000):
        packet = next(source)
        b.receive(now, packet, len(packet), "flooder")
        line = b.report(now)
        if line is not None:
            lines.append(line)
            assert len(line) < 300
            assert "\n" not in line
    assert len(lines) == 60_000_000 // REPORT_INTERVAL_US
    _quiet(b, 60_000_000)


def _quiet(guard: Guard, now: int) -> None:
    guard.report(now)
    assert guard.report(now + 10 * REPORT_INTERVAL_US) is None
