"""One process of `ordercast demo`: an ordinary member under an ordinary load, which can be cut off from others.

Commands come as JSON lines on its input, and what it sees goes as JSON lines to its output; the end of the input makes
it leave. The partition needs no root: it lies between the sockets and the driver and drops what comes from the
processes of the other side.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any, ClassVar

import ordercast.member
from ordercast import sync
from ordercast.cli.demo_networks import NETWORKS, REPLICATION
from ordercast.events import Batch, NetworkFault, NetworkRepaired, TransitionalView, View
from ordercast.net.addresses import Address
from ordercast.net.udp import Train, UdpNetwork

LOAD_INTERVAL_S = 0.02
REPORT_INTERVAL_S = 0.1
SAFE_EVERY = 5
"""Each fifth of the batches that are sent asks for safe delivery."""
PAYLOAD_BYTES = 100
COMPARE_EVERY = 50
"""After so many messages of a view the process tells what it has delivered so far, as a checksum."""


class DividedNetwork(UdpNetwork):
    """A UDP network that can be cut, or parted from the processes at certain addresses."""

    dropped: frozenset[str] = frozenset()
    """HOST:PORT of those on the other side, on whichever network."""
    cut = 0
    """The number of the network that is dead, counted from 1; 0: none."""
    addresses: ClassVar[list[str]] = []
    """Of all networks of this process, in their order."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.addresses.append("{}:{}".format(*self.own))
        self.number = len(self.addresses)

    def broadcast(self, data: bytes, segment: int) -> None:
        if DividedNetwork.cut != self.number:
            super().broadcast(data, segment)

    def unicast(self, to: Address, data: bytes) -> None:
        if DividedNetwork.cut != self.number:
            super().unicast(to, data)

    def drain(self) -> list[Train]:
        return self._let_through(super().drain())

    def drain_unicast(self) -> list[Train]:
        return self._let_through(super().drain_unicast())

    def _let_through(self, trains: list[Train]) -> list[Train]:
        if DividedNetwork.cut == self.number:
            return []
        dropped = DividedNetwork.dropped
        if not dropped:
            return trains
        return [train for train in trains if "{}:{}".format(*train[2]) not in dropped]


class DemoMember:
    """The member, a thread that sends, and one that reads what is delivered."""

    def __init__(self, group: str, name: str, data_dir: Path) -> None:
        self.group = sync.join(
            group, name=name, data_dir=data_dir, trace=True, networks=NETWORKS, replication=REPLICATION
        )
        self.rate = 0
        self.sent = 0
        self.delivered = 0
        self._output = threading.Lock()
        self._reader = threading.Thread(target=self._read)
        self._stop = threading.Event()

    def report(self, **fields: object) -> None:
        line = json.dumps(fields).encode() + b"\n"
        with self._output:
            os.write(sys.stdout.fileno(), line)

    def run(self) -> None:
        self.report(what="joined", addresses=DividedNetwork.addresses)
        self._reader.start()
        load = threading.Thread(target=self._send)
        load.start()
        for line in sys.stdin:
            command = json.loads(line)
            self.rate = command.get("rate", self.rate)
            DividedNetwork.cut = command.get("cut", DividedNetwork.cut)
            if "drop" in command:
                DividedNetwork.dropped = frozenset(command["drop"])
        self._stop.set()
        load.join()
        self.group.leave()
        self._reader.join()
        self.report(what="left", sent=self.sent, delivered=self.delivered)

    def _send(self) -> None:
        payload = bytes(PAYLOAD_BYTES)
        turn = 0
        while not self._stop.wait(LOAD_INTERVAL_S):
            count = round(self.rate * LOAD_INTERVAL_S)
            if count:
                turn += 1
                self.group.send_many([payload] * count, "agreed" if turn % SAFE_EVERY else "safe")
                self.sent += count

    def _read(self) -> None:
        view, count, checksum, next_report = "", 0, 0, 0.0
        comparable = False
        for event in self.group.batches():
            if isinstance(event, Batch):
                self.delivered += len(event)
                for message in event if comparable else ():
                    count += 1
                    checksum = zlib.crc32(f"{message.sender} {message.seq}".encode(), checksum)
                    if count % COMPARE_EVERY == 0:
                        self.report(what="order", view=view, count=count, checksum=checksum)
                if time.monotonic() >= next_report:
                    self.report(what="progress", sent=self.sent, delivered=self.delivered, at=time.monotonic())
                    next_report = time.monotonic() + REPORT_INTERVAL_S
            elif isinstance(event, NetworkFault | NetworkRepaired):
                what = "network_fault" if isinstance(event, NetworkFault) else "network_repaired"
                self.report(what=what, number=event.number)
            elif isinstance(event, View | TransitionalView):
                # From the transitional view on, those who went other ways may rightly have delivered other messages.
                comparable = isinstance(event, View)
                view, count, checksum = event.id, 0, 0
                kind = "regular" if comparable else "transitional"
                self.report(what="view", kind=kind, view=event.id, members=event.members, at=time.monotonic())


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too, and ends this process
    group, name, data_dir = sys.argv[1:]
    vars(ordercast.member)["UdpNetwork"] = DividedNetwork
    DemoMember(group, name, Path(data_dir)).run()


if __name__ == "__main__":
    main()
