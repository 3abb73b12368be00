"""`ordercast status`: the groups on this machine, as their members here see them."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ordercast.net import presence

_EXAMPLE = """\
exit status: 0 members run here and all of them answer, 1 none does, or one is silent, 2 bad usage

example:
  ordercast pipe numbers --follow < /dev/null > /dev/null & sleep 1; ordercast status
"""
RATE_S = 0.5
"""What the rates are taken over: each member is asked at both ends."""

Status = dict[str, Any]


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "status",
        help="members, views, links and rates of the groups on this machine",
        description="Asks every member that runs on this machine (for this user; root asks all) for its view, its "
        "links and its counters, and half a second later again for its rates. Of members of durable groups "
        "a second table shows the lines of the log (messages before 'green' have their place for good, those before "
        "'end' are here), and how many messages each member of the component has not acknowledged yet.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data-dir", metavar="D", type=Path, help="only members whose data_dir is D or below it")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.data_dir is not None and not args.data_dir.is_dir():
        print(f"ordercast status: {args.data_dir} is not a directory", file=sys.stderr)
        return 2
    members = [member for member in ask_all() if _wanted(member, args.data_dir)]
    members.sort(key=lambda member: (member.get("group", "~"), member.get("name", ""), member["pid"]))
    if args.json:
        print(json.dumps({"groups": _groups(members), "silent": [each["pid"] for each in members if _silent(each)]}))
    elif members:
        _print(members)
    else:
        where = "" if args.data_dir is None else f" with their data in {args.data_dir}"
        print(f"no members run on this machine{where}")
    answered = bool(members) and not any(map(_silent, members))
    return 0 if answered else 1


def ask_all() -> list[Status]:
    """The members on this machine, with their rates. Those that do not answer have a pid and an error only."""
    paths = presence.sockets()
    if not paths:
        return []
    with ThreadPoolExecutor(min(len(paths), 16)) as askers:
        before = [*askers.map(_ask, paths)]
        if any(status is not None and not _silent(status) for status in before):
            time.sleep(RATE_S)
        after = [*askers.map(_ask, paths)]
    return [
        _with_rates(old, new) for old, new in zip(before, after, strict=True) if old is not None and new is not None
    ]


def _ask(path: Path) -> Status | None:
    try:
        status = presence.ask(path)
    except (OSError, ValueError) as error:
        reason = "does not answer" if isinstance(error, TimeoutError) else str(error)
        return {"pid": presence.pid_of(path), "error": reason}
    return None if status is None else status | {"asked_at": time.monotonic()}


def _silent(member: Status) -> bool:
    return "error" in member


def _with_rates(before: Status, after: Status) -> Status:
    """The later status, with what happened since the earlier one by the second."""
    if _silent(before) or _silent(after):
        return after
    seconds = after.pop("asked_at") - before["asked_at"]

    def rate(name: str) -> int:
        difference: int = after[name] - before[name]
        return round(difference / float(seconds))

    return after | {
        "rates": {
            "sent_per_s": rate("delivered_own"),
            "delivered_per_s": rate("delivered"),
            "delivered_bytes_per_s": rate("delivered_bytes"),
        }
    }


def _wanted(member: Status, data_dir: Path | None) -> bool:
    if data_dir is None:
        return True
    mine = member.get("data_dir")
    return mine is not None and Path(mine).resolve().is_relative_to(data_dir.resolve())


def _groups(members: Iterable[Status]) -> list[dict[str, object]]:
    groups: dict[str, list[Status]] = {}
    for member in members:
        if not _silent(member):
            groups.setdefault(member["group"], []).append(member)
    return [{"group": group, "members": each} for group, each in groups.items()]


def _print(members: list[Status]) -> None:
    for group in _groups(members):
        here: Any = group["members"]
        print(group["group"])
        views: dict[str, Status] = {member["view"]: member for member in here}
        for view, member in views.items():
            everyone = member["members"]
            elsewhere = sorted(set(everyone) - {each["name"] for each in here})
            where = f"; not on this machine: {', '.join(elsewhere)}" if elsewhere else ""
            print(f"  view {view}: {len(everyone)} members: {', '.join(everyone)}{where}")
        _print_table(here)
        durable = [member for member in here if member["log"] is not None]
        if durable:
            _print_logs(durable)
        for member in here:
            _print_networks(member)
            if member["serves"] is not None:
                print(f"    {member['name']} serves its log at {member['serves']}")
    for member in filter(_silent, members):
        print(f"process {member['pid']}: {member['error']}")


def _print_logs(members: Iterable[Status]) -> None:
    """How far the order is known at each member of a durable group, and what the others are behind it."""
    rows: list[tuple[str, ...]] = [
        ("log of", "component", "earliest", "green", "yellow", "end", "on disk", "own waiting", "lag")
    ]
    for member in members:
        log = member["log"]
        component = f"primary {log['primary']}" if log["primary"] else f"not primary, {log['phase']}"
        lag = ", ".join(f"{name} {behind}" for name, behind in sorted(log["lag"].items()))
        numbers = [log["earliest"], log["green"], log["yellow"], log["end"], log["durable"]]
        waiting = member["submitted"] - log["own"]["ordered"]
        rows.append((member["name"], component, *map(str, numbers), str(waiting), lag or "-"))
    _print_rows(rows)


def _print_table(members: Iterable[Status]) -> None:
    rows: list[tuple[str, ...]] = [
        ("member", "pid", "state", "view", "views", "sent/s", "delivered/s", "MB/s", "queued", "unread", "link")
    ]
    for member in members:
        rates = member["rates"]
        rows.append(
            (
                member["name"],
                str(member["pid"]),
                member["state"],
                str(member["view"]),
                str(member["counters"]["views"]),
                str(rates["sent_per_s"]),
                str(rates["delivered_per_s"]),
                f"{rates['delivered_bytes_per_s'] / 1e6:.1f}",
                str(member["queued_messages"]),
                _size(member["unread_bytes"]),
                ", ".join(map(_link, member["networks"])),
            )
        )
    _print_rows(rows)


def _print_rows(rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("    " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_networks(member: Status) -> None:
    """What a member with redundant networks makes of each of them."""
    for network in member["networks"] if len(member["networks"]) > 1 else ():
        crossed = f"; crossed with another network at {', '.join(network['crossed'])}" if network["crossed"] else ""
        what = f"network {network['number']} ({network['address']}) {network['state']}"
        print(f"    {member['name']}: {what}: {network['diagnosis']}{crossed}")


def _link(network: Status) -> str:
    lost = network["send_drops"] + network["receive_drops"]
    trouble = f", {lost} packets dropped" if lost else ""
    return f"{network['interface']} {network['own']} to {' '.join(network['sends_to'])}{trouble}"


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count} B"
