"""Benchmarks of redundant networks, on hosts made of network namespaces; needs root, iproute2 and tc.

    python bench/networks.py figures --nodes 4      Figures 6 to 9 of paper 001: networks of 100 Mbit/s, sizes, styles
    python bench/networks.py faults                 the stall that the application sees when networks fail under load
    python bench/networks.py cpu                    what the layer costs where the network is not the limit

Each run goes into a file of bench/results, in place of the same run before; `make plots` draws the figures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from ordercast.bench.hosts import Place, namespaces
from ordercast.bench.network_faults import Party, cable_out, interface_down, switch_down
from ordercast.bench.report import machine
from ordercast.bench.run import Work, run_group
from ordercast.bench.shape import shape

RESULTS = Path(__file__).parent / "results"
SIZES = (100, 400, 700, 1000, 1400, 2000, 5000, 10_000)
STYLES = {
    "none": (1, "none"),
    "active": (2, "active"),
    "passive": (2, "passive"),
    "active-passive": (3, "active-passive:2"),
}
MBIT = 100
SHOWN = ("rotations_per_s", "retransmissions", "cpu_s", "idle_percent", "views", "receive_drops", "send_drops")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("figures", "faults", "cpu"))
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--styles", nargs="+", default=list(STYLES), choices=list(STYLES))
    parser.add_argument("--mbit", type=float, default=MBIT, help="figures: bandwidth of each network (%(default)s)")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--dry", action="store_true", help="print, and leave the recorded results as they are")
    args = parser.parse_args()
    {"figures": figures, "faults": faults, "cpu": cpu}[args.what](args)


def record(name: str, key: str, value: Any, dry: bool) -> None:
    """Each run by itself, so that a run that is broken off loses nothing."""
    if dry:
        return
    path = RESULTS / f"{name}.json"
    known = json.loads(path.read_text()) if path.exists() else {"runs": {}}
    known["machine"] = machine()
    known["runs"][key] = value
    known["runs"] = dict(sorted(known["runs"].items()))
    path.write_text(json.dumps(known, indent=1) + "\n")


def some(places: list[Place], networks: int) -> list[Place]:
    """The same hosts with the first networks only."""
    return [Place(place.addresses[:networks], place.namespace) for place in places]


class Idle:
    """How much of the machine had nothing to do in the last seconds of a run: none left, and the networks were not the
    limit."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, int, int]] = []

    def tick(self) -> None:
        counts = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
        self.samples.append((time.monotonic(), counts[3], sum(counts[:8])))

    def percent(self, seconds: float) -> float:
        end, idle, total = self.samples[-1]
        first = min(self.samples, key=lambda sample: abs(end - seconds - sample[0]))
        return round(100 * (idle - first[1]) / max(total - first[2], 1), 1)


def measured_once(work: Work, at: list[Place]) -> dict[str, Any]:
    idle = Idle()
    run = run_group(work, at, idle.tick)
    return run | {"idle_percent": idle.percent(work.seconds)}


def measured(work: Work, at: list[Place], repeat: int) -> dict[str, Any]:
    runs = [measured_once(work, at) for _ in range(repeat)]
    middle = sorted(runs, key=lambda run: run["delivered_per_s"])[len(runs) // 2]
    return middle | {"delivered_per_s_of_runs": [run["delivered_per_s"] for run in runs]}


def figures(args: argparse.Namespace) -> None:
    base = Work(nodes=args.nodes, seconds=args.seconds, warm_s=0.7, hosts="netns")
    with namespaces(args.nodes, networks=3) as places:
        shape(places, 3, args.mbit)
        for size in args.sizes:
            for style in args.styles:
                networks, replication = STYLES[style]
                work = replace(base, size=size, networks=networks, replication=replication)
                run = measured(work, some(places, networks), args.repeat)
                mbit = run["delivered_per_s"] * size * 8 / 1e6
                print(
                    f"{args.nodes} nodes {size:6} B {style:15} {run['delivered_per_s']:7} messages/s {mbit:.1f} Mbit/s",
                    *(f"{name} {run[name]}" for name in SHOWN),
                    flush=True,
                )
                key = f"{args.nodes} nodes, {size:05} B, {style}"
                point = {"nodes": args.nodes, "size": size, "style": style, "mbit": args.mbit}
                record("networks-figures", key, point | run, args.dry)


FAULTS: dict[str, tuple[tuple[str, int, int], ...]] = {
    # what is done: kind, network, node
    "switch 1 down": (("switch", 1, 0),),
    "switch 2 down": (("switch", 2, 0),),
    "switch 3 down": (("switch", 3, 0),),
    "switches 1 and 2 down": (("switch", 1, 0), ("switch", 2, 0)),
    "switches 2 and 3 down": (("switch", 2, 0), ("switch", 3, 0)),
    "cable of n2 to network 1 out": (("cable", 1, 2),),
    "interface of n3 on network 2 down": (("interface", 2, 3),),
}


def faults(args: argparse.Namespace) -> None:
    for style in (STYLES[name][1] for name in args.styles if name != "none"):
        with (
            tempfile.TemporaryDirectory() as directory,
            namespaces(4, networks=3) as places,
            Party(places, Path(directory), replication=style, rate=400) as party,
        ):
            party.ask("send")
            time.sleep(1.0)
            party.ask("figures")
            time.sleep(3.0)
            calm = party.ask("figures")
            rotation_ms = statistics.median(each["rotation_ms"] for each in calm)
            print(f"{style}: a rotation takes {rotation_ms} ms; the longest wait {longest(calm)} ms", flush=True)
            steps: dict[str, Any] = {}
            for what, parts in FAULTS.items():
                numbers = {network for _, network, _ in parts}
                party.ask("figures")
                begun = time.monotonic()
                with ExitStack() as stack:
                    for kind, network, node in parts:
                        stack.enter_context(
                            switch_down(network)
                            if kind == "switch"
                            else cable_out(network, node)
                            if kind == "cable"
                            else interface_down(places[node - 1], network)
                        )
                    broken = party.wait_for_state("faulty", numbers)
                    found_s = time.monotonic() - begun
                    begun = time.monotonic()
                back = party.wait_for_state("sound", numbers)
                steps[what] = {
                    "stall_ms": longest(broken),
                    "longest_waits_ms": [each["stalls_ms"][:5] for each in broken],
                    "found_everywhere_s": round(found_s, 2),
                    "stall_at_the_repair_ms": longest(back),
                    "back_after_s": round(time.monotonic() - begun, 2),
                }
                print(f"  {what}: " + json.dumps({k: v for k, v in steps[what].items() if k[:4] != "long"}), flush=True)
            end = settled(party)
            result = {
                "rotation_ms": rotation_ms,
                "calm_longest_wait_ms": longest(calm),
                "steps": steps,
                "views": max(each["views"] for each in end),
                "messages": end[0]["delivered"],
                "lost": sum(each["sent"] for each in end) - min(each["delivered"] for each in end),
                "orders": len({each["checksum"] for each in end}),
            }
            print(f"  views {result['views']}, messages {result['messages']}, lost {result['lost']}, "
                  f"orders {result['orders']}", flush=True)  # fmt: skip
            record("networks-faults", style, result, args.dry)
            party.leave()


def longest(figures: list[dict[str, Any]]) -> float:
    return max((wait for each in figures for wait in each["stalls_ms"]), default=0.0)


def settled(party: Party) -> list[dict[str, Any]]:
    """The figures once all that was sent has been delivered everywhere."""
    party.ask("quiet")
    return party.wait(
        "all is delivered",
        lambda found: all(each["delivered"] == sum(other["sent"] for other in found) for each in found),
    )


def cpu(args: argparse.Namespace) -> None:
    """Processor time a message of all nodes together, at a rate that leaves the processor some rest, and saturated."""
    runs: dict[str, list[dict[str, Any]]] = {"none": [], "passive": [], "active": []}
    with namespaces(args.nodes, networks=2) as places:
        for _ in range(args.repeat):
            for style in runs:
                networks = 1 if style == "none" else 2
                work = Work(nodes=args.nodes, size=1000, seconds=args.seconds, warm_s=0.7, hosts="netns")
                work = replace(work, networks=networks, replication=style)
                runs[style].append(run_group(work, some(places, networks)))
    summary: dict[str, Any] = {}
    for style, found in runs.items():
        spent = [run["cpu_s"] / (run["delivered_per_s"] * args.seconds) * 1e6 for run in found]
        summary[style] = {
            "us_a_message": round(statistics.median(spent), 2),
            "us_a_message_of_runs": [round(each, 2) for each in spent],
            "delivered_per_s": [run["delivered_per_s"] for run in found],
        }
    for style in ("passive", "active"):
        more = summary[style]["us_a_message"] / summary["none"]["us_a_message"] - 1
        summary[style]["more_than_one_network_percent"] = round(100 * more, 1)
    print(json.dumps(summary, indent=1), file=sys.stdout)
    record("networks-cpu", f"{args.nodes} nodes", summary, args.dry)


if __name__ == "__main__":
    main()
