"""Where the time of a packet goes at one node, stretch by stretch: `python bench/where.py [--repeat N]`.

The stretches are those of `bench/work.py`, on its network in memory, timed instead of counted; the kernel's share is
that of `bench/datagrams.py` between hosts, from `docs/design/network.md`. One node of four that sends a quarter of the
packets and receives the rest. Writes `bench/results/where.json`; a packet is full, 1,472 bytes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import work

RESULT = Path(__file__).parent / "results" / "where.json"
KERNEL_OUT_US, KERNEL_IN_US = 0.73, 0.93
"""A packet of a long train, with three receivers."""
NODES = 4
HEADER_BYTES = 56


class Timer(work.Counter):
    """Nanoseconds of processor time in place of a count."""

    def begin(self) -> None:
        self._since = time.thread_time_ns()

    def end(self) -> None:
        self.total += time.thread_time_ns() - self._since


def bar(figures: dict[str, float], kind: str, size: int, take: str) -> dict[str, float]:
    """Microseconds a packet; `figures` are nanoseconds of each stretch."""
    messages = (work.PACKET_BYTES - HEADER_BYTES) / (size + 2)
    own = 1 / NODES
    parts = {
        "submit": own * messages * (figures[f"submit {kind}, a message"] + figures[f"settle {kind}, a message"]),
        "cut, number, keep": own * figures[f"broadcast {kind}, a packet"],
        "kernel, sending": own * KERNEL_OUT_US * 1000,
        "kernel, receiving": (1 - own) * KERNEL_IN_US * 1000,
        "check, order, hand over": (1 - own) * figures[f"receive {kind}, a packet"],
        "application": messages * figures[f"take {take} of {kind}, a message"],
    }
    return {part: round(ns / 1000, 4) for part, ns in parts.items()}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeat", type=int, default=15)
    options.add_argument("--no-save", action="store_true")
    args = options.parse_args()
    work.Counter = Timer  # type: ignore[misc]
    runs = [work.measure_metric("time") for _ in range(args.repeat)]
    figures = {stretch: statistics.median(run[stretch] for run in runs) for stretch in runs[0]}
    bars = {
        "64 B, batches": bar(figures, "64 B", 64, "batches"),
        "64 B, events": bar(figures, "64 B", 64, "events"),
        "1 KB, batches": bar(figures, "1 KB", 1024, "batches"),
        "1 KB, events": bar(figures, "1 KB", 1024, "events"),
    }
    result = {"bench": "where", "stretches_ns": figures, "parts": list(bars["64 B, batches"]), "bars": bars}
    print(json.dumps(result, indent=1))
    if not args.no_save:
        RESULT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
