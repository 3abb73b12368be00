"""What larger groups would do: the engines on the simulator, with what work costs on a real machine.

    python bench/model.py [--nodes 2,3,4,6,8,16,32,64,128] [--no-save]

The costs are taken from measured runs of two and of four nodes (`bench/results/nodes.json`, made by `bench/sweep.py`),
from the processor time that they used and not from how fast they were. So what it says of two to eight nodes on two
cores is a prediction too, and is printed beside what was measured. Larger groups are given twice: on the same two
cores, and on hosts of their own with a core each and a network of 10 Gbit/s. Writes `bench/results/model.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from ordercast.engine.contract import Broadcast, Deliver, Effect, Originated, Submission, Unicast
from ordercast.sim.engines import find_engine
from ordercast.sim.node import Node, State
from ordercast.sim.record import NodeLog
from ordercast.sim.schedule import Schedule
from ordercast.sim.world import World
from ordercast.wire.ids import NodeId
from ordercast.wire.layout import PacketKind
from ordercast.wire.train import HEADER_BYTES

RESULTS = Path(__file__).parent / "results"
PACKET_BYTES = 1472
CALL_PACKETS = 44
"""Packets of this size that one call of the kernel takes."""
CALL_OUT_US, CALL_IN_US = 15.0, 7.5
"""What a call that sends or receives one packet costs above a packet's share of a long train: bench/datagrams.py."""
BACKLOG_BYTES = 400_000
"""Bytes that wait at each node, so that it never lacks messages: more than a visit takes."""
WARM_ROTATIONS, ROTATIONS = 12, 30
"""Of a large ring, where each takes long, a quarter of them say as much."""
LARGE = 32
FORM_US = 60_000_000
CALIBRATED_ON = (2, 4)
RECEIVE_WINDOW = 8192


@dataclass(frozen=True)
class Costs:
    """Microseconds of processor time."""

    packet_out: float
    packet_in: float
    message: float
    """At each node that delivers it, with the sender's share."""
    turn: float
    """Of the driver's loop and of what it wakes."""


@dataclass(frozen=True)
class Machine:
    """What the nodes run on: `cores` for all of them together, or one each if 0."""

    cores: int
    wire_us: int
    """From the end of a call to the packet's arrival, the wake-up of the receiver included."""
    bytes_per_us: float = 0.0
    """Of each host's link, in either direction; 0: no limit."""


HERE = Machine(cores=2, wire_us=10)
HOSTS = Machine(cores=0, wire_us=25, bytes_per_us=1250.0)


class Cores:
    """Who works, and who waits for a core in the order of coming; with a count of 0 everyone has one."""

    def __init__(self, count: int) -> None:
        self.shared = count > 0
        self.idle = count
        self.waiting: deque[Callable[[], None]] = deque()

    def take(self, work: Callable[[], None]) -> None:
        """Works now, or as soon as a core is free; `release` follows when it is done."""
        if not self.shared:
            work()
        elif self.idle:
            self.idle -= 1
            work()
        else:
            self.waiting.append(work)

    def release(self) -> None:
        if self.waiting:
            self.waiting.popleft()()
        else:
            self.idle += self.shared


class CountingLog(NodeLog):
    """Packets instead of a trace."""

    __slots__ = ("packets",)

    def __init__(self, node: str, world: World) -> None:
        super().__init__(node, world.messages, False)
        self.packets = 0

    def originated(self, effect: Originated) -> None:
        pass

    def deliver(self, view_id: str, runs: Any) -> None:
        self.packets += sum(run.stop - run.start for run in runs)


class CostedNode(Node):
    """A node whose turns take the time that they cost, on a core that it has to wait for."""

    __slots__ = ("cores", "costs", "in_free", "load", "machine", "messages_per_packet", "out_free", "spent", "turns")

    def __init__(self, name: NodeId, world: World, *, costs: Costs, machine: Machine, cores: Cores, size: int) -> None:
        super().__init__(name, world)
        self.costs, self.machine, self.cores = costs, machine, cores
        self.load: list[bytes] | None = None
        """Submitted again and again, once the group is whole; nothing costs anything before."""
        self.messages_per_packet = (PACKET_BYTES - HEADER_BYTES) / (size + 2)
        self.in_free = self.out_free = self.spent = 0.0
        self.turns = 0
        self.queue_max = RECEIVE_WINDOW

    def _make_log(self) -> NodeLog:
        return CountingLog(self.name, self.world)

    def begin_load(self, load: list[bytes]) -> None:
        self.load = load
        self._fill()
        self._flush()

    def _fill(self) -> None:
        while self.load is not None and self.engine.backlog_bytes < BACKLOG_BYTES:
            self.engine.submit(self.clock.local(self.world.now), Submission(self.load))

    def arrive(self, data: bytes, segment: int, via: int | None = None) -> None:
        """Behind what the host's link is still busy with, then into the queue."""
        if self.load is None:
            super().arrive(data, segment, via)
            return
        now = self.world.now
        if self.machine.bytes_per_us:
            self.in_free = max(self.in_free, float(now)) + len(data) / self.machine.bytes_per_us
            if self.in_free > now:
                self.world.push(int(self.in_free), self._queue_up, data, segment)
                return
        self._queue_up(data, segment)

    def _queue_up(self, data: bytes, segment: int) -> None:
        if self.state is State.RUNNING:
            self._enqueue(data, segment, None)

    def _work(self, life: int, unused: None) -> None:
        if self.load is None or life != self.life or self.state is not State.RUNNING:
            super()._work(life, unused)
            return
        self.cores.take(lambda: self._turn(life))

    def _turn(self, life: int) -> None:
        now, costs = self.world.now, self.costs
        local = self.clock.local(now)
        self.turns += 1
        spent = costs.turn
        while self.queue:
            data, segment, count, _ = self.queue.popleft()
            self.queued -= count
            self.delivered += count
            self.engine.receive(local, data, segment)
            if data[3] == PacketKind.DATA:
                spent += CALL_IN_US + costs.packet_in * count
        self.spent = spent
        self._fill()
        self._flush()
        self.busy_until = now + max(1, round(self.spent))
        # What comes meanwhile is taken in the next turn, and not before this one is over.
        self.world.push(self.busy_until, self._turn_over, life, None)

    def _turn_over(self, life: int, _unused: None) -> None:
        self.cores.release()
        self._working = bool(self.queue)
        if self._working:
            self._work(life, None)

    def _carry_out(self, effects: list[Effect]) -> list[bytes] | None:
        if self.load is None:
            return super()._carry_out(effects)
        to_self: list[bytes] = []
        costs, network, begun = self.costs, self.world.network, self.world.now
        for effect in effects:
            if isinstance(effect, Broadcast):
                step = effect.segment * CALL_PACKETS
                for at in range(0, len(effect.data), step):
                    train = effect.data[at : at + step]
                    self.spent += CALL_OUT_US + costs.packet_out * -(-len(train) // effect.segment)
                    network.send(self.links_by[0], train, effect.segment, self._leaves(begun, len(train)))
            elif isinstance(effect, Unicast) and effect.to != self.name:
                link = self.link_to[0][effect.to]
                network.send((link,), effect.packet, len(effect.packet), self._leaves(begun, len(effect.packet)))
            elif isinstance(effect, Deliver):
                before = self.log.packets  # type: ignore[attr-defined]
                self.log.deliver(effect.view_id, effect.runs)
                packets = self.log.packets - before  # type: ignore[attr-defined]
                self.spent += costs.message * packets * self.messages_per_packet
            else:
                to_self += super()._carry_out([effect]) or []
        return to_self or None

    def _leaves(self, begun: int, length: int) -> int:
        """When a train has left this host."""
        at = begun + self.spent
        if self.machine.bytes_per_us:
            at = self.out_free = max(self.out_free, at) + length / self.machine.bytes_per_us
        return int(at)


def simulate(nodes: int, size: int, costs: Costs, machine: Machine) -> dict[str, float]:
    """A saturated group: rotations and messages a second."""
    cores = Cores(machine.cores)
    config = {"packet_bytes": PACKET_BYTES, "receive_window": RECEIVE_WINDOW}
    schedule = Schedule(nodes=nodes, seed=1, config=tuple(config.items()))
    spec = find_engine("totem")
    make = partial(CostedNode, costs=costs, machine=machine, cores=cores, size=size)
    world = World(schedule, spec.factory(config), dict(spec.kinds), make_node=make)
    for node in world.nodes:
        for link in node.links:
            link.base_us, link.jitter_us = 20, 1
    for node in world.nodes:
        node.start()
    while not all(node.log.view is not None and len(node.log.view.members) == nodes for node in world.nodes):
        world.run_until(world.now + 20_000)
        if world.now > FORM_US:
            raise SystemExit(f"{nodes} nodes form no ring in {FORM_US // 1_000_000} s")
    for node in world.nodes:
        for link in node.links:
            link.base_us = machine.wire_us
    costed = [node for node in world.nodes if isinstance(node, CostedNode)]
    body = bytes(size)
    for node in costed:
        node.begin_load([body] * max(1, 65_536 // size))
    first, share = costed[0], 4 if nodes >= LARGE else 1
    _rotate(world, first, WARM_ROTATIONS // share)
    before = (
        world.now,
        first.engine.rotations,
        [node.log.packets for node in costed],
        sum(node.turns for node in costed),
    )  # type: ignore[attr-defined]
    _rotate(world, first, ROTATIONS // share)
    seconds = (world.now - before[0]) / 1e6
    packets = min(node.log.packets - had for node, had in zip(costed, before[2], strict=True))  # type: ignore[attr-defined]
    rotations = (first.engine.rotations - before[1]) / seconds  # type: ignore[attr-defined]
    if any(node.log.views > 3 for node in costed) and world.faults:
        raise SystemExit(f"{nodes} nodes: the ring did not hold: {world.faults}")
    return {
        "rotations_per_s": round(rotations, 1),
        "rotation_ms": round(1000 / rotations, 3),
        "delivered_per_s": round(packets / seconds * first.messages_per_packet),
        "turns_per_rotation": round((sum(node.turns for node in costed) - before[3]) / (rotations * seconds), 2),
        "overflows": world.faults.get("overflow", 0),
    }


def _rotate(world: World, node: CostedNode, rotations: int) -> None:
    until = node.engine.rotations + rotations  # type: ignore[attr-defined]
    last = world.now + FORM_US
    while node.engine.rotations < until:  # type: ignore[attr-defined]
        world.run_until(world.now + 200)
        if world.now > last:
            raise SystemExit(f"{node.name}: the token has stopped: {world.faults}")


# Calibration


def calibrate(runs: Sequence[dict[str, Any]]) -> Costs:
    """The costs that explain the processor time of measured runs best, none of them below zero."""
    rows, spent = [], []
    for run in runs:
        nodes, rate = run["nodes"], run["delivered_per_s"]
        packets = rate / ((PACKET_BYTES - HEADER_BYTES) / (run["size"] + 2))
        if run["rate"]:
            packets = rate  # each message leaves alone
        per_call = min(CALL_PACKETS, max(1.0, packets / max(run["rotations_per_s"] * nodes, 1)))
        calls = packets / per_call
        known = calls * CALL_OUT_US + calls * (nodes - 1) * CALL_IN_US
        turns = run["turns_per_s"] * nodes
        total = run["cpu_s"] / run["seconds"] * 1e6
        # Relative errors count, so that a run with little work says as much as one with a lot.
        rows.append([packets / total, packets * (nodes - 1) / total, rate * nodes / total, turns / total])
        spent.append(max(total - known, 0.1 * total) / total)
    matrix, target = np.array(rows), np.array(spent)
    best: tuple[float, tuple[int, ...], Any] | None = None
    for count in range(1, 5):
        for chosen in combinations(range(4), count):
            found, *_ = np.linalg.lstsq(matrix[:, chosen], target, rcond=None)
            if (found < 0).any():
                continue
            error = float(((matrix[:, chosen] @ found - target) ** 2).sum())
            if best is None or error < best[0] - 1e-9:
                best = error, chosen, found
    assert best is not None
    values = [0.0] * 4
    for at, value in zip(best[1], best[2], strict=True):
        values[at] = round(float(value), 4)
    return Costs(*values)


def runs_of(recorded: dict[str, Any]) -> list[dict[str, Any]]:
    """The saturated and rated runs of ours in `nodes.json`, medians."""
    found = []
    for point in recorded["points"].values():
        for system, size, rate in (("ordercast", 1024, 0.0), ("64B", 64, 0.0), ("rated", 1024, 1.0)):
            figures = point["systems"].get(system)
            if figures is not None and figures["runs"]:
                about = {"nodes": point["nodes"], "seconds": point["seconds"], "size": size, "rate": rate}
                found.append(about | {key: value for key, value in figures.items() if key != "runs"})
    return found


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--nodes", default="2,3,4,6,8,16,32,64,128")
    options.add_argument("--no-save", action="store_true")
    args = options.parse_args()
    runs = runs_of(json.loads((RESULTS / "nodes.json").read_text()))
    costs = calibrate([run for run in runs if run["nodes"] in CALIBRATED_ON])
    print(costs, file=sys.stderr)
    measured = {(run["nodes"], run["size"]): run for run in runs if not run["rate"]}
    found = []
    for size in (64, 1024):
        for nodes in map(int, args.nodes.split(",")):
            line: dict[str, Any] = {"nodes": nodes, "size": size}
            for name, machine in (("two_cores", HERE), ("hosts", HOSTS)):
                line[name] = simulate(nodes, size, costs, machine)
            real = measured.get((nodes, size))
            if real is not None:
                line["measured"] = {key: real[key] for key in ("delivered_per_s", "rotations_per_s")}
            found.append(line)
            print(json.dumps(line), flush=True)
    if not args.no_save:
        result = {"bench": "model", "costs_us": asdict(costs), "calibrated_on": CALIBRATED_ON, "runs": found}
        (RESULTS / "model.json").write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
