"""`ordercast demo`: a group of five on the simulator, told as it happens, with the checker's verdict at the end.

The engines are the real ones; network, disks and clocks are simulated, so the demo shows the same on any machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from ordercast.check import check_trace
from ordercast.check.events import Close, Conf, Deliver
from ordercast.sim import find_engine, parse_schedule
from ordercast.sim.actions import perform
from ordercast.sim.record import write_traces
from ordercast.sim.runner import make_world
from ordercast.sim.world import World

_EXAMPLE = """\
examples:
  ordercast demo                        tell the story
  ordercast demo --trace DIR --json     keep the traces for `ordercast check`, print a summary as JSON
"""

STORY: tuple[tuple[float, str, tuple[str, ...]], ...] = (
    (0.0, "Five processes start. Each first forms a group of its own, then they find one another.", ()),
    (1.0, "All of them send; every message gets one place in one order.", ("send 40 * size=24..400",)),
    (2.0, "n4 is killed while messages are on their way. The token is missed after 0.4 s.",
     ("send 20 n1 size=200", "send 20 n4 size=200 service=safe", "crash n4")),
    (3.0, "n4 starts again. Its disk still holds its ring number, so no identifier is ever used twice.",
     ("restart n4",)),
    (4.0, "The network parts under load: n1 and n2 on one side, n3, n4 and n5 on the other. Both sides go on.",
     ("send 30 n1 size=100 service=safe", "send 30 n5 size=100", "partition n1 n2 | n3 n4 n5")),
    (5.0, "Each side sends: its messages are delivered on its own side only.", ("send 10 n2", "send 10 n3")),
    (6.0, "The network is whole again. The two sides hear each other and form one group.", ("merge",)),
    (7.0, "All send once more.", ("send 20 * size=24..200 service=safe",)),
    (8.0, "n5 leaves, and says so: nobody has to wait for its silence.", ("leave n5",)),
    (9.0, "The end.", ()),
)  # fmt: skip

SLICE_US = 20_000
READING_S = 1.2
"""Pause before each act on a terminal, so that a person can follow."""


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "demo",
        help="a group under load, with a crash, a restart, a partition and a remerge",
        description="Runs five processes on the simulator, tells what happens to their group and what each of them "
        "delivers, and lets the checker judge the traces.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--trace", metavar="DIR", type=Path, help="keep the traces in this directory")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the story")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    console = Console(highlight=False, soft_wrap=True, quiet=args.json)
    world = make_world(parse_schedule("nodes 5"), find_engine("totem"))
    pause_s = READING_S if sys.stdout.isatty() and not args.json else 0.0
    tell_story(world, console, pause_s)
    with tempfile.TemporaryDirectory() as scratch:
        directory = args.trace or Path(scratch)
        try:
            write_traces(directory, world.traces)
        except OSError as error:
            print(f"ordercast demo: {error}", file=sys.stderr)
            return 2
        verdict = check_trace(directory)
    names = [violation.property for violation in verdict.violations]
    if args.json:
        print(json.dumps({"verdict": "ok" if verdict.ok else "violated", "events": verdict.events,
                          "violations": names, "deliveries": deliveries(world)}))  # fmt: skip
    elif verdict.ok:
        console.print(f"\n[bold green]The checker read {verdict.events} events: E1 to E14 hold.[/]")
        if args.trace:
            console.print(f"The traces are in {escape(str(args.trace))}; check them with: ordercast check {args.trace}")
        console.print("More such runs, with random faults: ordercast sim --seeds 0:100")
    else:
        console.print(f"\n[bold red]The checker found violations of {', '.join(names)}.[/]")
    return 0 if verdict.ok else 1


def tell_story(world: World, console: Console, pause_s: float) -> None:
    """Plays the acts and prints, between them, the views as they are installed and what was delivered."""
    for node in world.nodes:
        node.start()
    told: dict[str, int] = {node.name: 0 for node in world.nodes}
    for (at, sentence, actions), (end, _, _) in zip(STORY, (*STORY[1:], (STORY[-1][0], "", ())), strict=True):
        time.sleep(pause_s)
        console.print(f"\n[bold]{at:5.2f} s  {sentence}[/]")
        before = deliveries(world)
        for action in actions:
            perform(world, action)
            world.run_until(world.now + 1_000)
        while world.now < end * 1_000_000:
            world.run_until(world.now + SLICE_US)
            for line in views_since(world, told):
                console.print(line)
        after = deliveries(world)
        if after != before:
            counts = "  ".join(f"{name} {after[name] - before[name]}" for name in after)
            console.print(f"         delivered   {counts}   [dim]({agreement(world)})[/]")
    world.close(Close)


def views_since(world: World, told: dict[str, int]) -> Iterator[str]:
    """A line for each view that was installed since the last call, with those that installed it."""
    fresh: dict[tuple[int, str, str, tuple[str, ...]], list[str]] = {}
    for node in world.nodes:
        events = node.log.events
        for event in events[told[node.name] :]:
            if isinstance(event, Conf):
                number = event.number if isinstance(event.number, int) else 0
                fresh.setdefault((number, event.kind, event.conf, tuple(event.members)), []).append(node.name)
        told[node.name] = len(events)
    for (_, kind, conf, members), names in sorted(fresh.items()):
        style, what = ("dim", "transitional") if kind == "transitional" else ("cyan", "view")
        yield (
            f"  [{style}]{world.now / 1e6:5.2f}  {what:<12} {escape(conf):<12} "
            f"{{{' '.join(members)}}}   at {' '.join(names)}[/]"
        )


def deliveries(world: World) -> dict[str, int]:
    return {node.name: sum(type(event) is Deliver for event in node.log.events) for node in world.nodes}


def agreement(world: World) -> str:
    """Whether the nodes delivered what they have in common in one order."""
    orders = [[event.msg for event in node.log.events if isinstance(event, Deliver)] for node in world.nodes]
    return "one order" if all(_same_order(a, b) for a in orders for b in orders) else "orders differ"


def _same_order(a: Iterable[str], b: Iterable[str]) -> bool:
    in_b, in_a = set(b), set(a)
    return [msg for msg in a if msg in in_b] == [msg for msg in b if msg in in_a]
