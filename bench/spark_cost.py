"""What a job of Spark costs: processor time and memory of all its processes, the JVM and the Python workers among them.

Memory is the processes' proportional set size (what they share counts once), sampled: a peak between two samples is
missed. Also where results go.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from ordercast.bench.report import machine

_TICK = os.sysconf("SC_CLK_TCK")
SAMPLE_S = 0.5
RESULTS = Path(__file__).parent / "results"


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


def cpu_of(pid: int) -> float:
    """Processor seconds of its own; none of one that has gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICK


def memory_of(pid: int) -> int:
    """KiB."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return int(next((line.split()[1] for line in lines if line.startswith("Pss:")), "0"))


class Watch:
    """`with Watch(pid) as cost:` samples the process and its descendants until the end of the block."""

    def __init__(self, root: int, memory: bool = True) -> None:
        self._root = root
        self._with_memory = memory
        self._spent: dict[int, float] = {}
        self._begun: dict[int, float] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.memory_max_mb = 0

    @property
    def cpu_s(self) -> float:
        """Since the beginning of the block."""
        return round(sum(spent - self._begun.get(pid, 0.0) for pid, spent in self._spent.items()), 2)

    def _look(self) -> None:
        pids = family(self._root)
        for pid in pids:
            self._spent[pid] = max(cpu_of(pid), self._spent.get(pid, 0.0))
        if self._with_memory:
            self.memory_max_mb = max(self.memory_max_mb, round(sum(map(memory_of, pids)) / 1024))

    def _watch(self) -> None:
        while not self._done.wait(SAMPLE_S):
            self._look()

    def __enter__(self) -> Self:
        self._begun = {pid: cpu_of(pid) for pid in family(self._root)}
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._done.set()
        self._thread.join()
        self._look()


def record(name: str, found: dict[str, object], output: Path | None) -> None:
    """Prints a result, and keeps it as bench/results/NAME.json or where it was asked for."""
    found = {"benchmark": name, **found, "machine": machine()}
    text = json.dumps(found, indent=2)
    print(text)
    path = RESULTS / f"{name}.json" if output is None else output
    path.write_text(text + "\n")
