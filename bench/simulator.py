"""How fast the simulator is: packet deliveries a second of simulator and engine, without and with the checker.

Prints one JSON object. One process, processor time: `python bench/simulator.py [--seeds A:B] [--nodes N]`.
"""

from __future__ import annotations

import argparse
import json
from statistics import median

from ordercast.sim import run_seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--engine", default="totem")
    parser.add_argument("--seeds", default="0:40", metavar="A:B")
    parser.add_argument("--nodes", type=int, default=None)
    args = parser.parse_args()
    low, _, high = args.seeds.partition(":")
    results = [run_seed(args.engine, seed, nodes=args.nodes) for seed in range(int(low), int(high))]
    run_s = sum(result.run_s for result in results)
    check_s = sum(result.check_s for result in results)
    deliveries = sum(result.deliveries for result in results)
    events = sum(result.events for result in results)
    report = {
        "engine": args.engine,
        "seeds": len(results),
        "deliveries_per_s": round(deliveries / run_s),
        "deliveries_per_s_checked": round(deliveries / (run_s + check_s)),
        "events_per_s_checked": round(events / (run_s + check_s)),
        "cpu_s_per_seed": round((run_s + check_s) / len(results), 4),
        "check_share": round(check_s / (run_s + check_s), 3),
        "deliveries_per_seed": round(deliveries / len(results)),
        "deliveries_per_seed_median": median(result.deliveries for result in results),
        "virtual_s_per_s": round(sum(result.virtual_us for result in results) / 1e6 / run_s, 1),
        "seeds_with_violations": [result.seed for result in results if result.violations],
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
