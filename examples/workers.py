"""Work for a group: each job is done by one worker, and by another one if that worker is lost.

    python examples/workers.py shop ann & python examples/workers.py shop bob & python examples/workers.py shop eve 100

All know all jobs in one order, so each can tell alone which are its own: nobody hands them out. Eve puts 100 jobs in
and calls it a day when they are done. A worker that is cut off, not dead, may do a job that others do again.
"""

import asyncio
import sys

import ordercast
from ordercast import Message, TransitionalView, View


async def main(shop: str, me: str, wanted: int) -> None:
    open_jobs: dict[str, tuple[str, ...]] = {}  # with those who know of it; the first of them does it
    in_hand: dict[str, asyncio.Task[None]] = {}
    present: tuple[str, ...] = ()
    hands = asyncio.Lock()

    async def work(job: str) -> None:
        async with hands:
            await asyncio.sleep(0.02)
            print(f"{me} did {job}", flush=True)
            await group.send(f"done {job}".encode())

    async with ordercast.join(f"shop {shop}", name=me) as group:
        await group.send_many([f"job {me}-{number}".encode() for number in range(wanted)])
        async for event in group:
            match event:
                case View(members=members):
                    present = members
                case TransitionalView(members=members):
                    present = members  # who come along, and know the same jobs as I do
                    for job, workers in open_jobs.items():
                        open_jobs[job] = tuple(name for name in workers if name in members)
                case Message(data=data, seq=seq):
                    what, _, job = data.decode().partition(" ")
                    if what == "job":
                        turn = seq % len(present)
                        open_jobs[job] = present[turn:] + present[:turn]
                    elif what == "done" and open_jobs.pop(job, ()) and job.startswith(f"{me}-"):
                        wanted -= 1
                        if wanted == 0:
                            await group.send(b"closed")
                    elif what == "closed":
                        break
            for job, workers in open_jobs.items():
                if workers[0] == me and job not in in_hand:
                    in_hand[job] = asyncio.create_task(work(job))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: workers.py SHOP WORKER [JOBS]")
    asyncio.run(main(sys.argv[1], sys.argv[2], int(*sys.argv[3:])))
