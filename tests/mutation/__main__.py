"""`python -m tests.mutation`: breaks the engine in many ways and shows what notices each. Status 1 if one survives."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from .child import Verdict, judge
from .mutants import BY_NAME, MUTANTS, Mutant

ROOT = Path(__file__).parents[2]


def main() -> int:
    args = _arguments()
    if args.list:
        for mutant in MUTANTS:
            print(f"{mutant.name:32}{mutant.breaks}")
        return 0
    unknown = [name for name in args.only if name not in BY_NAME]
    if unknown:
        print(f"tests.mutation: there is no mutant {', '.join(unknown)}; --list names them", file=sys.stderr)
        return 2
    first, _, last = args.seeds.rpartition(":")
    seeds = range(int(first or 0), int(last))
    if args.child:
        verdict = judge(BY_NAME[args.only[0]], seeds, scenarios=not args.no_scenarios)
        print(json.dumps(asdict(verdict)))
        return 0
    chosen = [BY_NAME[name] for name in args.only] or [each for each in MUTANTS if args.package in each.package]
    print(f"{'mutant':32}{'caught by':28}{'where':52}{'seconds':>8}", flush=True)
    survivors = []
    for verdict in _verdicts(chosen, args):
        caught = verdict.caught_by or "SURVIVES"
        print(f"{verdict.name:32}{caught:28}{verdict.where:52}{verdict.seconds:8.1f}", flush=True)
        if args.verbose and verdict.evidence:
            print("    " + verdict.evidence.replace("\n", "\n    "), flush=True)
        if verdict.caught_by is None:
            survivors.append(verdict.name)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants are caught")
    return 1 if survivors else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--only", metavar="NAME", action="append", default=[], help="this mutant; may be repeated")
    parser.add_argument("--package", default="", help="only mutants of packages with this in their names")
    parser.add_argument("--seeds", metavar="[FIRST:]LAST", default="2000", help="up to which seed to try (2000)")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes at a time (2)")
    parser.add_argument("--no-scenarios", action="store_true", help="do not try the scenarios on what seeds let pass")
    parser.add_argument("--verbose", action="store_true", help="show the first violation of each")
    parser.add_argument("--list", action="store_true", help="name the mutants and what they break")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _verdicts(mutants: list[Mutant], args: argparse.Namespace) -> Iterator[Verdict]:
    """In the order of the mutants; each has a fresh process of its own."""
    options = ["--seeds", args.seeds, *(["--no-scenarios"] if args.no_scenarios else [])]
    with ThreadPoolExecutor(args.jobs) as pool:
        yield from pool.map(lambda mutant: run_child(mutant.name, *options), mutants)


def run_child(name: str, *options: str) -> Verdict:
    """Judges a mutant in a process of its own, because the engine can be imported only once in each."""
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "tests.mutation", "--child", "--only", name, *options]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, check=True
    )
    return Verdict(**json.loads(done.stdout))


if __name__ == "__main__":
    sys.exit(main())
