"""`python -m tests.chaos [--minutes M] [--seed S] [--seconds ROUND]`: rounds of chaos, each from a seed of its own.

A line of JSON a round. Status 1 at the first violation; its trace is kept and the line tells where.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.chaos.campaign import Failure, Round, hosts_or_none
from tests.chaos.durable import DurableRound, small_disk
from tests.net.hosts import namespaces_missing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long to go on (default 30)")
    parser.add_argument("--seed", type=int, default=1, help="the first round's seed (default 1)")
    parser.add_argument("--seconds", type=float, default=40.0, help="faults of each round (default 40)")
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--durable", action="store_true", help="a durable group, judged by its logs; five nodes")
    parser.add_argument("--loopback", action="store_true", help="no hosts of their own, no partitions")
    args = parser.parse_args()
    missing = namespaces_missing()
    if missing is not None and not args.loopback:
        print(f"on loopback, without partitions: {missing}", file=sys.stderr)
    until = time.monotonic() + 60 * args.minutes
    seed = args.seed
    while time.monotonic() < until:
        directory = Path(tempfile.mkdtemp(prefix=f"ordercast-chaos-{seed}-"))
        try:
            if args.durable:
                done = _durable_round(seed, directory, args.seconds, missing is None and not args.loopback)
            else:
                with hosts_or_none(args.nodes, missing is None and not args.loopback) as hosts:
                    done = Round(seed, directory, args.seconds, nodes=args.nodes, hosts=hosts).run()
        except Failure as failure:
            print(json.dumps({"seed": seed, "failure": str(failure), "directory": str(directory)}), flush=True)
            return 1
        print(json.dumps(done), flush=True)
        _remove(directory)
        seed += 1
    return 0


def _durable_round(seed: int, directory: Path, seconds: float, use_hosts: bool) -> dict[str, Any]:
    with hosts_or_none(5, use_hosts) as hosts, small_disk(directory, use_hosts) as small:
        return DurableRound(seed, directory, seconds, hosts=hosts, small_disk=small).run()


def _remove(directory: Path) -> None:
    for path in sorted(directory.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    directory.rmdir()


if __name__ == "__main__":
    sys.exit(main())
