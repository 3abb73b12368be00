"""A measured run of a group, and the figures of its nodes as one."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from ordercast.bench.hosts import Place, loopback, namespaces
from ordercast.bench.node import NodeOptions
from ordercast.bench.processes import Processes, python
from ordercast.options import ServiceName
from ordercast.wire.keys import Cipher, generate_key

Tick = Callable[[], None]


@dataclass(frozen=True)
class Work:
    """What is measured: the load, and where."""

    engine: str = "totem"
    nodes: int = 4
    size: int = 1024
    seconds: float = 5.0
    warm_s: float = 1.0
    rate: float = 0.0
    service: ServiceName = "agreed"
    take: str = "batches"
    hosts: str = "loopback"
    mtu: int = 1500
    networks: int = 1
    replication: str = "active"
    encrypt: bool = False
    data_dir: str | None = None
    loss_percent: float = 0.0
    single_packets: bool = False

    @property
    def length_s(self) -> float:
        return self.warm_s + self.seconds


def places(work: Work) -> AbstractContextManager[list[Place]]:
    """The hosts of a run; on loopback several networks are several addresses."""
    if work.hosts == "loopback":
        return loopback(work.nodes)
    return namespaces(
        work.nodes,
        networks=work.networks,
        mtu=work.mtu,
        loss_percent=work.loss_percent,
        single_packets=work.single_packets or work.loss_percent > 0,
    )


def run_group(work: Work, at: Sequence[Place], tick: Tick = lambda: None) -> dict[str, Any]:
    """One run at places that are there already."""
    group = f"bench-{os.getpid()}-{time.monotonic_ns():x}"
    key = generate_key(os.urandom, Cipher.AES_256_GCM).decode() if work.encrypt else None
    # Each run in a folder of its own: a durable log belongs to its group.
    folder = tempfile.TemporaryDirectory(prefix="ordercast-bench-", dir=work.data_dir, ignore_cleanup_errors=True)
    commands = []
    for index, place in enumerate(at):
        addresses = place.addresses
        if work.hosts == "loopback" and work.networks > 1:
            addresses = [f"127.0.0.{network + 1}" for network in range(work.networks)]
        options: NodeOptions = {
            "group": group,
            "name": f"n{index + 1}",
            "nodes": len(at),
            "size": work.size,
            "service": work.service,
            "take": work.take,
            "rate": work.rate,
            "senders": len(at),
            "index": index,
            "warm_s": work.warm_s,
            "seconds": work.seconds,
            "networks": addresses,
            "replication": work.replication,
            "key": key,
            "data_dir": None if work.data_dir is None else folder.name,
            "engine": work.engine,
        }
        commands.append(python("ordercast.bench.node", options))
    with folder, Processes(at, commands, f"{len(at)} nodes") as processes:
        processes.ready()
        processes.go()
        return merge(work, processes.figures(work.length_s, tick))


def merge(work: Work, figures: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of all nodes as those of the run. A rate is that of the slowest node."""
    return {
        "delivered_per_s": round(min(node["messages_per_s"] for node in figures)),
        "mb_per_s": round(min(node["bytes_per_s"] for node in figures) / 1e6, 2),
        "latency_ms": latencies(figures),
        "cpu_s": round(sum(node["cpu_s"] for node in figures), 3),
        "turns_per_s": round(sum(node["turns_per_s"] for node in figures) / len(figures)),
        "rotations_per_s": round(sum(node["rotations_per_s"] for node in figures) / len(figures)),
        "retransmissions": sum(node["retransmissions"] for node in figures),
        "token_retransmissions": sum(node["token_retransmissions"] for node in figures),
        "receive_drops": sum(node["receive_drops"] for node in figures),
        "send_drops": sum(node["send_drops"] for node in figures),
        "views": max(node["views"] for node in figures),
        "rss_mb": max(node["rss_mb"] for node in figures),
    }


def latencies(figures: list[dict[str, Any]]) -> dict[str, float | None]:
    """Of all messages at all nodes."""
    late_us = sorted(late for node in figures for late in node["late_us"])
    return {name: quantile_ms(late_us, share) for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))}


def quantile_ms(sorted_us: Sequence[int], share: float) -> float | None:
    """None where no latency was measured, as in a saturated run."""
    if not sorted_us:
        return None
    return sorted_us[min(len(sorted_us) - 1, int(len(sorted_us) * share))] / 1000
