"""What the lake's tables are made of, without Spark: histograms, rates, gaps, traces; the commit that is cut off."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.spark.errors import SparkError, plain
from ordercast.spark.lake import compact, gaps, rates, traces
from ordercast.spark.lake.histogram import QUANTILES, cells_of, index_of, summarize, upper_edge
from ordercast.spark.lake.raw import MESSAGES, SIDE, Part
from ordercast.spark.lake.store import STATE, Lake, LastOf, Staged, State, messages_name, read_state

steady = settings(deadline=None, derandomize=True, database=None)
DURATIONS = st.lists(st.integers(0, 2**45), min_size=1, max_size=60)


@steady
@given(DURATIONS)
def test_a_bucket_holds_its_durations_and_is_narrow(values):
    durations = np.array(values, np.int64)
    edges = upper_edge(index_of(durations))
    assert (edges >= durations).all()
    assert (edges <= durations * (1 + 1 / 32)).all()
    assert (np.diff(index_of(np.sort(durations))) >= 0).all()


def cells(groups: dict[str, list[int]]) -> pa.Table:
    rows = [(key, value) for key, values in groups.items() for value in values]
    return pa.table({
        "key": [key for key, _ in rows], "index": pa.array(index_of(np.array([value for _, value in rows], np.int64))),
        "count": pa.array([1] * len(rows), pa.int64()), "max_us": pa.array([value for _, value in rows], pa.int64()),
    })  # fmt: skip


@steady
@given(st.dictionaries(st.sampled_from("abc"), DURATIONS, min_size=1))
def test_percentiles_are_at_most_a_bucket_too_high(groups):
    summary = summarize(cells(groups), ["key"])
    assert summary.column("key").to_pylist() == sorted(groups)
    for row in summary.to_pylist():
        values = sorted(groups[row["key"]])
        assert (row["messages"], row["max_us"]) == (len(values), values[-1])
        for name, quantile in QUANTILES:
            exact = values[math.ceil(quantile * len(values)) - 1]
            assert exact <= row[name] <= exact * (1 + 1 / 32)


@steady
@given(st.dictionaries(st.sampled_from("abc"), DURATIONS, min_size=1), DURATIONS)
def test_what_is_added_to_a_summary_counts_as_if_it_had_been_there(groups, more):
    first = summarize(cells(groups), ["key"])
    later = cells({"b": more})
    together = summarize(pa.concat_tables([cells_of(first, ["key"]), later]), ["key"])
    at_once = summarize(cells({**groups, "b": groups.get("b", []) + more}), ["key"])
    assert together.equals(at_once)


def side(random: Random, first: int, count: int, newest: int) -> pa.Table:
    """Some messages of three senders; stamps go back and forth, over the end of an hour."""
    stamps = np.cumsum([random.randrange(-2_000, 4_000) for _ in range(count)]) + 3_599_000_000 + first * 1_000
    return pa.table({
        "offset": np.arange(first, first + count), "stamp_us": stamps,
        "newest_us": np.maximum(np.maximum.accumulate(stamps), newest), "arrived_us": stamps + 5_000,
        "sender": random.choices(["a", "b", "c"], k=count), "seq": np.arange(first, first + count),
        "view_id": [f"{4 + (first + at) // 700}:a" for at in range(count)],
        "safe": random.choices([True, False], k=count),
        "length": pa.array([random.randrange(100) for _ in range(count)], pa.int32()),
    }).cast(SIDE)  # fmt: skip


def by_name(parts: list[pa.Table], known: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """All tables of rates after a batch of these parts."""
    counted, newest = [], 0
    if known:
        newest = known.pop("newest")
    for part in parts:
        counted.append(rates.count(part, newest, 1_000_000))
        newest = max(newest, part.column("newest_us").to_numpy().max())

    def old(name, schema):
        return known.get(name, schema.empty_table())

    found = dict(rates.add_by_time(counted, 1_000_000, old))
    found["view"] = rates.add_by_view(counted, old("view", rates.VIEW_RATES))
    return {**known, **found, "newest": newest}


def test_rates_do_not_depend_on_how_the_log_is_cut_into_batches_and_parts():
    random = Random(6)
    whole = side(random, 0, 3_000, 0)

    def cut(places: list[int]) -> list[pa.Table]:
        found = []
        for low, high in zip([0, *places], [*places, 3_000], strict=True):
            part = whole.slice(low, high - low)
            local = np.maximum.accumulate(part.column("stamp_us").to_numpy())
            found.append(part.set_column(2, "newest_us", pa.array(local)))
        return found

    at_once = by_name(cut([]), {})
    pieces = cut([1, 500, 1_600, 2_500])
    in_parts = by_name(pieces[3:], by_name(pieces[1:3], by_name(pieces[:1], {})))
    assert {name for name in at_once if "hour" in name} == {
        f"{table}/date=1970-01-01/hour={hour}/{file}.parquet"
        for table, file in (("sender_rates", "rates"), ("latency", "latency")) for hour in ("00", "01")
    }  # fmt: skip
    assert in_parts.keys() == at_once.keys()
    for name, table in at_once.items():
        assert in_parts[name] == table if name == "newest" else in_parts[name].equals(table), name


def test_rates_say_what_was_sent():
    whole = side(Random(7), 0, 3_000, 0)
    found = by_name([whole], {})
    rows = whole.to_pylist()
    expected = Counter((row["stamp_us"] // 1_000_000, row["sender"]) for row in rows)
    told = [row for name, table in found.items() if "sender_rates" in name for row in table.to_pylist()]
    assert {(int(row["time"].timestamp()), row["sender"]): row["messages"] for row in told} == expected
    assert sum(row["bytes"] for row in told) == sum(row["length"] for row in rows)
    views = {(row["view_id"], row["sender"]): row["messages"] for row in found["view"].to_pylist()}
    assert views["5:a", None] == 700
    assert views["5:a", "b"] == sum(row["view_id"] == "5:a" and row["sender"] == "b" for row in rows)
    newest, lags = 0, []
    for row in rows:
        newest = max(newest, row["stamp_us"])
        lags.append(newest - row["stamp_us"])
    latency = [row for name, table in found.items() if "latency" in name for row in table.to_pylist()]
    assert max(row["max_us"] for row in latency if row["lag"] == "order") == max(lags)
    assert {row["p50_us"] for row in latency if row["lag"] == "arrival"} == {5_000}


def test_gaps_of_each_kind():
    columns = {
        "offset": [0, 1, 2, 5, 6, 7], "sender": ["a", "a", "b", "a", "b", "a"], "seq": [1, 2, 1, 6, 3, 1],
        "stamp_us": [0, 1, 2, 3, 30_000_000, 31_000_000],
    }  # fmt: skip
    found, ends = gaps.find(pa.table(columns), 10_000_000)
    assert [(gap["kind"], gap.get("sender"), gap.get("first"), gap.get("last"), gap["count"]) for gap in found] == [
        ("offsets", None, 3, 4, 2), ("sequence", "a", 3, 5, 3), ("restart", "a", None, None, 0),
        ("silence", "a", None, None, 0), ("sequence", "b", 2, 2, 1), ("silence", "b", None, None, 0),
    ]  # fmt: skip
    assert ends == {"a": (LastOf(1, 0, 0), LastOf(1, 31_000_000, 7)), "b": (LastOf(1, 2, 2), LastOf(3, 30_000_000, 6))}
    between, last = gaps.join({"b": LastOf(7, 1, 1)}, [ends, {"b": (LastOf(4, 31_000_000, 9),) * 2}], 10_000_000)
    assert [(gap["kind"], gap["sender"], gap["offset"]) for gap in between] == [("restart", "b", 2)]
    assert last["b"] == LastOf(4, 31_000_000, 9)


def test_a_part_splits_dates_and_keeps_the_order(tmp_path):
    day = 86_400_000_000
    stamps = [day - 2, day, day - 1, day + 1]
    columns: dict[str, object] = {name: [None] * 4 for name in ("key", "headers")}
    columns |= {"offset": [7, 8, 9, 10], "timestamp": stamps, "arrived": stamps, "sender": ["a"] * 4,
                "sender_seq": [1, 2, 3, 4], "view_id": ["v"] * 4, "service": ["safe"] * 4,
                "value": [b"x"] * 4}  # fmt: skip
    fields = [field for field in MESSAGES if field.name != "length"]
    batch = pa.record_batch([pa.array(columns[field.name], field.type) for field in fields], pa.schema(fields))
    part = Part(tmp_path)
    part.add(batch)
    written = part.close().to_pylist()
    assert [(row["what"], row["date"], row["first"], row["last"], row["rows"]) for row in written] == [
        ("file", "1970-01-01", 7, 9, 2), ("file", "1970-01-02", 8, 10, 2), ("side", None, 7, 10, 4)
    ]  # fmt: skip
    assert pq.read_table(written[0]["path"]).column("offset").to_pylist() == [7, 9]


# The commit


class Cut(BaseException):
    """The power is off."""


def test_a_commit_that_is_cut_off_anywhere_is_done_or_not_begun(tmp_path, monkeypatch):
    """At every rename and removal, before it and after it; then the lake is opened again."""
    real_replace, real_unlink = Path.replace, Path.unlink
    seen = set()
    for cut_at in range(1, 30):
        folder = tmp_path / str(cut_at)
        with Lake(folder) as lake, lake.staging() as staging:
            (staging / "a").write_text("old")
            (staging / "b").write_text("old")
            lake.commit(State(end=1), [Staged(str(staging / "a"), "t/a"), Staged(str(staging / "b"), "t/gone")])
        steps = 0

        def cut(function, *arguments, cut_at=cut_at, **options):
            nonlocal steps
            steps += 1
            if steps == cut_at:
                raise Cut
            function(*arguments, **options)
            steps += 1
            if steps == cut_at:
                raise Cut

        with Lake(folder) as lake, monkeypatch.context() as patch:
            done = False
            patch.setattr(Path, "replace", lambda *arguments: cut(real_replace, *arguments))
            patch.setattr(Path, "unlink", lambda *arguments, **options: cut(real_unlink, *arguments, **options))
            try:
                with lake.staging() as staging:
                    for name in "ac":
                        (staging / name).write_text("new")
                    lake.commit(State(end=2), [Staged(str(staging / name), f"t/{name}") for name in "ac"], ["t/gone"])
                done = True
            except Cut:
                pass
        with Lake(folder) as lake:
            tables = {path.name: path.read_text() for path in (folder / "t").iterdir()}
            seen.add(lake.state.end)
            assert tables == ({"a": "old", "gone": "old"} if lake.state.end == 1 else {"a": "new", "c": "new"})
            assert not list((folder / "_lake/staged").iterdir())
        if done:
            break
    assert done
    assert cut_at > 8
    assert seen == {1, 2}


def test_a_lake_has_one_writer(tmp_path):
    with Lake(tmp_path), pytest.raises(SparkError, match="another job is writing to it"):
        Lake(tmp_path)
    with Lake(tmp_path) as lake:
        assert lake.state == State()


def test_a_state_that_is_not_ours(tmp_path):
    (tmp_path / "_lake").mkdir()
    (tmp_path / STATE).write_text('{"end": "x"}')
    with pytest.raises(SparkError, match=r"_lake/state\.json is not one of ours"):
        read_state(tmp_path)
    (tmp_path / STATE).write_text('{"format": 9}')
    with pytest.raises(SparkError, match="has format 9, and this version of ordercast knows 1"):
        Lake(tmp_path)


def test_small_files_are_merged_up_to_a_size(tmp_path):
    def put(first, last, size):
        path = tmp_path / messages_name("2026-01-01", first, last)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))

    for number in range(6):
        put(10 * number, 10 * number + 9, 100)
    put(60, 69, 700)
    put(70, 79, 100)
    assert list(compact.plan(tmp_path, 1_000, 8)) == []
    merges = list(compact.plan(tmp_path, 1_000, 7))
    assert [(len(merge.paths), merge.target) for merge in merges] == [(6, messages_name("2026-01-01", 0, 59))]
    assert [len(merge.paths) for merge in compact.plan(tmp_path, 250, 2)] == [2, 2, 2]


# Traces

STORY = {
    "n1": [
        {"event": "conf", "conf": "1:a", "kind": "regular", "members": ["n1"], "time_us": 1_000_000},
        {"event": "conf", "conf": "2:a/n1", "kind": "transitional", "members": ["n1"], "time_us": 2_000_000},
        {"event": "conf", "conf": "2:a", "kind": "regular", "members": ["n1", "n2", "n3"], "time_us": 2_000_000},
        {"event": "deliver", "msg": "m1"}, {"event": "send", "msg": "m2"}, {"event": "deliver", "msg": "m2"},
        {"event": "x-time", "time_us": 3_000_000},
        {"event": "x-network-fault", "reason": "silent", "network": 1},
        {"event": "conf", "conf": "3:a/n1", "kind": "transitional", "members": ["n1", "n2"], "time_us": 4_000_000},
        {"event": "conf", "conf": "3:a", "kind": "regular", "members": ["n1", "n2"], "time_us": 4_000_000},
        {"event": "conf", "conf": "4:a/n1", "kind": "transitional", "members": ["n1"], "time_us": 5_000_000},
        {"event": "conf", "conf": "4:a", "kind": "regular", "members": ["n1"], "time_us": 5_000_000},
        {"event": "conf", "conf": "6:a/n1", "kind": "transitional", "members": ["n1"], "time_us": 6_000_000},
        {"event": "conf", "conf": "6:a", "kind": "regular", "members": ["n1", "n2", "n3"], "time_us": 6_000_000},
        {"event": "conf", "conf": "7:a/n1", "kind": "transitional", "members": ["n1"], "time_us": 7_000_000},
        {"event": "conf", "conf": "7:a", "kind": "regular", "members": ["n1", "n3"], "time_us": 7_000_000},
        {"event": "leave"},
    ],
    "n2": [
        {"event": "conf", "conf": "1:b", "kind": "regular", "members": ["n2"]},
        {"event": "conf", "conf": "2:a", "kind": "regular", "members": ["n1", "n2", "n3"]},
        {"event": "conf", "conf": "3:a", "kind": "regular", "members": ["n1", "n2"]},
        {"event": "conf", "conf": "5:b", "kind": "regular", "members": ["n2"]},
        {"event": "conf", "conf": "6:a", "kind": "regular", "members": ["n1", "n2", "n3"]},
        {"event": "leave"},
    ],
    "n3": [
        {"event": "conf", "conf": "1:c", "kind": "regular", "members": ["n3"]},
        {"event": "conf", "conf": "2:a", "kind": "regular", "members": ["n1", "n2", "n3"]},
        {"event": "deliver", "msg": "m1"},
        {"event": "recover"},
        {"event": "conf", "conf": "5:c", "kind": "regular", "members": ["n3"]},
        {"event": "conf", "conf": "6:a", "kind": "regular", "members": ["n1", "n2", "n3"]},
        {"event": "conf", "conf": "7:a", "kind": "regular", "members": ["n1", "n3"]},
    ],
}  # fmt: skip


def write_story(folder: Path, separators: tuple[str, str] = (",", ":")) -> Path:
    folder.mkdir(parents=True)
    for node, events in STORY.items():
        lines = [{"node": node, "step": step, **event} for step, event in enumerate(events, 1)]
        text = "".join(json.dumps(line, separators=separators) + "\n" for line in lines)
        (folder / f"{node}.jsonl").write_text(text)
    return folder


def scanned(folder: Path) -> dict[str, traces.Scanned]:
    return {
        path.stem: traces.joined([traces.scan(*stretch) for stretch in traces.cut(path)])
        for path in sorted(folder.iterdir())
    }


def test_why_views_changed(tmp_path):
    changes = traces.trace_changes(scanned(write_story(tmp_path / "t"))).to_pylist()
    seen_by_n1 = [
        (row["view_id"], row["member"], row["change"], row["cause"]) for row in changes if row["node"] == "n1"
    ]
    assert seen_by_n1 == [
        ("1:a", "n1", "joined", "started"),
        ("2:a", "n2", "joined", "started"), ("2:a", "n3", "joined", "started"),
        ("3:a", "n3", "left", "crashed"),
        ("4:a", "n2", "left", "parted"),
        ("6:a", "n2", "joined", "merged"), ("6:a", "n3", "joined", "restarted"),
        ("7:a", "n2", "left", "left"), ("7:a", "n3", "returned", "parted"),
    ]  # fmt: skip
    reasons = {row["view_id"]: row["reason"] for row in changes if row["node"] == "n1"}
    assert reasons["3:a"] == "network-fault network 1: silent"
    assert reasons["4:a"] is None


@pytest.mark.parametrize("chunk_bytes", [100, 2**20])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_what_was_delivered_in_each_view_and_when(tmp_path, monkeypatch, chunk_bytes, separators):
    monkeypatch.setattr(traces, "CHUNK_BYTES", chunk_bytes)
    nodes = scanned(write_story(tmp_path / "t", separators))
    rows = {(row["node"], row["view_id"]): row for row in traces.trace_views(nodes).to_pylist()}
    second = rows["n1", "2:a"]
    assert (second["delivered"], second["sent"], second["ended"]) == (2, 1, "conf")
    assert rows["n3", "2:a"]["ended"] == "crashed"
    assert (rows["n3", "2:a"]["delivered"], rows["n3", "5:c"]["life"]) == (1, 2)
    assert (rows["n3", "7:a"]["ended"], rows["n1", "7:a"]["ended"]) == ("crashed", "leave")
    told = [(row["node"], row["time"].timestamp(), row["delivered"], row["sent"])
            for row in traces.trace_rates(nodes, 1_000_000).to_pylist()]  # fmt: skip
    assert told == [("n1", float(at), 2 * (at == 2), 1 * (at == 2)) for at in range(1, 8)]


def test_nothing_is_delivered_between_a_crash_and_the_next_start():
    marks = [
        ({"event": "conf", "time_us": 1_000_000}, 0), ({"event": "x-time", "time_us": 2_500_000}, 10),
        ({"event": "recover", "time_us": 9_000_000}, 13), ({"event": "leave", "time_us": 10_000_000}, 20),
    ]  # fmt: skip
    trace = traces.Scanned([traces.Mark(event, delivered, 0) for event, delivered in marks], 20, 0)
    rows = traces.trace_rates({"n1": trace}, 1_000_000).to_pylist()
    assert {row["time"].second: row["delivered"] for row in rows if row["delivered"]} == {1: 7, 2: 6, 9: 7}


def test_a_trace_of_parquet_says_the_same(tmp_path):
    folder = tmp_path / "p"
    folder.mkdir()
    for node, events in STORY.items():
        rows = [{"node": node, "step": step, **event} for step, event in enumerate(events, 1)]
        names = sorted({name for row in rows for name in row})
        table = pa.table({name: [row.get(name) for row in rows] for name in names})
        pq.write_table(table, folder / f"{node}.parquet", row_group_size=4)
    lines = scanned(write_story(tmp_path / "t"))
    assert traces.trace_changes(scanned(folder)).equals(traces.trace_changes(lines))
    assert traces.trace_views(scanned(folder)).equals(traces.trace_views(lines))


@pytest.mark.parametrize("line", ['{"node":"n1"', "[1]\n", "nothing\n"])
def test_what_is_no_trace(tmp_path, line):
    path = tmp_path / "n1.jsonl"
    path.write_text(line)
    with pytest.raises(SparkError, match=r"n1\.jsonl: not a trace \(.*ordercast check says where"):
        traces.scan(str(path), 0, len(line))


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ("[F] Query [id = 9] terminated with exception: No worker. SQLSTATE: XXKST\n=== Q ===\nId: 9", "No worker."),
        ("Traceback:\n  File x\nordercast.spark.errors.SparkError: there is none\n\tat org.a.B", "there is none"),
        ("Job aborted\nValueError: no\n", "ValueError: no"),
    ],
)  # fmt: skip
def test_an_error_that_came_through_spark_is_one_line(told, line):
    assert plain(Exception(told)) == line
