"""Reading a chunk: every event checked, messages written to columns, everything else handed on.

A task has no idea of what stands before its chunk. It counts from the last configuration *in the chunk*; what follows
before the first one is marked (`dep`), and `fold.py` works out what it has to be added to.

Messages (sends and deliveries) go straight to a Parquet file of the job's scratch directory, and what corel does, as it
was read, to another. Configurations, starts and endings are few: they are yielded as rows, with a summary for each
chunk. Whatever is not as it must be makes a row `error`, and the local checker is asked for the exact words
(`exact.refusal`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ordercast.check.corel_model import OF_COREL, RESTORED_EVENT, WIPED_EVENT, CorelModel
from ordercast.check.errors import TraceError
from ordercast.check.events import Close, Conf, Deliver, End, Event, Extra, Leave, Primary, Recover, Send
from ordercast.check.trace import COLUMNS, convert_row, refuse_other_schema
from ordercast.spark.verify.plan import OFFSET_BITS, Chunk

CONTROL_SCHEMA = (
    "trace int, node int, cid bigint, place int, seg int, what string, step bigint, conf string, regular boolean, "
    "members array<string>, raw binary, first bigint, last bigint, events bigint, dels bigint, sends bigint, "
    "owns bigint, file int"
)
MESSAGE_SCHEMA = pa.schema(
    [
        ("trace", pa.int32()),
        ("node", pa.int32()),
        ("cid", pa.int64()),
        ("step", pa.int64()),
        ("send", pa.bool_()),
        ("msg", pa.string()),
        ("conf", pa.string()),
        ("sender", pa.string()),
        ("safe", pa.bool_()),
        ("label", pa.int32()),
        ("pos", pa.int32()),
        ("own", pa.int32()),
        ("dep", pa.int8()),
        ("block", pa.string()),
        ("regular", pa.bool_()),
        ("wrong", pa.bool_()),
    ]
)
COREL_SCHEMA = pa.schema([("trace", pa.int32()), ("node", pa.int32()), ("step", pa.int64()), ("raw", pa.binary())])
FILE_ROWS = 2**19
"""A file of messages is closed when it has this many."""
_PLACE_OF_SUMMARY = 2**31 - 1
_WHAT: dict[type, str] = {Recover: "recover", Leave: "leave", End: "end", Close: "close"}
# What a message's `block`, `regular`, `wrong` and counts hang on: nothing outside of the chunk; the configuration in
# which the chunk begins; for a transitional configuration that is the first of the chunk, the one before it.
INSIDE, CARRIED, AFTER_CARRIED = 0, 1, 2


class Unreadable(Exception):
    """Something in the chunk is refused. The words are the local checker's to find."""


# What a damaged line or file can come to.
_REFUSED = (
    Unreadable, TraceError, msgspec.MsgspecError, pa.ArrowException, OSError, ValueError, OverflowError, RecursionError
)  # fmt: skip


@dataclass(slots=True)
class Columns:
    """What one chunk holds: its messages as columns, and the other events at their places among them."""

    send: np.ndarray
    step: pa.Array
    msg: pa.Array
    conf: pa.Array
    sender: pa.Array
    safe: np.ndarray
    marks: list[tuple[int, Conf | Recover | Leave | End | Close]] = field(default_factory=list)
    corel: list[Any] = field(default_factory=list)
    """What corel does."""
    first: int = 0
    last: int = 0
    events: int = 0


class Writer:
    """Collects the messages of a task's chunks into files of some size.

    A file has the name of its first chunk and is renamed when it is whole: a task that is tried again changes nothing.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._tables: list[pa.Table] = []
        self._rows = 0
        self._first = 0

    def add(self, cid: int, table: pa.Table) -> None:
        if not len(table):
            return
        if not self._tables:
            self._first = cid
        self._tables.append(table)
        self._rows += len(table)
        if self._rows >= FILE_ROWS:
            self.close()

    def close(self) -> None:
        if self._tables:
            path = self._directory / f"{self._first:016x}.parquet"
            temporary = path.with_name(f".{path.name}.{os.getpid()}")
            pq.write_table(pa.concat_tables(self._tables), temporary, compression="zstd", compression_level=1)
            temporary.replace(path)
        self._tables, self._rows = [], 0


def scan(chunk: Chunk, nodes: tuple[str, ...], writer: Writer, corel: Writer) -> Iterator[dict[str, Any]]:
    """The control rows of one chunk; its messages go to one writer, what corel does to another."""
    try:
        for offset, columns in _read(chunk, nodes[chunk.node]):
            if columns.events:
                cid = chunk.file << OFFSET_BITS | offset
                yield from _rows(chunk, cid, columns, nodes)
                writer.add(cid, _table(chunk, cid, columns, nodes))
                corel.add(cid, _corel_table(chunk, columns.corel, nodes))
    except _REFUSED:
        yield {"trace": chunk.trace, "node": chunk.node, "what": "error", "file": chunk.file}


def _read(chunk: Chunk, node: str) -> Iterator[tuple[int, Columns]]:
    return _read_parquet(chunk, node) if chunk.path.endswith(".parquet") else _read_lines(chunk, node)


# Lines


def _read_lines(chunk: Chunk, node: str) -> Iterator[tuple[int, Columns]]:
    decode = msgspec.json.Decoder(Event).decode
    send: list[bool] = []
    step: list[int] = []
    msg: list[str] = []
    conf: list[str] = []
    sender: list[str | None] = []
    safe: list[bool] = []
    marks: list[tuple[int, Any]] = []
    corel: list[Any] = []
    first: int | None = None
    last = -(1 << 63) - 1
    events = 0
    for line in _lines(chunk):
        try:
            event: Any = decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            event = _extra(line)
        at = event.step
        if at <= last or event.node != node:
            raise Unreadable
        last = at
        if first is None:
            first = at
        events += 1
        kind = type(event)
        if kind is Deliver:
            send.append(False)
            sender.append(event.sender)
        elif kind is Send:
            send.append(True)
            sender.append(None)
        else:
            if kind is Conf or kind in _WHAT:
                marks.append((len(send), event))
            elif _of_corel(event):
                corel.append(event)
            continue
        step.append(at)
        msg.append(event.msg)
        conf.append(event.conf)
        safe.append(event.service == "safe")
    columns = Columns(
        np.array(send, dtype=bool),
        pa.array(step, pa.int64()),
        pa.array(msg, pa.string()),
        pa.array(conf, pa.string()),
        pa.array(sender, pa.string()),
        np.array(safe, dtype=bool),
        marks,
        corel,
        first or 0,
        last,
        events,
    )
    yield chunk.start, columns


def _lines(chunk: Chunk) -> Iterator[bytes]:
    """The lines that begin in the chunk, each with its newline."""
    with open(chunk.path, "rb") as file:
        place = chunk.start
        if place:
            # A line that begins exactly here is ours; one that began before is not.
            file.seek(place - 1)
            place += len(file.readline()) - 1
        while place < chunk.end:
            line = file.readline()
            if not line.endswith(b"\n"):
                raise Unreadable
            place += len(line)
            yield line


def _extra(line: bytes) -> Extra:
    fields = msgspec.json.decode(line)
    if not isinstance(fields, dict) or not str(fields.get("event")).startswith("x-"):
        raise Unreadable
    return msgspec.convert(fields, Extra)


def _of_corel(event: Any) -> bool:
    return type(event) in OF_COREL or (type(event) is Extra and event.event in (WIPED_EVENT, RESTORED_EVENT))


# Parquet


def _read_parquet(chunk: Chunk, node: str) -> Iterator[tuple[int, Columns]]:
    path = Path(chunk.path)
    with pq.ParquetFile(path) as file:
        refuse_other_schema(path, file.schema_arrow)
        wanted = [name for name in file.schema_arrow.names if name in COLUMNS]
        for number in range(file.metadata.num_row_groups):
            first = file.metadata.row_group(number).column(0)
            offset = first.data_page_offset
            if first.has_dictionary_page and first.dictionary_page_offset:
                offset = min(offset, first.dictionary_page_offset)
            if chunk.start <= offset < chunk.end:
                yield offset, _of_table(file.read_row_group(number, columns=wanted), node, path)


def _of_table(table: pa.Table, node: str, path: Path) -> Columns:
    step = _plain(table, "step", pa.int64())
    event = _plain(table, "event", pa.string())
    names = _plain(table, "node", pa.string())
    if step.null_count or event.null_count or names.null_count or not _all(pc.equal(names, node)):
        raise Unreadable
    steps = step.to_numpy(zero_copy_only=False)
    if np.any(steps[1:] <= steps[:-1]):
        raise Unreadable
    send = pc.equal(event, "send").to_numpy(zero_copy_only=False)
    message = send | pc.equal(event, "deliver").to_numpy(zero_copy_only=False)
    others = np.flatnonzero(~message)
    places = np.cumsum(message)
    marks: list[tuple[int, Any]] = []
    corel: list[Any] = []
    for place, row in zip(others, table.take(pa.array(others)).to_pylist(), strict=True):
        fields = {name: value for name, value in row.items() if value is not None}
        found = convert_row(fields, str(path))
        if type(found) is Conf or type(found) in _WHAT:
            marks.append((int(places[place]), found))
        elif _of_corel(found):
            corel.append(found)
    chosen = pa.array(np.flatnonzero(message))
    send = send[message]
    columns = {name: _plain(table, name, pa.string()).take(chosen) for name in ("msg", "conf", "sender", "service")}
    if any(columns[name].null_count for name in ("msg", "conf", "service")):
        raise Unreadable
    if not _all(pc.or_(pa.array(send), columns["sender"].is_valid())):
        raise Unreadable
    if not _all(pc.is_in(columns["service"], pa.array(["agreed", "safe"]))):
        raise Unreadable
    return Columns(
        send,
        step.take(chosen),
        columns["msg"],
        columns["conf"],
        columns["sender"],
        pc.equal(columns["service"], "safe").to_numpy(zero_copy_only=False),
        marks,
        corel,
        int(steps[0]) if len(steps) else 0,
        int(steps[-1]) if len(steps) else 0,
        len(steps),
    )


def _plain(table: pa.Table, name: str, kind: pa.DataType) -> pa.Array:
    """A column as one array of this type; absent columns are all null."""
    if name not in table.column_names:
        return pa.nulls(len(table), kind)
    found = table.column(name).cast(kind).combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def _all(values: pa.Array) -> bool:
    return bool(pc.all(values, min_count=0).as_py())


# What comes of a chunk


@dataclass(slots=True)
class _Segments:
    """For each stretch between two marks: the configuration, whose block it is, and what that hangs on."""

    starts: list[int]
    conf: list[str | None]
    block: list[str | None]
    regular: list[bool]
    dep: list[int]


def _segments(columns: Columns) -> _Segments:
    found = _Segments([0], [None], [None], [False], [CARRIED])
    for place, event in columns.marks:
        found.starts.append(place)
        if not isinstance(event, Conf):
            conf = block = None
            regular, dep = False, INSIDE
        else:
            conf, regular, dep, block = event.conf, event.kind == "regular", INSIDE, None
            if regular:
                block = conf
            elif found.dep[-1] == CARRIED:
                dep = AFTER_CARRIED
            elif found.regular[-1]:
                block = found.conf[-1]
        found.conf.append(conf)
        found.block.append(block)
        found.regular.append(regular)
        found.dep.append(dep)
    return found


def _rows(chunk: Chunk, cid: int, columns: Columns, nodes: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    known = set(nodes)
    own = _own(columns, nodes[chunk.node])
    common = {"trace": chunk.trace, "node": chunk.node, "cid": cid, "file": chunk.file}
    encode = msgspec.json.Encoder().encode
    for number, (_, event) in enumerate(columns.marks):
        if not -(2**63) <= event.step < 2**63:
            raise Unreadable
        row = {**common, "place": number, "seg": number + 1, "step": event.step, "raw": encode(event)}
        if isinstance(event, Conf):
            if event.number is None or not known.issuperset(event.members):
                raise Unreadable
            members = sorted(set(event.members))
            yield row | {"what": "conf", "conf": event.conf, "regular": event.kind == "regular", "members": members}
        else:
            yield row | {"what": _WHAT[type(event)]}
    start = columns.marks[-1][0] if columns.marks else 0
    sends = int(columns.send[start:].sum())
    yield common | {
        "place": _PLACE_OF_SUMMARY,
        "what": "summary",
        "first": columns.first,
        "last": columns.last,
        "events": columns.events,
        "dels": len(columns.send) - start - sends,
        "sends": sends,
        "owns": int(own[start:].sum()),
    }


def _own(columns: Columns, name: str) -> np.ndarray:
    """Deliveries of the node's own messages."""
    mine = pc.fill_null(pc.equal(columns.sender, name), False).to_numpy(zero_copy_only=False)
    return np.asarray(mine & ~columns.send)


def _table(chunk: Chunk, cid: int, columns: Columns, nodes: tuple[str, ...]) -> pa.Table:
    count = len(columns.send)
    segments = _segments(columns)
    starts = np.array(segments.starts)
    segment = np.searchsorted(starts[1:], np.arange(count), side="right")
    which = pa.array(segment)
    own = _own(columns, nodes[chunk.node])

    def since(mask: np.ndarray) -> np.ndarray:
        """How many of these stand before each message in its segment."""
        before = np.concatenate(([0], np.cumsum(mask)))
        return np.asarray(before[:-1] - before[starts][segment], dtype=np.int32)

    index = np.where(columns.send, since(columns.send), np.where(own, since(own), -1)).astype(np.int32)
    sender = pc.fill_null(pc.index_in(columns.sender, pa.array(nodes)), -1).to_numpy(zero_copy_only=False)
    sender = np.where(columns.send, chunk.node, sender)
    dep = np.array(segments.dep, dtype=np.int8)[segment]
    latest = pa.array(segments.conf, pa.string()).take(which)
    wrong = pc.fill_null(pc.not_equal(columns.conf, latest), True).to_numpy(zero_copy_only=False) & (dep != CARRIED)
    data = [
        np.full(count, chunk.trace, np.int32),
        np.full(count, chunk.node, np.int32),
        np.full(count, cid, np.int64),
        columns.step,
        columns.send,
        columns.msg,
        columns.conf,
        columns.sender,
        columns.safe,
        (2 * sender + columns.safe).astype(np.int32),
        since(~columns.send),
        index,
        dep,
        pa.array(segments.block, pa.string()).take(which),
        np.array(segments.regular)[segment],
        wrong,
    ]
    return pa.table([pa.array(column) for column in data], schema=MESSAGE_SCHEMA)


def _corel_table(chunk: Chunk, events: list[Any], nodes: tuple[str, ...]) -> pa.Table:
    """The events as they are; those that the local checker refuses are refused."""
    model, known = CorelModel(list(nodes)), set(nodes)
    for event in events:
        if isinstance(event, Primary) and not known.issuperset(event.members):
            raise Unreadable
        if model.note(chunk.node, event) is not None:
            raise Unreadable
    count = len(events)
    encode = msgspec.json.Encoder().encode
    data = [[chunk.trace] * count, [chunk.node] * count, [event.step for event in events], [*map(encode, events)]]
    return pa.table([pa.array(column, kind) for column, kind in zip(data, COREL_SCHEMA.types, strict=True)],
                    schema=COREL_SCHEMA)  # fmt: skip


def as_batches(rows: Iterable[dict[str, Any]], schema: pa.Schema, size: int = 1 << 14) -> Iterator[pa.RecordBatch]:
    """Rows for Spark, in batches."""
    some: list[dict[str, Any]] = []
    for row in rows:
        some.append(row)
        if len(some) == size:
            yield pa.RecordBatch.from_pylist(some, schema)
            some = []
    if some:
        yield pa.RecordBatch.from_pylist(some, schema)
