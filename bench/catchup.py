"""A member that was away is brought up while the group goes on: how long that takes, and what is left of its rate.

    python bench/catchup.py [--missed N] [--size BYTES] [--rate R] [--directory D]

Three members found a durable group; one is killed; the other two order N messages without it, and their rate is taken.
Then the third one starts again. Until it has the messages that it missed the rate is taken again; and once more when it
is a member of the primary component, and every message waits for all three. Saturated by default; with --rate the two
send R messages a second together. A saturated group may order faster than the third one is brought up: then it stays
behind, which the result says. Prints JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ordercast
from ordercast.bench.report import machine

TOGETHER = 200
"""Messages of one call of `send_many`."""
OUTSTANDING = 40
SAMPLE_S = 0.05
BASELINE_S = 5.0
DEADLINE_S = 120.0
PRIMARY_S = 30.0


class Sender:
    """One member: sends as it is told, and says twenty times a second how far it is."""

    def __init__(self, options: dict[str, Any], group: ordercast.Group) -> None:
        self.options, self.group = options, group
        self.acked = 0
        self.rate: float | None = None
        self.tasks: set[asyncio.Task[None]] = set()

    async def read(self) -> None:
        async for _ in self.group.batches():
            pass

    async def acknowledge(self, ticket: ordercast.Ticket) -> None:
        await ticket
        self.acked += TOGETHER

    async def send(self) -> None:
        body = [bytes(self.options["size"])] * TOGETHER
        due = time.monotonic()
        while True:
            rate = self.rate
            if rate is None or len(self.tasks) >= OUTSTANDING:
                await asyncio.sleep(0.001)
                due = max(due, time.monotonic()) if rate is None else due
                continue
            if rate:
                due = max(due + TOGETHER / rate, time.monotonic() - 0.5)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            task = asyncio.create_task(self.acknowledge(await self.group.send_many(body)))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def listen(self) -> None:
        while line := await asyncio.to_thread(sys.stdin.readline):
            self.rate = None if line.strip() == "stop" else float(line)

    async def tell(self) -> None:
        while True:
            status: Any = self.group.status()
            log = status["log"]
            said = {"at": time.monotonic(), "acked": self.acked, "green": log["green"], "primary": log["primary"] > 0,
                    "members": status["members"], "phase": log["phase"]}  # fmt: skip
            print(json.dumps(said), flush=True)
            await asyncio.sleep(SAMPLE_S)


async def member(options: dict[str, Any]) -> None:
    async with ordercast.join(
        options["group"], name=options["name"], engine="corel", data_dir=options["data_dir"], founders=3
    ) as group:
        sender = Sender(options, group)
        await asyncio.gather(sender.read(), sender.send(), sender.listen(), sender.tell())


class Process:
    """A member, and what it said last."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.last: dict[str, Any] = {"at": 0.0, "acked": 0, "green": 0, "primary": False, "members": [], "phase": ""}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--member", json.dumps(options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.last = json.loads(line)

    def tell(self, rate: float | str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{rate}\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    if not waited(DEADLINE_S, condition):
        raise SystemExit(f"in vain: {what}")


def waited(seconds: float, condition: Callable[[], bool]) -> bool:
    """Whether it came true in time."""
    until = time.monotonic() + seconds
    while not (true := condition()) and time.monotonic() < until:
        time.sleep(SAMPLE_S / 2)
    return true


def rate_between(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> float:
    return sum((b["acked"] - a["acked"]) / (b["at"] - a["at"]) for a, b in zip(before, after, strict=True))


def measure(missed: int, size: int, rate: float, directory: Path) -> dict[str, Any]:
    group = f"catchup {time.time_ns():x}"

    def start(name: str) -> Process:
        return Process({"group": group, "name": name, "data_dir": str(directory / name), "size": size})

    processes = [start(name) for name in ("n1", "n2", "n3")]
    try:
        one, two, three = processes
        wait_for(
            "a primary component", lambda: all(p.last["primary"] and len(p.last["members"]) == 3 for p in processes)
        )
        three.kill()
        wait_for("a primary component of two", lambda: one.last["primary"] and len(one.last["members"]) == 2)
        begin = one.last["green"]
        for process in (one, two):
            process.tell(0.0)
        wait_for("what is to be missed", lambda: one.last["green"] - begin >= missed)
        for process in (one, two):
            process.tell(rate / 2)
        time.sleep(1.0)
        before = [one.last, two.last]
        time.sleep(BASELINE_S)
        baseline = rate_between(before, [one.last, two.last])
        behind = one.last["green"] - begin
        before, begun = [one.last, two.last], time.monotonic()
        three = processes[2] = start("n3")
        wait_for("it has what it missed", lambda: three.last["green"] - begin >= behind)
        missed_took = time.monotonic() - begun
        meanwhile = rate_between(before, [one.last, two.last])
        counts = waited(PRIMARY_S, lambda: three.last["primary"] and len(three.last["members"]) == 3)
        took = time.monotonic() - begun
        afterwards = [one.last, two.last]
        time.sleep(BASELINE_S)
        after = rate_between(afterwards, [one.last, two.last])
    finally:
        for process in processes:
            process.kill()
    return {
        "size": size, "rate": rate, "missed": behind, "baseline_per_s": round(baseline),
        "meanwhile_per_s": round(meanwhile), "kept_percent": round(100 * meanwhile / baseline, 1),
        "missed_took_s": round(missed_took, 2), "primary_took_s": round(took, 2) if counts else None,
        "with_three_per_s": round(after) if counts else None,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--missed", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--rate", type=float, default=0.0, help="of the two together; 0: saturated")
    parser.add_argument("--directory", type=Path, default=None, help="where the logs are, on the disk to measure")
    parser.add_argument("--member", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.member:
        asyncio.run(member(json.loads(args.member)))
        return
    with tempfile.TemporaryDirectory(prefix="ordercast-bench-", dir=args.directory) as folder:
        found = measure(args.missed, args.size, args.rate, Path(folder))
    print(json.dumps({"benchmark": "catchup", **found, "machine": machine()}, indent=2))


if __name__ == "__main__":
    main()
