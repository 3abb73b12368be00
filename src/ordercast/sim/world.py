"""The simulated world: virtual time, the nodes, the network, and the run of a schedule from beginning to end.

One heap of (time, sequence, call, arguments) orders everything, and every random draw comes from a stream whose seed
is the schedule's and a purpose. So a run depends on the schedule and the engine alone.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from re import Match
from typing import Any

from ordercast.check.events import Close, End, Event
from ordercast.engine.contract import Engine, NodeId, Stored
from ordercast.sim.actions import perform
from ordercast.sim.durable_node import DurableNode
from ordercast.sim.invariants import Invariants
from ordercast.sim.network import Link, Network
from ordercast.sim.node import EngineError, Node, State
from ordercast.sim.record import Messages
from ordercast.sim.schedule import Schedule
from ordercast.wire.ids import node_key

MakeEngine = Callable[[NodeId, dict[str, bytes], int], Engine]
MakeLayer = Callable[[Engine, Stored, int], Engine]
"""Puts a durable layer on top of an engine."""

EVENTS_MAX = 4_000_000
"""Events of the heap in one run; more is a storm that would not end."""
QUIET_US = 500_000
"""How long nothing must have been delivered for the group to count as quiet."""
_SLICE_US = 50_000
_TOP_UP_ROUNDS_MAX = 1_000


class World:
    """One run of one schedule."""

    def __init__(
        self,
        schedule: Schedule,
        make_engine: MakeEngine,
        kinds: dict[str, int],
        *,
        make_layer: MakeLayer | None = None,
        make_node: Callable[[NodeId, World], Node] | None = None,
        keep_reports: bool = False,
    ) -> None:
        """`make_node` makes nodes of another kind, as for a model of what work costs."""
        self.schedule = schedule
        self.make_engine = make_engine
        self.make_layer = make_layer
        self.invariants = None if make_layer is None else Invariants()
        self.keep_reports = keep_reports
        self.now = 0
        self.sequence = 0
        self.heap: list[tuple[int, int, Callable[[Any, Any], None], Any, Any]] = []
        self.faults: dict[str, int] = {}
        self.violations: list[tuple[str, list[str]]] = []
        self.expectations: dict[str, int] = {}
        """How often each kind of `expect` was asked of a node."""
        self.expected_violation: str | None = None
        self.messages = Messages()
        self.submitted = 0
        self.held_back = 0
        """Messages that were not submitted because the engine's backlog was full."""
        self.progress_at = 0
        """When something was last delivered anywhere."""
        self.load = self.stream("load")
        self._kinds = kinds
        self._asked = 0
        self._marked: dict[str, int] = {}
        self._closed = False
        self._budget = EVENTS_MAX
        make_node = make_node or (Node if make_layer is None else DurableNode)
        self.nodes = [make_node(NodeId(f"n{number}"), self) for number in range(1, schedule.nodes + 1)]
        self._by_name = {node.name: node for node in self.nodes}
        self.messages.keys = {node_key(node.name): node.name for node in self.nodes}
        self.network = Network(self)
        self.network.connect(self.nodes)

    def stream(self, *purpose: str) -> Random:
        """Random numbers for one purpose: drawing more of them shifts no other's."""
        return Random(f"{self.schedule.seed}/{'/'.join(purpose)}")

    def push(self, at: int, call: Callable[[Any, Any], None], first: object, second: object) -> None:
        self.sequence += 1
        heappush(self.heap, (at, self.sequence, call, first, second))

    def count(self, fault: str, times: int = 1) -> None:
        """A fault happened."""
        self.faults[fault] = self.faults.get(fault, 0) + times

    @property
    def delivered(self) -> int:
        """Packets handed to engines so far."""
        return sum(node.delivered for node in self.nodes)

    @property
    def traces(self) -> dict[str, list[Event]]:
        return {node.name: node.log.events for node in self.nodes}

    # The run

    def run(self) -> None:
        """Carries out the schedule and closes the traces."""
        try:
            for node in self.nodes:
                node.start()
            for action in self.schedule.actions:
                if not self._closed:
                    # `await` may have taken longer than until then.
                    self.run_until(max(action.at_us, self.now))
                    perform(self, action.what)
                elif action.what.startswith("expect"):
                    perform(self, action.what)  # after `settle` nothing happens any more, but much can be asked
        except EngineError as error:
            self._by_name[NodeId(error.node)].state = State.DOWN
            self.violations.append(("engine", [f"{error.node} at {self.now} us", *error.what.splitlines()]))
        self.close(Close)

    def run_until(self, until: int) -> None:
        """Everything that happens up to and at this time."""
        heap = self.heap
        for spent in range(self._budget):  # noqa: B007
            if not heap or heap[0][0] > until:
                break
            self.now, _, call, first, second = heappop(heap)
            call(first, second)
        else:
            raise EngineError(self.nodes[0].name, f"a storm: {EVENTS_MAX} events by {self.now} us")
        self._budget -= spent
        self.now = until

    def heal(self) -> None:
        self.network.heal()
        for node in self.nodes:
            if node.disk.has_lost:
                node.crash("power cut")
            node.heal()

    def settle(self, bound_us: int) -> None:
        """Waits until the group is whole and quiet, sends a few messages through it, waits again, closes the traces.

        Termination (E14) speaks of the end, so a run ends early only when nothing is owed: silence while a member
        lacks a message may be that of a ring that is about to give the member up. A group that is quiet without that
        when the time is up ends too, so that the checker judges it (E13, E14); one that goes on changing then is a
        violation of its own, because no property speaks of it.
        """
        whole = self.wait_whole(self.now + bound_us)
        if whole:
            self._top_up()
            for node in self.nodes:
                node.send(2, 24, 600, False, False)
                node.send(1, 24, 24, True, False)
            whole = self.wait_whole(self.now + bound_us)
        changing = not whole and self.now - self.progress_at < QUIET_US
        if changing:
            said = f"still changing after {bound_us} us without faults"
            self.violations.append(("liveness", [said, *self._states()]))
        else:
            for node in self.nodes:
                left_over = node.unfinished if node.state is State.RUNNING else None
                if left_over is not None:
                    self.violations.append(("liveness", [f"{node.name}: {left_over}", *self._states()]))
                    break
        self.close(Close if changing else End)

    def wait_whole(self, until: int) -> bool:
        """Waits until all living nodes share one configuration, nothing goes on and nothing is owed; tells whether."""
        while self.now < until:
            self.run_until(min(self.now + _SLICE_US, until))
            if self._whole_and_quiet():
                return True
        return False

    def _whole_and_quiet(self) -> bool:
        if self.now - self.progress_at < QUIET_US:
            return False
        alive = [node for node in self.nodes if node.alive]
        names = {node.name for node in alive}
        views = {node.log.view.id for node in alive if node.log.view is not None}
        return (
            len(views) <= 1
            and all(node.log.view is not None and set(node.log.view.members) == names and node.quiet for node in alive)
            and not self._owed(alive)
        )

    def _owed(self, alive: list[Node]) -> bool:
        """Whether somebody has sent, in the configuration that all share, what another has not delivered."""
        seen = [node.log.since_view() for node in alive]
        sent = set[str]().union(*(sent for sent, _ in seen))
        return any(not sent <= delivered for _, delivered in seen)

    def _top_up(self) -> None:
        """More load, until the run has the packet deliveries that its schedule asks for."""
        for _ in range(_TOP_UP_ROUNDS_MAX):
            if self.delivered >= self.schedule.minimum or not any(node.alive for node in self.nodes):
                break
            for node in self.nodes:
                node.send(6, 40, 400, False, False)
            self.run_until(self.now + _SLICE_US)

    def _states(self) -> list[str]:
        return [
            f"{node.name} {node.state.value}"
            + (f", backlog {node.engine.backlog}, {node.log.view}" if node.alive else "")
            for node in self.nodes
        ]

    def close(self, kind: type[End] | type[Close]) -> None:
        if self._closed:
            return
        self._closed = True
        for node in self.nodes:
            if node.alive:
                node.log.close(kind)

    # What actions ask for

    def named(self, names: str) -> list[Node]:
        return self.nodes if names == "*" else [self._by_name[NodeId(name)] for name in names.split()]

    def links(self, match: Match[str]) -> list[Link]:
        """The links that a LINK part names, on the network that an `on` names; all if the statement has none."""
        networks = self.networks(match)
        if match["source"] is None:
            return [link for node in self.nodes for via in networks for link in node.links_by[via]]
        pairs = [(match["source"], match["target"])]
        if match["arrow"] == "<->":
            pairs.append((match["target"], match["source"]))
        return [
            link
            for source, target in pairs
            for node in self.named(source)
            for via in networks
            for link in node.links_by[via]
            if target in ("*", link.target.name)
        ]

    def networks(self, match: Match[str]) -> range:
        """The networks that a statement is about, counted from 0: one, or all if it names none."""
        number = match["network"] if "network" in match.re.groupindex else None
        return range(self.schedule.networks) if number is None else range(int(number) - 1, int(number))

    def mark_views(self) -> None:
        self._marked = {node.name: node.log.views for node in self.nodes}

    def views_since_mark(self, node: Node) -> int:
        return node.log.views - self._marked.get(node.name, 0)

    def kind(self, name: str) -> int | None:
        """The kind of a packet, by name or number; None for any."""
        if name == "*":
            return None
        if name.isdecimal():
            return int(name)
        if name not in self._kinds:
            raise ValueError(f"no kind of packet is called {name}; there are {', '.join(self._kinds) or 'none'}")
        return self._kinds[name]

    def packets_since_asked(self) -> int:
        asked, self._asked = self._asked, self.delivered
        return self._asked - asked

    def expect(self, match: Match[str], holds: bool, said: str) -> None:
        kind = match.string.split()[1]
        self.expectations[kind] = self.expectations.get(kind, 0) + 1
        if not holds:
            self.violations.append(("expect", [f"at {self.now} us: {match.string}", said]))
