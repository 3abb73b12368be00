"""Networks of a bandwidth: a token bucket at both ends of each link, the host's device and the switch's port."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from ordercast.bench.hosts import PREFIX, HostsError, Place

BURST_BYTES = 96 * 1024
"""A bucket holds one train of 64 KiB with the headers of its packets: from a smaller one the kernel cuts trains into
packets, which costs processor time that a network card would spend."""
QUEUE_BYTES = 4 * 2**20
"""What waits for the line: more than the window of a ring, as in a switch with deep buffers."""


def shape(places: Sequence[Place], networks: int, mbit: float) -> None:
    """Gives each link of the networks a bandwidth in Mbit/s, with the frames' Ethernet headers counted."""
    if shutil.which("tc") is None:
        raise HostsError("shaped networks need the command 'tc' (Debian package iproute2)")
    switch = f"{PREFIX}-{os.getpid()}-sw"
    for network in range(networks):
        for number, place in enumerate(places, 1):
            _bucket(str(place.namespace), f"eth{network}", mbit)
            _bucket(switch, f"p{network}x{number}", mbit)


def _bucket(namespace: str, device: str, mbit: float) -> None:
    rate = ["rate", f"{round(mbit * 1000)}kbit", "burst", str(BURST_BYTES), "limit", str(QUEUE_BYTES)]
    command = ["tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", *rate]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
    except subprocess.CalledProcessError as error:
        raise HostsError(f"a link cannot be shaped here: {error.stderr.strip()}") from error
