"""The machine's own limit: the bare ring on the hosts of a run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ordercast.bench.hosts import Place
from ordercast.bench.processes import Processes, python
from ordercast.bench.ring import RingOptions
from ordercast.bench.run import Tick, Work

VISIT_PACKETS = 88
"""Packets a visit of the token, two calls of the kernel; more gains nothing."""
_PORT = 17_100


def run_limit(
    work: Work, at: Sequence[Place], packet_bytes: int, *, accelerated: bool, tick: Tick = lambda: None
) -> dict[str, Any]:
    port = _PORT + os.getpid() % 300
    commands = []
    for index, place in enumerate(at):
        following = at[(index + 1) % len(at)]
        options: RingOptions = {
            "group": "239.77.11.1",
            "port": port,
            "address": place.addresses[0],
            "successor": following.addresses[0],
            "own_port": port + 1000 + index,
            "successor_port": port + 1000 + (index + 1) % len(at),
            "index": index,
            "size": work.size,
            "packet_bytes": packet_bytes,
            "visit": VISIT_PACKETS,
            "accelerated": accelerated,
            "warm_s": work.warm_s,
            "seconds": work.seconds,
        }
        commands.append(python("ordercast.bench.ring", options))
    with Processes(at, commands, "the bare ring") as processes:
        processes.ready()
        processes.go()
        figures = processes.figures(work.length_s, tick)
    return {
        "delivered_per_s": round(min(node["messages_per_s"] for node in figures)),
        "mb_per_s": round(min(node["bytes_per_s"] for node in figures) / 1e6, 2),
        "rotations_per_s": round(min(node["rotations_per_s"] for node in figures)),
        "cpu_s": round(sum(node["cpu_s"] for node in figures), 3),
    }
