"""Which loop should serve a member's sockets: `python bench/loops.py [WAY ...] [--seconds S] [--rounds N]`.

Two processes pass a token to and fro over `UdpNetwork` on loopback; whoever has it broadcasts a train of 40 packets
of 1,400 bytes first. One of them does that alone. The other is an application with an event loop, and its sockets are
served in one of these ways:

    reader    by a reader in the application's own event loop (asyncio)
    uvloop    the same on uvloop, if that is installed
    thread    by a thread that polls and hands over what it took, with one wake-up on its way at a time
    process   by a process of its own, which passes the bytes on through a socket pair

The application reads a byte of each packet that it is handed. In the middle of a run it does nothing else (`reads`),
blocks its event loop for 1.2 s (`blocks`), or computes in Python for as long (`computes`). Told are the tokens a
second, those in that time, the longest time without one, which must stay far below the token-loss timeout of 400 ms,
and the processor time of application and loop for a token. Prints one JSON object; medians of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from statistics import median
from struct import Struct
from typing import Any

from ordercast.net.addresses import Address
from ordercast.net.udp import UdpNetwork

WAYS = ("reader", "uvloop", "thread", "process")
APPLICATIONS = ("reads", "blocks", "computes")
BUSY_S = 1.2
PACKET_BYTES = 1400
TRAIN = bytes(40 * PACKET_BYTES)
LENGTH = Struct("<I")
TOKEN, HELLO = b"token", b"hello"
CHILD_ENDS_S = 5.0


def main() -> None:
    if sys.argv[1:2] == ["member"]:
        way, application, group, seconds = sys.argv[2:6]
        serve_application(way, application, UdpNetwork(group, "127.0.0.1"), float(seconds))
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("ways", nargs="*", choices=[[], *WAYS], help="all by default")
    parser.add_argument("--seconds", type=float, default=3.0, help="the length of a run")
    parser.add_argument("--rounds", type=int, default=3, help="the medians of so many are printed")
    args = parser.parse_args()
    ways = [way for way in args.ways or WAYS if way != "uvloop" or find_spec("uvloop") is not None]
    found: dict[str, Any] = {"python": sys.version.split()[0], "seconds": args.seconds, "rounds": args.rounds}
    for way in ways:
        found[way] = {}
        for application in APPLICATIONS:
            runs = [measure(way, application, args.seconds) for _ in range(args.rounds)]
            found[way][application] = {key: round(median(run[key] for run in runs), 2) for key in runs[0]}
            print(way, application, found[way][application], file=sys.stderr)
    print(json.dumps(found, indent=2))


# The side that measures


def measure(way: str, application: str, seconds: float) -> dict[str, float]:
    group = f"loops-{os.getpid()}-{time.monotonic_ns():x}"
    network = UdpNetwork(group, "127.0.0.1")
    member = subprocess.Popen(
        [sys.executable, __file__, "member", way, application, group, str(seconds)], stdout=subprocess.PIPE, text=True
    )
    try:
        times = _pass_tokens(network, seconds)
        report, _ = member.communicate(timeout=seconds + CHILD_ENDS_S)
    finally:
        member.kill()
        member.wait()
        network.close()
    said = json.loads(report)
    busy = [at for at in times if said["busy_from"] <= at < said["busy_from"] + BUSY_S]
    gaps = [after - before for before, after in pairwise(times)]
    return {
        "tokens_per_s": len(times) / seconds,
        "tokens_per_s_meanwhile": len(busy) / BUSY_S,
        "longest_gap_ms": max(gaps) * 1000,
        "cpu_us_per_token": said["cpu_s"] / len(times) * 1e6,
    }


def _pass_tokens(network: UdpNetwork, seconds: float) -> list[float]:
    """Waits for the member to say that it is there, then passes the token to and fro; when it came back each time."""
    to = _first_unicast_from(network)
    times: list[float] = []
    end = time.monotonic() + seconds
    poll = select.poll()
    for fd in network.filenos():
        poll.register(fd, select.POLLIN)
    network.broadcast(TRAIN, PACKET_BYTES)
    network.unicast(to, TOKEN)
    while (now := time.monotonic()) < end:
        poll.poll((end - now) * 1000)
        while network.drain():
            pass
        for data, _, _ in network.drain_unicast():
            if data == TOKEN:
                times.append(time.monotonic())
                network.broadcast(TRAIN, PACKET_BYTES)
                network.unicast(to, TOKEN)
    return [*times, end]


def _first_unicast_from(network: UdpNetwork) -> Address:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        for data, _, source in network.drain():
            if data == HELLO:
                return source
        time.sleep(0.002)
    raise SystemExit("the member did not come")


# The member: a loop for its sockets, and an application


class Taker:
    """What a loop does when sockets are readable: all data, then the token, whose holder broadcasts."""

    def __init__(self, network: UdpNetwork, hand_over: Callable[[list[bytes]], None]) -> None:
        self.network = network
        self.hand_over = hand_over

    def hello(self) -> None:
        self.network.broadcast(HELLO, len(HELLO))

    def turn(self) -> None:
        taken: list[bytes] = []
        while trains := self.network.drain():
            taken += [train[0] for train in trains]
        for data, _, source in self.network.drain_unicast():
            if data == TOKEN:
                self.network.broadcast(TRAIN, PACKET_BYTES)
                self.network.unicast(source, TOKEN)
        if taken:
            self.hand_over(taken)

    def run(self, until: float) -> None:
        """The loop of a thread or process of its own."""
        poll = select.poll()
        for fd in self.network.filenos():
            poll.register(fd, select.POLLIN)
        self.hello()
        while (now := time.monotonic()) < until:
            poll.poll((until - now) * 1000)
            self.turn()


def serve_application(way: str, application: str, network: UdpNetwork, seconds: float) -> None:
    if way == "uvloop":
        import_module("uvloop").install()  # by name, since nothing else needs it
    child = 0
    if way == "process":
        ours, theirs = socket.socketpair()
        child = os.fork()
        if not child:
            ours.close()
            _pass_bytes_on(network, theirs, seconds)
        theirs.close()
        ours.setblocking(False)
        source: socket.socket | None = ours
    else:
        source = None
    report = asyncio.run(_application(way, application, network, source, seconds))
    if child:
        _, _, usage = os.wait4(child, 0)
        report["cpu_s"] += usage.ru_utime + usage.ru_stime
    print(json.dumps(report))


def _pass_bytes_on(network: UdpNetwork, to: socket.socket, seconds: float) -> None:
    """The process of its own. An application that does not read holds nothing up: what it must get waits here."""
    to.setblocking(False)
    waiting: deque[memoryview] = deque()

    def hand_over(trains: list[bytes]) -> None:
        for train in trains:
            waiting.append(memoryview(LENGTH.pack(len(train)) + train))
        with suppress(BlockingIOError):
            while waiting:
                sent = to.send(waiting[0])
                waiting[0] = waiting[0][sent:]
                if not waiting[0]:
                    waiting.popleft()

    Taker(network, hand_over).run(time.monotonic() + seconds)
    os._exit(0)


async def _application(
    way: str, application: str, network: UdpNetwork, source: socket.socket | None, seconds: float
) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    until = time.monotonic() + seconds
    seen = 0

    def read(trains: list[bytes]) -> None:
        nonlocal seen
        for train in trains:
            for at in range(0, len(train), PACKET_BYTES):
                seen += train[at]

    thread: threading.Thread | None = None
    if source is not None:
        loop.add_reader(source.fileno(), _reader_of(source, read))
    elif way == "thread":
        thread = threading.Thread(target=Taker(network, _waker(loop, read)).run, args=(until,))
        thread.start()
    else:
        taker = Taker(network, read)
        for fd in network.filenos():
            loop.add_reader(fd, taker.turn)
        taker.hello()
    await asyncio.sleep((seconds - BUSY_S) / 2)
    busy_from = time.monotonic()
    if application == "blocks":
        time.sleep(BUSY_S)
    elif application == "computes":
        while time.monotonic() < busy_from + BUSY_S:
            pass
    await asyncio.sleep(max(0.0, until - time.monotonic()))
    if thread is not None:
        thread.join()
    return {"busy_from": busy_from, "cpu_s": time.process_time()}


def _waker(loop: asyncio.AbstractEventLoop, read: Callable[[list[bytes]], None]) -> Callable[[list[bytes]], None]:
    """Hands over from a thread: one wake-up is on its way at a time, however many turns it covers."""
    waiting: list[bytes] = []
    lock = threading.Lock()
    scheduled = False

    def take() -> None:
        nonlocal waiting, scheduled
        with lock:
            taken, waiting, scheduled = waiting, [], False
        read(taken)

    def hand_over(trains: list[bytes]) -> None:
        nonlocal scheduled
        with lock:
            waiting.extend(trains)
            wake, scheduled = not scheduled, True
        if wake:
            with suppress(RuntimeError):  # the event loop has ended before this thread
                loop.call_soon_threadsafe(take)

    return hand_over


def _reader_of(source: socket.socket, read: Callable[[list[bytes]], None]) -> Callable[[], None]:
    """Cuts trains out of the stream of another process."""
    stream = bytearray()

    def readable() -> None:
        with suppress(BlockingIOError):
            stream.extend(source.recv(1 << 20))
        at, trains = 0, []
        while len(stream) - at >= LENGTH.size:
            (size,) = LENGTH.unpack_from(stream, at)
            if len(stream) - at - LENGTH.size < size:
                break
            at += LENGTH.size
            trains.append(bytes(stream[at : at + size]))
            at += size
        del stream[:at]
        read(trains)

    return readable


if __name__ == "__main__":
    main()
