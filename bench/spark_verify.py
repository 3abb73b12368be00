"""What `ordercast check --spark` takes for traces of 1, 10 and 100 million events, and whether it finds what is hidden.

    python bench/spark_verify.py [--events N,N,…] [--traces DIR] [--driver-memory M] [--output FILE]

`bench/spark_traces.py` makes the traces: nine nodes of the simulator. The largest one is checked once more with a run
for each of E1 to E14 damaged so that it violates this property. It fails unless each is named, and the legal traces are
without violation. The command runs in a process of its own, on local[2]. Time, processor seconds and memory are those
of all its processes: the JVM, the Python workers, the driver. Traces that `--traces` has already are used as they are,
and stay; without it they are made in a temporary directory. Writes bench/results/spark-verify.json.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from spark_cost import Watch, record
from spark_traces import HIDING, write_trace


def log(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def check(trace: Path, memory: str, scratch: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "ordercast", "check", "--spark", "--json", "--master", "local[2]",
               "--driver-memory", memory, "--scratch", str(scratch), str(trace)]  # fmt: skip
    began = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=said)
        with Watch(process.pid) as cost:
            status = process.wait()
        seconds = time.perf_counter() - began
        said.seek(0)
        if status not in (0, 1):
            raise RuntimeError(f"{' '.join(command)} ended with {status}")
        report = json.loads(said.read())
    violated = {violation["property"] for violation in report["violations"]}
    return {
        "events": report["events"],
        "verdict": report["verdict"],
        "violated": sorted(violated, key=lambda name: int(name[1:])),
        "seconds": round(seconds, 1),
        "cpu_s": cost.cpu_s,
        "memory_max_mb": cost.memory_max_mb,
        "events_per_s": round(report["events"] / seconds),
        "bytes": sum(part.stat().st_size for part in trace.rglob("*.parquet") if part.is_file()),
    }


def trace_of(folder: Path, events: int, jobs: int, hide: list[str], like: Path | None) -> tuple[Path, dict[str, str]]:
    """The trace, made now if it is not there, and what is hidden in it."""
    directory = folder / f"{events}{'-hidden' if hide else ''}"
    done = folder / f"{directory.name}.json"
    if not done.exists():
        log(f"making {directory}")
        shutil.rmtree(directory, ignore_errors=True)  # of a run that was broken off
        began = time.perf_counter()
        _, hidden = write_trace(directory, events, jobs=jobs, hide=hide, like=like)
        done.write_text(json.dumps(hidden))
        log(f"made in {time.perf_counter() - began:.0f} s")
    return directory, json.loads(done.read_text())


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    sizes = sorted(args.events)
    # The largest one first: the others, and the damaged one, take from it what they have in common.
    largest, _ = trace_of(folder, sizes[-1], args.jobs, [], None)
    legal = []
    for events in sizes:
        trace, _ = trace_of(folder, events, args.jobs, [], largest)
        legal.append(check(trace, args.driver_memory, args.scratch or folder))
        log(json.dumps(legal[-1]))
        if legal[-1]["verdict"] != "ok":
            raise AssertionError(f"{trace} is legal, and was found to violate {legal[-1]['violated']}")
    trace, hidden = trace_of(folder, sizes[-1], args.jobs, [*HIDING], largest)
    damaged = check(trace, args.driver_memory, args.scratch or folder)
    log(json.dumps(damaged))
    if damaged["violated"] != [*HIDING]:
        raise AssertionError(f"of {', '.join(HIDING)} only {', '.join(damaged['violated'])} were found")
    return {"driver_memory": args.driver_memory, "legal": legal, "damaged": {**damaged, "hidden": hidden}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = [1_000_000, 10_000_000, 100_000_000]
    parser.add_argument("--events", type=lambda text: [int(each) for each in text.split(",")], default=sizes)
    parser.add_argument("--jobs", type=int, default=2, help="processes that make traces")
    parser.add_argument("--traces", type=Path, help="where traces are kept")
    parser.add_argument("--driver-memory", default="3g")
    parser.add_argument("--scratch", type=Path, help="what the check writes while it runs (default: beside the traces)")
    parser.add_argument("--output", type=Path, help="instead of bench/results/spark-verify.json")
    args = parser.parse_args()
    if args.traces is not None:
        args.traces.mkdir(parents=True, exist_ok=True)
        record("spark-verify", measure(args, args.traces), args.output)
        return
    with tempfile.TemporaryDirectory(prefix="ordercast-bench-") as folder:
        record("spark-verify", measure(args, Path(folder)), args.output)


if __name__ == "__main__":
    main()
