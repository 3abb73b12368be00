"""Tables from traces: every node's configurations, why they changed, and rates where the trace tells the time.

A task reads a stretch of a file and hands on what is neither a send nor a delivery, with how many of those stand before
it. The rest is worked out from these few, on the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ordercast.spark.errors import SparkError
from ordercast.spark.lake.views import UNKNOWN, Causes

CHUNK_BYTES = 32 * 2**20
_TIME = pa.timestamp("us", tz="UTC")
TRACE_VIEWS = pa.schema(
    [
        ("node", pa.string()), ("life", pa.int64()), ("step", pa.int64()), ("view_id", pa.string()),
        ("kind", pa.string()), ("members", pa.list_(pa.string())), ("number", pa.int64()), ("time", _TIME),
        ("delivered", pa.int64()), ("sent", pa.int64()), ("ended", pa.string()), ("ended_time", _TIME),
    ]
)  # fmt: skip
TRACE_CHANGES = pa.schema(
    [
        ("node", pa.string()), ("step", pa.int64()), ("view_id", pa.string()), ("time", _TIME),
        ("member", pa.string()), ("change", pa.string()), ("cause", pa.string()), ("reason", pa.string()),
    ]
)  # fmt: skip
TRACE_RATES = pa.schema(
    [
        ("node", pa.string()), ("time", _TIME), ("delivered", pa.int64()), ("sent", pa.int64()),
        ("delivered_per_s", pa.float64()), ("sent_per_s", pa.float64()),
    ]
)  # fmt: skip
_COUNTED = ("deliver", "send")
_CLOSINGS = ("leave", "end", "close")
STARTED, RESTARTED, MERGED = "started", "restarted", "merged"
LEFT, CRASHED, PARTED = "left", "crashed", "parted"


@dataclass(slots=True)
class Mark:
    """An event that is neither a send nor a delivery, and how many of those stand before it in its stretch."""

    event: dict[str, Any]
    delivered: int
    sent: int


@dataclass
class Scanned:
    marks: list[Mark] = field(default_factory=list)
    delivered: int = 0
    sent: int = 0


def cut(path: Path) -> Iterator[tuple[str, int, int]]:
    """Stretches of a file: of lines, those that begin in a range of bytes; of Parquet all."""
    size = path.stat().st_size
    step = max(size, 1) if path.suffix == ".parquet" else CHUNK_BYTES
    for start in range(0, max(size, 1), step):
        yield str(path.absolute()), start, min(start + step, size)


def scan(path: str, start: int, end: int) -> Scanned:
    """SparkError if a line is not one of a trace."""
    try:
        return _scan_parquet(path) if path.endswith(".parquet") else _scan_lines(path, start, end)
    except (OSError, ValueError, msgspec.MsgspecError, pa.ArrowException) as error:
        raise SparkError(f"{path}: not a trace ({error}): ordercast check says where") from None


def _scan_lines(path: str, start: int, end: int) -> Scanned:
    with open(path, "rb") as file:
        file.seek(max(start - 1, 0))
        if start:
            file.readline()
        data = file.read(max(end - file.tell(), 0))
        if data and not data.endswith(b"\n"):
            data += file.readline()
    if not data:
        return Scanned()
    if not data.endswith(b"\n"):
        raise ValueError("the last line is torn")
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10) + 1
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    lines = pa.Array.from_buffers(pa.large_binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    delivers, sends = (
        pc.match_substring(lines, f'"event":"{event}"').to_numpy(zero_copy_only=False) for event in _COUNTED
    )
    found = Scanned()
    delivered, sent = np.cumsum(delivers), np.cumsum(sends)
    extra = [0, 0]
    for at in np.flatnonzero(~(delivers | sends)):
        event = msgspec.json.decode(data[offsets[at] : offsets[at + 1]])
        if not isinstance(event, dict):
            raise ValueError("a line is not an object")
        if event.get("event") in _COUNTED:  # from a writer that puts spaces into its lines
            extra[_COUNTED.index(event["event"])] += 1
        else:
            found.marks.append(Mark(event, int(delivered[at]) + extra[0], int(sent[at]) + extra[1]))
    found.delivered, found.sent = int(delivered[-1]) + extra[0], int(sent[-1]) + extra[1]
    return found


def _scan_parquet(path: str) -> Scanned:
    found = Scanned()
    for batch in pq.ParquetFile(path).iter_batches():
        kinds = batch.column("event")
        delivers, sends = (pc.equal(kinds, event).to_numpy(zero_copy_only=False) for event in _COUNTED)
        delivered, sent = np.cumsum(delivers) + found.delivered, np.cumsum(sends) + found.sent
        for at in np.flatnonzero(~(delivers | sends)):
            (row,) = batch.slice(at, 1).to_pylist()
            found.marks.append(Mark({name: cell for name, cell in row.items() if cell is not None},
                                    int(delivered[at]), int(sent[at])))  # fmt: skip
        if len(batch):
            found.delivered, found.sent = int(delivered[-1]), int(sent[-1])
    return found


def joined(stretches: Sequence[Scanned]) -> Scanned:
    """A node's whole trace of its stretches."""
    whole = Scanned()
    for each in stretches:
        whole.marks += [
            Mark(mark.event, mark.delivered + whole.delivered, mark.sent + whole.sent) for mark in each.marks
        ]
        whole.delivered += each.delivered
        whole.sent += each.sent
    return whole


# What the marks of all nodes say.


def trace_views(nodes: Mapping[str, Scanned]) -> Any:
    """A row for each configuration that each node delivered."""
    rows: list[dict[str, Any]] = []
    for node, trace in nodes.items():
        life, open_row = 1, None
        clock: int | None = None
        for mark in trace.marks:
            event = mark.event
            what = event["event"]
            if what in ("conf", "recover", *_CLOSINGS) and open_row is not None:
                # A crash is not seen before the next start; the last sign of life tells when it was.
                over = clock if what == "recover" else event.get("time_us", clock)
                _end(open_row, mark.delivered, mark.sent, CRASHED if what == "recover" else what, over)
                open_row = None
            clock = event.get("time_us", clock)
            if what == "recover":
                life += 1
            elif what == "conf":
                open_row = {
                    "node": node, "life": life, "step": event["step"], "view_id": event["conf"],
                    "kind": event["kind"], "members": event["members"], "number": event.get("number"),
                    "time": event.get("time_us"), "delivered": mark.delivered, "sent": mark.sent,
                }  # fmt: skip
                rows.append(open_row)
        if open_row is not None:
            _end(open_row, trace.delivered, trace.sent, CRASHED, clock)
    return pa.Table.from_pylist(rows, schema=TRACE_VIEWS)


def _end(row: dict[str, Any], delivered: int, sent: int, what: str, time_us: int | None) -> None:
    row["delivered"], row["sent"] = delivered - row["delivered"], sent - row["sent"]
    row["ended"], row["ended_time"] = what, time_us


def trace_changes(nodes: Mapping[str, Scanned]) -> Any:
    """A row for each member that a regular configuration has more or less than the one before it at the node."""
    rows: list[dict[str, Any]] = []
    for node, trace in nodes.items():
        before: dict[str, Any] | None = None
        along: list[str] = []
        since = 0
        for place, mark in enumerate(trace.marks):
            event = mark.event
            if event["event"] == "recover":
                before, since = None, place
            elif event["event"] == "conf" and event["kind"] == "transitional":
                along = event["members"]
            elif event["event"] == "conf":
                old = before["members"] if before else []
                common = {"node": node, "step": event["step"], "view_id": event["conf"], "time": event.get("time_us")}
                changes = [(name, "joined") for name in event["members"] if name not in old]
                changes += [(name, "left") for name in old if name not in event["members"]]
                # In both, but it went another way in between.
                changes += [
                    (name, "returned")
                    for name in old
                    if name in event["members"] and name not in along and name != node
                ]
                for member, change in changes:
                    cause = _cause(nodes.get(member), change, before["conf"] if before else None, event["conf"])
                    reasons = _reasons(trace.marks[since:place])
                    rows.append({**common, "member": member, "change": change, "cause": cause, "reason": reasons})
                before, along, since = event, [], place
    return pa.Table.from_pylist(rows, schema=TRACE_CHANGES)


def causes(changes: Any) -> Causes:
    """What `view_changes` of the log takes over; a cause that is known goes before one that is not."""
    found: dict[tuple[str, str, str], tuple[str, str | None]] = {}
    for row in changes.to_pylist():
        key = row["view_id"], row["member"], row["change"]
        if key not in found or found[key][0] == UNKNOWN:
            found[key] = row["cause"], row["reason"]
    return found


def _cause(trace: Scanned | None, change: str, before: str | None, now: str) -> str:
    """Why a member came or went, from its own trace."""
    if trace is None:
        return UNKNOWN
    if change == "joined":
        return _cause_of_joining(trace.marks, now)
    place = _place(trace.marks, before)
    if place is None:
        return UNKNOWN
    for mark in trace.marks[place + 1 :]:
        what = mark.event["event"]
        if what == "leave":
            return LEFT
        if what == "recover":
            return CRASHED
        if what == "conf" and mark.event["kind"] == "regular":
            return PARTED
        if what in ("end", "close"):
            return UNKNOWN
    return CRASHED


def _cause_of_joining(marks: Sequence[Mark], now: str) -> str:
    place = _place(marks, now)
    if place is None:
        return UNKNOWN
    earlier = 0
    for mark in reversed(marks[:place]):
        what = mark.event["event"]
        if what == "recover":
            return MERGED if earlier > 1 else RESTARTED
        if what == "conf" and mark.event["kind"] == "regular":
            earlier += 1
            if len(mark.event["members"]) > 1:
                return MERGED
    # The first configuration of a life is the node alone.
    return MERGED if earlier > 1 else STARTED


def _place(marks: Sequence[Mark], conf: str | None) -> int | None:
    for place, mark in enumerate(marks):
        if mark.event["event"] == "conf" and mark.event["conf"] == conf:
            return place
    return None


def _reasons(marks: Sequence[Mark]) -> str | None:
    """What events of the engines' own say that stand before the change."""
    told = []
    for mark in marks:
        event = mark.event
        if event["event"].startswith("x-") and event["event"] != "x-time":
            details = " ".join(
                f"{name} {value}" for name, value in event.items() if name not in ("node", "step", "event", "reason")
            )
            told.append(": ".join(filter(None, (f"{event['event'][2:]} {details}".strip(), event.get("reason")))))
    return "; ".join(told) or None


def trace_rates(nodes: Mapping[str, Scanned], bucket_us: int) -> Any:
    """Deliveries and sends by time; none of nodes whose trace does not tell the time."""
    tables = []
    for node, trace in nodes.items():
        times, delivered, sent = _clock(trace)
        if len(times) < 2:
            continue
        edges = np.arange(times[0] // bucket_us, times[-1] // bucket_us + 2) * bucket_us
        counts = [np.diff(np.round(np.interp(edges, times, values))).astype(np.int64) for values in (delivered, sent)]
        tables.append(pa.table({
            "node": pa.repeat(node, len(edges) - 1), "time": pa.array(edges[:-1]).cast(_TIME),
            "delivered": pa.array(counts[0]), "sent": pa.array(counts[1]),
            "delivered_per_s": pa.array(counts[0] * 1e6 / bucket_us),
            "sent_per_s": pa.array(counts[1] * 1e6 / bucket_us),
        }).cast(TRACE_RATES))  # fmt: skip
    return pa.concat_tables(tables) if tables else TRACE_RATES.empty_table()


def _clock(trace: Scanned) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times at which it is known how much was delivered and sent; they do not go back."""
    points: list[tuple[int, int, int]] = []
    for mark in trace.marks:
        if mark.event["event"] == "recover" and points:
            # What is counted since the last sign of life was before the crash.
            points.append((points[-1][0], mark.delivered, mark.sent))
        if "time_us" in mark.event:
            points.append((mark.event["time_us"], mark.delivered, mark.sent))
    if not points:
        return np.zeros(0), np.zeros(0), np.zeros(0)
    times, delivered, sent = (np.array(column, np.int64) for column in zip(*points, strict=True))
    return np.maximum.accumulate(times), delivered, sent
