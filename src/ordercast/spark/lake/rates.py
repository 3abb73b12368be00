"""Rates and latencies: counted part by part, then added to what the lake has.

Counting runs on executors and yields little: a row for each second and sender, and one for each bucket of a histogram.
Adding runs on the driver, file by file of the tables; a file of rates holds an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordercast.spark.lake.histogram import SUMMARY, cells_of, index_of, summarize

_TIME = pa.timestamp("us", tz="UTC")
_COUNTED = [
    ("messages", pa.int64()), ("bytes", pa.int64()), ("safe", pa.int64()), ("first_offset", pa.int64()),
    ("last_offset", pa.int64()),
]  # fmt: skip
_PER_SECOND = [("messages_per_s", pa.float64()), ("bytes_per_s", pa.float64())]
SENDER_RATES = pa.schema([("time", _TIME), ("sender", pa.string()), *_COUNTED, *_PER_SECOND])
LATENCY = pa.schema([("time", _TIME), ("sender", pa.string()), ("lag", pa.string()), *SUMMARY])
VIEW_RATES = pa.schema(
    [
        ("view_id", pa.string()), ("sender", pa.string()), *_COUNTED, ("first_time", _TIME), ("last_time", _TIME),
        ("seconds", pa.float64()), *_PER_SECOND, *SUMMARY[1:],
    ]
)  # fmt: skip
ORDER, ARRIVAL = "order", "arrival"
HOUR_US = 3_600_000_000


@dataclass
class Counted:
    """What is counted in one part. Times are µs; `bucket` is the beginning of a time slot."""

    by_time: Any
    by_view: Any
    lags_by_time: Any
    lags_by_view: Any


_COUNT_AGGREGATES = [
    ("length", "count"), ("length", "sum"), ("safe", "sum"), ("offset", "min"), ("offset", "max"),
    ("stamp_us", "min"), ("stamp_us", "max"),
]  # fmt: skip
_COUNT_NAMES = ["messages", "bytes", "safe", "first_offset", "last_offset", "first_us", "last_us"]
_ADD = [("messages", "sum"), ("bytes", "sum"), ("safe", "sum"), ("first_offset", "min"), ("last_offset", "max"),
        ("first_us", "min"), ("last_us", "max")]  # fmt: skip


def count(side: Any, before_us: int, bucket_us: int) -> Counted:
    """Of a part's side table; `before_us` is the newest stamp of all messages before it."""
    stamps = side.column("stamp_us").to_numpy()
    newest = np.maximum(side.column("newest_us").to_numpy(), before_us)
    lags = {ORDER: newest - stamps, ARRIVAL: side.column("arrived_us").to_numpy() - stamps}
    side = side.append_column("bucket", pa.array(stamps // bucket_us * bucket_us))
    side = side.set_column(side.schema.get_field_index("safe"), "safe", side.column("safe").cast(pa.int64()))
    return Counted(
        by_time=_grouped(side, ["bucket", "sender"]),
        by_view=_grouped(side, ["view_id", "sender"]),
        lags_by_time=pa.concat_tables([_cells(side, ["bucket", "sender"], name, lag) for name, lag in lags.items()]),
        lags_by_view=_cells(side, ["view_id", "sender"], ORDER, lags[ORDER]),
    )


def _grouped(side: Any, keys: list[str]) -> Any:
    found = side.group_by(keys).aggregate(_COUNT_AGGREGATES)
    names = [f"{column}_{how}" for column, how in _COUNT_AGGREGATES]
    return pa.table({**{key: found.column(key) for key in keys},
                     **{new: found.column(old) for new, old in zip(_COUNT_NAMES, names, strict=True)}})  # fmt: skip


def _cells(side: Any, keys: list[str], lag: str, values: np.ndarray) -> Any:
    table = pa.table(
        {**{key: side.column(key) for key in keys}, "index": pa.array(index_of(values)),
         "value": pa.array(np.maximum(values, 0))}
    )  # fmt: skip
    found = table.group_by([*keys, "index"]).aggregate([("index", "count"), ("value", "max")])
    found = found.rename_columns([*keys, "index", "count", "max_us"])
    return found.append_column("lag", pa.repeat(lag, len(found)))


# What the lake has, and what a batch adds to it.


def add_by_time(
    counted: Sequence[Counted], bucket_us: int, old: Callable[[str, Any], Any]
) -> Iterator[tuple[str, Any]]:
    """Files of `sender_rates` and `latency` that the batch changes: names and new contents.

    `old` is asked for the rows that a file has now, by its name and schema.
    """
    rates = pa.concat_tables(each.by_time for each in counted)
    cells = pa.concat_tables(each.lags_by_time for each in counted)
    hours = np.unique(rates.column("bucket").to_numpy() // HOUR_US)
    for hour in hours:
        place = hour_name(int(hour))
        low, high = int(hour) * HOUR_US, int(hour + 1) * HOUR_US
        name = f"sender_rates/{place}/rates.parquet"
        yield name, _sender_rates(_between(rates, low, high), old(name, SENDER_RATES), bucket_us)
        name = f"latency/{place}/latency.parquet"
        yield name, _latency(_between(cells, low, high), old(name, LATENCY))


def add_by_view(counted: Sequence[Counted], old: Any) -> Any:
    """`view_rates` as a whole: views are few."""
    keys = ["view_id", "sender"]
    mine = old.filter(pc.is_valid(old.column("sender")))
    known = pa.table({
        **{name: mine.column(name) for name in (*keys, *_COUNT_NAMES[:5])},
        "first_us": _us(mine.column("first_time")), "last_us": _us(mine.column("last_time")),
    })  # fmt: skip
    rows = pa.concat_tables([known, *(each.by_view for each in counted)])
    cells = pa.concat_tables([cells_of(mine, keys), *(each.lags_by_view.drop_columns(["lag"]) for each in counted)])
    both = []
    for with_sender in (True, False):
        by = keys if with_sender else keys[:1]
        totals = _added(rows, by).sort_by([(name, "ascending") for name in by])
        lags = summarize(cells, by)
        seconds = pc.divide(
            pc.cast(pc.subtract(totals.column("last_us"), totals.column("first_us")), pa.float64()), 1e6
        )
        columns = {name: totals.column(name) for name in (*by, *_COUNT_NAMES[:5])}
        columns |= {
            "first_time": totals.column("first_us").cast(_TIME), "last_time": totals.column("last_us").cast(_TIME),
            "seconds": seconds, "messages_per_s": _per(totals.column("messages"), seconds),
            "bytes_per_s": _per(totals.column("bytes"), seconds),
        } | {name: lags.column(name) for name, _ in SUMMARY[1:]}  # fmt: skip
        if not with_sender:
            columns["sender"] = pa.nulls(len(totals), pa.string())
        both.append(pa.table({name: columns[name] for name in VIEW_RATES.names}).cast(VIEW_RATES))
    return pa.concat_tables(both).sort_by([("first_offset", "ascending"), ("view_id", "ascending")])


def hour_name(hour: int) -> str:
    return f"date={np.datetime64(hour // 24, 'D')}/hour={hour % 24:02}"


def _sender_rates(rates: Any, old: Any, bucket_us: int) -> Any:
    known = pa.table({
        "bucket": _us(old.column("time")), "sender": old.column("sender"),
        **{name: old.column(name) for name in _COUNT_NAMES[:5]},
        "first_us": pa.nulls(len(old), pa.int64()), "last_us": pa.nulls(len(old), pa.int64()),
    })  # fmt: skip
    totals = _added(pa.concat_tables([known, rates]), ["bucket", "sender"])
    totals = totals.sort_by([("bucket", "ascending"), ("sender", "ascending")])
    seconds = pa.scalar(bucket_us / 1e6)
    return pa.table({
        "time": totals.column("bucket").cast(_TIME), "sender": totals.column("sender"),
        **{name: totals.column(name) for name in _COUNT_NAMES[:5]},
        "messages_per_s": pc.divide(totals.column("messages").cast(pa.float64()), seconds),
        "bytes_per_s": pc.divide(totals.column("bytes").cast(pa.float64()), seconds),
    }).cast(SENDER_RATES)  # fmt: skip


def _latency(cells: Any, old: Any) -> Any:
    mine = old.filter(pc.is_valid(old.column("sender")))
    mine = mine.set_column(0, "bucket", _us(mine.column("time")))
    rows = pa.concat_tables([cells, cells_of(mine, ["bucket", "sender", "lag"]).select(cells.column_names)])
    each = summarize(rows, ["bucket", "sender", "lag"])
    together = summarize(rows, ["bucket", "lag"])
    together = together.add_column(1, "sender", pa.nulls(len(together), pa.string()))
    both = pa.concat_tables([each, together]).sort_by([(name, "ascending") for name in ("bucket", "sender", "lag")])
    return both.set_column(0, "time", both.column("bucket").cast(_TIME)).cast(LATENCY)


def _added(rows: Any, keys: list[str]) -> Any:
    found = rows.group_by(keys).aggregate(_ADD)
    return pa.table({**{key: found.column(key) for key in keys},
                     **{name: found.column(f"{name}_{how}") for name, how in _ADD}})  # fmt: skip


def _between(table: Any, low: int, high: int) -> Any:
    bucket = table.column("bucket")
    return table.filter(pc.and_(pc.greater_equal(bucket, low), pc.less(bucket, high)))


def _us(times: Any) -> Any:
    return times.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())


def _per(amounts: Any, seconds: Any) -> Any:
    """None where there was no time in between."""
    known = pc.if_else(pc.greater(seconds, 0.0), seconds, pa.scalar(None, pa.float64()))
    return pc.divide(amounts.cast(pa.float64()), known)
