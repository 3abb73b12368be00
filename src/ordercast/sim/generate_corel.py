"""Seeds for corel: the faults of `generate`, weighted towards what a durable order must survive.

Crashes of any number of nodes at once, also of all; disks that lose, tear and fail; partitions in quick succession, so
that changes fall into recovery and establishing; changes of the declared group; snapshots, and members that lag behind.
The number of nodes that found the group is that of the run, so it takes a moment in which all are together.
"""

from __future__ import annotations

from functools import partial
from random import Random

from ordercast.sim.generate import AHEAD_FROM, NODES_MIN, Kind, Plan, add_load, finish, kinds
from ordercast.sim.schedule import Action, Schedule
from ordercast.sim.units import seconds

MINIMUM_FAULTS = 5
NODES = (2, 3, 3, 3, 3, 3, 4, 4, 5, 5, 5, 7)
DELIVERIES = 5_000
"""Packets handed to engines that a run reaches at least."""
_DATA_DELIVERIES = 1_500
_FOUNDING_MS = 1_500
_NO_FAULTS = ("latency", "merge", "mend", "resume", "snapshot", "queue", "cost")
_MS = 1_000


def generate_corel(seed: int, *, engine: str = "corel", nodes: int | None = None) -> Schedule:
    """The schedule of a seed; `nodes` fixes the number of nodes and leaves the rest as it is."""
    if nodes is not None and nodes < NODES_MIN:
        raise ValueError(f"a schedule for {nodes} nodes: faults take {NODES_MIN} or more")
    shape = Random(f"{seed}/generate/corel")
    plan = Plan(seed, nodes or shape.choice(NODES))
    rng = plan.rng
    plan.add(0, f"latency {seconds(rng.randrange(400, 2_500))} {seconds(rng.randrange(50, 1_000))}")
    config = {"packet_bytes": rng.randrange(280, 1_400), "ack_delay_us": rng.choice((100, 1_000, 5_000))}
    config["ahead_from"] = plan.stream("ahead").choice(AHEAD_FROM)
    if rng.random() < 0.4:
        config["dynamic_voting"] = 1
    if rng.random() < 0.5:
        config["lag_max"] = rng.choice((0, 3, 20, 100))
    if rng.random() < 0.4:
        config["chunk_bytes"] = rng.choice((200, 1_000))
        config["retransmit_bytes"] = rng.choice((300, 2_000))
    share = rng.choice((0.1, 0.2, 0.3))
    # Half of the runs have found their group before anything happens.
    calm = rng.random() < 0.5
    table = {**kinds(), **_KINDS}
    for name, kind in table.items():
        stream = plan.stream(name)
        if stream.random() < share + _MORE.get(name, 0.0):
            kind(plan, stream)
    stream = plan.stream("more")
    while len(plan.marks) < MINIMUM_FAULTS + 2:
        table[stream.choice(_DRASTIC)](plan, stream)
    # Some of it counts for nothing, as what falls into the calm, or a node that is down already.
    again = plan.stream("again")
    while sum(map(partial(_is_fault, calm), plan.actions)) < MINIMUM_FAULTS + 3:
        table[again.choice(_DRASTIC)](plan, again)
    add_load(plan, _DATA_DELIVERIES)
    finish(plan)
    if not any(action.what.startswith("reinstall") for action in plan.actions):
        config["order_without_primary"] = 1
    actions = [action for action in plan.actions if _happens(calm, action)]
    actions.sort(key=lambda action: action.at_us)
    return Schedule(len(plan.names), seed, engine, DELIVERIES, tuple(config.items()), tuple(actions))


def _happens(calm: bool, action: Action) -> bool:
    return not calm or action.at_us == 0 or action.at_us >= _FOUNDING_MS * _MS


def _is_fault(calm: bool, action: Action) -> bool:
    return _happens(calm, action) and action.what.split()[0] not in _NO_FAULTS


def _cascades(plan: Plan, rng: Random) -> None:
    """Changes of the configuration in quick succession: they fall into recovery and establishing."""
    for _ in range(rng.randint(1, 2)):
        at = plan.moment(rng)
        for _ in range(rng.randint(3, 10)):
            names = rng.sample(plan.names, len(plan.names))
            cut = rng.randrange(1, len(names))
            groups = " ".join(sorted(names[:cut])), " ".join(sorted(names[cut:]))
            plan.add(at, f"partition {groups[0]} | {groups[1]}" if rng.random() < 0.65 else "merge")
            at += rng.randrange(20, 700) * _MS
        plan.add(at, "merge")


def _all_crash(plan: Plan, rng: Random) -> None:
    """The power fails everywhere at once, and everybody comes back at a time of his own."""
    for _ in range(rng.randint(1, 2)):
        at = plan.moment(rng)
        plan.add(at, "crash *")
        for name in plan.names:
            plan.add(min(at + plan.span(rng, 0.01, 3), plan.end_us), f"restart {name}")


def _crash_in_handler(plan: Plan, rng: Random) -> None:
    """A configuration changes, and soon after it somebody crashes, perhaps between two effects."""
    for _ in range(rng.randint(1, 3)):
        at = plan.moment(rng)
        names = rng.sample(plan.names, len(plan.names))
        cut = rng.randrange(1, len(names))
        plan.add(at, f"partition {' '.join(sorted(names[:cut]))} | {' '.join(sorted(names[cut:]))}")
        at += rng.randrange(300, 900) * _MS
        plan.add(at, "merge")
        for _ in range(rng.randint(1, 2)):
            name = rng.choice(plan.names)
            crash = f"fuse {name} after {rng.randint(1, 60)}" if rng.random() < 0.6 else f"crash {name}"
            soon = at + rng.randrange(1, 400) * _MS
            plan.add(soon, crash)
            plan.add(min(soon + plan.span(rng, 0.05, 3), plan.end_us), f"restart {name}")


def _durable_disks(plan: Plan, rng: Random) -> None:
    """A sync of the log that is lost, torn or fails, under load."""
    for _ in range(rng.randint(1, 4)):
        name = rng.choice(plan.names)
        at = plan.moment(rng)
        plan.add(at, f"disk {rng.choice(('lose', 'tear', 'fail'))} {name}")
        plan.add(at, f"send {rng.randint(1, 9)} {name} size=12..80 service=agreed")
        plan.add(min(at + plan.span(rng, 0.4, 3), plan.end_us), f"restart {name}")


def _group_changes(plan: Plan, rng: Random) -> None:
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(plan.names)
        at = plan.moment(rng)
        verb = rng.choice(("remove", "remove", "weigh"))
        if verb == "weigh":
            plan.add(at, f"propose add {name} {rng.randint(1, 3)} at {rng.choice(plan.names)}")
        else:
            plan.add(at, f"propose remove {name} at {rng.choice(plan.names)}")
            back = min(at + plan.span(rng, 0.2, 6), plan.end_us)
            plan.add(back, f"propose add {name} 1 at {rng.choice(plan.names)}")


def _snapshots(plan: Plan, rng: Random) -> None:
    """Logs that begin in the middle: who lacks what was removed needs a snapshot."""
    for _ in range(rng.randint(1, 4)):
        plan.add(plan.moment(rng), f"snapshot {rng.choice((*plan.names, '*'))}")


_KINDS: dict[str, Kind] = {
    "cascades": _cascades,
    "all crash": _all_crash,
    "crash in handler": _crash_in_handler,
    "durable disks": _durable_disks,
    "group changes": _group_changes,
    "snapshots": _snapshots,
}
_MORE = {"cascades": 0.2, "all crash": 0.1, "crash in handler": 0.2, "durable disks": 0.2, "partitions": 0.2,
         "mass crashes": 0.1, "crashes": 0.1, "small queues": -0.1, "slow nodes": -0.1, "spikes": -0.1}  # fmt: skip
_DRASTIC = ("cascades", "all crash", "crash in handler", "durable disks", "partitions", "crashes", "mass crashes")
