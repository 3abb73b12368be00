"""Many seeds, what came of them together, and the run of them on all processors of this machine.

`ordercast spark campaign` runs the same campaigns over a cluster, with the same summary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from multiprocessing import get_context
from pathlib import Path

from ordercast.sim.engines import find_engine
from ordercast.sim.generate import MINIMUM_DELIVERIES, MINIMUM_FAULTS, MINIMUM_VIRTUAL_US
from ordercast.sim.runner import Result, run_seed

_CHUNK_MAX = 8
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Campaign:
    """What is run with every seed."""

    engine: str
    nodes: int | None = None
    networks: int | None = 1
    """None: what each seed says."""
    replication: str = "none"

    def run(self, seed: int, *, trace: Path | None = None, coverage: bool = False) -> Result:
        return run_seed(
            self.engine,
            seed,
            nodes=self.nodes,
            networks=self.networks,
            replication=self.replication,
            trace=trace,
            coverage=coverage,
        )

    def replay(self, seed: int) -> str:
        """The command that runs this seed again."""
        options = "" if self.nodes is None else f" --nodes {self.nodes}"
        if self.networks is not None and self.networks > 1:
            options += f" --networks {self.networks}"
        if self.replication != "none":
            options += f" --replication {self.replication}"
        return f"ordercast sim --engine {self.engine} --seed {seed}{options}"


def met_minimums(result: Result) -> bool:
    """Whether the run had the deliveries, faults and virtual time that make it a test."""
    enough = result.deliveries >= MINIMUM_DELIVERIES and sum(result.faults.values()) >= MINIMUM_FAULTS
    return enough and result.virtual_us >= MINIMUM_VIRTUAL_US


@dataclass(slots=True)
class Summary:
    """What came of a campaign so far. The order in which results are added does not matter."""

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
    struck: dict[str, int] = field(default_factory=dict)
    """In how many seeds each kind of fault happened."""
    expectations: dict[str, int] = field(default_factory=dict)
    """What schedules asked of nodes besides the properties, by kind."""
    met: int = 0
    """Seeds that had enough deliveries, faults and virtual time to count as a test."""
    short: list[int] = field(default_factory=list)
    """Seeds without a violation that had not."""
    cells: dict[str, int] = field(default_factory=dict)
    exercised: dict[str, int] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    """In how many seeds each property had something to judge."""
    trace_hash: str | None = None
    _digest: int = 0

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
        _count(self.faults, self.struck, result.faults)
        _count(self.expectations, {}, result.expectations)
        _count(self.cells, {}, result.cells)
        _count(self.exercised, self.asked, result.exercised)
        if met_minimums(result):
            self.met += 1
        elif not result.violations:
            self.short.append(result.seed)
        self.trace_hash = result.trace_hash
        said = repr((result.seed, result.trace_hash, [(each.property, each.evidence) for each in result.violations]))
        # A sum, so that it is the same in whatever order the results come.
        self._digest += int.from_bytes(blake2b(said.encode(), digest_size=_DIGEST_BYTES).digest(), "big")

    @property
    def digest(self) -> str:
        """Of all that happened in all seeds, and of the verdicts."""
        return f"{self._digest % (1 << 8 * _DIGEST_BYTES):0{2 * _DIGEST_BYTES}x}"

    def missed(self) -> list[str]:
        """The cells that are possible and were never reached."""
        possible = frozenset[str]().union(*(table.possible() for table in find_engine(self.engine).tables))
        return sorted(possible - self.cells.keys())

    def as_json(self) -> dict[str, object]:
        report: dict[str, object] = {
            "engine": self.engine,
            "seeds": self.seeds,
            "violations": [
                {"seed": seed, "property": name, "evidence": list(evidence)}
                for seed, name, evidence in sorted(self.failed)
            ],
            "events": self.events,
            "events_per_s": round(self.events / (self.run_s + self.check_s)) if self.run_s else 0,
            "deliveries": self.deliveries,
            "deliveries_per_s": round(self.deliveries / self.run_s) if self.run_s else 0,
            "messages": self.messages,
            "views": self.views,
            "faults": dict(sorted(self.faults.items())),
            "expectations": dict(sorted(self.expectations.items())),
            "virtual_s": round(self.virtual_us / 1e6, 3),
            "cpu_s": {"run": round(self.run_s, 3), "check": round(self.check_s, 3)},
            "met_minimums": self.met,
            "short_seeds": sorted(self.short),
            "digest": self.digest,
        }
        if self.seeds == 1:
            report["trace_hash"] = self.trace_hash
        if self.exercised:
            report["coverage"] = self._coverage()
        return report

    def _coverage(self) -> dict[str, object]:
        return {
            "faults": {
                kind: {"seeds": self.struck[kind], "times": times} for kind, times in sorted(self.faults.items())
            },
            "cells": {"reached": dict(sorted(self.cells.items())), "missed": self.missed()},
            "properties": {
                name: {"seeds": self.asked.get(name, 0), "instances": times} for name, times in self.exercised.items()
            },
        }


def _count(total: dict[str, int], seeds: dict[str, int], found: dict[str, int]) -> None:
    for name, times in found.items():
        total[name] = total.get(name, 0) + times
        if times:
            seeds[name] = seeds.get(name, 0) + 1


def run_campaign(
    campaign: Campaign,
    seeds: Iterable[int],
    *,
    trace: Callable[[int], Path] | None = None,
    jobs: int = 1,
    stop_on_first: bool = False,
    coverage: bool = False,
) -> Iterator[Result]:
    """The results of the seeds, in their order, as they come; ends after the first violation if asked to."""
    # A path for each seed, worked out here: what goes to another process is plain data.
    tasks = [(seed, trace(seed) if trace is not None else None) for seed in seeds]
    run = partial(_run, campaign, coverage)
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


def _run(campaign: Campaign, coverage: bool, task: tuple[int, Path | None]) -> Result:
    seed, trace = task
    return campaign.run(seed, trace=trace, coverage=coverage)
