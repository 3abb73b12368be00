"""How much work a message costs, counted and not timed: the guard against changes that make the hot paths longer.

    python bench/work.py [--record] [--json]

Two members in this process, with the driver, engine, stream and reader of real ones, on a network in memory and a
clock that only moves when it is told to. On each stretch of a message's way it counts, for each message, packet or
visit of the token:

    calls          of Python functions and of C functions
    instructions   of bytecode, of any function that is entered
    bytes          allocated at the same time, at most

These figures are the same in every run of one Python version, whatever else the machine does. They are compared with
`bench/work_reference.json`: exit status 1 when one of them is more than 10 % above. `--record` writes a new reference,
which is for changes that make it better, or that are worth what they cost and say so. Bytecode differs between Python
versions: without a reference for this one, its instructions are not compared.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, cast
from unittest.mock import patch

from ordercast.events import Batch, Message
from ordercast.member import (
    Member,
)
from ordercast.net import driver as driver_module
from ordercast.net.udp import UdpNetwork
from ordercast.options import Options, check_options
from ordercast.wire.layout import PacketKind

REFERENCE = Path(__file__).parent / "work_reference.json"
ALLOWED = 1.10
"""How much more than the reference is let pass."""
PACKET_BYTES = 1472
CALL_BYTES, CALL_PACKETS = 65_000, 64
"""How the kernel's trains are cut: see net/udp.py."""
TURN_US = 50
METRICS = ("calls", "instructions", "bytes")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

Figures = dict[str, dict[str, float]]
"""By stretch, then by metric."""


class MemoryNetwork:
    """What the driver needs of a network, without a kernel: what one sends is what the others find."""

    def __init__(self, number: int) -> None:
        self.own = "127.0.0.1", 7000 + number
        self.packet_bytes_max = PACKET_BYTES
        self.interface, self.warnings = "memory", list[str]()
        self.others: list[MemoryNetwork] = []
        self.data: deque[tuple[memoryview, int, tuple[str, int]]] = deque()
        self.token: deque[tuple[bytes, int, tuple[str, int]]] = deque()
        self.singly = False
        self.packets_out = self.packets_in = self.tokens_in = 0
        self._always = os.eventfd(1)  # so that the driver's poll returns at once

    def receive_window(self, packet_bytes: int) -> int:
        return 8192

    def filenos(self) -> tuple[int, ...]:
        return (self._always,)

    def broadcast(self, data: bytes, segment: int) -> None:
        is_data = data[3] == PacketKind.DATA
        self.packets_out += -(-len(data) // segment) * is_data
        step = segment if self.singly else segment * min(CALL_PACKETS, CALL_BYTES // segment)
        view = memoryview(data)
        for at in range(0, len(data), step):
            for other in self.others:
                other.data.append((view[at : at + step], segment, self.own))

    def unicast(self, to: tuple[str, int], packet: bytes) -> None:
        for other in self.others:
            if other.own == to:
                other.token.append((packet, len(packet), self.own))

    def drain(self) -> list[tuple[bytes, int, tuple[str, int]]]:
        trains = [(bytes(data), size, source) for data, size, source in self.data]  # as they are read from a socket
        self.data.clear()
        self.packets_in += sum(-(-len(data) // size) for data, size, _ in trains if data[3] == PacketKind.DATA)
        return trains

    def drain_unicast(self) -> list[tuple[bytes, int, tuple[str, int]]]:
        packets = list(self.token)
        self.token.clear()
        self.tokens_in += sum(packet[3] == PacketKind.TOKEN for packet, _, _ in packets)
        return packets

    def close(self) -> None:
        os.close(self._always)


class QuietMember(Member):
    """A member whose driver has no thread: whoever measures lets it turn."""

    network: MemoryNetwork

    def _open_networks(self, options: Options) -> list[UdpNetwork]:
        self.network = MemoryNetwork(int(options.name[1:]))
        return [cast(UdpNetwork, self.network)]

    def begin(self, now: int) -> None:
        self.driver._begun = now
        self.engine.start(now)
        self.driver._carry_out()

    def turn(self) -> None:
        self.driver._turn()

    def end(self) -> None:
        self.driver._close(None, True)


# Counting


class Counter:
    """Counts one metric of everything that is done between `begin` and `end`."""

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self.total = 0

    def _call(self, _frame: FrameType, event: str, _argument: object) -> None:
        self.total += event in ("call", "c_call")

    def _enter(self, frame: FrameType, _event: str, _argument: object) -> Callable[..., Any] | None:
        if frame.f_code in _OWN_CODE:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._instruction

    def _instruction(self, _frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        self.total += event == "opcode"
        return self._instruction

    def begin(self) -> None:
        if self.metric == "calls":
            sys.setprofile(self._call)
        elif self.metric == "instructions":
            sys.settrace(self._enter)
        else:
            tracemalloc.reset_peak()
            self._before = tracemalloc.get_traced_memory()[0]

    def end(self) -> None:
        if self.metric == "calls":
            sys.setprofile(None)
        elif self.metric == "instructions":
            sys.settrace(None)
        else:
            self.total += tracemalloc.get_traced_memory()[1] - self._before

    @contextmanager
    def counting(self) -> Iterator[None]:
        self.begin()
        try:
            yield
        finally:
            self.end()


_OWN_CODE: set[CodeType] = {Counter.end.__code__}


class Bench:
    """Two members that have found each other, and what is counted of their work."""

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self.now = 1_000_000_000
        self.work: dict[str, int] = {}
        self.units: dict[str, int] = {}
        options = {"engine": "totem", "networks": ["127.0.0.1"], "discovery_s": 0.0}
        self.members = [QuietMember(check_options("work", name=name, **cast(Any, options))) for name in ("n1", "n2")]
        self.sender, self.receiver = self.members
        for member in self.members:
            member.network.others = [other.network for other in self.members if other is not member]

    @contextmanager
    def running(self) -> Iterator[None]:
        with patch.object(driver_module, "_now", lambda: self.now):
            try:
                for member in self.members:
                    member.begin(self.now)
                while not all(member.stream.members_most == 2 for member in self.members):
                    self.pass_time()
                    self.turn_all()
                yield
            finally:
                for member in self.members:
                    member.end()

    def pass_time(self) -> None:
        """By a little, or to the next deadline if nothing is under way."""
        busy = any(member.network.data or member.network.token or member.driver.queued_bytes for member in self.members)
        deadlines = [member.engine.deadline for member in self.members if member.engine.deadline is not None]
        self.now = self.now + TURN_US if busy else max(self.now + TURN_US, min(deadlines))

    def turn_all(self) -> None:
        for member in self.members:
            member.turn()
            member.settle()

    def count(self, stretch: str, units: int, work: Callable[[], object]) -> None:
        """Adds the cost of this to a stretch."""
        counter = Counter(self.metric)
        with counter.counting():
            work()
        self._add(stretch, units, counter)

    def _add(self, stretch: str, units: int, counter: Counter) -> None:
        self.work[stretch] = self.work.get(stretch, 0) + counter.total
        self.units[stretch] = self.units.get(stretch, 0) + units

    def count_turns(self, kind: str, messages: int) -> None:
        """Turns until everything is delivered everywhere, each counted for what was done in it."""
        until = [member.stream.messages_in + messages for member in self.members]
        while [member.stream.messages_in for member in self.members] != until:
            self.pass_time()
            for member in self.members:
                network = member.network
                before = network.packets_out, network.packets_in
                counter = Counter(self.metric)
                with counter.counting():
                    member.turn()
                sent, received = network.packets_out - before[0], network.packets_in - before[1]
                if sent:
                    self._add(f"broadcast {kind}, a packet", sent, counter)
                elif received:
                    self._add(f"receive {kind}, a packet", received, counter)

    def count_visits(self, visits: int) -> None:
        """Turns in which nothing but the token comes."""
        while visits:
            self.pass_time()
            for member in self.members:
                network = member.network
                tokens, data = network.tokens_in, bool(network.data)
                counter = Counter(self.metric)
                with counter.counting():
                    member.turn()
                if network.tokens_in > tokens and not data and visits:
                    self._add("token, a visit", 1, counter)
                    visits -= 1

    def read(self, kind: str, take: str) -> None:
        for member in self.members:
            if member is self.sender or take == "batches":
                reading, unit = read_batches, "batches"
            else:
                reading, unit = read_events, "events"
            waiting = sum(len(item) for item in member.stream.items if isinstance(item, Batch))
            if member is self.receiver:
                self.count(f"take {unit} of {kind}, a message", waiting, lambda: reading(member))  # noqa: B023
            else:
                reading(member)


def read_batches(member: Member) -> int:
    """As the application of `ordercast bench` reads them: every length, and a byte of every message."""
    read = 0
    while (item := member.reader.next_batch()) is not None:
        if isinstance(item, Batch):
            lengths, blob = item.lengths, item.blob
            assert lengths.count(lengths[0]) == len(lengths)
            read += sum(blob[:: lengths[0]])
    return read


def read_events(member: Member) -> int:
    read = 0
    while (item := member.reader.next_event()) is not None:
        if isinstance(item, Message):
            read += len(item.data) + item.data[0]
    return read


_OWN_CODE |= {function.__code__ for function in (read_batches, read_events)}


def measure_metric(metric: str) -> dict[str, float]:
    bench = Bench(metric)
    with bench.running():
        member = bench.sender

        def send(kind: str, bodies: list[bytes], take: str) -> None:
            bench.count(f"submit {kind}, a message", len(bodies), lambda: member.send(bodies, "agreed", None, None))
            bench.count_turns(kind, len(bodies))
            bench.count(f"settle {kind}, a message", len(bodies), member.settle)
            bench.read(kind, take)

        for measured in (False, True):
            if measured:
                bench.work.clear()
                bench.units.clear()
            for take in ("batches", "events"):
                send("64 B", [bytes(64)] * 4096, take)
                send("1 KB", [bytes(1024)] * 512, take)
                bench.sender.network.singly = True
                send("1 KB in single packets", [bytes(1024)] * 128, take)
                bench.sender.network.singly = False
            bench.count(
                "submit one by one, a message",
                100,
                lambda: [member.send([b"x" * 64], "agreed", None, None) for _ in range(100)],
            )
            bench.count_turns("one by one", 100)
            bench.count("settle one by one, a message", 100, member.settle)
            bench.count_visits(64)
    return {stretch: round(bench.work[stretch] / bench.units[stretch], 3) for stretch in sorted(bench.work)}


def measure() -> Figures:
    """All metrics of all stretches."""
    found: Figures = {}
    gc.collect()
    gc.disable()
    try:
        for metric in METRICS:
            if metric == "bytes":
                tracemalloc.start()
            try:
                figures = measure_metric(metric)
            finally:
                tracemalloc.stop()
            for stretch, figure in figures.items():
                found.setdefault(stretch, {})[metric] = figure
    finally:
        gc.enable()
    return found


# Comparing


def compare(figures: Figures, reference: dict[str, Figures]) -> list[str]:
    """What is worse than the reference, a line each. Instructions are compared for the same Python only."""
    known = reference.get(PYTHON) or reference[sorted(reference)[0]]
    metrics = METRICS if PYTHON in reference else ("calls",)
    worse = [f"{stretch}: is not measured any more" for stretch in known if stretch not in figures]
    for stretch, metric in ((stretch, metric) for stretch in known if stretch in figures for metric in metrics):
        before, now = known[stretch][metric], figures[stretch][metric]
        if now > before * ALLOWED + 0.001:
            more = f"{100 * (now / before - 1):.0f} % more" if before else "none before"
            worse.append(f"{stretch}: {now:g} {metric}, the reference is {before:g} ({more})")
    return worse


def show(figures: Figures) -> None:
    print(f"{'':44}{'calls':>10}{'instructions':>15}{'bytes':>12}")
    for stretch, of in figures.items():
        print(f"{stretch:44}{of['calls']:>10.2f}{of['instructions']:>15.2f}{of['bytes']:>12.1f}")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--record", action="store_true", help="make this the reference for this Python")
    options.add_argument("--json", action="store_true")
    args = options.parse_args()
    figures = measure()
    if args.json:
        print(json.dumps({"bench": "work", "python": PYTHON, "figures": figures}, indent=1))
    else:
        show(figures)
    reference: dict[str, Figures] = json.loads(REFERENCE.read_text()) if REFERENCE.exists() else {}
    if args.record:
        REFERENCE.write_text(json.dumps(reference | {PYTHON: figures}, indent=1, sort_keys=True) + "\n")
        return 0
    if PYTHON not in reference:
        print(f"There is no reference for Python {PYTHON}: only calls are compared.", file=sys.stderr)
    worse = compare(figures, reference)
    for line in worse:
        print(f"WORSE: {line}", file=sys.stderr)
    if worse:
        print(f"{len(worse)} figures are more than 10 % above {REFERENCE.name}.", file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
