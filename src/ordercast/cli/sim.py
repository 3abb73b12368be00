"""`ordercast sim`: seeded fault schedules and scenario scripts on the simulator, every trace checked."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ordercast.cli.campaign import (
    UsageError,
    add_campaign_options,
    campaign_of,
    number,
    print_result,
    print_summary,
    print_violation,
    progress,
    seed_range,
    warn_of_short,
)
from ordercast.sim.campaign import Summary, run_campaign
from ordercast.sim.engines import find_engine
from ordercast.sim.record import write_traces
from ordercast.sim.runner import make_schedule, run_schedule
from ordercast.sim.scenario import load_scenario, run_scenario, scenario_names
from ordercast.sim.schedule import Schedule, format_schedule
from ordercast.sim.shrink import Shrinker, same_failure

_EXAMPLE = """\
exit status: 0 no violation, 1 a property was violated, 2 bad usage

examples:
  ordercast sim --seeds 0:1000             a campaign on all processors
  ordercast sim --seed 7 --trace /tmp/t    one seed; its traces are for `ordercast check`
  ordercast sim --seed 7 --shrink          reduce a failing seed to a small scenario script
  ordercast sim --scenario pause           a scenario of the package, or a script by its path
"""


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "sim",
        help="run seeded fault schedules on the simulator",
        description="Runs an engine on virtual time, networks and disks, under faults and load that a seed decides, "
        "and checks the trace of every node. The same seed gives the same trace, always.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--seed", metavar="N", help="run one seed")
    what.add_argument("--seeds", metavar="A:B", help="run the seeds from A up to but excluding B (default 0:20)")
    what.add_argument("--scenario", metavar="FILE|NAME", help="run a scenario script, or one of the package's")
    what.add_argument("--list", action="store_true", help="list the scenarios of the package")
    add_campaign_options(parser)
    parser.add_argument("--trace", metavar="DIR", type=Path, help="write traces here; of several seeds to DIR/seed-N")
    parser.add_argument("--jobs", metavar="N", help="processes (default: one for each processor)")
    parser.add_argument("--stop-on-first", action="store_true", help="end at the first seed with a violation")
    parser.add_argument("--coverage", action="store_true", help="tell which cells and properties the seeds reached")
    parser.add_argument("--show", action="store_true", help="print the schedule of the seed as a script, do not run it")
    parser.add_argument("--shrink", action="store_true", help="reduce the failing seed or script to a small script")
    parser.add_argument("--output", metavar="FILE", type=Path, help="where --shrink writes its script")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        find_engine(args.engine)
        if args.list:
            print("\n".join(scenario_names()))
            return 0
        if args.shrink:
            return _shrink(args)
        if args.show:
            print(format_schedule(_schedule(args)), end="")
            return 0
        return _scenario(args) if args.scenario else _campaign(args)
    except (UsageError, ValueError) as error:
        print(f"ordercast sim: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"ordercast sim: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2


def _seeds(args: argparse.Namespace) -> range:
    if args.seed is not None:
        seed = number("--seed", args.seed, 0, 2**63)
        assert seed is not None
        return range(seed, seed + 1)
    return seed_range(args.seeds or "0:20")


def _schedule(args: argparse.Namespace) -> Schedule:
    if args.scenario:
        return load_scenario(args.scenario)
    seeds = _seeds(args)
    if len(seeds) != 1:
        raise UsageError("--show and --shrink take one --seed or --scenario")
    what = campaign_of(args)
    return make_schedule(
        seeds[0], engine=what.engine, nodes=what.nodes, networks=what.networks, replication=what.replication
    )


# Seeds


def _campaign(args: argparse.Namespace) -> int:
    seeds = _seeds(args)
    campaign = campaign_of(args)
    jobs = number("--jobs", args.jobs, 1, 4096) or os.cpu_count() or 1
    trace: Callable[[int], Path] | None = None
    if args.trace is not None:
        args.trace.mkdir(parents=True, exist_ok=True)
        trace = (lambda seed: args.trace / f"seed-{seed}") if len(seeds) > 1 else (lambda seed: args.trace)
    summary = Summary(args.engine)
    results = run_campaign(
        campaign, seeds, trace=trace, jobs=jobs, stop_on_first=args.stop_on_first, coverage=args.coverage
    )
    with progress(len(seeds)) as advance:
        for result in results:
            summary.add(result)
            advance(1, len(summary.failed))
            if result.violations and not args.json:
                print_result(campaign, result)
    if args.json:
        print(json.dumps(summary.as_json()))
    else:
        print_summary(summary)
    warn_of_short("ordercast sim", summary)
    return 1 if summary.failed else 0


# Scripts


def _scenario(args: argparse.Namespace) -> int:
    schedule = load_scenario(args.scenario)
    find_engine(schedule.engine)
    outcome = run_scenario(schedule)
    if args.trace is not None:
        write_traces(args.trace, outcome.traces)
    if args.json:
        report = {
            "engine": schedule.engine,
            "scenario": args.scenario,
            "seeds": 1,
            "violations": [
                {"seed": schedule.seed, "property": found.property, "evidence": list(found.evidence)}
                for found in outcome.violations
            ],
            "events": sum(map(len, outcome.traces.values())),
            "events_per_s": round(sum(map(len, outcome.traces.values())) / max(outcome.run_s, 1e-6)),
            "deliveries": outcome.deliveries,
            "trace_hash": outcome.trace_hash,
        }
        print(json.dumps(report))
    else:
        print(outcome.transcript, end="")
        for violation in outcome.violations:
            print_violation(violation)
        print(f"{args.scenario}: {'violated' if outcome.violations else 'as expected'}")
    return 1 if outcome.violations else 0


def _shrink(args: argparse.Namespace) -> int:
    schedule = _schedule(args)
    result = run_schedule(schedule)
    what = args.scenario or f"seed {schedule.seed}"
    if not result.violations:
        print(f"{what}: no violation, nothing to shrink")
        return 0
    violation = result.violations[0]
    console = sys.stderr.isatty()

    def progress(smaller: Schedule, trials: int) -> None:
        if console:
            print(f"\r{trials} trials: {len(smaller.actions)} actions, {smaller.nodes} nodes ", end="", file=sys.stderr)

    shrinker = Shrinker(same_failure(violation), progress=progress)
    smaller = shrinker.shrink(schedule)
    if console:
        print(file=sys.stderr)
    path = args.output or Path(f"{schedule.engine}-seed-{schedule.seed}.txt")
    path.write_text(f"# {what} violates {violation.property}\n{format_schedule(smaller)}")
    if args.json:
        report = {"property": violation.property, "actions": len(smaller.actions), "nodes": smaller.nodes}
        print(json.dumps(report | {"trials": shrinker.trials, "scenario": str(path)}))
    else:
        before = f"{len(schedule.actions)} actions of {schedule.nodes} nodes"
        print(f"{what} violates {violation.property}")
        print(f"  {before} are {len(smaller.actions)} of {smaller.nodes} after {shrinker.trials} trials")
        print(f"  replay: ordercast sim --scenario {path}")
    return 1
