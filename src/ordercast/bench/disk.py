"""What a disk can do for a durable log: appends of a size, each made durable before the next, and in groups."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from ordercast.bench.run import Tick


def run_disk(directory: Path, append_bytes: int, seconds: float, tick: Tick = lambda: None) -> dict[str, Any]:
    """Appends of `append_bytes` with fdatasync after each, for so long, to a file of its own in the directory."""
    block = os.urandom(append_bytes)
    times_us: list[int] = []
    with tempfile.TemporaryFile(dir=directory, prefix="ordercast-bench-") as file:
        handle = file.fileno()
        os.write(handle, block)
        os.fsync(handle)
        begin = now = time.monotonic_ns()
        end = begin + int(seconds * 1e9)
        while now < end:
            left = block
            while left:
                left = left[os.write(handle, left) :]
            os.fdatasync(handle)
            before, now = now, time.monotonic_ns()
            times_us.append((now - before) // 1000)
            tick()
    times_us.sort()
    span_s = (now - begin) / 1e9
    return {
        "appends_per_s": round(len(times_us) / span_s, 1),
        "mb_per_s": round(len(times_us) * append_bytes / span_s / 1e6, 2),
        "append_ms": {
            name: times_us[min(len(times_us) - 1, int(len(times_us) * share))] / 1000
            for name, share in (("p50", 0.5), ("p99", 0.99))
        },
    }
