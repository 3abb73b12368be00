"""One node of PySyncObj with a journal on disk, under the load of `ordercast bench durable`.

    python -m ordercast.bench.durable_pysyncobj '{"address": …}'

PySyncObj writes its journal to a mapped file and never syncs it. Here it does, as Raft asks: a follower before it says
what it has, the leader before it sends entries, so that one sync covers all entries of a turn. Behaves as
`durable_node.py` does.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, TypedDict, cast

from pysyncobj import SyncObj, SyncObjConf, replicated

READY_S = 25.0
_IDLE_S = 0.0003


class Options(TypedDict):
    address: str
    others: list[str]
    index: int
    size: int
    outstanding: int
    rate: float
    """Writes a second of this node; 0: as many as `outstanding` allows."""
    warm_s: float
    seconds: float
    data_dir: str


class Journaled(SyncObj):  # type: ignore[misc]  # PySyncObj has no types
    def __init__(self, address: str, others: list[str], journal: str) -> None:
        self.writes = self.syncs = 0
        configuration = SyncObjConf(
            dynamicMembershipChange=False, commandsQueueSize=1_000_000, appendEntriesUseBatch=True,
            autoTickPeriod=0.005, journalFile=journal, logCompactionMinEntries=10**9, logCompactionMinTime=10**6,
        )  # fmt: skip
        super().__init__(address, others, conf=configuration)

    def _sync_journal(self) -> None:
        self.syncs += 1
        self._SyncObj__raftLog.flush()

    # Name-mangled, so that the library's own calls come here.

    def _SyncObj__sendNextNodeIdx(self, *args: Any, **named: Any) -> None:
        self._sync_journal()
        super()._SyncObj__sendNextNodeIdx(*args, **named)

    def _SyncObj__sendAppendEntries(self) -> None:
        self._sync_journal()
        super()._SyncObj__sendAppendEntries()

    @replicated  # type: ignore[untyped-decorator]
    def take(self, data: bytes) -> None:
        self.writes += 1


class Load:
    def __init__(self, options: Options) -> None:
        self.options = options
        self.node = Journaled(options["address"], options["others"], options["data_dir"] + "/journal")
        # Written by one thread each: this one, and the object's own.
        self.sent = self.answered = self.failed = 0
        self.measuring = False
        self.took_us: list[int] = []

    def ready(self) -> None:
        until = time.monotonic() + READY_S
        node = self.node
        while not (node.isReady() and all(node.isNodeConnected(other) for other in node.otherNodes)):
            if time.monotonic() > until:
                raise SystemExit("too few members")
            time.sleep(0.02)

    def send(self, data: bytes, due_ns: int) -> None:
        def answered(_result: object, error: object) -> None:
            self.answered += 1
            if error:
                self.failed += 1
            elif self.measuring:
                self.took_us.append((time.monotonic_ns() - due_ns) // 1000)

        self.sent += 1
        self.node.take(data, callback=answered)

    def load(self, begin_ns: int, until_ns: int) -> None:
        options = self.options
        data = bytes(options["size"])
        interval_ns = 1e9 / options["rate"] if options["rate"] else 0.0
        number = 0
        while (now := time.monotonic_ns()) < until_ns:
            if interval_ns:
                due_ns = begin_ns + int(number * interval_ns)
                if due_ns > now:
                    time.sleep((min(due_ns, until_ns) - now) / 1e9)
                    continue
                number += 1
                self.send(data, due_ns)
            elif self.sent - self.answered < options["outstanding"]:
                self.send(data, now)
            else:
                time.sleep(_IDLE_S)

    def run(self, begin_ns: int) -> dict[str, Any]:
        warm_ns = begin_ns + int(self.options["warm_s"] * 1e9)
        time.sleep(max(0.0, (begin_ns - time.monotonic_ns()) / 1e9))
        self.load(begin_ns, warm_ns)
        self.measuring, start, cpu, syncs = True, time.monotonic_ns(), time.process_time(), self.node.syncs
        self.load(warm_ns, warm_ns + int(self.options["seconds"] * 1e9))
        self.measuring, span_s = False, (time.monotonic_ns() - start) / 1e9
        if self.failed:
            raise SystemExit(f"PySyncObj refused {self.failed} writes")
        return {
            "acknowledged_per_s": len(self.took_us) / span_s,
            "cpu_s": time.process_time() - cpu,
            "syncs_per_s": (self.node.syncs - syncs) / span_s,
            "took_us": self.took_us,
        }


def main(options: Options) -> None:
    load = Load(options)
    load.ready()
    print(json.dumps({"ready": True}), flush=True)
    print(json.dumps(load.run(int(sys.stdin.readline()))), flush=True)
    sys.stdin.readline()
    os._exit(0)


if __name__ == "__main__":
    main(cast(Options, json.loads(sys.argv[1])))
