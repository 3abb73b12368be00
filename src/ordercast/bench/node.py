"""One node of a measured run: a process with an asyncio application that uses nothing but the public interface.

    python -m ordercast.bench.node '{"group": …}'

It joins, says `{"ready": true}` in a line, reads the time at which to begin as a line from its standard input, and
answers with its figures as one JSON line. All times are those of the machine's monotonic clock, which all nodes of a
run share, so that a latency is measured at every receiver.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import struct
import sys
import time
from array import array
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, TypedDict, cast

import ordercast
from ordercast.bench.timer import Timer
from ordercast.events import Batch, Message, View
from ordercast.options import ServiceName

DUE = struct.Struct("<Q")
"""The head of a message of a run at a fixed rate: when it was due, in nanoseconds."""
BLOCK_BYTES = 64 * 1024
"""Bytes that one call of `send_many` submits in a saturated run."""
_FAR_NS = 2**62


class NodeOptions(TypedDict):
    group: str
    name: str
    nodes: int
    size: int
    service: ServiceName
    take: str
    rate: float
    """Messages a second; 0: as fast as they are taken."""
    senders: int
    """Nodes with an index below this send."""
    index: int
    warm_s: float
    seconds: float
    networks: list[str]
    replication: str
    key: str | None
    data_dir: str | None
    engine: str


class Snapshot(TypedDict):
    at: float
    messages: int
    bytes: int
    cpu_s: float
    status: dict[str, Any]


class Node:
    """The application: it sends, reads every length and a byte of every message, and counts."""

    def __init__(self, options: NodeOptions, group: ordercast.Group) -> None:
        self.options = options
        self.group = group
        self.messages = 0
        self.bytes = 0
        self.views = 0
        self.view_id = ""
        self.sent = 0
        self.read_bytes = 0
        """The sum of the bytes that were looked at; nobody asks for it, but it has to be known."""
        self.late_ns = array("Q")
        self.measuring = False
        self.sending = True

    def note(self, event: object) -> None:
        """A durable group tells a view again when it has become primary."""
        if isinstance(event, View) and event.id != self.view_id:
            self.view_id = event.id
            self.views += 1

    # Reading

    async def read(self) -> None:
        timed = self.options["rate"] > 0
        if self.options["take"] == "events":
            await (self._read_timed_events() if timed else self._read_events())
        else:
            await self._read_batches(timed)

    async def _read_batches(self, timed: bool) -> None:
        async for batch in self.group.batches():
            if not isinstance(batch, Batch):
                self.note(batch)
                continue
            lengths, blob = batch.lengths, batch.blob
            count = len(lengths)
            self.messages += count
            self.bytes += len(blob)
            if timed:
                if self.measuring:
                    now = time.monotonic_ns()
                    self.late_ns.extend(
                        now - DUE.unpack_from(blob, at)[0] for at in accumulate(lengths[:-1], initial=0)
                    )
            elif lengths.count(lengths[0]) == count:
                self.read_bytes += sum(blob[:: lengths[0]])
            else:
                self.read_bytes += sum(map(blob.__getitem__, accumulate(lengths[:-1], initial=0)))

    async def _read_events(self) -> None:
        async for event in self.group:
            if isinstance(event, Message):
                data = event.data
                self.messages += 1
                self.bytes += len(data)
                self.read_bytes += data[0]
            else:
                self.note(event)

    async def _read_timed_events(self) -> None:
        async for event in self.group:
            if isinstance(event, Message):
                self.messages += 1
                self.bytes += len(event.data)
                if self.measuring:
                    self.late_ns.append(time.monotonic_ns() - DUE.unpack_from(event.data)[0])
            else:
                self.note(event)

    # Sending

    async def send_all(self) -> None:
        size, service, group = self.options["size"], self.options["service"], self.group
        block = [os.urandom(size) for _ in range(max(1, BLOCK_BYTES // max(size, 1)))]
        while self.sending:
            await group.send_many(block, service)
            self.sent += len(block)
            await asyncio.sleep(0)  # room in the queue is no reason to suspend: the reader has its turn

    async def send_on_schedule(self, begin_ns: int) -> None:
        """Sends at fixed times; a message that leaves late keeps the time at which it was due."""
        rate, index, nodes = self.options["rate"], self.options["index"], self.options["nodes"]
        rest = bytes(max(0, self.options["size"] - DUE.size))
        timer, due = Timer(), asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(timer.fileno(), due.set)
        interval_ns = 1e9 / rate
        # The nodes' schedules lie evenly between one another: they do not all send at the same moment.
        first_ns = begin_ns + interval_ns * index / nodes
        number = 0
        try:
            while self.sending:
                due_ns = int(first_ns + number * interval_ns)
                while due_ns > time.monotonic_ns():  # again: the loop may tell of the timer before this one once more
                    due.clear()
                    timer.set(due_ns)
                    await due.wait()
                    timer.set(_FAR_NS)
                await self.group.send(DUE.pack(due_ns) + rest, self.options["service"])
                number += 1
                self.sent = number
        finally:
            loop.remove_reader(timer.fileno())
            timer.close()

    # The run

    def snapshot(self) -> Snapshot:
        return {
            "at": time.monotonic(),
            "messages": self.messages,
            "bytes": self.bytes,
            "cpu_s": time.process_time(),
            "status": self.group.status(),
        }

    async def run(self, begin_ns: int) -> dict[str, Any]:
        options = self.options
        reading = asyncio.create_task(self.read())
        await _until(begin_ns)
        sending = None
        if options["index"] < options["senders"]:
            sending = asyncio.create_task(self.send_on_schedule(begin_ns) if options["rate"] else self.send_all())
        warm_ns = begin_ns + int(options["warm_s"] * 1e9)
        await _until(warm_ns)
        before, self.measuring = self.snapshot(), True
        await _until(warm_ns + int(options["seconds"] * 1e9))
        after, self.measuring = self.snapshot(), False
        self.sending = False
        if sending is not None:
            await sending
        reading_over = reading.done()
        figures = self._figures(before, after)
        if reading_over:
            reading.result()
        reading.cancel()
        return figures

    def _figures(self, before: Snapshot, after: Snapshot) -> dict[str, Any]:
        span = after["at"] - before["at"]
        counters = [cast(dict[str, int], each["status"]["counters"]) for each in (before, after)]
        networks = after["status"]["networks"]
        return {
            "name": self.group.name,
            "span_s": span,
            "messages_per_s": (after["messages"] - before["messages"]) / span,
            "bytes_per_s": (after["bytes"] - before["bytes"]) / span,
            "cpu_s": after["cpu_s"] - before["cpu_s"],
            "turns_per_s": (after["status"]["turns"] - before["status"]["turns"]) / span,
            "rotations_per_s": (after["status"]["rotations"] - before["status"]["rotations"]) / span,
            "retransmissions": counters[1]["retransmissions"] - counters[0]["retransmissions"],
            "token_retransmissions": counters[1]["token_retransmissions"] - counters[0]["token_retransmissions"],
            "views": self.views - 1,
            "receive_drops": sum(network["receive_drops"] for network in networks),
            "send_drops": sum(network["send_drops"] for network in networks),
            "late_us": [round(late / 1000) for late in self.late_ns],
            "rss_mb": _resident_mb(),
        }


async def _until(at_ns: int) -> None:
    """Sleeps until a time, to the next millisecond; what is counted is divided by the time that was measured."""
    while (left := at_ns - time.monotonic_ns()) > 0:
        await asyncio.sleep(left / 1e9)


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


async def main(options: NodeOptions) -> None:
    data_dir = options["data_dir"]
    extra: dict[str, Any] = {}
    if len(options["networks"]) > 1:
        extra["replication"] = options["replication"]
    async with ordercast.join(
        options["group"],
        name=options["name"],
        engine=options["engine"],
        networks=options["networks"],
        key=None if options["key"] is None else options["key"].encode(),
        insecure=options["key"] is None,
        data_dir=None if data_dir is None else Path(data_dir) / options["name"],
        min_members=options["nodes"],
        **extra,
    ) as group:
        node = Node(options, group)
        if options["engine"] == "corel":
            await (await group.send(bytes(options["size"])))  # there is a primary component
        gc.collect()
        gc.freeze()
        print(json.dumps({"ready": True}), flush=True)
        begin_ns = int(await asyncio.to_thread(sys.stdin.readline))
        print(json.dumps(await node.run(begin_ns)), flush=True)
        # The others may still need what this one has; it goes when all have their figures.
        await asyncio.to_thread(sys.stdin.readline)
        os._exit(0)


def _arguments(argv: Sequence[str]) -> NodeOptions:
    return cast(NodeOptions, json.loads(argv[1]))


if __name__ == "__main__":
    asyncio.run(main(_arguments(sys.argv)))
