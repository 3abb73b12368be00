"""What a run's part of the page shows, from the lake's tables: what the log has, and what traces have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ordercast.spark.errors import SparkError
from ordercast.spark.lake.histogram import summarize
from ordercast.spark.lake.store import State, read_state
from ordercast.spark.report.axis import Axis, amount, duration, number, seconds, span
from ordercast.spark.report.page import Section, drawing, figure, table, tiles
from ordercast.spark.report.plot import COLOURS, Mark, Plot, Series
from ordercast.spark.report.timeline import Stay, timeline

SLOTS = 240
"""Places of a plot over time, at most."""
ROWS_MAX = 200
"""Of a table on the page; the lake has them all."""
MEMBERS_MAX = 40
"""Rows of a timeline."""
OTHERS = "others"


def lake_sections(spark: SparkSession, folder: Path) -> Iterator[Section]:
    """SparkError if there is no lake."""
    state = read_state(folder)
    if state is None:
        raise SparkError(f"{folder}: there is no lake here (ordercast spark lake makes one)")
    if state.group is not None and (folder / "sender_rates").exists():
        yield _Log(spark, folder, state).section()
    for place in sorted((folder / "trace_views").glob("trace=*")):
        yield _Trace(spark, folder, place.name.partition("=")[2], state).section()


def _small(folder: Path, *names: str) -> list[dict[str, Any]]:
    """The rows of a table that is one file, or few."""
    place = folder.joinpath(*names)
    if not place.exists():
        return []
    rows: list[dict[str, Any]] = ds.dataset(place, format="parquet", partitioning=None).to_table().to_pylist()
    return rows


def _us(time: datetime | None) -> int | None:
    if time is None:
        return None
    delta = time - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def _utc(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


@dataclass(frozen=True)
class Times:
    """The time that a plot spans, and the slots into which it is divided."""

    start_us: int
    end_us: int
    bucket_us: int

    @property
    def slot_us(self) -> int:
        buckets = max(1, (self.end_us - self.start_us) // self.bucket_us + 1)
        return self.bucket_us * -(-buckets // SLOTS)

    @property
    def slots(self) -> range:
        """The beginnings of all slots."""
        return range(self.start_us // self.slot_us * self.slot_us, self.end_us + 1, self.slot_us)

    def at(self, us: int) -> float:
        return (us - self.start_us) / 1e6

    def axis(self) -> Axis:
        end = max(self.at(self.end_us), self.bucket_us / 1e6)
        return Axis(0.0, end, f"time since {_utc(self.start_us)}", seconds, time=True)


class _Log:
    """The part that comes from the ordered log."""

    def __init__(self, spark: SparkSession, folder: Path, state: State) -> None:
        self._spark = spark
        self._folder = folder
        self._state = state
        self._views = _small(folder, "views")
        self._rates = spark.read.parquet(str(folder / "sender_rates"))
        ((low, high),) = self._rates.agg(F.min(_micros("time")), F.max(_micros("time"))).collect()
        end = max(high + state.bucket_us, state.newest_us, *(_us(view["time"]) or 0 for view in self._views))
        self._times = Times(low, end, state.bucket_us)

    def section(self) -> Section:
        rates, by_sender = self._by_slot()
        lags = self._lags()
        changes = _small(self._folder, "view_changes")
        gaps = _small(self._folder, "gaps")
        times = self._times
        words = (
            f"Offsets {self._state.start} to {(self._state.end or 0) - 1} of the ordered log, "
            f"{_utc(times.start_us)} to {_utc(times.end_us)}."
        )
        marks = [
            Mark(times.at(_us(view["time"]) or 0), f"view {view['view_id']}: {' '.join(view['members'])}")
            for view in self._views if times.start_us <= (_us(view["time"]) or 0) <= times.end_us
        ]  # fmt: skip
        found = Section(f"Group {self._state.group}", words, [self._tiles(rates, lags, gaps)])
        found.blocks.append(_throughput("Throughput", times, by_sender, marks))
        found.blocks.append(self._latency(lags, marks))
        if self._views:
            words = "As the member saw it whose log this is. Bars of one colour are one view."
            found.blocks.append(_membership(times, list(self._stays()), words))
        rows = [
            (row["view_id"], seconds(round(times.at(_us(row["time"]) or 0), 2)), row["member"], row["change"],
             row["cause"], row["reason"] or "")
            for row in changes
        ]  # fmt: skip
        head = ("view", "time", "member", "change", "cause", "reason")
        words = "Causes come from the members' traces (ordercast spark lake --traces); without them they are unknown."
        found.blocks.append(table("Why views changed", head, _short(rows), words))
        found.blocks.append(self._per_view())
        missing = [
            (row["kind"], row["sender"] or "", row["offset"], number(row["count"]) if row["count"] else "",
             "" if row["seconds"] is None else duration(max(0, row["seconds"]) * 1e6))
            for row in gaps
        ]  # fmt: skip
        words = "Offsets or sender's numbers that are not in the lake; new lives of senders; silences."
        found.blocks.append(
            table("Gaps", ("kind", "sender", "before offset", "missing", "lasting"), _short(missing), words)
        )
        return found

    def _by_slot(self) -> tuple[dict[int, int], dict[str, dict[int, float]]]:
        """Messages by slot, and each sender's rate by slot."""
        slot_us = self._times.slot_us
        rows = (
            self._rates.groupBy(_slot("time", slot_us), "sender")
            .agg(F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes")).collect()
        )  # fmt: skip
        total: dict[int, int] = defaultdict(int)
        senders: dict[str, dict[int, float]] = defaultdict(dict)
        self._bytes = sum(row["bytes"] for row in rows)
        for row in rows:
            total[row["slot"]] += row["messages"]
            senders[row["sender"]][row["slot"]] = row["messages"] * 1e6 / slot_us
        return total, senders

    def _lags(self) -> dict[tuple[str, int | None], dict[str, Any]]:
        """Percentiles by kind of lag and slot, and over all the time (slot None)."""
        cells = (
            self._spark.read.parquet(str(self._folder / "latency")).where("sender is null")
            .select(_slot("time", self._times.slot_us), "lag", "max_us", F.explode("histogram").alias("cell"))
            .groupBy("slot", "lag", F.col("cell.index").alias("index"))
            .agg(F.sum("cell.count").alias("count"), F.max("max_us").alias("max_us")).toArrow()
        )  # fmt: skip
        found = {(row["lag"], row["slot"]): row for row in summarize(cells, ["lag", "slot"]).to_pylist()}
        return found | {(row["lag"], None): row for row in summarize(cells, ["lag"]).to_pylist()}

    def _tiles(self, slots: dict[int, int], lags: dict[Any, dict[str, Any]], gaps: Sequence[dict[str, Any]]) -> str:
        total = sum(slots.values())
        slot_s = self._times.slot_us / 1e6
        order = lags["order", None]
        return tiles([
            ("messages", number(total)), ("payload", amount(self._bytes)), ("senders", str(len(self._state.senders))),
            ("mean rate", f"{number(total / (len(self._times.slots) * slot_s))}/s"),
            ("highest rate", f"{number(max(slots.values()) / slot_s)}/s"),
            ("order lag p50", duration(order["p50_us"])), ("order lag p99", duration(order["p99_us"])),
            ("views", str(len(self._views))), ("gaps", str(len(gaps))),
        ])  # fmt: skip

    def _latency(self, lags: dict[tuple[str, int | None], dict[str, Any]], marks: Sequence[Mark]) -> str:
        names = (("p50_us", "p50"), ("p99_us", "p99"), ("max_us", "longest"))
        half = self._times.slot_us // 2
        lines = [
            Series(name, sorted((self._times.at(slot + half), row[column]) for (lag, slot), row in lags.items()
                                if lag == "order" and slot is not None))
            for column, name in names
        ]  # fmt: skip
        values = [max(y, 1) for line in lines for _, y in line.points]
        axis = span(values, "order lag", duration, log=True)
        words = (
            "How far a message's stamp lies behind the newest stamp ordered before it. Its latency from send to order "
            "is at least this, as far as the senders' clocks agree."
        )
        lines = [Series(line.name, [(x, max(y, axis.low)) for x, y in line.points]) for line in lines]
        return figure("Latency", Plot(self._times.axis(), axis, lines, marks), words)

    def _stays(self) -> Iterator[Stay]:
        times = self._times
        for view, following in zip(self._views, [*self._views[1:], None], strict=True):
            start = _us(view["time"]) or times.start_us
            end = times.end_us if following is None else _us(following["time"]) or times.end_us
            for member in view["members"]:
                title = f"{member} in view {view['view_id']}: {' '.join(view['members'])}"
                yield Stay(member, view["view_id"], max(0.0, times.at(start)), max(0.0, times.at(end)), title)

    def _per_view(self) -> str:
        rows = [
            (row["view_id"], number(row["messages"]), amount(row["bytes"]), duration(row["seconds"] * 1e6),
             "–" if row["messages_per_s"] is None else number(row["messages_per_s"]), duration(row["p50_us"]),
             duration(row["p99_us"]), duration(row["max_us"]))
            for row in _small(self._folder, "view_rates") if row["sender"] is None
        ]  # fmt: skip
        head = ("view", "messages", "payload", "lasting", "messages/s", "lag p50", "lag p99", "longest lag")
        return table("By view", head, _short(rows), "By the view in which the transport first delivered a message.")


class _Trace:
    """The part that comes from a trace: all nodes, each as it saw things."""

    def __init__(self, spark: SparkSession, folder: Path, name: str, state: State) -> None:
        self._name = name
        part = f"trace={name}"
        self._views = _small(folder, "trace_views", part)
        self._changes = _small(folder, "trace_changes", part)
        self._rates: DataFrame = spark.read.parquet(str(folder / "trace_rates" / part))
        ends = [_us(view[column]) for view in self._views for column in ("time", "ended_time")]
        known = [end for end in ends if end is not None]
        self._times = Times(min(known), max(known), state.bucket_us) if known else None

    def section(self) -> Section:
        nodes = sorted({view["node"] for view in self._views})
        regular = [view for view in self._views if view["kind"] == "regular"]
        words = f"What {len(nodes)} nodes wrote into their traces."
        found = Section(f"Trace {self._name}", words, [self._tiles(nodes, regular)])
        if self._times is not None:
            found.blocks.append(self._throughput(self._times))
            words = "Each node as it saw itself: bars of one colour are one view; ✕ is a crash."
            found.blocks.append(_membership(self._times, list(self._stays(self._times, regular)), words))
        else:
            found.blocks.append("<p>The trace does not say when things happened, so there are no plots over time.</p>")
        found.blocks.append(self._causes())
        rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for view in regular:
            rows[view["view_id"]].append(view)
        lines = [
            (name, " ".join(views[0]["members"]), number(min(view["delivered"] for view in views)),
             number(max(view["delivered"] for view in views)), number(sum(view["sent"] for view in views)))
            for name, views in rows.items()
        ]  # fmt: skip
        head = ("view", "members", "delivered, fewest", "delivered, most", "sent")
        found.blocks.append(table("By view", head, _short(lines), "Messages delivered at a node while in the view."))
        return found

    def _tiles(self, nodes: Sequence[str], regular: Sequence[dict[str, Any]]) -> str:
        ended = [view["ended"] for view in self._views]
        changed = {(row["view_id"], row["member"], row["change"]) for row in self._changes}
        values = [
            ("nodes", str(len(nodes))), ("deliveries", number(sum(view["delivered"] for view in self._views))),
            ("messages sent", number(sum(view["sent"] for view in self._views))),
            ("views", str(len({view["view_id"] for view in regular}))), ("changes", str(len(changed))),
            ("crashes", str(ended.count("crashed"))),
        ]  # fmt: skip
        if self._times is not None:
            values.append(("time", duration(self._times.end_us - self._times.start_us)))
        return tiles(values)

    def _throughput(self, times: Times) -> str:
        rows = (
            self._rates.groupBy(_slot("time", times.slot_us), "node")
            .agg(F.sum("delivered").alias("delivered"))
            .collect()
        )
        by_node: dict[str, dict[int, float]] = defaultdict(dict)
        for row in rows:
            by_node[row["node"]][row["slot"]] = row["delivered"] * 1e6 / times.slot_us
        seen: dict[int, str] = {}
        for view in self._views:
            if view["kind"] == "regular" and len(view["members"]) > 1 and (at := _us(view["time"])) is not None:
                seen.setdefault(at // times.slot_us, f"view {view['view_id']}: {' '.join(view['members'])}")
        marks = [Mark(times.at(slot * times.slot_us), text) for slot, text in seen.items()]
        words = "Messages delivered at each node. Dotted lines are new views; they name themselves under the pointer."
        return _throughput("Deliveries", times, by_node, marks, stacked=False, words=words)

    def _stays(self, times: Times, regular: Iterable[dict[str, Any]]) -> Iterator[Stay]:
        for view in regular:
            start, end = _us(view["time"]), _us(view["ended_time"])
            if start is not None and end is not None:
                title = f"{view['node']} in view {view['view_id']}: {' '.join(view['members'])}"
                crashed = view["ended"] == "crashed"
                yield Stay(view["node"], view["view_id"], times.at(start), times.at(end), title, crashed)

    def _causes(self) -> str:
        """One line for what happened to some members alike, with all nodes that saw it so."""
        seen: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
        for row in self._changes:
            if row["member"] != row["node"]:
                seen[row["view_id"], row["member"], row["change"], row["cause"], row["reason"] or ""].append(row)
        alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
        times: dict[tuple[str, ...], int | None] = {}
        for (view, member, change, cause, reason), who in seen.items():
            key = view, change, cause, reason, " ".join(sorted({row["node"] for row in who}))
            alike[key].append(member)
            known = [at for row in who if (at := _us(row["time"])) is not None]
            times[key] = min(known, default=None)
        rows = []
        for alike_key in sorted(alike, key=lambda each: times[each] or 0):
            view, change, cause, reason, nodes = alike_key
            at = times[alike_key]
            when = "–" if self._times is None or at is None else seconds(round(self._times.at(at), 2))
            rows.append((view, when, " ".join(sorted(alike[alike_key])), change, cause, reason, nodes))
        head = ("view", "time", "members", "change", "cause", "reason", "seen by")
        return table("Why views changed", head, _short(rows))


def _throughput(
    title: str, times: Times, rates: dict[str, dict[int, float]], marks: Sequence[Mark], stacked: bool = True,
    words: str = "",
) -> str:  # fmt: skip
    """Rates of senders or nodes over time. Those beyond the colours that there are go together."""
    half = times.slot_us // 2
    largest = sorted(rates, key=lambda name: -sum(rates[name].values()))
    kept = sorted(largest if len(largest) <= COLOURS else largest[: COLOURS - 1])
    lines = [Series(name, _points(times, rates[name], half)) for name in kept]
    if rest := [name for name in largest if name not in kept]:
        sums: dict[int, float] = defaultdict(float)
        for name in rest:
            for slot, rate in rates[name].items():
                sums[slot] += rate if stacked else rate / len(rest)
        lines.append(Series(OTHERS, _points(times, sums, half), 0))
    points = [[y for _, y in line.points] for line in lines]
    highest = [sum(column) for column in zip(*points, strict=True)] if stacked else [max(line) for line in points]
    axis = span(highest, "messages/s")
    words = words or "Messages by their senders' clocks, on top of each other. Dotted lines are new views."
    return figure(title, Plot(times.axis(), axis, lines, marks, stacked=stacked), words)


def _points(times: Times, rates: dict[int, float], half: int) -> list[tuple[float, float]]:
    """In the middle of each slot, within the plot."""
    end = times.at(times.end_us)
    return [(min(max(times.at(slot + half), 0.0), end), rates.get(slot, 0.0)) for slot in times.slots]


def _membership(times: Times, stays: Sequence[Stay], words: str) -> str:
    members = sorted({stay.member for stay in stays})
    if len(members) > MEMBERS_MAX:
        words += f" The first {MEMBERS_MAX} of {len(members)} members."
        members = members[:MEMBERS_MAX]
    return drawing("Views over time", timeline(times.axis(), members, stays), words)


def _short(rows: Sequence[Sequence[object]]) -> Sequence[Sequence[object]]:
    if len(rows) <= ROWS_MAX:
        return rows
    left_out = f"… {len(rows) - ROWS_MAX} more in the lake"
    return [*rows[:ROWS_MAX], (left_out, *[""] * (len(rows[0]) - 1))]


def _micros(name: str) -> Any:
    return F.unix_micros(F.col(name))


def _slot(name: str, slot_us: int) -> Any:
    return (F.floor(_micros(name) / slot_us) * slot_us).alias("slot")
