"""`ordercast log read`: messages of a durable log as JSON lines."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from json.encoder import encode_basestring

from ordercast.cli.jsonl import columns, encode, field
from ordercast.errors import LogCorrupt
from ordercast.events import decode_headers
from ordercast.log import LogBatch, LogReader, ViewRecord


class Bad(Exception):
    """An argument that makes no sense for this log."""


def one_line(message: str) -> str:
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in message)


def bounds(args: argparse.Namespace, reader: LogReader) -> tuple[int, int | None]:
    """The offsets that are asked for; None: no end."""
    if args.since is not None:
        start = reader.offset_of_time(_micros(args.since))
    elif args.start in (None, "earliest"):
        start = reader.earliest
    elif args.start == "latest":
        start = reader.end
    elif args.start.isdecimal():
        start = int(args.start)
    else:
        raise Bad(f"{args.start!r} is no offset; it is a number, earliest or latest")
    if args.to is not None and args.to < start:
        raise Bad(f"nothing lies from offset {start} to {args.to}")
    if args.count is not None:
        if args.count < 0:
            raise Bad(f"{args.count} messages cannot be read")
        return start, start + args.count
    return start, args.to


def _micros(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Bad(f"{text!r} is no time like 2026-11-19T06:00:00") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1_000_000)


def run(args: argparse.Namespace) -> int:
    reader = LogReader(args.directory)
    start, end = bounds(args, reader)
    batches = _follow(reader, start, end) if args.follow else reader.read(start, end)
    output = sys.stdout.buffer
    views = _Views(reader, start) if args.views else None
    try:
        for batch in batches:
            if views is not None:
                output.write(views.before(batch.offset))
            output.write(render(batch))
            if args.follow:
                output.flush()
        if views is not None and not args.follow:
            output.write(views.before(reader.end if end is None else min(end, reader.end)))
    except KeyboardInterrupt:
        if not args.follow:
            raise
    except LogCorrupt:
        output.flush()
        raise
    output.flush()
    return 0


def _follow(reader: LogReader, start: int, end: int | None) -> Iterator[LogBatch]:
    if end is not None and start >= end:
        return
    for batch in reader.follow(start):
        if end is None or batch.end < end:
            yield batch
            continue
        yield batch.slice(start, end)
        return


class _Views:
    """Changes of membership that have not been printed yet."""

    def __init__(self, reader: LogReader, start: int) -> None:
        self._reader = reader
        self._from = start

    def before(self, offset: int) -> bytes:
        """Those that stand before the message with this offset."""
        if offset < self._from:
            return b""
        lines = [_view(view) for view in self._reader.views(self._from, offset)]
        self._from = offset + 1
        return encode(lines)


def _view(view: ViewRecord) -> str:
    fields = {
        "event": "view",
        "kind": "regular",
        "offset": view.offset,
        "view": view.id,
        "members": view.members,
        "primary": view.primary,
        "number": view.number,
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")) + "\n"


def render(batch: LogBatch) -> bytes:
    head = f'{{"event":"message","sender":{encode_basestring(batch.sender)},"seq":'
    middle = f',"view":{encode_basestring(batch.view_id)},"service":"{batch.service}","offset":'
    stamp = f',"timestamp_us":{batch.stamp_us},'
    lines = []
    for seq, offset, (key, headers, data) in zip(count(batch.seq), count(batch.offset), batch.records(), strict=False):
        extra = columns(key, None if headers is None else decode_headers(headers))
        lines.append(f"{head}{seq}{middle}{offset}{stamp}{field('data', data)}{extra}}}\n")
    return encode(lines)
