"""`ordercast members`: the declared members of a durable group, whose majority decides, and changes of them."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from ordercast.durable import WEIGHT_MAX, check_change
from ordercast.engine.contract import GroupChange
from ordercast.errors import GroupError
from ordercast.net.presence import ask_patiently, members_of

_EXAMPLE = """\
exit status: 0 shown, or the change is in force; 1 no member runs here, or it did not come into force in time; 2 bad
usage, or the members here are in no primary component

examples:
  ordercast members orders
  ordercast members orders --add n4
  ordercast members orders --add n5=2 --remove n1

A member that is added may run already (ordercast pipe orders --name n4 --founders 0 ...) or be started later. It counts
from its place in the order on, whether it runs or not: add one at a time, and see it catch up before the next.
"""
POLL_S = 0.1
WAIT_S = 60.0

Status = dict[str, Any]


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "members",
        help="show or change the declared members of a durable group",
        description="Shows the declared members of GROUP, a group with the engine corel, as its members on this "
        "machine know them; or has one of these multicast a change, which takes effect at its place in the order.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("--add", metavar="NAME[=WEIGHT]", action="append", default=[], help="count NAME from now on")
    parser.add_argument("--remove", metavar="NAME", action="append", default=[], help="count NAME no more")
    parser.add_argument(
        "--wait", metavar="S", type=float, default=WAIT_S, help="seconds until the change is in force (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        change = GroupChange(dict(map(_weighted, args.add)), tuple(args.remove))
        if args.add or args.remove:
            check_change(change)
    except GroupError as error:
        return _refuse(str(error))
    if not args.wait >= 0:
        return _refuse(f"--wait is a number of seconds, not {args.wait}")
    members = members_of(args.group)
    if not members:
        print(f"no members of {args.group} run on this machine", file=sys.stderr)
        return 1
    if any(status["log"] is None for status in members.values()):
        return _refuse(f"{args.group} is no durable group: it has no declared members")
    if args.add or args.remove:
        return _change(args, change, members)
    _print(args, [*members.values()], None)
    return 0


def _weighted(text: str) -> tuple[str, int]:
    name, sign, weight = text.partition("=")
    if sign and not (weight.isascii() and weight.isdecimal()):
        raise GroupError(f"the weight of {name} is a number from 1 to {WEIGHT_MAX}, not {weight!r}")
    return name, int(weight) if sign else 1


def _change(args: argparse.Namespace, change: GroupChange, members: dict[Path, Status]) -> int:
    path = next((path for path, status in members.items() if status["log"]["primary"]), None)
    if path is None:
        return _refuse(f"the members of {args.group} on this machine are in no primary component")
    answer = ask_patiently(path, {"do": "change-group", "add": dict(change.add), "remove": list(change.remove)})
    if answer is None or "error" in answer:
        return _refuse("the member has ended" if answer is None else str(answer["error"]))
    until = time.monotonic() + args.wait
    while not (done := _in_force(change, status := ask_patiently(path))) and time.monotonic() < until:
        time.sleep(POLL_S)
    _print(args, [] if status is None else [status], done)
    return 0 if done else 1


def _in_force(change: GroupChange, status: Status | None) -> bool:
    """Whether the member has come to the place of the change in the order."""
    if status is None or "log" not in status:
        return False
    group = status["log"]["group"]
    added = all(group.get(name) == weight for name, weight in change.add.items())
    return added and not any(name in group for name in change.remove if name not in change.add)


def _print(args: argparse.Namespace, members: list[Status], done: bool | None) -> None:
    """What the member that knows most says."""
    if not members:
        print(f"the member that was asked has ended: whether {args.group} has changed cannot be told", file=sys.stderr)
        return
    best = max(members, key=lambda status: int(status["log"]["green"]))
    log = best["log"]
    declared = {
        name: {"weight": weight, "here": name in best["members"], "lag": log["lag"].get(name)}
        for name, weight in sorted(log["group"].items())
    }
    if args.json:
        more = {} if done is None else {"done": done}
        head = {"group": args.group, "primary": bool(log["primary"]), "asked": best["name"]}
        print(json.dumps(head | {"declared": declared, "present": best["members"]} | more))
        return
    component = f"primary component {log['primary']}" if log["primary"] else "no primary component"
    print(f"{args.group}, as {best['name']} knows it, in {component} of {', '.join(best['members'])}")
    for name, member in declared.items():
        weight = f", weight {member['weight']}" if member["weight"] != 1 else ""
        lag = "away" if not member["here"] else f"here, {member['lag'] or 0} messages not acknowledged"
        print(f"  {name}: {lag}{weight}")
    for name in sorted(set(best["members"]) - set(declared)):
        print(f"  {name}: here, not declared: it gets all messages, and does not count")
    if done is False:
        print("the change is not in force yet", file=sys.stderr)


def _refuse(reason: str) -> int:
    print(f"ordercast members: {' '.join(reason.split())}", file=sys.stderr)
    return 2
