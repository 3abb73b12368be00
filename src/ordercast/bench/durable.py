"""Durable writes of three members on one disk: corel, its peers, and what the disk itself allows, in turns.

All have equally many writes outstanding, and each acknowledges by its own rule: corel once a message is on the disks
of the whole primary component; etcd and PySyncObj once a majority has synced it; NATS JetStream once a majority has
written it, which it syncs every two minutes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ordercast.bench.disk import run_disk
from ordercast.bench.durable_node import DurableOptions
from ordercast.bench.durable_peers import MEMBERS, etcd, load, nats, ports
from ordercast.bench.hosts import Place
from ordercast.bench.load import LoadOptions
from ordercast.bench.processes import Processes, python
from ordercast.bench.run import Tick, quantile_ms

if TYPE_CHECKING:  # needs pysyncobj, which is an extra
    from ordercast.bench.durable_pysyncobj import Options as PySyncObjOptions

SYSTEMS = ("corel", "etcd", "nats", "pysyncobj")


@dataclass(frozen=True)
class DurableWork:
    directory: Path
    size: int = 1024
    outstanding: int = 1536
    """Of all members together."""
    together: int = 1
    """Writes that a member of corel sends in one call."""
    rate: float = 0.0
    """Of all members together; 0: saturated."""
    seconds: float = 5.0
    warm_s: float = 1.0

    @property
    def length_s(self) -> float:
        return self.warm_s + self.seconds


def run_system(name: str, work: DurableWork, tick: Tick = lambda: None) -> dict[str, Any]:
    """One run, in a folder of its own that is removed."""
    with _folder(work.directory) as folder:
        if name == "corel":
            return _sum(_run_nodes("ordercast.bench.durable_node", _corel_options(work, folder), work, tick))
        if name == "pysyncobj":
            module = "ordercast.bench.durable_pysyncobj"
            return _sum(_run_nodes(module, _pysyncobj_options(work, folder), work, tick))
        with {"etcd": etcd, "nats": nats}[name](folder) as clients:
            options: LoadOptions = {
                "peer": name, "ports": clients, "size": work.size, "outstanding": work.outstanding,
                "rate": work.rate, "warm_s": work.warm_s, "seconds": work.seconds,
            }  # fmt: skip
            done = load(options)
        return _figures(done["acknowledged"] / work.seconds, done["took_us"])


def _corel_options(work: DurableWork, folder: Path) -> list[DurableOptions]:
    group = f"bench-{os.getpid()}-{time.monotonic_ns():x}"
    return [
        {
            "group": group, "name": f"n{index + 1}", "index": index, "nodes": MEMBERS, "size": work.size,
            "outstanding": work.outstanding // MEMBERS, "rate": work.rate / MEMBERS, "warm_s": work.warm_s,
            "seconds": work.seconds, "data_dir": str(folder), "together": 1 if work.rate else work.together,
        }
        for index in range(MEMBERS)
    ]  # fmt: skip


def _pysyncobj_options(work: DurableWork, folder: Path) -> list[PySyncObjOptions]:
    addresses = [f"127.0.0.1:{port}" for port in ports(MEMBERS)]
    found: list[PySyncObjOptions] = []
    for index, address in enumerate(addresses):
        (folder / f"n{index}").mkdir()
        found.append(
            {
                "address": address, "others": [other for other in addresses if other != address], "index": index,
                "size": work.size, "outstanding": work.outstanding // MEMBERS, "rate": work.rate / MEMBERS,
                "warm_s": work.warm_s, "seconds": work.seconds, "data_dir": str(folder / f"n{index}"),
            }
        )  # fmt: skip
    return found


def _run_nodes(module: str, options: Sequence[Any], work: DurableWork, tick: Tick) -> list[dict[str, Any]]:
    places = [Place(["127.0.0.1"]) for _ in options]
    with Processes(places, [python(module, each) for each in options], module.rpartition(".")[2]) as processes:
        processes.ready()
        processes.go()
        return processes.figures(work.length_s, tick)


def _sum(nodes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    took = [each for node in nodes for each in node["took_us"]]
    return _figures(sum(node["acknowledged_per_s"] for node in nodes), took) | {
        "cpu_s": round(sum(node["cpu_s"] for node in nodes), 3),
        "syncs_per_s": round(sum(node["syncs_per_s"] for node in nodes), 1),
    }


def _figures(writes_per_s: float, took_us: list[int]) -> dict[str, Any]:
    took_us.sort()
    shares = (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))
    return {
        "writes_per_s": round(writes_per_s),
        "ack_ms": {name: quantile_ms(took_us, share) for name, share in shares},
    }


def run_limit(work: DurableWork, tick: Tick = lambda: None) -> dict[str, Any]:
    """What the disk allows for so many replicas: each appends all outstanding writes at once, and syncs.

    That is a group commit of everything that can be in flight; the figure is that of the slowest replica.
    """
    results: list[dict[str, Any]] = []
    block = work.size * work.outstanding

    def append() -> None:
        results.append(run_disk(work.directory, block, work.seconds))

    threads = [threading.Thread(target=append) for _ in range(MEMBERS)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        threads[0].join(0.1)
        tick()
    slowest = min(results, key=lambda found: float(found["appends_per_s"]))
    return {"writes_per_s": round(slowest["appends_per_s"] * work.outstanding), "ack_ms": slowest["append_ms"]}


@contextmanager
def _folder(directory: Path) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir=directory, prefix="ordercast-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def contestants(work: DurableWork, names: Sequence[str], tick: Tick) -> dict[str, Callable[[], dict[str, Any]]]:
    """What `compare.alternate` runs in turns."""
    runs: dict[str, Callable[[], dict[str, Any]]] = {name: partial(run_system, name, work, tick) for name in names}
    if not work.rate:
        runs["disk"] = partial(run_limit, work, tick)
    return runs
