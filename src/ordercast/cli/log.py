"""`ordercast log`: what a durable ordered log holds, whether it is sound, and how it gets out of there."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ordercast.cli import log_export, log_read
from ordercast.cli.log_read import Bad, one_line
from ordercast.cli.terminal import progress
from ordercast.errors import GroupError, LogCorrupt
from ordercast.log.reader import LogReader, SegmentInfo
from ordercast.log.repair import Repaired, repair

_EXAMPLE = """\
DIR is a member's data_dir, or the log folder in it. It may be read while the member runs.

exit status: 0 done, 1 the log is damaged, 2 bad usage or there is no log

examples:
  ordercast log info data/n1
  ordercast log read data/n1 --from 1000 --follow
  ordercast log verify data/n1 || ordercast log repair data/n1 --from-log data/n2
  ordercast log export data/n1 orders.parquet
"""


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "log",
        help="list, read, verify, repair and export a durable ordered log",
        description="Works on the durable ordered log of a member with the engine corel.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add(name: str, work: Callable[[argparse.Namespace], int], text: str, more: str = "") -> argparse.ArgumentParser:
        action: argparse.ArgumentParser = actions.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.{more}",
            epilog=f"example:\n  ordercast log {name} data/n1{_TAILS.get(name, '')}\n",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        action.add_argument("directory", metavar="DIR", type=Path, help="a member's data_dir, or its log folder")
        action.set_defaults(run=run, work=work)
        return action

    add("ls", _ls, "list the segments").add_argument("--json", action="store_true", help="print one JSON object")
    add("info", _info, "say whose log it is and what it holds").add_argument(
        "--json", action="store_true", help="print one JSON object"
    )
    read = add("read", log_read.run, "print messages as JSON lines, in their order")
    _add_range(read)
    read.add_argument("--views", action="store_true", help="print changes of membership too")
    read.add_argument("--follow", action="store_true", help="go on as messages are ordered, until Ctrl-C")
    verify = add("verify", _verify, "read every byte and compare every checksum")
    verify.add_argument("--json", action="store_true", help="print one JSON object")
    mend = add(
        "repair",
        _repair,
        "replace what is damaged by what another member's log holds",
        " The member must not run. A damaged segment is kept beside the repaired one as NAME.damaged.",
    )
    mend.add_argument("--from-log", metavar="OTHER", type=Path, required=True, help="another member's log, or a copy")
    mend.add_argument("--json", action="store_true", help="print one JSON object")
    export = add("export", log_export.run, "write messages to a file of JSON lines or Parquet")
    export.add_argument("output", metavar="FILE", help="a new file, or - for JSON lines on the output")
    export.add_argument("--format", choices=("jsonl", "parquet"), help="default: by the ending of FILE, else jsonl")
    _add_range(export)
    export.add_argument("--json", action="store_true", help="print one JSON object about what was written")


_TAILS = {"repair": " --from-log data/n2", "export": " orders.parquet", "read": " --from 1000 --follow"}


def _add_range(parser: argparse.ArgumentParser) -> None:
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--from", dest="start", metavar="OFFSET", help="the first offset, or earliest, or latest")
    start.add_argument("--since", metavar="TIME", help="from the first message of this time, ISO 8601, UTC by default")
    end = parser.add_mutually_exclusive_group()
    end.add_argument("--to", metavar="OFFSET", type=int, help="up to this offset, which is excluded")
    end.add_argument("--count", metavar="N", type=int, help="at most so many messages")


def run(args: argparse.Namespace) -> int:
    work: Callable[[argparse.Namespace], int] = args.work
    try:
        return work(args)
    except LogCorrupt as error:
        return _fail(args, str(error), 1)
    except (GroupError, Bad) as error:
        return _fail(args, str(error), 2)
    except BrokenPipeError:
        raise
    except OSError as error:
        return _fail(args, f"{error.filename or args.directory}: {error.strerror}", 2)


def _fail(args: argparse.Namespace, reason: str, status: int) -> int:
    print(f"ordercast log {args.action}: {one_line(reason)}", file=sys.stderr)
    return status


def _ls(args: argparse.Namespace) -> int:
    segments = [*LogReader(args.directory).segments()]
    if args.json:
        print(json.dumps({"segments": [_segment(each) for each in segments]}))
        return 0
    rows = [("segment", "first", "messages", "bytes", "newest", "")]
    for each in segments:
        kind = "" if each.sealed else "open"
        rows.append(
            (each.name, str(each.base), str(each.end - each.base), str(each.bytes), _time(each.newest_us), kind)
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def _segment(each: SegmentInfo) -> dict[str, object]:
    return {
        "name": each.name,
        "first": each.base,
        "end": each.end,
        "bytes": each.bytes,
        "sealed": each.sealed,
        "newest_us": each.newest_us,
    }


def _info(args: argparse.Namespace) -> int:
    reader = LogReader(args.directory)
    sizes = [entry.stat().st_size for entry in reader.directory.glob("*.seg")]
    meta = reader.meta
    view = reader.last_view()
    found: dict[str, object] = {
        "directory": str(reader.directory),
        "group": meta.group,
        "member": meta.member,
        "version": meta.version,
        "earliest": reader.earliest,
        "end": reader.end,
        "waiting": reader.waiting,
        "segments": len(sizes),
        "bytes": sum(sizes),
        "newest_us": reader.newest_us,
        "view": None if view is None else {"id": view.id, "members": view.members, "primary": view.primary},
    }
    if args.json:
        print(json.dumps(found))
        return 0
    print(f"{found['directory']}: member {meta.member} of group {meta.group}")
    print(f"  offsets {reader.earliest} to {reader.end} (excluded), {reader.waiting} more wait for their place")
    print(f"  {len(sizes)} segments, {sum(sizes)} bytes, newest message {_time(reader.newest_us)}")
    if view is not None:
        primary = "primary" if view.primary else "no primary component"
        print(f"  last view {view.id} ({primary}): {', '.join(view.members)}")
    return 0


def _time(stamp_us: int) -> str:
    return "-" if not stamp_us else datetime.fromtimestamp(stamp_us / 1e6, UTC).isoformat(timespec="milliseconds")


def _verify(args: argparse.Namespace) -> int:
    reader = LogReader(args.directory)
    size = sum(entry.stat().st_size for entry in reader.directory.glob("*.seg"))
    with progress("verifying", size) as advance:
        damages = [*reader.verify(advance)]
    if args.json:
        print(json.dumps({"verdict": "damaged" if damages else "ok", "bytes": size, "end": reader.end,
                          "damages": damages}))  # fmt: skip
    else:
        for line in damages:
            print(one_line(line))
        if not damages:
            print(f"{reader.directory}: ok, {size} bytes, offsets {reader.earliest} to {reader.end} (excluded)")
    return 1 if damages else 0


def _repair(args: argparse.Namespace) -> int:
    done: list[Repaired] = repair(args.directory, args.from_log)
    if args.json:
        print(json.dumps({"repaired": [each._asdict() for each in done]}))
    elif not done:
        print(f"{args.directory}: nothing is damaged")
    for each in () if args.json else done:
        print(
            f"{each.segment}: {each.bytes} bytes were damaged; {each.messages} messages taken from {args.from_log}; "
            f"the damaged segment is {each.kept}"
        )
    return 0
