"""Reduces a schedule that violates a property to one with little in it that still violates the same property.

Delta debugging over the actions; then fewer nodes; then weaker rates; round and round while that takes anything
away. It works because a schedule without an action is still a schedule, and because what chance decides is drawn for
each link and purpose apart, so that one action less leaves most of the rest as it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from ordercast.sim.engines import EngineSpec
from ordercast.sim.runner import Violation, run_schedule
from ordercast.sim.schedule import Action, Schedule

Fails = Callable[[Schedule], bool]
Progress = Callable[[Schedule, int], None]

_RATE = re.compile(r"(loss|corruption|duplication|reordering|spikes) ([01](?:\.\d+)?)")
_COUNT = re.compile(r"(send|garbage) (\d+)")
_SIZE = re.compile(r"size=\d+(?:\.\.\d+)?")


def same_failure(violation: Violation, spec: EngineSpec | None = None) -> Fails:
    """Whether a schedule violates the same property; of an engine that raised, in the same way."""

    def signature(found: Violation) -> tuple[str, str]:
        # The last line of a traceback is the exception; numbers in it differ from run to run.
        text = re.sub(r"\d+", "#", found.evidence[-1]) if found.property == "engine" and found.evidence else ""
        return found.property, text

    wanted = signature(violation)
    return lambda schedule: any(signature(found) == wanted for found in run_schedule(schedule, spec).violations)


class Shrinker:
    """Tries smaller schedules on `fails` and keeps those that fail, until the budget of trials is used up."""

    def __init__(self, fails: Fails, *, trials_max: int = 2_000, progress: Progress | None = None) -> None:
        self._fails = fails
        self._left = trials_max
        self._progress = progress
        self.trials = 0

    def shrink(self, schedule: Schedule) -> Schedule:
        schedule = self._try(schedule, replace(schedule, minimum=0))
        while self._left > 0:
            before = schedule
            schedule = self._drop_actions(schedule)
            schedule = self._drop_nodes(schedule)
            schedule = self._weaken(schedule)
            if schedule == before:
                break
        return schedule

    def _try(self, schedule: Schedule, smaller: Schedule) -> Schedule:
        """The smaller schedule if it fails as well."""
        if self._left <= 0 or smaller == schedule:
            return schedule
        if heals(schedule) and not heals(smaller):
            # Liveness is promised to a group that is left in peace: with its faults going on it fails in another way.
            return schedule
        self._left -= 1
        self.trials += 1
        if not self._fails(smaller):
            return schedule
        if self._progress is not None:
            self._progress(smaller, self.trials)
        return smaller

    def _drop_actions(self, schedule: Schedule) -> Schedule:
        """Halves, quarters and so on down to single actions, as long as one of them can go."""
        size = max(1, len(schedule.actions) // 2)
        while True:
            at = 0
            gone = False
            while at < len(schedule.actions) and self._left > 0:
                smaller = replace(schedule, actions=schedule.actions[:at] + schedule.actions[at + size :])
                kept = self._try(schedule, smaller)
                if kept is schedule:
                    at += size
                else:
                    schedule, gone = kept, True
            if self._left <= 0 or (size == 1 and not gone):
                return schedule
            if not gone:
                size = max(1, size // 2)

    def _drop_nodes(self, schedule: Schedule) -> Schedule:
        """Without the last node, or with it in the place of another that is taken out."""
        for name in range(schedule.nodes, 0, -1):
            if schedule.nodes > 1:
                schedule = self._try(schedule, without_node(schedule, name))
        return schedule

    def _weaken(self, schedule: Schedule) -> Schedule:
        """Rates to nothing or to half; fewer and smaller messages."""
        for at in range(len(schedule.actions)):
            for what in weaker(schedule.actions[at].what):
                action = Action(schedule.actions[at].at_us, what)
                smaller = replace(schedule, actions=(*schedule.actions[:at], action, *schedule.actions[at + 1 :]))
                kept = self._try(schedule, smaller)
                if kept is not schedule:
                    schedule = kept
                    break
        for name, _ in schedule.config:
            if name != "packet_bytes":
                config = tuple(entry for entry in schedule.config if entry[0] != name)
                schedule = self._try(schedule, replace(schedule, config=config))
        return schedule


def heals(schedule: Schedule) -> bool:
    """Whether every fault has ended when the group is asked to settle; also if it never is."""
    verbs = [action.what.partition(" ")[0] for action in schedule.actions]
    return "settle" not in verbs or "heal" in verbs[: verbs.index("settle")]


def weaker(what: str) -> list[str]:
    """Statements that do less, the least first."""
    found: list[str] = []
    rate = _RATE.match(what)
    if rate is not None and float(rate[2]) > 0.001:
        found.append(f"{rate[1]} {float(rate[2]) / 2:.4f}{what[rate.end() :]}")
    count = _COUNT.match(what)
    if count is not None and int(count[2]) > 1:
        found += [f"{count[1]} {fewer}{what[count.end() :]}" for fewer in sorted({1, int(count[2]) // 2})]
    if "size=" in what:
        found.append(_SIZE.sub("size=24", what))
    if what.endswith(" keyed"):
        found.append(what.removesuffix(" keyed"))
    return [other for other in found if other != what]


def without_node(schedule: Schedule, name: int) -> Schedule:
    """The schedule with one node less: statements lose it, those about it alone go, later nodes move up."""
    actions: list[Action] = []
    for at_us, what in schedule.actions:
        kept = _without(what, name)
        if kept is not None:
            actions.append(Action(at_us, re.sub(r"\bn(\d+)\b", lambda match: _moved(match, name), kept)))
    return replace(schedule, nodes=schedule.nodes - 1, actions=tuple(actions))


def _moved(match: re.Match[str], name: int) -> str:
    number = int(match[1])
    return f"n{number - 1}" if number > name else f"n{number}"


def _without(what: str, name: int) -> str | None:
    """What is left of a statement without a node; None if nothing is."""
    if re.search(rf"\bn{name}\b", what) is None:
        return what
    if "->" in what or what.startswith("expect"):
        return None
    if what.startswith("partition "):
        groups = [group.split() for group in what.removeprefix("partition ").split("|")]
        left = [" ".join(other for other in group if other != f"n{name}") for group in groups]
        left = [group for group in left if group]
        return f"partition {' | '.join(left)}" if left else None
    left = [word for word in what.split() if word != f"n{name}"]
    return " ".join(left) if any(re.fullmatch(r"n\d+", word) for word in left) else None
