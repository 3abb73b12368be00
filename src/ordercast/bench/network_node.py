"""One node of a run in which networks fail: it sends at a fixed rate, and knows the longest times without a delivery.

    python -m ordercast.bench.network_node '{"group": …}'

It joins and says `{"ready": true}` in a line. Then it answers orders, each a line on its standard input, with a JSON
line: `send` begins the load, `quiet` ends it, `figures` tells what was delivered and reported so far, with the stalls
since the last `figures`; `leave` leaves. Times are those of the machine's monotonic clock, which all nodes share.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import zlib
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, cast

import ordercast
import ordercast.member
from ordercast.events import Batch, NetworkFault, NetworkRepaired, View

TICK_S = 0.002
"""How often the load is brought up to its rate."""


class NetworkNodeOptions(TypedDict):
    group: str
    name: str
    nodes: int
    size: int
    rate: float
    """Messages a second."""
    networks: list[str]
    replication: str
    key: str
    data_dir: str
    token_loss_us: int | None
    """Another token-loss timeout than the default."""


class Node:
    def __init__(self, options: NetworkNodeOptions, group: ordercast.Group) -> None:
        self.options = options
        self.group = group
        self.sending = False
        self.sent = 0
        self.delivered = 0
        self.checksum = 0
        """Over senders and numbers of all that was delivered, in its order."""
        self.views = 0
        self.reports: list[dict[str, Any]] = []
        self._last = 0.0
        self._stalls: list[tuple[float, float]] = []
        """When each of the longest waits for a delivery ended, and how long it was."""
        self._idle = True
        self._rotations = 0
        self._since = time.monotonic()

    async def read(self) -> None:
        async for event in self.group.batches():
            now = time.monotonic()
            if isinstance(event, Batch):
                if not self._idle and now - self._last > 0.005:
                    self._stalls.append((now, now - self._last))
                self._last, self._idle = now, False
                self.delivered += len(event)
                for message in event:
                    self.checksum = zlib.crc32(b"%s %d" % (message.sender.encode(), message.seq), self.checksum)
            elif isinstance(event, View):
                self.views += 1
            elif isinstance(event, NetworkFault | NetworkRepaired):
                what = "fault" if isinstance(event, NetworkFault) else "repaired"
                reason = event.reason if isinstance(event, NetworkFault) else ""
                self.reports.append({"at": now, "what": what, "number": event.number, "reason": reason})

    async def send(self) -> None:
        rate, size = self.options["rate"], self.options["size"]
        begun, sent, payload = time.monotonic(), 0, bytes(size)
        while self.sending:
            due = int((time.monotonic() - begun) * rate) - sent
            if due:
                await self.group.send_many([payload] * due)
                sent += due
                self.sent += due
            await asyncio.sleep(TICK_S)

    def figures(self) -> dict[str, Any]:
        now, rotations = time.monotonic(), cast(int, self.group.status()["rotations"])
        stalls, self._stalls = self._stalls, []
        span, turned = now - self._since, rotations - self._rotations
        self._since, self._rotations = now, rotations
        counters = cast(dict[str, int], self.group.status()["counters"])
        return {
            "sent": self.sent,
            "delivered": self.delivered,
            "checksum": self.checksum,
            "views": self.views,
            "reports": self.reports,
            "stalls_ms": sorted((round(1000 * long_s, 1) for _, long_s in stalls), reverse=True)[:5],
            "rotation_ms": round(1000 * span / turned, 2) if turned else None,
            "retransmissions": counters["retransmissions"],
            "networks": self.group.status()["networks"],
        }


async def main(options: NetworkNodeOptions) -> None:
    if options["token_loss_us"] is not None:
        names = vars(ordercast.member)
        names["TotemConfig"] = partial(names["TotemConfig"], token_loss_timeout_us=options["token_loss_us"])
    async with ordercast.join(
        options["group"],
        name=options["name"],
        networks=options["networks"],
        replication=options["replication"],
        key=options["key"].encode(),
        data_dir=Path(options["data_dir"]) / options["name"],
        trace=True,
        min_members=options["nodes"],
    ) as group:
        node = Node(options, group)
        reading = asyncio.create_task(node.read())
        orders = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
        print(json.dumps({"ready": True}), flush=True)
        sender: asyncio.Task[None] | None = None
        while (order := (await orders.readline()).decode().strip()) not in ("", "leave"):
            if order == "send":
                node.sending = True
                sender = asyncio.create_task(node.send())
            elif order == "quiet":
                node.sending = False
                if sender is not None:
                    await sender
            print(json.dumps(node.figures()), flush=True)
        await group.leave()
        await reading


if __name__ == "__main__":
    asyncio.run(main(cast(NetworkNodeOptions, json.loads(sys.argv[1]))))
