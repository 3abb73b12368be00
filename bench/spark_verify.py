"""What `ordercast check --spark` takes for a trace: `python bench/spark_verify.py DIR …`, one JSON object a trace.

The command runs in a process of its own, on local[2]. Time, processor seconds and memory are those of all its
processes: the JVM, the Python workers, the driver. Memory is their proportional set size, sampled.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


def family(root: int) -> set[int]:
    """A process and all that descend from it."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = int(entry.joinpath("stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def usage(pid: int) -> tuple[float, int]:
    """Processor seconds of its own and memory in KiB; nothing of one that has gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        memory = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0, 0
    pss = next((line.split()[1] for line in memory.splitlines() if line.startswith("Pss:")), "0")
    return (int(fields[11]) + int(fields[12])) / _TICK, int(pss)


def measure(trace: Path, memory: str, scratch: Path) -> dict[str, object]:
    command = [sys.executable, "-m", "ordercast", "check", "--spark", "--json", "--master", "local[2]",
               "--driver-memory", memory, "--scratch", str(scratch), str(trace)]  # fmt: skip
    began = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=said)
        spent: dict[int, float] = {}
        highest = 0
        while process.poll() is None:
            total = 0
            for pid in family(process.pid):
                cpu, pss = usage(pid)
                spent[pid] = max(cpu, spent.get(pid, 0.0))
                total += pss
            highest = max(highest, total)
            time.sleep(0.25)
        seconds = time.perf_counter() - began
        said.seek(0)
        report = json.loads(said.read())
    return {
        "trace": str(trace),
        "events": report["events"],
        "verdict": report["verdict"],
        "violated": sorted({violation["property"] for violation in report["violations"]}),
        "seconds": round(seconds, 1),
        "cpu_s": round(sum(spent.values()), 1),
        "memory_max_mb": round(highest / 1024),
        "events_per_s": round(report["events"] / seconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--driver-memory", default="3g")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()))
    args = parser.parse_args()
    for trace in args.traces:
        print(json.dumps(measure(trace, args.driver_memory, args.scratch)), flush=True)


if __name__ == "__main__":
    main()
