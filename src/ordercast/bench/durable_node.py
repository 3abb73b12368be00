"""One member of a measured durable group: it keeps writes outstanding, or sends on a schedule, and reads everything.

    python -m ordercast.bench.durable_node '{"group": …}'

A write counts once its ticket says that it is ordered: on the disks of all members of the primary component, after a
sync. Says `{"ready": true}`, reads the time at which to begin, answers with its figures as one JSON line.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any, TypedDict, cast

import ordercast
from ordercast.bench.timer import Timer
from ordercast.events import Batch


class DurableOptions(TypedDict):
    group: str
    name: str
    index: int
    nodes: int
    size: int
    outstanding: int
    """Writes of this node that may wait for their acknowledgement."""
    together: int
    """Writes that are sent in one call, and acknowledged by one ticket; with a rate 1."""
    rate: float
    """Writes a second of this node; 0: as many as `outstanding` allows."""
    warm_s: float
    seconds: float
    data_dir: str


class Node:
    def __init__(self, options: DurableOptions, group: ordercast.Group) -> None:
        self.options = options
        self.group = group
        self.pending: deque[tuple[ordercast.Ticket, int]] = deque()
        self.took_ns: list[int] = []
        self.acknowledged = self.delivered = self.read_bytes = 0
        self.measuring = False

    async def read(self) -> None:
        """As a replica would: every message is looked at."""
        async for batch in self.group.batches():
            if isinstance(batch, Batch):
                self.delivered += len(batch)
                self.read_bytes += sum(batch.blob[:: self.options["size"]])

    def collect(self) -> None:
        now = time.monotonic_ns()
        pending, took = self.pending, self.took_ns
        together = self.options["together"]
        while pending and pending[0][0].done:
            ticket, begun = pending.popleft()
            ticket.result()
            if self.measuring:
                self.acknowledged += together
                took += [now - begun] * together

    async def keep_outstanding(self, until_ns: int) -> None:
        together, pending = self.options["together"], self.pending
        bodies, most = [os.urandom(self.options["size"])] * together, self.options["outstanding"] // together
        while (now := time.monotonic_ns()) < until_ns:
            for _ in range(most - len(pending)):
                if together == 1:
                    pending.append((self.group.send_nowait(bodies[0]), now))
                else:
                    pending.append((await self.group.send_many(bodies), now))
            await pending[0][0]
            self.collect()

    async def on_schedule(self, begin_ns: int, until_ns: int) -> None:
        body = os.urandom(self.options["size"])
        interval_ns = 1e9 / self.options["rate"]
        first_ns = begin_ns + interval_ns * self.options["index"] / self.options["nodes"]
        timer, due = Timer(), asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(timer.fileno(), due.set)
        number = 0
        try:
            while (due_ns := int(first_ns + number * interval_ns)) < until_ns:
                while due_ns > time.monotonic_ns():
                    due.clear()
                    timer.set(due_ns)
                    await due.wait()
                    timer.set(2**62)
                self.note(await self.group.send(body), due_ns)
                number += 1
        finally:
            loop.remove_reader(timer.fileno())
            timer.close()

    def note(self, ticket: ordercast.Ticket, due_ns: int) -> None:
        """Looks at the time in the moment in which the write is acknowledged."""

        async def wait() -> None:
            await ticket
            if self.measuring:
                self.acknowledged += 1
                self.took_ns.append(time.monotonic_ns() - due_ns)

        task = asyncio.ensure_future(wait())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    _tasks: set[asyncio.Future[None]] = set()  # noqa: RUF012 – one node a process

    async def load(self, begin_ns: int, until_ns: int) -> None:
        if self.options["rate"]:
            await self.on_schedule(begin_ns, until_ns)
        else:
            await self.keep_outstanding(until_ns)

    async def run(self, begin_ns: int) -> dict[str, Any]:
        options = self.options
        reading = asyncio.create_task(self.read())
        await asyncio.sleep(max(0.0, (begin_ns - time.monotonic_ns()) / 1e9))
        warm_ns = begin_ns + int(options["warm_s"] * 1e9)
        await self.load(begin_ns, warm_ns)
        self.measuring, start, cpu = True, time.monotonic_ns(), time.process_time()
        log = cast(dict[str, Any], self.group.status()["log"])
        await self.load(warm_ns, warm_ns + int(options["seconds"] * 1e9))
        self.measuring, span_s = False, (time.monotonic_ns() - start) / 1e9
        after = cast(dict[str, Any], self.group.status()["log"])
        reading.cancel()
        return {
            "acknowledged_per_s": self.acknowledged / span_s,
            "delivered": self.delivered,
            "cpu_s": time.process_time() - cpu,
            "syncs_per_s": (after["syncs"] - log["syncs"]) / span_s,
            "took_us": [took // 1000 for took in self.took_ns],
        }


async def main(options: DurableOptions) -> None:
    nodes = options["nodes"]
    async with ordercast.join(
        options["group"],
        name=options["name"],
        engine="corel",
        data_dir=Path(options["data_dir"]) / options["name"],
        min_members=nodes,
        insecure=True,
    ) as group:
        node = Node(options, group)
        await (await group.send(b"first"))  # there is a primary component
        gc.collect()
        gc.freeze()
        print(json.dumps({"ready": True}), flush=True)
        begin_ns = int(await asyncio.to_thread(sys.stdin.readline))
        print(json.dumps(await node.run(begin_ns)), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(cast(DurableOptions, json.loads(sys.argv[1]))))
