"""The invariants of paper 003, §3.4, asserted while a simulated group runs.

The simulator sees all members at once, so it can ask at every step what a trace shows only afterwards: each sender's
messages stand in a queue in their order and without gaps, the green prefixes agree, a green prefix never changes, and
whoever knows of a primary component has all that was ordered in it, yellow or green, in the same order. A violation
ends the run as an error of the engine. Causes by other senders are C1's, in the trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ordercast.engine.contract import NodeId, Ordered
from ordercast.wire.chunk import Chunk

if TYPE_CHECKING:
    from ordercast.sim.durable_node import DurableNode

Key = tuple[str, int]
"""Stream and last message of a chunk."""


class Invariants:
    def __init__(self) -> None:
        self.order: dict[int, Key] = {}
        """The chunk that ends at each position of the global order."""
        self.places: dict[Key, int] = {}
        self.marked: dict[int, int] = {}
        """Up to which position members ordered messages in each primary component."""
        self.line: dict[NodeId, int] = {}
        """How far each node has told its application; it never tells it of anything else."""

    def wiped(self, name: NodeId) -> None:
        self.line.pop(name, None)

    def ordered(self, node: DurableNode, effect: Ordered) -> None:
        """Agreed Green and No Changes in Green."""
        position = effect.offset
        for raw in effect.chunks:
            chunk = Chunk(raw)
            position += chunk.count
            key = (chunk.stream, chunk.last)
            other = self.order.setdefault(position, key)
            assert other == key, f"Agreed Green: {key} is ordered up to {position}, where {other} was elsewhere"
            place = self.places.setdefault(key, position)
            assert place == position, f"Agreed Green: {key} is ordered up to {position} and up to {place}"
        self.line[node.name] = max(self.line.get(node.name, 0), position)
        state = node.corel.state
        if state.primary_component_bit:
            number = state.record.last_committed_primary.number
            self.marked[number] = max(self.marked.get(number, 0), position)

    def knows(self, node: DurableNode, number: int) -> None:
        """Yellow and Causal, where a member has established a primary component or learned of it.

        What was ordered in it, or before it, stands here in its place.
        """
        mq = node.corel.state.mq
        known = max((line for other, line in self.marked.items() if other <= number), default=0)
        assert mq.yellow >= known, f"Yellow: up to {known} was ordered in primary component {number} or before"
        last: dict[str, int] = {}
        for end, item in mq.ends():
            before = last.get(item.stream)
            assert before is None or item.first == before + 1, f"Causal: {item} stands behind {before} of its stream"
            last[item.stream] = item.last
            if end <= known:
                self.agree(end, (item.stream, item.last))

    def agree(self, end: int, key: Key) -> None:
        assert self.order.get(end, key) == key, f"Yellow: {key} stands up to {end}, where {self.order[end]} was ordered"
