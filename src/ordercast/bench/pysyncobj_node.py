"""One node of PySyncObj, a replicated object in memory, under the load of `ordercast bench`.

    python -m ordercast.bench.pysyncobj_node '{"address": …}'

It behaves as `node.py` does. A message is a command of the replicated object, and delivered where it is applied. So
many own commands wait for their commit as `OUTSTANDING` says: PySyncObj queues without bound otherwise.
"""

from __future__ import annotations

import json
import os
import sys
import time
from array import array
from struct import Struct
from typing import Any, TypedDict, cast

from pysyncobj import SyncObj, SyncObjConf, replicated

DUE = Struct("<Q")
OUTSTANDING = 500
READY_S = 25.0
_IDLE_S = 0.0003


class PySyncObjOptions(TypedDict):
    address: str
    others: list[str]
    index: int
    nodes: int
    size: int
    rate: float
    warm_s: float
    seconds: float


class Counter(SyncObj):  # type: ignore[misc]  # PySyncObj has no types
    """Counts what it is given, the same at every node."""

    def __init__(self, address: str, others: list[str], timed: bool) -> None:
        self.messages = self.bytes = self.read_bytes = 0
        self.timed, self.measuring = timed, False
        self.late_ns = array("Q")
        configuration = SyncObjConf(
            dynamicMembershipChange=False, commandsQueueSize=1_000_000, appendEntriesUseBatch=True
        )
        super().__init__(address, others, conf=configuration)

    @replicated  # type: ignore[untyped-decorator]
    def take(self, data: bytes) -> None:
        self.messages += 1
        self.bytes += len(data)
        if not self.timed:
            self.read_bytes += data[0]
        elif self.measuring:
            self.late_ns.append(time.monotonic_ns() - DUE.unpack_from(data)[0])


class Load:
    def __init__(self, options: PySyncObjOptions) -> None:
        self.options = options
        self.counter = Counter(options["address"], options["others"], options["rate"] > 0)
        # Written by one thread each: this one, and the object's own.
        self.sent = self.answered = 0

    def ready(self) -> None:
        until = time.monotonic() + READY_S
        counter = self.counter
        while not (counter.isReady() and all(counter.isNodeConnected(node) for node in counter.otherNodes)):
            if time.monotonic() > until:
                raise SystemExit("too few members")
            time.sleep(0.02)

    def _answered(self, _result: object, _error: object) -> None:
        self.answered += 1

    def _saturate(self, until_ns: int) -> None:
        data = bytes(self.options["size"])
        while time.monotonic_ns() < until_ns:
            if self.sent - self.answered < OUTSTANDING:
                self.sent += 1
                self.counter.take(data, callback=self._answered)
            else:
                time.sleep(_IDLE_S)

    def _follow_schedule(self, begin_ns: int, until_ns: int) -> None:
        interval_ns = 1e9 / self.options["rate"]
        first_ns = begin_ns + interval_ns * self.options["index"] / self.options["nodes"]
        rest = bytes(self.options["size"] - DUE.size)
        while (now := time.monotonic_ns()) < until_ns:
            due_ns = int(first_ns + self.sent * interval_ns)
            if due_ns > now:
                time.sleep((min(due_ns, until_ns) - now) / 1e9)
                continue
            self.counter.take(DUE.pack(due_ns) + rest)
            self.sent += 1

    def run(self, begin_ns: int) -> dict[str, Any]:
        counter, options = self.counter, self.options
        warm_ns = begin_ns + int(options["warm_s"] * 1e9)
        end_ns = warm_ns + int(options["seconds"] * 1e9)
        time.sleep(max(0.0, (begin_ns - time.monotonic_ns()) / 1e9))

        def load(until_ns: int) -> None:
            if options["rate"]:
                self._follow_schedule(begin_ns, until_ns)
            else:
                self._saturate(until_ns)

        load(warm_ns)
        before = time.monotonic(), counter.messages, counter.bytes, time.process_time()
        counter.measuring = True
        load(end_ns)
        counter.measuring = False
        span_s = time.monotonic() - before[0]
        return {
            "messages_per_s": (counter.messages - before[1]) / span_s,
            "bytes_per_s": (counter.bytes - before[2]) / span_s,
            "cpu_s": time.process_time() - before[3],
            "late_us": [round(late / 1000) for late in counter.late_ns],
        }


def main(options: PySyncObjOptions) -> None:
    load = Load(options)
    load.ready()
    print(json.dumps({"ready": True}), flush=True)
    print(json.dumps(load.run(int(sys.stdin.readline()))), flush=True)
    # The others may still need what this one has; the object's own thread goes on meanwhile.
    sys.stdin.readline()
    os._exit(0)


if __name__ == "__main__":
    main(cast(PySyncObjOptions, json.loads(sys.argv[1])))
