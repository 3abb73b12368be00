"""`ordercast rotate-key`: tells the members on this machine to go over to another secret, and waits until they have."""

from __future__ import annotations

import argparse
import base64
import json
import sys
import time
from pathlib import Path
from typing import Any

from ordercast.net.presence import Request, ask_patiently, members_of
from ordercast.wire.keys import GroupKey, GroupKeyError, load_key

_EXAMPLE = """\
exit status: 0 the members here use the new secret alone, 1 they wait for others or none runs here, 2 bad usage

example, on every machine of the group:
  ordercast rotate-key orders new.key

All members accept the new secret first; once all of them do, they seal with it; then the old one is refused. Nothing
is lost and no view changes, in whatever order the machines are told. A member that is told nothing holds up the change,
and nothing else.
"""
POLL_S = 0.2
WAIT_S = 60.0

Status = dict[str, Any]


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "rotate-key",
        help="go over to a new group secret under load",
        description="Tells the members of GROUP that run on this machine (for this user; root tells all) to go over to "
        "the secret in FILE, which `ordercast keygen` made, and waits until they use it.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("file", metavar="FILE", help="the new secret")
    parser.add_argument(
        "--wait", metavar="S", type=float, default=WAIT_S, help="seconds to wait for the others (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        text = Path(args.file).read_bytes()
        key = load_key(text)
    except OSError as error:
        return _refuse(f"{args.file} cannot be read: {error.strerror}")
    except GroupKeyError as error:
        return _refuse(f"{args.file}: {error}")
    if not args.wait >= 0:
        return _refuse(f"--wait is a number of seconds, not {args.wait}")
    order: Request = {"do": "rotate-key", "key": base64.b64encode(text).decode()}
    try:
        done, waiting = _wait(args.group, key, order, args.wait)
    except _Refused as refused:
        return _refuse(str(refused))
    if args.json:
        print(json.dumps({"group": args.group, "key": key.id, "done": done, "waiting": waiting}))
    else:
        _print(args.group, key, done, waiting)
    return 0 if done else 1


class _Refused(Exception):
    """A member cannot do it."""


class _Members:
    """The members here and what each said last. On a busy machine one may not answer for seconds: it is told when it
    does, and until then it has not done what it had not done before."""

    def __init__(self, group: str, key: GroupKey, order: Request) -> None:
        self.group = group
        self.key = key
        self.order = order
        self._told: set[Path] = set()
        self._said: dict[Path, Status] = {}

    def tell(self) -> list[Status]:
        """Asks all, and gives the order to whoever has not taken it."""
        answered = members_of(self.group)
        for path, status in answered.items():
            if path not in self._told and self.key.id not in status["keys"]:
                answer = ask_patiently(path, self.order)
                if answer and "error" in answer:
                    raise _Refused(f"{status['name']}: {answer['error']}")
                if answer:
                    self._told.add(path)
        self._said = {path: said for path, said in (self._said | answered).items() if path in answered or path.exists()}
        return list(self._said.values())


def _wait(group: str, key: GroupKey, order: Request, seconds: float) -> tuple[bool, dict[str, list[str]]]:
    """Whether all members here have done it in time, and for whom each of the others waits."""
    until = time.monotonic() + seconds
    shown = ""
    here = _Members(group, key, order)
    here.tell()
    while members := here.tell():
        waiting = {
            str(status["name"]): (status["key_change"] or {}).get("waits_for", [])
            for status in members
            if status["keys"] != [key.id] or status["key_change"] is not None
        }
        if not waiting or time.monotonic() >= until:
            return not waiting, waiting
        if sys.stderr.isatty() and (line := _waits_for(waiting)) != shown:
            shown = line
            print(line, file=sys.stderr)
        time.sleep(POLL_S)
    return False, {}


def _waits_for(waiting: dict[str, list[str]]) -> str:
    others = sorted({name for names in waiting.values() for name in names})
    if not others:
        return "all members accept the new secret; the old one is being retired"
    return f"waiting for {', '.join(others)} to accept the new secret"


def _print(group: str, key: GroupKey, done: bool, waiting: dict[str, list[str]]) -> None:
    if done:
        print(f"{group}: the members on this machine use key {key.id} alone")
    elif waiting:
        print(f"{group}: {_waits_for(waiting)}; they go on by themselves")
    else:
        print(f"no members of {group} run on this machine")


def _refuse(reason: str) -> int:
    print(f"ordercast rotate-key: {' '.join(reason.split())}", file=sys.stderr)
    return 2
