"""What the network layer moves, by path: `python bench/datagrams.py [--hosts loopback|netns] [--seconds S]`.

One sender and its receivers, each a process of its own (in network namespaces of one host each with `--hosts netns`,
which needs root), over `UdpNetwork` as the driver uses it. The paths are a call per datagram (`call`), trains that
leave in one call and arrive as packets (`gso`), trains on both sides (`gso+gro`), and trains by unicast to each peer
(`fan-out`). Each is measured twice: `flood` sends as fast as it can, so that the receivers lose what they cannot
take; `window` keeps at most a window of packets under way, as a ring does, and loses nothing. A train costs the
receivers a glance at its first packet, as the engine takes it; where packet `sizes` are compared, every packet does.
`own` is what one's own multicasts cost, which come back: kept away by a socket filter, or dropped after reading.
Prints one JSON object; datagrams per second, at the slowest receiver.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from struct import Struct
from typing import Any

from ordercast.net import udp_sockets
from ordercast.net.addresses import Address
from ordercast.net.udp import UdpNetwork

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "net"))
from hosts import make_hosts, namespaces_missing

PATHS = {
    "call": {"send": False, "receive": False},
    "gso": {"send": True, "receive": False},
    "gso+gro": {"send": True, "receive": True},
    "fan-out": {"send": True, "receive": True},
}
SIZES = (1400, 3700, 7800, 16_000, 32_000, 65_000)
HEAD = Struct("<Q")
ACK = Struct("<Q")
TRAIN_PACKETS = 88
WINDOW_BYTES = 1 << 20
STALL_MS = 500
PEER_PORT = 7500
Popen = subprocess.Popen[str]
Place = Callable[[int, dict[str, Any]], Popen]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hosts", choices=["loopback", "netns"], default="loopback")
    parser.add_argument("--receivers", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3, help="the medians of so many are printed")
    parser.add_argument("--packet-bytes", type=int, default=1400, help="for the comparison of the paths")
    parser.add_argument("--paths", nargs="*", default=list(PATHS), choices=list(PATHS))
    parser.add_argument("--sizes", nargs="*", type=int, default=list(SIZES), help="packet sizes to compare on loopback")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        print(json.dumps(child(json.loads(args.child))), flush=True)
        return
    report: dict[str, Any] = {"hosts": args.hosts, "receivers": args.receivers, "packet_bytes": args.packet_bytes}
    with places(args.hosts, args.receivers + 1) as place:

        def repeated(path: str, packet_bytes: int, *, cut: bool = False) -> dict[str, float]:
            """The medians of some rounds, each figure by itself."""
            task = {"path": path, "packet_bytes": packet_bytes, "cut": cut, "seconds": args.seconds}
            runs = [measure(place, args.receivers, task) for _ in range(args.rounds)]
            return {key: round(median(one[key] for one in runs), 2) for key in runs[0]}

        report |= {path: repeated(path, args.packet_bytes) for path in args.paths}
        if args.hosts == "loopback":
            report["sizes"] = {size: repeated("gso+gro", size, cut=True) for size in args.sizes}
            report["own"] = {f"{way}_us_per_train": own_us(way) for way in ("filter", "compare")}
    print(json.dumps(report))


@contextmanager
def places(kind: str, count: int) -> Iterator[Place]:
    """Gives what starts process number n with its task, on loopback or on a host of its own."""
    command = [str(Path(__file__).resolve()), "--child"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    if kind == "loopback":

        def local(n: int, task: dict[str, Any]) -> Popen:
            ports = [PEER_PORT + m for m in range(count)]
            task |= {"address": "127.0.0.1", "peers": [f"127.0.0.1:{port}" for port in ports]}
            task["address"] += f":{ports[n]}" if task["path"] == "fan-out" else ""
            return subprocess.Popen([sys.executable, *command, json.dumps(task)], **pipes)

        yield local
        return
    reason = namespaces_missing()
    if reason is not None:
        sys.exit(f"datagrams: {reason}")
    with make_hosts(count) as hosts:

        def remote(n: int, task: dict[str, Any]) -> Popen:
            task |= {"address": hosts[n].address, "peers": [host.address for host in hosts]}
            started: Popen = hosts[n].python([*command, json.dumps(task)], **pipes)
            return started

        yield remote


def measure(place: Place, receivers: int, task: dict[str, Any]) -> dict[str, float]:
    task["receivers"] = receivers
    flood = run(place, receivers, task | {"mode": "flood"})
    window = run(place, receivers, task | {"mode": "window"})
    return {
        "flood_sent_per_s": flood["sent_per_s"],
        "flood_received_per_s": flood["received_per_s"],
        "window_received_per_s": window["received_per_s"],
        "window_mb_per_s": window["received_per_s"] * task["packet_bytes"] / 1e6,
        "window_lost": window["lost"],
        "sender_us_per_packet": window["sender_us"],
        "receiver_us_per_packet": window["receiver_us"],
    }


def run(place: Place, count: int, task: dict[str, Any]) -> dict[str, float]:
    """One sender and its receivers, from start to end."""
    task["group"] = f"datagrams {os.getpid()}"
    receivers = [place(n, task | {"role": "receive"}) for n in range(1, count + 1)]
    processes = list(receivers)
    try:
        for receiver in receivers:
            said(receiver)  # it listens
        processes.append(place(0, task | {"role": "send"}))
        sent = json.loads(said(processes[-1]))
        got = [json.loads(said(receiver, "end\n")) for receiver in receivers]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    least = min(one["packets"] for one in got)
    return {
        "sent_per_s": sent["packets"] / sent["elapsed_s"],
        "received_per_s": least / sent["elapsed_s"],
        "lost": sent["packets"] - least,
        "sender_us": sent["cpu_s"] / sent["packets"] * 1e6,
        "receiver_us": median(one["cpu_s"] / max(1, one["packets"]) for one in got) * 1e6,
    }


def said(process: Popen, tell: str = "") -> str:
    """The next line that a process prints, after it was told something."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(tell)
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        sys.exit("datagrams: a process of the measurement has failed")
    return line


def child(task: dict[str, Any]) -> dict[str, float]:
    accelerated = PATHS[task["path"]]["send" if task["role"] == "send" else "receive"]
    peers = task["peers"] if task["path"] == "fan-out" else None
    with UdpNetwork(task["group"], task["address"], peers=peers, accelerated=accelerated) as network:
        return send(network, task) if task["role"] == "send" else receive(network, task)


def send(network: UdpNetwork, task: dict[str, Any]) -> dict[str, float]:
    """Broadcast for so many seconds; in `window` mode wait while too many packets are not acknowledged."""
    size = task["packet_bytes"]
    train = bytes(size) * min(TRAIN_PACKETS, WINDOW_BYTES // (2 * size))
    count, window = len(train) // size, WINDOW_BYTES // size
    heard: dict[Address, int] = {}
    ready = select.poll()
    ready.register(network.filenos()[1], select.POLLIN)
    packets = given_up = 0
    begun, cpu = time.perf_counter(), time.process_time()
    until = begun + task["seconds"]
    while time.perf_counter() < until:
        network.broadcast(train, size)
        packets += count
        while task["mode"] == "window":
            for ack, _, source in network.drain_unicast():
                heard[source] = ACK.unpack(ack)[0]
            known = min(heard.values()) if len(heard) == task["receivers"] else 0
            if packets - max(known, given_up) <= window:
                break
            if not ready.poll(STALL_MS):
                given_up = packets  # something was lost
    return {"packets": packets, "elapsed_s": time.perf_counter() - begun, "cpu_s": time.process_time() - cpu}


def receive(network: UdpNetwork, task: dict[str, Any]) -> dict[str, float]:
    """Count packets until the end is told and nothing waits any more."""
    size, answers = task["packet_bytes"], task["mode"] == "window"
    ready = select.poll()
    ready.register(network.filenos()[0], select.POLLIN)
    ready.register(sys.stdin, select.POLLIN)
    packets = told = 0
    print("listening", flush=True)
    cpu = time.process_time()
    while True:
        events = ready.poll()
        trains = network.drain()
        for train, segment, _ in trains:
            packets += -(-len(train) // segment)
            for at in range(0, len(train), segment) if task["cut"] else (0,):
                assert HEAD.unpack_from(train[at : at + segment])[0] == 0
        if trains and answers and packets - told >= WINDOW_BYTES // size // 8:
            network.unicast(trains[0][2], ACK.pack(packets))
            told = packets
        if not trains and any(fd == sys.stdin.fileno() for fd, _ in events):
            return {"packets": packets, "cpu_s": time.process_time() - cpu}


def own_us(way: str) -> float:
    """Processor time of one's own train on its way out and back, with the packets dropped in the given way."""
    refuse = udp_sockets.refuse_source
    if way == "compare":
        udp_sockets.refuse_source = lambda sock, source: False
    rounds, trains = 300, 8
    try:
        with UdpNetwork(f"own {os.getpid()}", "127.0.0.1") as network:
            data = bytes(1400 * 46 * trains)
            begun = time.process_time()
            for _ in range(rounds):
                network.broadcast(data, 1400)
                assert network.drain() == []
            return round((time.process_time() - begun) / rounds / trains * 1e6, 2)
    finally:
        udp_sockets.refuse_source = refuse


if __name__ == "__main__":
    main()
