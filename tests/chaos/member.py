"""One member under chaos: `python member.py OPTIONS`. It loads the group, reads all, and does what it is told.

Orders, a line each on the standard input, each answered with a line of JSON: `status`; `quiet` stops the load; `end`
closes the trace as that of a live node on a whole and quiet network, after which the member goes on until it is killed.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading
from typing import Any

import ordercast


class Load:
    def __init__(self, group: ordercast.Group, seed: int) -> None:
        self.group = group
        self.rng = random.Random(seed)
        self.quiet = False
        self.read = 0

    async def read_all(self) -> None:
        async for batch in self.group.batches():
            if isinstance(batch, ordercast.Batch):
                self.read += len(batch)

    async def send(self) -> None:
        rng = self.rng
        while not self.quiet:
            size = rng.choice((0, 10, 100, 100, 1000, 1000, 5000, 20_000))
            if rng.random() < 0.01:
                size = 300_000
            await self.group.send_many([bytes(size)] * rng.randint(1, 6), rng.choice(("agreed", "agreed", "safe")))
            await asyncio.sleep(rng.expovariate(1 / 0.03))

    def status(self) -> dict[str, Any]:
        status = self.group.status()
        waiting = status["submitted"] != status["delivered_own"]
        return {"view": status["view"], "members": status["members"], "state": status["state"], "waiting": waiting}


async def main(options: dict[str, Any]) -> None:
    async with ordercast.join(
        options["group"],
        name=options["name"],
        networks=[options["address"]],
        key=bytes.fromhex(options["key"]),
        data_dir=options["data_dir"],
        trace=True,
    ) as group:
        load = Load(group, options["seed"])
        tasks = [asyncio.create_task(load.read_all()), asyncio.create_task(load.send())]
        for task in tasks:
            task.add_done_callback(lambda task: task.cancelled() or task.result())
        orders = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
        while order := (await orders.readline()).decode().strip():
            if order == "quiet":
                load.quiet = True
                await tasks[1]
            elif order == "end":
                await asyncio.to_thread(_end_trace, group)
            print(json.dumps(load.status()), flush=True)


def _end_trace(group: ordercast.Group) -> None:
    driver = group._joined().member.driver
    done = threading.Event()

    def end() -> None:
        assert driver.recorder is not None
        driver.recorder.end("end")
        driver.recorder = None
        done.set()

    driver.call(end)
    assert done.wait(30)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
