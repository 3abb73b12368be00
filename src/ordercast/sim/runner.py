"""One run: a schedule on the simulator, its traces through the checker, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time

from ordercast.check import TraceError, check_events
from ordercast.check.events import Event
from ordercast.check.exercised import exercised
from ordercast.sim.engines import EngineSpec, find_engine, redundant
from ordercast.sim.generate import generate
from ordercast.sim.generate_corel import generate_corel
from ordercast.sim.generate_networks import generate_redundant
from ordercast.sim.record import trace_hash, write_traces
from ordercast.sim.schedule import Schedule
from ordercast.sim.world import World


@dataclass(frozen=True, slots=True)
class Violation:
    """A property that does not hold: one of the checker's, or `engine`, `liveness`, `trace` or `expect`."""

    property: str
    evidence: tuple[str, ...]


@dataclass(slots=True)
class Result:
    """What came of a run. Plain data, so that it goes through a pipe between processes."""

    seed: int
    nodes: int
    violations: list[Violation]
    trace_hash: str
    events: int
    deliveries: int
    """Packets handed to engines."""
    faults: dict[str, int] = field(default_factory=dict)
    expectations: dict[str, int] = field(default_factory=dict)
    """What the schedule asked of nodes on the way, by kind."""
    views: int = 0
    messages: int = 0
    """Messages submitted."""
    held_back: int = 0
    virtual_us: int = 0
    run_s: float = 0.0
    """Processor time of simulator and engine."""
    check_s: float = 0.0
    cells: dict[str, int] = field(default_factory=dict)
    """If coverage was asked for: how often each cell of the engine's tables was reached."""
    exercised: dict[str, int] = field(default_factory=dict)
    """Likewise how often each property had something to judge."""

    @property
    def properties(self) -> set[str]:
        return {violation.property for violation in self.violations}


def run_seed(
    engine: str | EngineSpec,
    seed: int,
    *,
    nodes: int | None = None,
    networks: int | None = 1,
    replication: str = "none",
    trace: Path | None = None,
    check: bool = True,
    coverage: bool = False,
) -> Result:
    """Expands the seed into a schedule and runs it in this process; with `networks` None it says how many there are."""
    spec = find_engine(engine) if isinstance(engine, str) else engine
    schedule = make_schedule(seed, engine=spec.name, nodes=nodes, networks=networks, replication=replication)
    return run_schedule(schedule, spec, trace=trace, check=check, coverage=coverage)


def make_schedule(seed: int, *, engine: str, nodes: int | None, networks: int | None, replication: str) -> Schedule:
    if engine == "corel" and replication == "none":
        return generate_corel(seed, engine=engine, nodes=nodes)
    if replication == "none":
        return generate(seed, engine=engine, nodes=nodes)
    return generate_redundant(seed, replication, engine=engine, nodes=nodes, networks=networks)


def run_schedule(
    schedule: Schedule,
    spec: EngineSpec | None = None,
    *,
    trace: Path | None = None,
    check: bool = True,
    coverage: bool = False,
) -> Result:
    spec = spec or find_engine(schedule.engine)
    cells: dict[str, int] = {}
    with ExitStack() as watching:
        for table in spec.tables if coverage else ():
            watching.enter_context(table.watched(cells))
        world = make_world(schedule, spec)
        began = process_time()
        world.run()
        ended = process_time()
    violations = [Violation(name, tuple(evidence)) for name, evidence in world.violations]
    traces = world.traces
    if trace is not None:
        write_traces(trace, traces)
    if check:
        violations += check_traces(traces)
    return Result(
        schedule.seed,
        schedule.nodes,
        violations,
        trace_hash(traces),
        sum(map(len, traces.values())),
        world.delivered,
        dict(sorted(world.faults.items())),
        dict(sorted(world.expectations.items())),
        sum(node.log.views for node in world.nodes),
        world.submitted,
        world.held_back,
        world.now,
        ended - began,
        process_time() - ended,
        dict(sorted(cells.items())),
        exercised(traces) if coverage else {},
    )


def make_world(schedule: Schedule, spec: EngineSpec | None = None, *, keep_reports: bool = False) -> World:
    spec = spec or find_engine(schedule.engine)
    make = spec.factory(dict(schedule.config))
    if schedule.networks > 1:
        make = redundant(make, schedule)
    layer = None if spec.layer is None else spec.layer(dict(schedule.config), schedule.nodes)
    return World(schedule, make, dict(spec.kinds), make_layer=layer, keep_reports=keep_reports)


def check_traces(traces: Mapping[str, list[Event]]) -> list[Violation]:
    try:
        return [Violation(found.property, tuple(found.evidence)) for found in check_events(traces).violations]
    except TraceError as error:
        # The engine made the trace unreadable, as by a view with a member that does not exist.
        return [Violation("trace", (str(error),))]
