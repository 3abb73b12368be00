"""An abstract group that runs by the rules, to make legal traces: no packets, only what was received by whom.

A ring is a regular configuration: one order of messages, and for each member the set of places that it has received.
Members deliver in the ring's order without gaps, a safe message once all members have installed the ring and have
received everything up to it. A reconfiguration takes some of those who are alive, from any rings, to a new ring, by
paper 000's rules: who comes from the same ring delivers what any of them delivered, then the transitional
configuration, then everything they have together up to the first gap, and beyond it what they sent themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from check.notation import Fields, Trace


@dataclass
class Sent:
    msg: str
    sender: str
    service: str


@dataclass
class Ring:
    conf: str
    members: tuple[str, ...]
    order: list[Sent] = field(default_factory=list)
    received: dict[str, set[int]] = field(default_factory=dict)
    delivered: dict[str, int] = field(default_factory=dict)

    def upto(self, node: str) -> int:
        """How many messages the member has received without a gap; none before it has installed the ring."""
        have, count = self.received.get(node, set()), 0
        while count in have:
            count += 1
        return count

    def deliverable(self, node: str) -> bool:
        place = self.delivered[node]
        if place not in self.received[node]:
            return False
        safe = self.order[place].service == "safe"
        return not safe or all(self.upto(member) > place for member in self.members)


class World:
    def __init__(self, names: tuple[str, ...], random: Random) -> None:
        self.random = random
        self.trace: Trace = {name: [] for name in names}
        self.ring: dict[str, Ring] = {}
        self.number = 0
        self.messages = 0
        for name in names:
            self.start(name)

    def log(self, node: str, event: str, **fields: object) -> None:
        events = self.trace[node]
        step = self.random.randint(1, 3) + (int(str(events[-1]["step"])) if events else 0)
        line: Fields = {"node": node, "step": step, "event": event, **fields}
        events.append(line)

    def start(self, node: str) -> None:
        self.number += 2
        self.install(node, Ring(f"{self.number}:{node}", (node,)))

    def install(self, node: str, ring: Ring) -> None:
        number = int(ring.conf.partition(":")[0])
        self.log(node, "conf", conf=ring.conf, kind="regular", members=list(ring.members), number=number)
        ring.received[node], ring.delivered[node] = set(), 0
        self.ring[node] = ring

    def send(self, node: str) -> None:
        ring = self.ring[node]
        self.messages += 1
        sent = Sent(f"m{self.messages}", node, self.random.choice(["agreed", "agreed", "safe"]))
        self.log(node, "send", msg=sent.msg, conf=ring.conf, service=sent.service)
        ring.received[node].add(len(ring.order))
        ring.order.append(sent)

    def receive(self, node: str) -> None:
        ring = self.ring[node]
        if ring.order:
            ring.received[node].add(self.random.randrange(len(ring.order)))

    def deliver(self, node: str) -> None:
        ring = self.ring[node]
        if ring.deliverable(node):
            self.hand_over(node, ring.order[ring.delivered[node]], ring.conf)
            ring.delivered[node] += 1

    def hand_over(self, node: str, sent: Sent, conf: str) -> None:
        self.log(node, "deliver", msg=sent.msg, sender=sent.sender, conf=conf, service=sent.service)

    def crash(self, node: str) -> None:
        del self.ring[node]

    def leave(self, node: str) -> None:
        ring = self.ring[node]
        if all(sent.sender != node for sent in ring.order[ring.delivered[node] :]):
            self.log(node, "leave")
            del self.ring[node]

    def recover(self) -> None:
        down = [node for node in self.trace if node not in self.ring]
        if down:
            node = self.random.choice(down)
            self.log(node, "recover")
            self.start(node)

    def reconfigure(self, nodes: list[str], crashes: bool = True) -> None:
        self.number += 2
        new = Ring(f"{self.number}:{min(nodes)}", tuple(sorted(nodes)))
        before = {node: self.ring[node] for node in nodes}
        for old in {id(ring): ring for ring in before.values()}.values():
            group = [node for node in nodes if before[node] is old]
            conf = f"{self.number - 1}:{min(group)}"
            together = set().union(*(old.received[node] for node in group))
            high = max(old.delivered[node] for node in group)
            gap = next(place for place in range(len(old.order) + 1) if place not in together)
            beyond = [p for p in range(gap, len(old.order)) if p in together and old.order[p].sender in group]
            for node in group:
                # A crash may come after any of its events; those who are left do not see the difference.
                left = self.random.randint(0, 6) if crashes and not self.random.randrange(6) else -1
                self.move(node, old, new, (conf, group, high, [*range(high, gap), *beyond]), left)

    def move(self, node: str, old: Ring, new: Ring, plan: tuple[str, list[str], int, list[int]], left: int) -> None:
        conf, group, high, after = plan
        steps = [(old.order[place], old.conf) for place in range(old.delivered[node], high)]
        steps += [(None, conf)]  # type: ignore[list-item]
        steps += [(old.order[place], conf) for place in after]
        for sent, where in steps:
            if left == 0:
                self.crash(node)
                return
            left -= 1
            if sent is None:
                members, number = sorted(group), int(conf.partition(":")[0])
                self.log(node, "conf", conf=conf, kind="transitional", members=members, number=number)
            else:
                self.hand_over(node, sent, where)
        self.install(node, new)

    def some(self) -> list[str]:
        nodes = sorted(self.ring)
        return self.random.sample(nodes, self.random.randint(1, len(nodes)))

    def act(self) -> None:
        if not self.ring:
            self.recover()
            return
        node = self.random.choice(sorted(self.ring))
        draw = self.random.randrange(100)
        if draw < 25:
            self.send(node)
        elif draw < 55:
            self.receive(node)
        elif draw < 88:
            self.deliver(node)
        elif draw < 94:
            self.reconfigure(self.some())
        elif draw < 96:
            self.crash(node)
        elif draw < 97:
            self.leave(node)
        else:
            self.recover()

    def close(self) -> None:
        for node in sorted(self.ring):
            self.log(node, "close")

    def end(self) -> None:
        """The network is whole and quiet: those alive are together, and everything sent is received and delivered."""
        nodes = sorted(self.ring)
        if not nodes:
            return
        self.reconfigure(nodes, crashes=False)
        for _ in range(self.random.randint(0, 4)):
            self.send(self.random.choice(nodes))
        ring = self.ring[nodes[0]]
        for node in nodes:
            ring.received[node] = set(range(len(ring.order)))
        for node in nodes:
            while ring.deliverable(node):
                self.deliver(node)
            self.log(node, "end")


def run(random: Random, actions: int, nodes: int) -> Trace:
    world = World(tuple(f"n{n}" for n in range(1, nodes + 1)), random)
    world.reconfigure(sorted(world.ring), crashes=False)
    for _ in range(actions):
        world.act()
    if random.randrange(2):
        world.end()
    else:
        world.close()
    return world.trace
