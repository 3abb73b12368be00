"""Scenario scripts: run, judged by their expectations and the checker, and told as a transcript.

A transcript lists, node by node, the typed events of the run. It has no times and joins deliveries of consecutive
messages, so that it pins what happened and not how long it took.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from time import process_time

from ordercast.check.events import Conf, Deliver, Event, Send
from ordercast.sim.engines import EngineSpec
from ordercast.sim.record import trace_hash
from ordercast.sim.runner import Violation, check_traces, make_world
from ordercast.sim.schedule import Schedule, ScheduleError, parse_schedule


@dataclass(slots=True)
class Outcome:
    """What came of a scenario."""

    violations: list[Violation]
    transcript: str
    trace_hash: str
    traces: dict[str, list[Event]]
    deliveries: int
    run_s: float
    """Processor time of simulator and engine."""


def scenario_names() -> list[str]:
    """The scenarios that come with the package."""
    folder = files("ordercast.sim") / "scenarios"
    return sorted(entry.name.removesuffix(".txt") for entry in folder.iterdir() if entry.name.endswith(".txt"))


def load_scenario(name: str) -> Schedule:
    """A scenario of the package by name, or a script by its path."""
    if name in scenario_names():
        text = (files("ordercast.sim") / "scenarios" / f"{name}.txt").read_text()
    else:
        path = Path(name)
        if not path.is_file():
            raise ScheduleError(f"{name}: no such file, and no scenario has this name")
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ScheduleError(f"{name}: {error}") from None
    try:
        return parse_schedule(text)
    except ScheduleError as error:
        raise ScheduleError(f"{name}, {error}") from None


def run_scenario(schedule: Schedule, spec: EngineSpec | None = None) -> Outcome:
    """Runs a script. The violations include those that it did not expect, and the expected one if it did not happen."""
    world = make_world(schedule, spec, keep_reports=True)
    began = process_time()
    world.run()
    run_s = process_time() - began
    traces = world.traces
    violations = [Violation(name, tuple(evidence)) for name, evidence in world.violations] + check_traces(traces)
    expected = world.expected_violation
    if expected is not None:
        if any(violation.property == expected for violation in violations):
            violations = [violation for violation in violations if violation.property != expected]
        else:
            violations.append(Violation("expect", (f"expect violation {expected}", "it did not happen")))
    return Outcome(violations, "\n".join(transcript(traces)) + "\n", trace_hash(traces), traces, world.delivered, run_s)


def transcript(traces: dict[str, list[Event]]) -> Iterable[str]:
    for node, events in traces.items():
        yield f"{node}:"
        run: list[Event] = []
        for event in events:
            if run and not _continues(run[-1], event):
                yield f"  {_say(run)}"
                run = []
            run.append(event)
        if run:
            yield f"  {_say(run)}"


def _continues(last: Event, event: Event) -> bool:
    """Whether the event says of the next message what the last one said of its own."""
    if not isinstance(event, Send | Deliver) or not isinstance(last, Send | Deliver) or type(event) is not type(last):
        return False
    sender, _, number = last.msg.rpartition(":")
    return event.conf == last.conf and event.service == last.service and event.msg == f"{sender}:{int(number) + 1}"


def _say(run: list[Event]) -> str:
    event = run[0]
    if isinstance(event, Conf):
        return f"{event.kind} {event.conf} {' '.join(event.members)}"
    if not isinstance(event, Send | Deliver):
        return type(event).__name__.lower()
    last = run[-1]
    assert isinstance(last, Send | Deliver)
    upto = f"..{last.msg.rpartition(':')[2]}" if last is not event else ""
    return f"{type(event).__name__.lower()} {event.msg}{upto} in {event.conf} {event.service}"
