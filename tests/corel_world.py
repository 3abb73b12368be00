"""Groups of corel in the simulator, by scripts."""

from __future__ import annotations

from typing import cast

from ordercast.check import check_events
from ordercast.check.events import Order
from ordercast.sim.actions import perform
from ordercast.sim.durable_node import DurableNode
from ordercast.sim.runner import make_world
from ordercast.sim.schedule import parse_schedule
from ordercast.sim.world import World

SECOND = 1_000_000


def corel_world(script: str, *, start: bool = True) -> World:
    """A world at time 0; `script` is what a schedule says before its actions."""
    world = make_world(parse_schedule(f"engine corel\n{script}\n"))
    for node in world.nodes if start else ():
        node.start()
    return world


def founded(nodes: int, config: str = "") -> World:
    """A group that has become its first primary component."""
    world = corel_world(f"nodes {nodes}\n{config}")
    until(world, lambda: all(node.corel.state.primary_component_bit for node in durable(world)))
    return world


def until(world: World, holds: object, seconds: float = 20) -> None:
    assert callable(holds)
    end = world.now + int(seconds * SECOND)
    while not holds():
        assert world.now < end, f"not so after {seconds} virtual seconds: {world._states()}"
        world.run_until(world.now + 1_000)


def run(world: World, *actions: str, seconds: float = 0.0) -> None:
    for action in actions:
        perform(world, action)
    world.run_until(world.now + int(seconds * SECOND))


def durable(world: World) -> list[DurableNode]:
    return [cast(DurableNode, node) for node in world.nodes]


def node(world: World, name: str) -> DurableNode:
    return next(node for node in durable(world) if node.name == name)


def ordered(world: World, name: str) -> list[str]:
    """The global order as a node has told it."""
    places = {event.pos: event.msg for event in world.traces[name] if isinstance(event, Order)}
    return [places[pos] for pos in sorted(places)]


def settled(world: World) -> None:
    """Everything is mended, everybody is quiet, and the checker finds nothing."""
    world.heal()
    world.settle(20 * SECOND)
    assert world.violations == []
    assert check_events(world.traces).violations == []
