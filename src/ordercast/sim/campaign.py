"""Many seeds on all processors, with results in the order of the seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from ordercast.sim.generate import MINIMUM_DELIVERIES, MINIMUM_FAULTS
from ordercast.sim.runner import Result, run_seed

_CHUNK_MAX = 8


@dataclass(slots=True)
class Summary:
    """What came of a campaign so far."""

    engine: str
    seeds: int = 0
    failed: list[tuple[int, str, tuple[str, ...]]] = field(default_factory=list)
    """Seed, property and evidence of each violation."""
    events: int = 0
    deliveries: int = 0
    messages: int = 0
    views: int = 0
    virtual_us: int = 0
    run_s: float = 0.0
    check_s: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)
    short: list[int] = field(default_factory=list)
    """Seeds without a violation that had too few deliveries or faults to count as a test."""
    trace_hash: str | None = None

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.failed += [(result.seed, found.property, found.evidence) for found in result.violations]
        self.events += result.events
        self.deliveries += result.deliveries
        self.messages += result.messages
        self.views += result.views
        self.virtual_us += result.virtual_us
        self.run_s += result.run_s
        self.check_s += result.check_s
        for kind, count in result.faults.items():
            self.faults[kind] = self.faults.get(kind, 0) + count
        enough = result.deliveries >= MINIMUM_DELIVERIES and sum(result.faults.values()) >= MINIMUM_FAULTS
        if not enough and not result.violations:
            self.short.append(result.seed)
        self.trace_hash = result.trace_hash

    def as_json(self) -> dict[str, object]:
        report: dict[str, object] = {
            "engine": self.engine,
            "seeds": self.seeds,
            "violations": [
                {"seed": seed, "property": name, "evidence": list(evidence)} for seed, name, evidence in self.failed
            ],
            "events": self.events,
            "events_per_s": round(self.events / (self.run_s + self.check_s)) if self.run_s else 0,
            "deliveries": self.deliveries,
            "deliveries_per_s": round(self.deliveries / self.run_s) if self.run_s else 0,
            "messages": self.messages,
            "views": self.views,
            "faults": dict(sorted(self.faults.items())),
            "virtual_s": round(self.virtual_us / 1e6, 3),
            "cpu_s": {"run": round(self.run_s, 3), "check": round(self.check_s, 3)},
            "short_seeds": self.short,
        }
        if self.seeds == 1:
            report["trace_hash"] = self.trace_hash
        return report


def run_campaign(
    engine: str,
    seeds: Iterable[int],
    *,
    nodes: int | None = None,
    networks: int | None = 1,
    replication: str = "none",
    trace: Callable[[int], Path] | None = None,
    jobs: int = 1,
    stop_on_first: bool = False,
) -> Iterator[Result]:
    """The results of the seeds, in their order, as they come; ends after the first violation if asked to."""
    # A path for each seed, worked out here: what goes to another process is plain data.
    tasks = [(seed, trace(seed) if trace is not None else None) for seed in seeds]
    run = partial(_run, engine, nodes, networks, replication)
    if jobs <= 1 or len(tasks) <= 1:
        yield from _until_first(map(run, tasks), stop_on_first)
        return
    # Forked, so that an engine that was patched in this process is patched in the others.
    with get_context("fork").Pool(jobs) as pool:
        chunk = max(1, min(_CHUNK_MAX, len(tasks) // (4 * jobs)))
        yield from _until_first(pool.imap(run, tasks, chunksize=chunk), stop_on_first)


def _until_first(results: Iterable[Result], stop_on_first: bool) -> Iterator[Result]:
    for result in results:
        yield result
        if stop_on_first and result.violations:
            return


def _run(
    engine: str, nodes: int | None, networks: int | None, replication: str, task: tuple[int, Path | None]
) -> Result:
    seed, trace = task
    return run_seed(engine, seed, nodes=nodes, networks=networks, replication=replication, trace=trace)
