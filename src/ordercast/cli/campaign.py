"""What `ordercast sim` and `ordercast spark campaign` share: which campaign, and how its results are told."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ordercast.sim.campaign import Campaign, Summary
from ordercast.sim.generate import NODES_MIN
from ordercast.sim.runner import Result, Violation
from ordercast.sim.schedule import NODES_MAX, check_replication
from ordercast.wire.layout import NETWORKS_MAX

_EVIDENCE_LINES = 12
_MISSED_SHOWN = 12


class UsageError(Exception):
    """Bad usage: one line."""


def add_campaign_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine", default="totem", help="the engine (default totem)")
    parser.add_argument("--nodes", metavar="N", help="the number of nodes, instead of what the seed says")
    parser.add_argument("--networks", metavar="K", help="redundant networks, 2 to 8 (default: what the seed says)")
    parser.add_argument(
        "--replication", metavar="R", help="their replication: active, passive or active-passive:K (default active)"
    )


def campaign_of(args: argparse.Namespace) -> Campaign:
    networks, replication = _networks(args)
    return Campaign(args.engine, number("--nodes", args.nodes, NODES_MIN, NODES_MAX), networks, replication)


def _networks(args: argparse.Namespace) -> tuple[int | None, str]:
    """How many networks (None: what each seed says) and their replication, "none" for a single one."""
    networks = number("--networks", args.networks, 1, NETWORKS_MAX)
    if networks == 1 or (networks is None and args.replication is None):
        if args.replication is not None:
            raise UsageError(f"--replication {args.replication} belongs to two networks or more")
        return 1, "none"
    replication = args.replication or "active"
    check_replication(networks or NETWORKS_MAX, replication)
    return networks, replication


def number(option: str, text: str | None, low: int, high: int) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or not low <= int(text) <= high:
        raise UsageError(f"{option} {text}: expected a number from {low} to {high}")
    return int(text)


def seed_range(text: str) -> range:
    low, colon, high = text.partition(":")
    if not (colon and low.isdecimal() and high.isdecimal() and int(low) < int(high)):
        raise UsageError(f"--seeds {text}: expected A:B with A below B")
    return range(int(low), int(high))


# What is printed


def print_result(campaign: Campaign, result: Result) -> None:
    """A seed with violations."""
    print(f"seed {result.seed}: violated {', '.join(sorted(result.properties))}")
    for violation in result.violations:
        print_violation(violation)
    print(f"  replay: {campaign.replay(result.seed)}", flush=True)


def print_violation(violation: Violation) -> None:
    print(f"  {violation.property}")
    for line in violation.evidence[-_EVIDENCE_LINES:]:
        print(f"    {line}")


def print_summary(summary: Summary) -> None:
    failed = len({seed for seed, _, _ in summary.failed})
    verdict = f"{failed} of them violated a property" if failed else "no violation"
    print(f"{summary.seeds} seeds of {summary.engine}: {verdict}")
    print(
        f"  {summary.deliveries} packet deliveries, {summary.messages} messages, {summary.views} configurations, "
        f"{summary.events} events in {summary.virtual_us / 1e6:.0f} virtual seconds"
    )
    rate = summary.deliveries / summary.run_s if summary.run_s else 0
    print(f"  {summary.run_s:.1f} s of processor time and {summary.check_s:.1f} s to check; {rate:.0f} deliveries/s")
    print("  faults: " + ", ".join(f"{kind} {count}" for kind, count in sorted(summary.faults.items())))
    if summary.expectations:
        asked = ", ".join(f"{kind} {count}" for kind, count in sorted(summary.expectations.items()))
        print(f"  expected of nodes on the way: {asked}")
    if summary.exercised:
        _print_coverage(summary)
    if summary.trace_hash is not None and summary.seeds == 1:
        print(f"  trace hash {summary.trace_hash}")


def _print_coverage(summary: Summary) -> None:
    missed = summary.missed()
    shown = ", ".join(missed[:_MISSED_SHOWN]) + (" …" if len(missed) > _MISSED_SHOWN else "")
    print(f"  cells of the engine's tables: {len(summary.cells)} reached" + (f"; not {shown}" if missed else ", all"))
    asked = (f"{name} {summary.asked.get(name, 0)}" for name in summary.exercised)
    print(f"  seeds that gave a property something to judge: {', '.join(asked)}")
    print(f"  {summary.met} seeds met the minimums of deliveries and faults; digest {summary.digest}")


def warn_of_short(command: str, summary: Summary) -> None:
    if summary.short:
        shown = ", ".join(map(str, sorted(summary.short)[:10]))
        print(f"{command}: seeds with too few deliveries, faults or virtual seconds: {shown}", file=sys.stderr)


@contextmanager
def progress(total: int, done: int = 0) -> Iterator[Callable[[int, int], None]]:
    """Tells how many seeds are done, on a terminal only; without a thread, because a local campaign forks.

    What it yields is called with how many more are done and how many violations there are.
    """
    if not sys.stderr.isatty() or total < 2:
        yield lambda more, failed: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True) as bar:
        task = bar.add_task("seeds", total=total, completed=done)

        def advance(more: int, failed: int) -> None:
            bar.update(task, advance=more, description=f"seeds, {failed} violations" if failed else "seeds")
            bar.refresh()

        yield advance
