"""The public API on loopback: processes of this machine, each with an asyncio application that reads every batch.

    python bench/group.py [throughput|failover|idle|trace|reader|large|busy|saturated ...] [--nodes N] [--seconds S]

    throughput   messages delivered per second at the slowest node, all nodes sending as fast as the queue takes it
    failover     kill -9 of one node under load: how long until all survivors have the new view
    idle         processor time and turns of the loop of each node of an idle group; the first message after idling
    trace        what recording costs at 1 KB
    reader       a member stops reading under load: when it is evicted, and what the others do before and after that
    large        two and four members exchange messages of 64 MiB: their memory
    saturated    a run of --minutes at 1 KB: memory, views and rate of each minute; only when it is asked for
    busy         a member computes, or holds the interpreter's lock, under load: its views, and how far it falls behind

Prints JSON. Each node is this file again, as `python bench/group.py node`, told what to do on its standard input.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import ordercast
import ordercast.member
from ordercast import Batch, Message, View
from ordercast.engine.totem import TotemConfig
from ordercast.options import SLOW_READER_TIMEOUT_S

TOKEN_LOSS_TIMEOUT_MS = 400


class Node:
    """One process of the group, as this process sees it."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "node", json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, order: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a node has ended with status {self.process.wait()}")
        return cast(dict[str, Any], json.loads(line))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class Cluster:
    """A group of its own, of so many nodes."""

    def __init__(self, count: int, **options: Any) -> None:
        group = f"bench-{os.getpid()}-{time.monotonic_ns():x}"
        self.nodes = [
            Node({"group": group, "name": f"n{number}", "members": count} | options) for number in range(count)
        ]

    def __enter__(self) -> list[Node]:
        for node in self.nodes:
            node.hear()
        return self.nodes

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.end()


# A node


class Worker:
    def __init__(self, options: dict[str, Any], group: ordercast.Group) -> None:
        self.options = options
        self.group = group
        self.messages = 0
        self.bytes = 0
        self.views: list[tuple[float, list[str]]] = []
        self.sending = False
        self.probes: list[float] = []

    async def read(self) -> None:
        probe = b"probe of " + self.group.name.encode()
        if self.options["take"] == "events":
            async for event in self.group:
                if isinstance(event, Message):
                    self.messages += 1
                    self.bytes += len(event.data)
                    assert not event.data or event.data[0] >= 0
                elif isinstance(event, View):
                    self.views.append((time.monotonic(), list(event.members)))
            return
        async for batch in self.group.batches():
            if isinstance(batch, Batch):
                if batch.blob == probe:
                    self.probes.append(time.monotonic())
                self.messages += len(batch)
                self.bytes += sum(batch.lengths)
            elif isinstance(batch, View):
                self.views.append((time.monotonic(), list(batch.members)))

    async def send(self) -> None:
        size = self.options["size"]
        if self.options["take"] == "events":
            while self.sending:
                await self.group.send(bytes(size))
                # Room in the queue is no reason to suspend: let the reader have its turn.
                await asyncio.sleep(0)
            return
        block = [bytes(size)] * max(1, 65_536 // size)
        while self.sending:
            await self.group.send_many(block)
            await asyncio.sleep(0)

    def figures(self) -> dict[str, Any]:
        status = self.group.status()
        usage = time.process_time()
        counters = cast(dict[str, int], status["counters"])
        return {
            "time": time.monotonic(),
            "messages": self.messages,
            "bytes": self.bytes,
            "cpu_s": usage,
            "turns": status["turns"],
            "views": self.views,
            "probes": self.probes,
            "retransmissions": counters["retransmissions"],
            "rss_mb": _memory_mb("VmRSS"),
            "peak_mb": _memory_mb("VmHWM"),
        }


def _memory_mb(field: str) -> float:
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1000


async def node(options: dict[str, Any]) -> None:
    if options.get("switch_ms"):
        sys.setswitchinterval(options["switch_ms"] / 1000)
    if options.get("config"):
        constants = {name: int(value) for name, value in (pair.split("=") for pair in options["config"])}
        setattr(ordercast.member, "TotemConfig", partial(TotemConfig, **constants))  # noqa: B010
    data_dir = options.get("data_dir")
    async with ordercast.join(
        options["group"],
        name=options["name"],
        min_members=options["members"],
        key=bytes.fromhex(options["key"]) if options.get("key") else None,
        slow_reader_timeout=options.get("slow_reader_timeout", SLOW_READER_TIMEOUT_S),
        data_dir=None if data_dir is None else Path(data_dir) / options["name"],
        trace=data_dir is not None,
    ) as group:
        worker = Worker(options, group)
        reading = asyncio.create_task(worker.read())
        sender: asyncio.Task[None] | None = None
        orders = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
        print("{}", flush=True)
        while order := (await orders.readline()).decode().strip():
            if order == "send":
                worker.sending = True
                sender = asyncio.create_task(worker.send())
            elif order == "quiet":
                worker.sending = False
                if sender is not None:
                    await sender
            elif order == "stop reading":
                reading.cancel()
            elif order == "read to the end":
                try:
                    await worker.read()
                except ordercast.GroupError as error:
                    print(json.dumps({"error": type(error).__name__}), flush=True)
                return
            elif order == "probe":
                sent = time.monotonic()
                await (await group.send(b"probe of " + group.name.encode()))
                print(json.dumps({"ms": (time.monotonic() - sent) * 1000}), flush=True)
            elif order.startswith("compute"):
                until = time.monotonic() + float(order.split()[1])
                while time.monotonic() < until:
                    pass
            elif order.startswith("sleep"):
                time.sleep(float(order.split()[1]))
            elif order.startswith("hold"):
                # A foreign function that keeps the interpreter's lock, as a C extension may.
                ctypes.PyDLL(None).usleep(int(float(order.split()[1]) * 1e6))
            if order != "send" and order != "probe":
                print(json.dumps(worker.figures()), flush=True)
        reading.cancel()


# The measurements


def ask(nodes: Sequence[Node], order: str) -> list[dict[str, Any]]:
    for each in nodes:
        each.tell(order)
    return [each.hear() for each in nodes]


def measure(count: int, seconds: float, **options: Any) -> dict[str, Any]:
    with Cluster(count, **options) as nodes:
        for each in nodes:
            each.tell("send")
        time.sleep(1.0)
        before = ask(nodes, "figures")
        time.sleep(seconds)
        after = ask(nodes, "figures")
        rates = [(b["messages"] - a["messages"]) / (b["time"] - a["time"]) for a, b in zip(before, after, strict=True)]
        return {
            "delivered_per_s": round(min(rates)),
            "mb_per_s": round(min(rates) * options["size"] / 1e6, 1),
            "cpu_s": round(sum(b["cpu_s"] - a["cpu_s"] for a, b in zip(before, after, strict=True)), 2),
            "retransmissions": sum(
                b["retransmissions"] - a["retransmissions"] for a, b in zip(before, after, strict=True)
            ),
            "views": max(len(b["views"]) for b in after) - 1,
            "rss_mb": round(max(b["rss_mb"] for b in after)),
        }


def throughput(args: argparse.Namespace) -> dict[str, Any]:
    key = os.urandom(32).hex() if args.encrypt else None
    return {
        f"{take} of {size} B": measure(
            args.nodes, args.seconds, size=size, take=take, key=key, switch_ms=args.switch_ms
        )
        for take in ("batches", "events")
        for size in (64, 1024, 16_384)
    }


def failover(args: argparse.Namespace) -> dict[str, Any]:
    times: list[float] = []
    for number in range(args.kills):
        with Cluster(args.nodes, size=1024, take="batches", config=args.config) as nodes:
            for each in nodes:
                each.tell("send")
            time.sleep(0.7)
            victim, survivors = nodes[number % len(nodes)], [n for n in nodes if n is not nodes[number % len(nodes)]]
            killed = time.monotonic()
            os.kill(victim.process.pid, signal.SIGKILL)
            last = [0.0] * len(survivors)
            while not all(last):
                time.sleep(0.1)
                for at, figures in enumerate(ask(survivors, "figures")):
                    views = [moment for moment, members in figures["views"] if len(members) == args.nodes - 1]
                    last[at] = views[-1] if views else 0.0
                if time.monotonic() > killed + 20:
                    raise SystemExit("no new view within 20 s")
            times.append((max(last) - killed) * 1000)
    return {
        "kills": len(times),
        "median_ms": round(statistics.median(times), 1),
        "max_ms": round(max(times), 1),
        "limit_ms": TOKEN_LOSS_TIMEOUT_MS + 40,
    }


def idle(args: argparse.Namespace) -> dict[str, Any]:
    with Cluster(5, size=64, take="batches") as nodes:
        time.sleep(1.0)
        before = ask(nodes, "figures")
        time.sleep(args.seconds)
        after = ask(nodes, "figures")
        firsts = []
        for number in range(20):
            time.sleep(0.3 + 0.013 * number)
            nodes[number % 5].tell("probe")
            firsts.append(nodes[number % 5].hear()["ms"])
    spans = [b["time"] - a["time"] for a, b in zip(before, after, strict=True)]
    return {
        "core_percent": [
            round(100 * (b["cpu_s"] - a["cpu_s"]) / span, 2) for a, b, span in zip(before, after, spans, strict=True)
        ],
        "turns_per_s": [
            round((b["turns"] - a["turns"]) / span) for a, b, span in zip(before, after, spans, strict=True)
        ],
        "first_message_ms": {"median": round(statistics.median(firsts), 2), "max": round(max(firsts), 2)},
    }


def trace(args: argparse.Namespace) -> dict[str, Any]:
    """Rates, and the messages that a second of processor time delivers, which other load on the machine blurs less."""
    rates: dict[str, list[float]] = {"without": [], "with": []}
    per_cpu_s: dict[str, list[float]] = {"without": [], "with": []}
    with tempfile.TemporaryDirectory() as directory:
        for number in range(3):
            for how, data_dir in (("without", None), ("with", f"{directory}/{number}")):
                done = measure(args.nodes, args.seconds, size=1024, take="batches", data_dir=data_dir)
                rates[how].append(done["delivered_per_s"])
                per_cpu_s[how].append(round(done["delivered_per_s"] * args.seconds * args.nodes / done["cpu_s"]))
    costs = {
        name: round(100 * (1 - statistics.median(figures["with"]) / statistics.median(figures["without"])), 1)
        for name, figures in (("rate", rates), ("processor", per_cpu_s))
    }
    return {"delivered_per_s": rates, "delivered_per_cpu_s": per_cpu_s, "cost_percent": costs}


def busy(args: argparse.Namespace) -> dict[str, Any]:
    results: dict[str, Any] = {}
    options = {"size": 1024, "take": "batches", "switch_ms": args.switch_ms}
    for order in ("sleep 1.2", "compute 1.2", "hold 0.3", "hold 1.2"):
        with Cluster(args.nodes, **options) as nodes:
            for each in nodes:
                each.tell("send")
            time.sleep(0.5)
            before = ask(nodes, "figures")
            nodes[0].tell(order)
            time.sleep(1.2)
            nodes[0].hear()
            after = ask(nodes, "figures")
            time.sleep(1.0)
            views = max(len(each["views"]) for each in ask(nodes, "figures")) - 1
            rate = (after[1]["messages"] - before[1]["messages"]) / (after[1]["time"] - before[1]["time"])
            results[order] = {"view_changes": views, "delivered_per_s_meanwhile": round(rate)}
    return results


def reader(args: argparse.Namespace) -> dict[str, Any]:
    """Rates are those of the slowest of the members that read."""
    timeout_s = 4.0
    with Cluster(args.nodes, size=1024, take="batches", slow_reader_timeout=timeout_s) as nodes:
        others = nodes[1:]
        for each in nodes:
            each.tell("send")
        time.sleep(1.0)

        def rate(seconds: float) -> int:
            before = ask(others, "figures")
            time.sleep(seconds)
            after = ask(others, "figures")
            return int(min(b["messages"] - a["messages"] for a, b in zip(before, after, strict=True)) / seconds)

        reading = rate(2.0)
        nodes[0].tell("stop reading")
        stopped = time.monotonic()
        nodes[0].hear()
        time.sleep(1.0)
        held_up = rate(2.0)
        while min(len(each["views"][-1][1]) for each in ask(others, "figures")) == args.nodes:
            time.sleep(0.05)
            if time.monotonic() > stopped + 10 * timeout_s:
                raise SystemExit("it was not evicted")
        gone = [each["views"][-1][0] - stopped for each in ask(others, "figures")]
        time.sleep(0.5)
        without = rate(2.0)
        nodes[0].tell("read to the end")
        return {
            "slow_reader_timeout_s": timeout_s,
            "view_without_it_after_s": round(max(gone), 2),
            "it_reads_at_last": nodes[0].hear(),
            "delivered_per_s": {"all read": reading, "one does not": held_up, "after its eviction": without},
        }


def large(args: argparse.Namespace) -> dict[str, Any]:
    size, results = 64 * 2**20, {}
    for count in (2, 4):
        with Cluster(count, size=size, take="batches") as nodes:
            started = ask(nodes, "figures")
            for each in nodes:
                each.tell("send")
            time.sleep(max(args.seconds, 10.0))
            after = ask(nodes, "figures")
            results[f"{count} members"] = {
                "messages": min(each["messages"] for each in after),
                "view_changes": max(len(each["views"]) for each in after) - 1,
                "peak_mb": round(max(each["peak_mb"] for each in after)),
                "grown_mb": round(max(b["peak_mb"] - a["rss_mb"] for a, b in zip(started, after, strict=True))),
                "bound_mb": round((2 * count * size + 96 * 10**6) / 1e6),
            }
    return results


def saturated(args: argparse.Namespace) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    with Cluster(args.nodes, size=1024, take="batches") as nodes:
        for each in nodes:
            each.tell("send")
        before = ask(nodes, "figures")
        for minute in range(1, args.minutes + 1):
            resident = 0.0
            for _ in range(12):
                time.sleep(5.0)
                after = ask(nodes, "figures")
                resident = max(resident, *(each["rss_mb"] for each in after))
            rates = [
                (b["messages"] - a["messages"]) / (b["time"] - a["time"]) for a, b in zip(before, after, strict=True)
            ]
            rows.append(
                {
                    "minute": minute,
                    "delivered_per_s": round(min(rates)),
                    "rss_mb": round(resident, 1),
                    "view_changes": max(len(each["views"]) for each in after) - 1,
                    "retransmissions": sum(each["retransmissions"] for each in after),
                }
            )
            before = after
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return {"nodes": args.nodes, "minutes": rows}


MEASUREMENTS = {
    "throughput": throughput,
    "failover": failover,
    "idle": idle,
    "trace": trace,
    "reader": reader,
    "large": large,
    "busy": busy,
}
ON_REQUEST = {"saturated": saturated}


def main() -> None:
    if sys.argv[1:2] == ["node"]:
        asyncio.run(node(json.loads(sys.argv[2])))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=[[], *MEASUREMENTS, *ON_REQUEST], help="all but the long ones")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--minutes", type=int, default=10, help="saturated: how long")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--switch-ms", type=float, help="the nodes' sys.setswitchinterval (default: Python's, 5)")
    parser.add_argument("--config", action="append", metavar="NAME=VALUE", help="failover: a constant of the engine")
    parser.add_argument("--encrypt", action="store_true")
    args = parser.parse_args()
    known = MEASUREMENTS | ON_REQUEST
    print(json.dumps({what: known[what](args) for what in args.what or MEASUREMENTS}, indent=2))


if __name__ == "__main__":
    main()
