"""From a seed to a schedule: which faults, how often, how hard, under which load.

Each seed takes a random subset of the kinds of faults at random rates (swarm testing): runs with few kinds go deeper
into each than runs with a little of everything. Each kind draws from a stream of its own, so a new kind does not
change what the others do under a given seed.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ordercast.sim.schedule import Action, Schedule
from ordercast.sim.units import seconds

NODES_MIN = 2
"""Most faults are between two nodes."""
MINIMUM_DELIVERIES = 5_000
MINIMUM_FAULTS = 5
MINIMUM_VIRTUAL_US = 20_000_000
_SETTLE_S = 20
_PEACE_US = 2_000_000
"""What is under way when the faults end, such as the loss of a token, has shown by then."""
_MS = 1_000
AHEAD_FROM = (1, 1, 1, 1, 2, 2, 4, 16, 0)
"""Bursts are small here: by default few would let the token go ahead of them."""
_ALWAYS = ("cut ", "partition ", "garbage ", "drift ", "jump ")
NODES = (3, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 7, 8, 9)


class Plan:
    """A schedule in the making."""

    def __init__(self, seed: int, nodes: int) -> None:
        self.seed = seed
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        self.rng = self.stream("shape")
        self.end_us = MINIMUM_VIRTUAL_US + self.rng.randrange(4_000) * _MS
        self.actions: list[Action] = []
        self.marks: list[int] = []
        """When something drastic happens: bad moments for messages."""

    def stream(self, purpose: str) -> Random:
        return Random(f"{self.seed}/generate/{purpose}")

    def add(self, at_us: int, what: str) -> None:
        self.actions.append(Action(at_us, what))

    @property
    def certain(self) -> int:
        """Faults that happen whatever chance and the moment make of the others.

        A rate may hit no packet, and a statement may find its node down already; but of those that stop one node the
        first does not, and what has crashed is started again.
        """
        always = sum(action.what.startswith(_ALWAYS) for action in self.actions)
        crashed = self._named_by("crash")
        return always + 2 * len(crashed) + len(self._named_by("pause", "leave") - crashed)

    def _named_by(self, *verbs: str) -> set[str]:
        words = [action.what.split() for action in self.actions]
        return {name for verb, *names in words if verb in verbs for name in names}

    def moment(self, rng: Random) -> int:
        at = rng.randrange(300, self.end_us // _MS - 500) * _MS
        self.marks.append(at)
        return at

    def span(self, rng: Random, low_s: float, high_s: float) -> int:
        """A duration: short ones are as likely as long ones, whatever the scale."""
        return int(low_s * (high_s / low_s) ** rng.random() * 1_000) * _MS

    def during(self, rng: Random, low_s: float, high_s: float, on: str, off: str) -> None:
        at = self.moment(rng)
        self.add(at, on)
        self.add(min(at + self.span(rng, low_s, high_s), self.end_us), off)


def generate(seed: int, *, engine: str = "totem", nodes: int | None = None) -> Schedule:
    """The schedule of a seed; `nodes` fixes the number of nodes and leaves the rest as it is."""
    if nodes is not None and nodes < NODES_MIN:
        raise ValueError(f"a schedule for {nodes} nodes: faults take {NODES_MIN} or more")
    shape = Random(f"{seed}/generate/nodes")
    plan = Plan(seed, nodes or shape.choice(NODES))
    rng = plan.rng
    plan.add(0, f"latency {seconds(rng.randrange(400, 2_500))} {seconds(rng.randrange(50, 1_000))}")
    config = {"packet_bytes": rng.randrange(280, 420)}
    if rng.random() < 0.4:
        config["window_size"] = rng.randrange(20, 100)
        config["max_messages"] = rng.randrange(3, 20)
    config["ahead_from"] = plan.stream("ahead").choice(AHEAD_FROM)
    share = rng.choice((0.12, 0.25, 0.25, 0.45))
    for name, kind in _KINDS.items():
        stream = plan.stream(name)
        if stream.random() < share:
            kind(plan, stream)
    # Every run has its share of drastic faults, so that none is a test of fair weather alone.
    stream = plan.stream("more")
    while len(plan.marks) < MINIMUM_FAULTS + 2 or plan.certain < MINIMUM_FAULTS:
        _KINDS[stream.choice(_DRASTIC)](plan, stream)
    add_load(plan, _DATA_DELIVERIES)
    finish(plan, repair=True)
    plan.actions.sort(key=lambda action: action.at_us)
    return Schedule(len(plan.names), seed, engine, MINIMUM_DELIVERIES, tuple(config.items()), tuple(plan.actions))


# Faults of packets


def _rates(name: str, low: float, high: float, by: tuple[int, int] | None) -> Callable[[Plan, Random], None]:
    def kind(plan: Plan, rng: Random) -> None:
        for _ in range(rng.randint(1, 3)):
            rate = low * (high / low) ** rng.random()
            late = f" by {seconds(rng.randrange(*by))}" if by else ""
            link = "" if rng.random() < 0.7 else f" {' -> '.join(rng.sample(plan.names, 2))}"
            if rng.random() < 0.25:
                plan.add(0, f"{name} {rate:.4f}{late}{link}")
            else:
                plan.during(rng, 0.5, 8, f"{name} {rate:.4f}{late}{link}", f"{name} 0{late}{link}")

    return kind


def _garbage(plan: Plan, rng: Random) -> None:
    for _ in range(rng.randint(1, 5)):
        plan.add(plan.moment(rng), f"garbage {rng.randint(1, 30)} {rng.choice(plan.names)}")


# Faults of the network


def _one_way_cuts(plan: Plan, rng: Random) -> None:
    for _ in range(rng.randint(1, 4)):
        source, target = rng.sample(plan.names, 2)
        shape = rng.random()
        link = f"* -> {target}" if shape < 0.2 else f"{source} -> *" if shape < 0.4 else f"{source} -> {target}"
        plan.during(rng, 0.05, 4, f"cut {link}", f"mend {link}")


def _pair_cuts(plan: Plan, rng: Random) -> None:
    """Two nodes that do not hear each other while others hear both: reach is not transitive."""
    for _ in range(rng.randint(1, 3)):
        link = " <-> ".join(rng.sample(plan.names, 2))
        plan.during(rng, 0.05, 4, f"cut {link}", f"mend {link}")


def _partitions(plan: Plan, rng: Random) -> None:
    for _ in range(rng.randint(1, 4)):
        names = rng.sample(plan.names, len(plan.names))
        cuts = sorted({rng.randrange(1, len(names)) for _ in range(rng.choice((1, 1, 1, 2, 3)))})
        groups = [names[low:high] for low, high in zip([0, *cuts], [*cuts, len(names)], strict=True)]
        plan.during(rng, 0.05, 5, "partition " + " | ".join(" ".join(sorted(group)) for group in groups), "merge")


# Faults of nodes


def _pauses(plan: Plan, rng: Random) -> None:
    for _ in range(rng.randint(1, 4)):
        name = rng.choice(plan.names)
        plan.during(rng, 0.02, 3, f"pause {name}", f"resume {name}")


def _crashes(plan: Plan, rng: Random) -> None:
    for _ in range(rng.randint(1, 4)):
        name = rng.choice(plan.names)
        amid = rng.random() < 0.4
        crash = f"fuse {name} after {rng.randint(1, 40)}" if amid else f"crash {name}"
        plan.during(rng, 0.01, 4, crash, f"restart {name}")


def _wipes(plan: Plan, rng: Random) -> None:
    for _ in range(rng.randint(1, 2)):
        name = rng.choice(plan.names)
        plan.during(rng, 0.01, 4, f"crash {name}", f"reinstall {name}")


def _mass_crashes(plan: Plan, rng: Random) -> None:
    victims = " ".join(sorted(rng.sample(plan.names, rng.randint(2, len(plan.names)))))
    plan.during(rng, 0.01, 2, f"crash {victims}", f"restart {victims}")


def _leaves(plan: Plan, rng: Random) -> None:
    for _ in range(rng.randint(1, 2)):
        name = rng.choice(plan.names)
        plan.during(rng, 0.3, 5, f"leave {name}", f"restart {name}")


def _disks(fault: str) -> Callable[[Plan, Random], None]:
    def kind(plan: Plan, rng: Random) -> None:
        for _ in range(rng.randint(1, 2)):
            name = rng.choice(plan.names)
            at = plan.moment(rng)
            plan.add(at, f"disk {fault} {name}")
            # Writes are rare: another node's crash soon makes one.
            other = rng.choice([other for other in plan.names if other != name])
            plan.add(at + 50 * _MS, f"crash {other}")
            plan.add(at + 50 * _MS + plan.span(rng, 0.3, 2), f"restart {other}")
            for _ in range(2):
                plan.add(min(at + plan.span(rng, 1, 6), plan.end_us), f"restart {name}")

    return kind


def _slow_disks(plan: Plan, rng: Random) -> None:
    for name in rng.sample(plan.names, rng.randint(1, len(plan.names))):
        latency = seconds(plan.span(rng, 0.005, 0.4))
        plan.add(plan.moment(rng), f"disk latency {latency} {latency} {name}")


def _slow_nodes(plan: Plan, rng: Random) -> None:
    for _ in range(rng.randint(1, 2)):
        name = rng.choice(plan.names)
        plan.during(rng, 0.5, 6, f"cost {seconds(rng.randrange(100, 3_000))} {name}", f"cost 0.00001 {name}")


def _small_queues(plan: Plan, rng: Random) -> None:
    for _ in range(rng.randint(1, 2)):
        name = rng.choice(plan.names)
        plan.during(rng, 1, 8, f"queue {rng.randint(2, 30)} {name}", f"queue 1000 {name}")
        plan.during(rng, 0.3, 4, f"cost {seconds(rng.randrange(100, 2_000))} {name}", f"cost 0.00001 {name}")


def _drifts(plan: Plan, rng: Random) -> None:
    for name in rng.sample(plan.names, rng.randint(1, len(plan.names))):
        plan.add(plan.moment(rng), f"drift {rng.choice((-1, 1)) * int(100 * 500 ** rng.random())} {name}")


def _jumps(plan: Plan, rng: Random) -> None:
    for _ in range(rng.randint(1, 4)):
        size = seconds(plan.span(rng, 0.01, 30))
        plan.add(plan.moment(rng), f"jump {rng.choice('+-')}{size} {rng.choice(plan.names)}")


Kind = Callable[[Plan, Random], None]
_KINDS: dict[str, Kind] = {
    "loss": _rates("loss", 0.002, 0.15, None),
    "duplication": _rates("duplication", 0.002, 0.2, (1_000, 100_000)),
    "reordering": _rates("reordering", 0.002, 0.2, (1_000, 50_000)),
    "spikes": _rates("spikes", 0.0005, 0.01, (10_000, 500_000)),
    "corruption": _rates("corruption", 0.002, 0.1, None),
    "garbage": _garbage,
    "one-way cuts": _one_way_cuts,
    "pair cuts": _pair_cuts,
    "partitions": _partitions,
    "pauses": _pauses,
    "crashes": _crashes,
    "wipes": _wipes,
    "mass crashes": _mass_crashes,
    "leaves": _leaves,
    "lost writes": _disks("lose"),
    "torn writes": _disks("tear"),
    "failed writes": _disks("fail"),
    "slow disks": _slow_disks,
    "slow nodes": _slow_nodes,
    "small queues": _small_queues,
    "clock drifts": _drifts,
    "clock jumps": _jumps,
}


def kinds() -> dict[str, Kind]:
    """What can go wrong with any group."""
    return dict(_KINDS)


_DRASTIC = ("one-way cuts", "pair cuts", "partitions", "pauses", "crashes", "mass crashes")


# Load


def add_load(plan: Plan, deliveries: int) -> None:
    """Bursts with idle stretches between, and messages around the moments at which something breaks."""
    rng = plan.stream("load")
    safe_share = rng.choice((0.0, 0.1, 0.3, 0.5, 1.0))
    keyed_share = rng.choice((0.0, 0.0, 0.2))
    # A packet is delivered by all but its sender: a large group takes fewer packets for the same deliveries.
    budget = int(deliveries * rng.uniform(0.8, 1.3) / max(1, len(plan.names) - 1))

    def send(at: int) -> int:
        count = rng.choice((1, 1, 2, 3, 8, 20, 40))
        shape = rng.random()
        size = "12..80" if shape < 0.7 else "100..400" if shape < 0.9 else "500..2500"
        average = {"12..80": 46, "100..400": 250, "500..2500": 1500}[size]
        service = "safe" if rng.random() < safe_share else "agreed"
        keyed = " keyed" if rng.random() < keyed_share else ""
        plan.add(at, f"send {count} {rng.choice(plan.names)} size={size} service={service}{keyed}")
        return 1 + count * average // 290

    for mark in plan.marks:
        for _ in range(rng.randint(0, 3)):
            budget -= send(max(0, mark + rng.randrange(-100, 400) * _MS))
    while budget > 0:
        begin = rng.randrange(0, plan.end_us // _MS) * _MS
        # Short: a token under load goes round a thousand times a second, and each visit is a delivery too.
        length = plan.span(rng, 0.005, 0.25)
        for _ in range(rng.randint(5, 40)):
            budget -= send(min(begin + rng.randrange(0, length), plan.end_us - _MS))


_DATA_DELIVERIES = 3_500


# The end


def finish(plan: Plan, *, repair: bool = False) -> None:
    """Every fault ends; most of the nodes that are down come back, some stay dead.

    With `repair` a packet of somebody's is then lost to all, which must cost a group in peace time and nothing else:
    under faults a ring may always make up for it by forming anew.
    """
    rng = plan.stream("finish")
    dead = set(rng.sample(plan.names, rng.randrange(0, (len(plan.names) + 1) // 2))) if rng.random() < 0.3 else set()
    end = max(plan.end_us, *(action.at_us for action in plan.actions))
    plan.add(end, "heal")
    for name in plan.names:
        if name not in dead:
            plan.add(end, f"restart {name}")
    if not repair:
        plan.add(end, f"settle {_SETTLE_S}")
        return
    end += _PEACE_US
    sender = rng.choice([name for name in plan.names if name not in dead])
    plan.add(end, f"await {_SETTLE_S}")
    plan.add(end, "mark views")
    plan.add(end, f"drop {len(plan.names) - 1} data {sender} -> *")
    plan.add(end, f"send 2 {sender} service={rng.choice(('agreed', 'safe'))}")
    plan.add(end, f"settle {_SETTLE_S}")
    plan.add(end, "expect no-view at *")
