"""Schedules: everything that is done to a simulated group, as data and as text.

A schedule has a header and timed actions. Its text is the *scenario script*, one statement a line:

    nodes 3                              # header: engine, seed, nodes, minimum, config
    config packet_bytes=350
    loss 0.02                            # an action at the current time, which is 0 at first
    at 1.25 cut n1 -> n2                 # an action at 1.25 s, which becomes the current time
    advance 0.5                          # 1.75 s from here on
    expect view n1 n2 n3 at n1

Times are seconds with up to six decimals. `#` begins a comment. `actions` lists the actions. The seed decides what
the script leaves open: jitter, which packets are lost, the sizes of messages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from ordercast.redundancy import parse_replication
from ordercast.sim.actions import check_action
from ordercast.sim.units import micros, seconds
from ordercast.wire.layout import NETWORKS_MAX

NODES_MAX = 500
_HEADER = {"engine", "seed", "nodes", "networks", "replication", "minimum", "config"}
_HEADER_WORDS = {"engine", "replication"}


def check_replication(networks: int, replication: str) -> int:
    """The copies of each message that a number of networks and a style make; raises ValueError."""
    if networks == 1 and replication == "none":
        return 1
    if not 2 <= networks <= NETWORKS_MAX:
        raise ValueError(f"{networks} networks with replication {replication}: redundancy takes 2 to {NETWORKS_MAX}")
    return parse_replication(replication, networks)


class ScheduleError(ValueError):
    """A script that says something that cannot be done; the message names the line."""


class Action(NamedTuple):
    """Something that is done at a time: `what` is a statement of `actions`."""

    at_us: int
    what: str


@dataclass(frozen=True, slots=True)
class Schedule:
    """What is done to a group, and the seed of all that is left to chance."""

    nodes: int = 3
    seed: int = 0
    engine: str = "totem"
    minimum: int = 0
    """Packet deliveries that the run must reach: `settle` adds load until it has."""
    config: tuple[tuple[str, int], ...] = ()
    """Parameters of the engine that differ from its defaults."""
    actions: tuple[Action, ...] = ()
    networks: int = 1
    replication: str = "none"
    """With two networks or more: active, passive or active-passive:K."""

    @property
    def duration_us(self) -> int:
        return self.actions[-1].at_us if self.actions else 0


def parse_schedule(text: str) -> Schedule:
    header: dict[str, str] = {}
    config: dict[str, int] = {}
    actions: list[Action] = []
    now = 0
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            if words[0] in _HEADER:
                _read_header(words, header, config)
                continue
            if words[0] in ("at", "advance"):
                if len(words) < 2:
                    raise ValueError(f"{words[0]} without a time")
                time = micros(words[1])
                if time < 0 or (words[0] == "at" and time < now):
                    raise ValueError(f"{' '.join(words[:2])} goes back in time")
                now = time if words[0] == "at" else now + time
                words = words[2:]
                if not words:
                    continue
            what = " ".join(words)
            check_action(what)
            actions.append(Action(now, what))
        except ValueError as error:
            raise ScheduleError(f"line {number}: {error}") from None
    # The time that is reached at the end is part of the script, even if nothing is done then.
    if now > (actions[-1].at_us if actions else 0):
        actions.append(Action(now, "wait"))
    nodes = int(header.get("nodes", "3"))
    if not 1 <= nodes <= NODES_MAX:
        raise ScheduleError(f"{nodes} nodes: between 1 and {NODES_MAX} can be simulated")
    schedule = Schedule(
        nodes,
        int(header.get("seed", "0")),
        header.get("engine", "totem"),
        int(header.get("minimum", "0")),
        tuple(config.items()),
        tuple(actions),
        int(header.get("networks", "1")),
        header.get("replication", "none"),
    )
    try:
        check_replication(schedule.networks, schedule.replication)
    except ValueError as error:
        raise ScheduleError(str(error)) from None
    _check_names(schedule)
    return schedule


def _read_header(words: list[str], header: dict[str, str], config: dict[str, int]) -> None:
    if words[0] == "config":
        for word in words[1:]:
            name, equals, value = word.partition("=")
            if not equals or not name.isidentifier() or not re.fullmatch(r"-?\d+", value):
                raise ValueError(f"{word!r} is not NAME=INTEGER")
            config[name] = int(value)
        return
    if len(words) != 2:
        raise ValueError(f"{words[0]} takes one value")
    if words[0] not in _HEADER_WORDS and not words[1].isdecimal():
        raise ValueError(f"{words[0]} takes a number, not {words[1]!r}")
    header[words[0]] = words[1]


def _check_names(schedule: Schedule) -> None:
    for action in schedule.actions:
        for name in re.findall(r"\bn(\d+)\b", action.what):
            if not 1 <= int(name) <= schedule.nodes:
                raise ScheduleError(f"{action.what!r} names n{name}, but there are {schedule.nodes} nodes")
        network = re.search(r"\b(?:on|faulty|sound) (\d)\b", action.what)
        if network and int(network[1]) > schedule.networks:
            raise ScheduleError(f"{action.what!r}, but there are {schedule.networks} networks")


def format_schedule(schedule: Schedule) -> str:
    """The canonical text: `parse_schedule` gives the same schedule again."""
    lines = [f"engine {schedule.engine}", f"seed {schedule.seed}", f"nodes {schedule.nodes}"]
    if schedule.networks > 1:
        lines += [f"networks {schedule.networks}", f"replication {schedule.replication}"]
    if schedule.minimum:
        lines.append(f"minimum {schedule.minimum}")
    lines += [f"config {name}={value}" for name, value in schedule.config]
    now = 0
    for action in schedule.actions:
        lines.append(f"at {seconds(action.at_us)} {action.what}" if action.at_us != now else action.what)
        now = action.at_us
    return "\n".join(lines) + "\n"
