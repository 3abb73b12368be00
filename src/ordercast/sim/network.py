"""The virtual network: directed links between all pairs of nodes, and what goes wrong on them.

A link keeps packets in order unless the fault is reordering. Faults of single packets are drawn as the number of
packets until the next one, so that a link without faults, and a train that meets none, cost one comparison. Every
link has random streams of its own: what happens on one does not shift what happens on another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from heapq import heapify, heappush
from math import log
from random import Random
from typing import TYPE_CHECKING

from ordercast.wire.layout import PACKET_BYTES_MAX

if TYPE_CHECKING:
    from ordercast.sim.node import Node
    from ordercast.sim.world import World

RATES = ("loss", "duplication", "reordering", "spikes", "corruption")
_NEVER = 1 << 60


class Link:
    """One direction between two nodes."""

    __slots__ = (
        "arrive", "base_us", "by_us", "clean", "cut", "faults", "jitter_us", "last", "random", "rates", "source",
        "target", "total", "up", "via",
    )  # fmt: skip

    def __init__(self, source: Node, target: Node, world: World, via: int) -> None:
        self.source = source
        self.target = target
        self.via = via
        """The network that it belongs to, counted from 0."""
        self.arrive: Callable[[bytes, int], None] = target.arrive
        where: tuple[str, ...] = (source.name, target.name)
        if world.schedule.networks > 1:
            self.arrive = partial(target.arrive, via=via)
            where += (f"network {via + 1}",) if via else ()
        self.base_us = 500
        self.jitter_us = 200
        self.random = world.stream("jitter", *where).random
        self.faults: Random = world.stream("faults", *where)
        self.rates = dict.fromkeys(RATES, 0.0)
        self.by_us = dict.fromkeys(RATES, 0)
        self.total = 0.0
        self.cut = False
        self.up = True
        """Neither cut nor between two sides of a partition."""
        self.clean = _NEVER
        """Packets that pass until, with the last of these, a fault strikes."""
        self.last = 0
        """When the latest packet arrives: those behind it do not overtake it."""

    def set_rate(self, fault: str, rate: float, by_us: int = 0) -> None:
        self.rates[fault] = rate
        self.by_us[fault] = by_us
        # A packet has one fault at most, so the rates add up; more than all of them cannot be hit.
        self.total = min(1.0, sum(self.rates.values()))
        self.draw()

    def draw(self) -> None:
        """How far the next fault is: geometrically distributed, one draw a fault instead of one a packet."""
        if not self.total:
            self.clean = _NEVER
        elif self.total >= 1.0:
            self.clean = 1
        else:
            self.clean = 1 + int(log(1.0 - self.faults.random()) / log(1.0 - self.total))

    def fault(self) -> str:
        """Which fault it is, in proportion to the rates."""
        mark = self.faults.random() * sum(self.rates.values())
        for name, rate in self.rates.items():
            mark -= rate
            if mark < 0:
                return name
        return "loss"


class Hook:
    """Something to be done to the next `left` packets of a kind on some links."""

    __slots__ = ("by_us", "fault", "kind", "left", "links")

    def __init__(self, fault: str, left: int, kind: int | None, links: list[Link], by_us: int) -> None:
        self.fault = fault
        self.left = left
        self.kind = kind
        self.links = set(links)  # asked for membership only, never iterated
        self.by_us = by_us

    def takes(self, link: Link, packet: bytes) -> bool:
        return self.left > 0 and link in self.links and (self.kind is None or packet[3] == self.kind)


class Network:
    """All links. `send` is what nodes call, the rest is what actions call."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._heap = world.heap
        self._group: list[dict[str, int]] = [{} for _ in range(world.schedule.networks)]
        """The sides of a partition, for each network."""
        self._hooks: list[Hook] = []
        self._garbage = world.stream("garbage")
        self.mtu = PACKET_BYTES_MAX
        """The longest packet that passes."""
        self._seen = b""
        """The latest genuine packet, for garbage that begins like one."""

    def connect(self, nodes: list[Node]) -> None:
        for source in nodes:
            for via in range(self._world.schedule.networks):
                links = [Link(source, target, self._world, via) for target in nodes if target is not source]
                source.links_by.append(links)
                source.link_to.append({link.target.name: link for link in links})
                source.links += links

    def send(self, links: Iterable[Link], data: bytes, segment: int, at: int) -> None:
        """Sends a train over each of the links, leaving at `at`."""
        if min(segment, len(data)) > self.mtu:
            data, segment = self._fitting(data, segment)
            if not data:
                return
        count = 1 if len(data) <= segment else -(-len(data) // segment)
        self._seen = data
        heap, world = self._heap, self._world
        if self._hooks:
            self._send_hooked(links, data, segment, at)
            return
        for link in links:
            if not link.up:
                continue
            if link.clean <= count:
                self._send_faulty(link, data, segment, count, at)
                continue
            link.clean -= count
            arrival = at + link.base_us + int(link.random() * link.jitter_us)
            if arrival < link.last:
                arrival = link.last
            else:
                link.last = arrival
            world.sequence = sequence = world.sequence + 1
            heappush(heap, (arrival, sequence, link.arrive, data, segment))

    def _fitting(self, data: bytes, segment: int) -> tuple[bytes, int]:
        """What is left of a train of packets that are too long: its last packet, if that is shorter."""
        last = data[(len(data) - 1) // segment * segment :]
        self._world.count("too long", -(-len(data) // segment) - (len(last) <= self.mtu))
        return (last, len(last)) if len(last) <= self.mtu else (b"", segment)

    def _send_faulty(self, link: Link, data: bytes, segment: int, count: int, at: int) -> None:
        """At least one packet of the train meets a fault; the others go on in the stretches between."""
        delay = link.base_us + int(link.random() * link.jitter_us)
        arrival = max(at + delay, link.last)
        start = 0
        push, counted = self._world.push, self._world.count
        for index in range(count):
            if link.clean > 1:
                link.clean -= 1
                continue
            link.draw()
            fault = link.fault()
            counted(fault)
            if fault == "spikes":
                # The link stalls: this packet and all behind it are late, in order.
                if index > start:
                    push(arrival, link.arrive, data[start * segment : index * segment], segment)
                arrival += int(link.by_us[fault] * (0.5 + link.faults.random()))
                start = index
                continue
            packet = data[index * segment : (index + 1) * segment]
            late = arrival + int(link.by_us[fault] * link.faults.random()) + 1
            if fault == "duplication":
                push(late, link.arrive, packet, len(packet))
                continue
            if index > start:
                push(arrival, link.arrive, data[start * segment : index * segment], segment)
            start = index + 1
            if fault == "reordering":
                push(late, link.arrive, packet, len(packet))
            elif fault == "corruption":
                cut = packet[: link.faults.randrange(len(packet))]
                push(arrival, link.arrive, cut, len(cut))
        if start < count:
            push(arrival, link.arrive, data[start * segment :], segment)
        link.last = arrival

    def _send_hooked(self, links: Iterable[Link], data: bytes, segment: int, at: int) -> None:
        hooks = self._hooks
        plain: list[Link] = []
        for link in links:
            if not link.up or not any(hook.left and link in hook.links for hook in hooks):
                plain.append(link)
                continue
            for begin in range(0, len(data), segment):
                self._send_past_hooks(link, data[begin : begin + segment], at)
        self._hooks = []
        self.send(plain, data, segment, at)
        self._hooks = [hook for hook in hooks if hook.left]

    def _send_past_hooks(self, link: Link, packet: bytes, at: int) -> None:
        hook = next((hook for hook in self._hooks if hook.takes(link, packet)), None)
        arrival = max(at + link.base_us + int(link.random() * link.jitter_us), link.last)
        if hook is not None:
            hook.left -= 1
            self._world.count(hook.fault)
            if hook.fault == "drop":
                return
            if hook.fault == "delay":
                # Those behind it do overtake it: a late packet is what such a script is about, which keeps it from
                # being hastened too.
                self._world.push(arrival + hook.by_us, partial(link.arrive), packet, len(packet))
                return
            self._world.push(arrival, link.arrive, packet, len(packet))
        link.last = arrival
        self._world.push(arrival, link.arrive, packet, len(packet))

    def hook(self, fault: str, count: int, kind: int | None, links: list[Link], by_us: int) -> None:
        self._hooks.append(Hook(fault, count, kind, links, by_us))

    def set_cut(self, links: list[Link], cut: bool) -> None:
        if cut:
            self._world.count("cut")
        for link in links:
            link.cut = cut
        self._reconnect()

    def partition(self, groups: list[list[str]], networks: Iterable[int]) -> None:
        """Parts the groups from each other; no groups at all: everybody is together again."""
        for via in networks:
            self._group[via] = {name: number for number, group in enumerate(groups) for name in group}
        if groups:
            self._world.count("partition")
        self._reconnect()

    def _reconnect(self) -> None:
        for node in self._world.nodes:
            for link in node.links:
                group = self._group[link.via].get
                link.up = not link.cut and group(node.name, -1) == group(link.target.name, -1)

    def heal(self) -> None:
        self._group = [{} for _ in self._group]
        self._hooks = []
        for node in self._world.nodes:
            for link in node.links:
                link.cut = False
                for fault in RATES:
                    link.rates[fault] = 0.0
                link.total = 0.0
                link.draw()
        self._reconnect()
        self._hasten()

    def _hasten(self) -> None:
        """What stalled links hold back, and late copies, come as soon as packets that are sent now, in their order.

        A link that has stalled often is seconds behind what is sent over it. What a script delays stays late: its
        `heal` ends hooks, and the packet is to come when it says.
        """
        world = self._world
        links = [link for node in world.nodes for link in node.links]
        soon = world.now + max((link.base_us + link.jitter_us for link in links), default=0)
        arrivals = {link.arrive for link in links}  # asked for membership only
        late = sorted(entry[:2] for entry in self._heap if entry[0] > soon and entry[2] in arrivals)
        places = {sequence: place for place, (_, sequence) in enumerate(late, world.sequence + 1)}
        world.sequence += len(late)
        for at, (_, sequence, call, data, segment) in enumerate(self._heap):
            if sequence in places:
                self._heap[at] = (soon, places[sequence], call, data, segment)
        heapify(self._heap)
        for link in links:
            link.last = min(link.last, soon)

    def garbage(self, node: Node, count: int) -> None:
        """Packets from nobody: noise, other versions, and the beginnings of genuine packets.

        None of them differs from a genuine packet by flipped bits alone: a protocol without authentication has to
        take such a packet for real, and the model of the papers excludes it.
        """
        rng = self._garbage
        makers: list[Callable[[], bytes]] = [
            lambda: rng.randbytes(rng.randrange(200)),
            lambda: b"OC" + bytes([rng.randrange(2, 256)]) + self._seen[3:],
            lambda: b"OC\x01" + rng.randbytes(rng.randrange(1, 20)),
            lambda: self._seen[: rng.randrange(len(self._seen) or 1)][:40],
        ]
        for _ in range(count):
            packet = rng.choice(makers)()
            self._world.count("garbage")
            self._world.push(self._world.now + rng.randrange(1, 5_000), node.arrive, packet, len(packet))
