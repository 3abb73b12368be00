"""From a seed to a schedule with redundant networks: the faults of paper 001, section 3, and what must come of them.

Three seeds of five have faults of networks alone and always leave one network that connects everyone. They say so
in their statements: no membership changes, each lasting fault is found by all within DETECTED_WITHIN_US, a network
with no more than sporadic loss is never called faulty, and every mended network comes back. The others add all
that `generate` does to nodes, clocks, disks and networks; there the checker alone judges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from ordercast.redundancy import parse_replication
from ordercast.sim.generate import (
    AHEAD_FROM,
    MINIMUM_DELIVERIES,
    MINIMUM_FAULTS,
    NODES_MIN,
    Plan,
    add_load,
    generate,
)
from ordercast.sim.schedule import Action, Schedule
from ordercast.sim.units import seconds
from ordercast.wire.layout import NETWORKS_MAX

DETECTED_WITHIN_US = 1_800_000
"""A lasting fault is reported by every process within this time: six probes and an interval, 1.4 s; another interval
for a network that was about to be taken back, and one for a probe that the network which showed the others lost."""
SPORADIC_LOSS = 0.02
FORMED_BY_US = 2_500_000
"""When the group has formed, in runs without faults until then."""
_REPAIRED_WITHIN_US = 5_500_000
"""A network that was mended for the first time is back within this time (without loss after 2.4 s)."""
Troubled = dict[int, list[tuple[int, int]]]
"""When each network is cut, or on its way back."""
_MS = 1_000
_DATA_DELIVERIES = 1_200
_NODES = (2, 3, 3, 3, 4, 4, 4, 5, 5, 6)


def generate_redundant(
    seed: int, replication: str, *, engine: str = "totem", nodes: int | None = None, networks: int | None = None
) -> Schedule:
    """The schedule of a seed; `nodes` and `networks` fix their numbers."""
    if nodes is not None and nodes < NODES_MIN:
        raise ValueError(f"a schedule for {nodes} nodes: faults take {NODES_MIN} or more")
    shape = Random(f"{seed}/generate/networks")
    drawn = [n for n in (2, 2, 3, 3, 4) if _possible(replication, n)]
    networks = networks or shape.choice(drawn or [parse_replication(replication, NETWORKS_MAX) + 1])
    if shape.random() < 0.4:
        return _mixed(seed, engine, nodes, networks, replication, shape)
    plan = Plan(seed, nodes or shape.choice(_NODES))
    _latencies(plan, networks, shape)
    config = {"packet_bytes": shape.randrange(280, 420), "ahead_from": plan.stream("ahead").choice(AHEAD_FROM)}
    plan.add(FORMED_BY_US, "mark views")
    loss = [shape.choice((0.0, 0.005, SPORADIC_LOSS)) for _ in range(networks)]
    for network, rate in enumerate(loss, 1):
        if rate:
            plan.add(0, f"loss {rate} on {network}")
    troubled: Troubled = {}
    match shape.random():
        case x if x < 0.15:
            end_us = _only_loss(plan, networks, shape)
        case x if x < 0.5:
            end_us = _one_after_the_other(plan, networks, troubled, shape)
        case _:
            end_us = _all_but_one(plan, networks, troubled, shape)
    plan.end_us = max(plan.end_us, end_us)
    _drops(plan, networks, troubled, shape)
    add_load(plan, _DATA_DELIVERIES * 2 // networks)
    # The first packets of the load must not meet a group that is still forming: that would be no test of networks.
    actions = [replace_time(action) for action in plan.actions]
    end = max(action.at_us for action in actions)
    actions += [Action(end, "expect no-view at *"), Action(end, "heal"), Action(end, "settle 20")]
    actions.sort(key=lambda action: action.at_us)
    return Schedule(
        len(plan.names), seed, engine, MINIMUM_DELIVERIES, tuple(config.items()), tuple(actions), networks, replication
    )


def replace_time(action: Action) -> Action:
    """Load from FORMED_BY_US on."""
    if action.what.startswith("send") and action.at_us < FORMED_BY_US:
        return action._replace(at_us=action.at_us + FORMED_BY_US)
    return action


def _possible(replication: str, networks: int) -> bool:
    try:
        parse_replication(replication, networks)
    except ValueError:
        return False
    return True


def _latencies(plan: Plan, networks: int, rng: Random) -> None:
    """Networks of different speed."""
    base = rng.randrange(300, 2_000)
    for network in range(1, networks + 1):
        extra = rng.choice((0, 0, rng.randrange(0, 3_000)))
        plan.add(0, f"latency {seconds(base + extra)} {seconds(rng.randrange(50, 800))} on {network}")


# Faults: a node cannot send, a node cannot receive, a network drops some pairs, or everything


def _links(plan: Plan, rng: Random) -> Sequence[str]:
    """The links that one fault cuts."""
    names = plan.names
    name = rng.choice(names)
    shape = rng.random()
    if shape < 0.2:
        return [f"{name} -> *"]
    if shape < 0.4:
        return [f"* -> {name}"]
    if shape < 0.55:
        return [f"{name} <-> *"]
    if shape < 0.75:
        return ["* -> *"]
    pairs = rng.randint(1, 3)
    return [f"{a} {rng.choice(('->', '<->'))} {b}" for a, b in (rng.sample(names, 2) for _ in range(pairs))]


def _cut(plan: Plan, rng: Random, network: int, at_us: int, lasts_us: int) -> None:
    """A fault from one time on, mended after another; if it lasts long enough all have found it."""
    links = _links(plan, rng)
    plan.marks.append(at_us)
    for link in links:
        plan.add(at_us, f"cut {link} on {network}")
    if lasts_us >= DETECTED_WITHIN_US:
        plan.add(at_us + DETECTED_WITHIN_US, f"expect faulty {network} at *")
    for link in links:
        plan.add(at_us + lasts_us, f"mend {link} on {network}")


def _only_loss(plan: Plan, networks: int, rng: Random) -> int:
    for network in range(1, networks + 1):
        plan.add(0, f"loss {rng.uniform(0.001, SPORADIC_LOSS):.4f} on {network}")
        plan.add(plan.end_us, f"expect alarms = 0 on {network} at *")
    return plan.end_us


def _drops(plan: Plan, networks: int, troubled: Troubled, rng: Random) -> None:
    """Some packets in a row that one network loses: sporadic too. A network on its way back, which carries nothing but
    probes, would rightly have to wait longer."""
    for number in range(rng.randint(7, 9)):
        count, kind = rng.choice(((1, "token"), (3, "token"), (3, "data"), (2, "probe"), (5, "*")))
        if number < MINIMUM_FAULTS:
            count, kind = 1, "*"  # meets a packet whatever the load is
        at, network = _sound_moment(plan, networks, troubled, rng)
        source, target = rng.sample(plan.names, 2)
        plan.add(at, f"drop {count} {kind} {source} -> {target} on {network}")


def _sound_moment(plan: Plan, networks: int, troubled: Troubled, rng: Random) -> tuple[int, int]:
    """A time, and a network that is sound then."""
    while True:
        at = FORMED_BY_US + rng.randrange(0, (plan.end_us - FORMED_BY_US) // _MS - 1_000) * _MS
        network = rng.randint(1, networks)
        if not any(begin <= at < end for begin, end in troubled.get(network, ())):
            return at, network


def _one_after_the_other(plan: Plan, networks: int, troubled: Troubled, rng: Random) -> int:
    """Each of two networks fails, is found once, is mended and comes back before the next one fails."""
    at = FORMED_BY_US + rng.randrange(200, 1_000) * _MS
    chosen = rng.sample(range(1, networks + 1), 2)
    for network in chosen:
        lasts = DETECTED_WITHIN_US + rng.randrange(100, 2_700) * _MS
        plan.add(at - _MS, f"expect alarms = 0 on {network} at *")
        _cut(plan, rng, network, at, lasts)
        troubled[network] = [(at, at + lasts + _REPAIRED_WITHIN_US)]
        at += lasts + _REPAIRED_WITHIN_US
        plan.add(at, f"expect sound {network} at *")
        at += rng.randrange(10, 500) * _MS
    end = max(at, plan.end_us)
    for network in range(1, networks + 1):
        plan.add(end, f"expect alarms = {int(network in chosen)} on {network} at *")
    return end


def _all_but_one(plan: Plan, networks: int, troubled: Troubled, rng: Random) -> int:
    """One network stays; the others fail in any way, also at once, for a moment or for long."""
    kept = rng.randint(1, networks)
    end = plan.end_us
    for network in range(1, networks + 1):
        if network == kept:
            continue
        troubled[network] = [(0, end)]
        at = FORMED_BY_US + rng.randrange(100, 4_000) * _MS
        for _ in range(rng.randint(2, 4)):
            lasts = plan.span(rng, 0.02, 8)
            _cut(plan, rng, network, at, lasts)
            at += lasts + plan.span(rng, 0.05, 4)
        end = max(end, at)
    plan.add(end, f"expect alarms = 0 on {kept} at *")
    return end


def _mixed(seed: int, engine: str, nodes: int | None, networks: int, replication: str, rng: Random) -> Schedule:
    """All faults of `generate`, which hit all networks alike, and some of single networks among them."""
    base = generate(seed, engine=engine, nodes=nodes or rng.choice(_NODES))
    plan = Plan(seed, base.nodes)
    end = next(action.at_us for action in base.actions if action.what == "heal")
    _latencies(plan, networks, rng)
    for _ in range(rng.randint(2, 6)):
        network = rng.randint(1, networks)
        at = plan.moment(rng)
        lasts = min(plan.span(rng, 0.02, 8), end - at - 1)
        for link in _links(plan, rng):
            plan.add(at, f"cut {link} on {network}")
            plan.add(at + lasts, f"mend {link} on {network}")
    latency, *rest = base.actions
    assert latency.what.startswith("latency")
    actions = tuple(sorted([*plan.actions, *rest], key=lambda action: action.at_us))
    return replace(base, actions=actions, networks=networks, replication=replication)
