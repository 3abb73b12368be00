"""C6: in a quiet primary component a message is ordered after exactly two communication rounds.

In the first round its sender multicasts it, in the second all members acknowledge it, and everybody orders it when he
has all acknowledgements. Nothing else is multicast by corel, and nobody waits for anything else.
"""

from __future__ import annotations

import pytest

from corel_world import durable, founded, run, until
from ordercast.check.events import Deliver, Event, Order
from ordercast.corel.messages import MessageKind, decode_head
from ordercast.engine.contract import Originated, Transport
from ordercast.sim.corel_record import CorelLog
from ordercast.sim.world import World

MESSAGES = 12


@pytest.mark.parametrize("members", [3, 5, 9])
def test_c6_two_rounds_order_a_message(members: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: list[tuple[str, MessageKind]] = []
    noted = CorelLog.transport

    def transport(log: CorelLog, effect: Transport) -> None:
        if isinstance(effect.effect, Originated):
            kinds.extend((log.node, decode_head(body).kind) for body in effect.bodies)
        noted(log, effect)

    monkeypatch.setattr(CorelLog, "transport", transport)
    world = founded(members)
    run(world, seconds=1)
    for number in range(MESSAGES):
        sender = durable(world)[number % members].name
        kinds.clear()
        marks = {name: len(events) for name, events in world.traces.items()}
        run(world, f"send 1 {sender}")
        until(world, lambda number=number: all(len(places(world, one.name)) > number for one in durable(world)))
        run(world, seconds=0.2)
        assert kinds[0] == (sender, MessageKind.CHUNK)
        assert sorted(kinds[1:]) == [(node.name, MessageKind.ACK) for node in durable(world)]
        for node in durable(world):
            assert rounds(world.traces[node.name][marks[node.name] :]) == (1, members)


def places(world: World, name: str) -> list[Event]:
    return [event for event in world.traces[name] if isinstance(event, Order)]


def rounds(events: list[Event]) -> tuple[int, int]:
    """What a node had delivered when it ordered the message: messages of the first round, and of the second."""
    first, second = set(), set()
    for event in events:
        if isinstance(event, Deliver):
            (second if "@" in event.msg else first).add(event.msg)
        elif isinstance(event, Order):
            return len(first), len(second)
    raise AssertionError("it was not ordered")


def test_c6_a_message_that_waits_for_one_acknowledgement_is_not_ordered() -> None:
    world = founded(3)
    run(world, "disk latency 2 0 n3", seconds=0.5)
    run(world, "send 1 n1", seconds=1)
    assert all(not places(world, node.name) for node in durable(world))
    run(world, seconds=2)
    assert all(len(places(world, node.name)) == 1 for node in durable(world))
