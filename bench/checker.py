"""How fast the trace checker is and how much memory it takes: `python bench/checker.py --events 1000000`.

Writes a big legal trace to a directory, checks it in a process of its own and prints one JSON object. The trace has
what costs the checker something: a group that is parted and merged again and again, messages that are delivered in
transitional configurations, every eighth message safe. `--memory` checks the same events without files.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from ordercast.check import Conf, Deliver, End, Event, Send, Verdict, check_events, check_trace
from ordercast.check.events import ServiceName

NODES = ("n1", "n2", "n3", "n4")
SIDES = (NODES[:2], NODES[2:])
# The last messages of the whole group's configuration are delivered in the transitional ones, on both sides.
LATE = 2


class Run:
    """One legal run, as an endless stream of events; `closing` ends it when the group is whole."""

    def __init__(self, per_view: int) -> None:
        self.per_view = per_view
        self.number = 0
        self.messages = 0
        self.steps = dict.fromkeys(NODES, 0)

    def step(self, node: str) -> int:
        self.steps[node] += 1
        return self.steps[node]

    def rounds(self) -> Iterator[list[Event]]:
        """One list for each time that the group is whole, parts and is whole again."""
        whole, events = self.merge([])
        while True:
            late, more = self.load(whole, NODES, self.per_view, LATE)
            parts, installs = self.part(late)
            yield events + more + installs
            events = []
            for part, conf in parts.items():
                events += self.load(conf, part, self.per_view // 4, 0)[1]
            whole, more = self.merge(list(parts))
            events += more

    def load(self, conf: str, members: Sequence[str], count: int, late: int) -> tuple[list[Send], list[Event]]:
        """Messages in one configuration; the last `late` of them are sent there and not yet delivered."""
        events: list[Event] = []
        sends: list[Send] = []
        for nth in range(count):
            self.messages += 1
            sender, service = members[nth % len(members)], "agreed" if nth % 8 else "safe"
            send = Send(sender, self.step(sender), f"m{self.messages}", conf, service)  # type: ignore[arg-type]
            events.append(send)
            if nth >= count - late:
                sends.append(send)
            else:
                events += [self.deliver(node, send, conf) for node in members]
        return sends, events

    def deliver(self, node: str, send: Send, conf: str) -> Deliver:
        service: ServiceName = send.service
        return Deliver(node, self.step(node), send.msg, send.node, conf, service)

    def part(self, late: list[Send]) -> tuple[dict[Sequence[str], str], list[Event]]:
        self.number += 2
        events: list[Event] = []
        for side in SIDES:
            between = f"t{self.number - 1}:{side[0]}"
            for node in side:
                events.append(Conf(node, self.step(node), between, "transitional", side, self.number - 1))
                events += [self.deliver(node, send, between) for send in late]
                events.append(Conf(node, self.step(node), f"{self.number}:{side[0]}", "regular", side, self.number))
        return {side: f"{self.number}:{side[0]}" for side in SIDES}, events

    def merge(self, parts: list[Sequence[str]]) -> tuple[str, list[Event]]:
        """Everyone into one configuration; from nothing at the start of the run, when each is alone first."""
        events: list[Event] = []
        self.number += 2
        if not parts:
            parts = [(node,) for node in NODES]
            events += [Conf(n, self.step(n), f"{self.number}:{n}", "regular", (n,), self.number) for n in NODES]
            self.number += 2
        whole = f"{self.number}:{NODES[0]}"
        for part in parts:
            for node in part:
                between = f"t{self.number - 1}:{part[0]}"
                events.append(Conf(node, self.step(node), between, "transitional", tuple(part), self.number - 1))
                events.append(Conf(node, self.step(node), whole, "regular", NODES, self.number))
        return whole, events

    def closing(self) -> list[Event]:
        events = self.merge(list(SIDES))[1]
        return events + [End(node, self.step(node)) for node in NODES]


def generate(count: int, per_view: int) -> Iterator[list[Event]]:
    run = Run(per_view)
    made = 0
    for events in run.rounds():
        made += len(events)
        yield events
        if made >= count:
            break
    yield run.closing()


def write(directory: Path, count: int, per_view: int) -> int:
    encode = msgspec.json.Encoder().encode
    files = {node: (directory / f"{node}.jsonl").open("wb") for node in NODES}
    written = 0
    for events in generate(count, per_view):
        for node, file in files.items():
            file.writelines(encode(event) + b"\n" for event in events if event.node == node)
        written += len(events)
    for file in files.values():
        file.close()
    return written


def measured(verdict: Verdict, seconds: float) -> dict[str, object]:
    assert verdict.ok, verdict.violations
    return {
        "events": verdict.events,
        "seconds": round(seconds, 2),
        "events_per_s": round(verdict.events / seconds),
        "rss_max_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def check_files(directory: Path) -> dict[str, object]:
    start = time.perf_counter()
    return measured(check_trace(directory), time.perf_counter() - start)


def check_memory(count: int, per_view: int) -> dict[str, object]:
    events: dict[str, list[Event]] = {node: [] for node in NODES}
    for some in generate(count, per_view):
        for event in some:
            events[event.node].append(event)
    start = time.perf_counter()
    return measured(check_events(events), time.perf_counter() - start)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--events", type=int, default=1_000_000)
    options.add_argument("--per-view", type=int, default=10_000, help="messages in a configuration of the whole group")
    options.add_argument("--memory", action="store_true", help="typed events in memory instead of files")
    options.add_argument("--check", type=Path, help="check this directory, made by an earlier run, and nothing else")
    args = options.parse_args()
    if args.check is not None:
        print(json.dumps({"source": "jsonl", **check_files(args.check)}))
    elif args.memory:
        print(json.dumps({"source": "memory", **check_memory(args.events, args.per_view)}))
    else:
        with tempfile.TemporaryDirectory() as directory:
            write(Path(directory), args.events, args.per_view)
            # A process of its own, so that the memory of the generator is not counted.
            subprocess.run([sys.executable, __file__, "--check", directory], check=True)


if __name__ == "__main__":
    main()
