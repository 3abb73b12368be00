"""One member of a durable group under chaos: `python durable_member.py OPTIONS`, told what to do as `member.py` is.

Messages say who sent them, in which life, and which number they have. What was acknowledged to the application stands
in NAME.acked beside the data_dir, a line for each ticket: the offset, and what the message said of itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections import deque
from pathlib import Path
from typing import Any

import ordercast
from ordercast.errors import DeliveryUncertain, GroupError, LogCorrupt

FAILED = 4
"""The exit status of a member whose group has failed, as on a full disk."""
CORRUPT = 5
"""...and of one that was refused its log."""
SEGMENT_BYTES = 256 * 1024
OUTSTANDING = 50


class Load:
    def __init__(self, group: ordercast.Group, options: dict[str, Any]) -> None:
        self.group = group
        self.mark = f"{options['name']} {options['life']}"
        self.rng = random.Random(options["seed"])
        self.acked = os.open(Path(options["data_dir"]).with_suffix(".acked"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.quiet = False
        self.pending: deque[tuple[ordercast.Ticket, str]] = deque()
        self.at: int | None = None

    async def read(self) -> None:
        """Offsets follow one another without gaps."""
        async for batch in self.group.batches():
            if isinstance(batch, ordercast.Batch):
                assert batch.offset is not None
                assert self.at in (None, batch.offset), f"offset {batch.offset} after {self.at}"
                self.at = batch.offset + len(batch)
            elif isinstance(batch, ordercast.Snapshot):
                self.at = batch.offset

    async def send(self) -> None:
        rng, number = self.rng, 0
        while not self.quiet:
            bodies = []
            for _ in range(rng.randint(1, 8)):
                number += 1
                mark = f"{self.mark} {number}:"
                bodies.append(mark.encode() + bytes(rng.choice((0, 10, 100, 1000, 4000))))
            self.pending.append((await self.group.send_many(bodies), mark))
            await asyncio.sleep(rng.expovariate(1 / 0.01))

    async def collect(self) -> None:
        """One line for each acknowledged ticket, in one write; what is written survives kill -9."""
        while True:
            if not self.pending:
                await asyncio.sleep(0.01)
                continue
            ticket, mark = self.pending[0]
            receipt = await ticket
            if receipt.offset is not None:
                os.write(self.acked, f"{receipt.offset} {mark}\n".encode())
            self.pending.popleft()

    def status(self) -> dict[str, Any]:
        status = self.group.status()
        log: Any = status["log"]
        state = (
            "primary" if status["state"] == "operational" and log["primary"] else f"{status['state']} {log['phase']}"
        )
        waiting = bool(self.pending) or log["green"] < log["end"]
        return {"view": status["view"], "members": status["members"], "state": state, "waiting": waiting,
                "green": log["green"]}  # fmt: skip


async def main(options: dict[str, Any]) -> None:
    async with ordercast.join(
        options["group"],
        name=options["name"],
        engine="corel",
        networks=[options["address"]],
        key=bytes.fromhex(options["key"]),
        data_dir=options["data_dir"],
        founders=options["founders"],
        trace=True,
    ) as group:
        disk = group._joined().member.durable.disk  # type: ignore[union-attr]
        disk._writer.segment_bytes = SEGMENT_BYTES  # so that a round goes over several
        load = Load(group, options)
        tasks = [asyncio.create_task(each()) for each in (load.read, load.send, load.collect)]
        orders = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
        tasks.append(asyncio.create_task(obey(load, orders)))
        while True:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            # The ticket's error follows from the group's, which says why.
            for task in sorted(done, key=lambda task: isinstance(task.exception(), DeliveryUncertain)):
                task.result()
            tasks = [task for task in tasks if task not in done]


async def obey(load: Load, orders: asyncio.StreamReader) -> None:
    while order := (await orders.readline()).decode().strip():
        if order == "quiet":
            load.quiet = True
        print(json.dumps(load.status()), flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(main(json.loads(sys.argv[1])))
    except GroupError as error:
        cause = "" if error.__cause__ is None else f" ({error.__cause__!r})"
        print(f"{type(error).__name__}: {error}{cause}", file=sys.stderr, flush=True)
        os._exit(CORRUPT if isinstance(error, LogCorrupt) else FAILED)
