"""`ordercast spark lake`: nothing lost and nothing twice, whatever is killed, on `local[2]` and on a cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from cli.processes import environment
from ordercast.cli import spark_lake
from ordercast.cli.main import main
from ordercast.spark.errors import SparkError
from ordercast.spark.lake import store
from ordercast.spark.lake.job import LogJob, Settings, add_traces
from ordercast.spark.lake.store import STATE, Lake, State
from serve.member import Member
from spark.samples import SampleLog
from spark.test_lake_tables import write_story


class Cut(Exception):
    """The driver dies here, as far as the lake can tell: nothing of it runs after this."""


@pytest.fixture
def log(tmp_path):
    log = SampleLog(tmp_path / "data")
    log.add_view(["n1"], 2)
    log.add_many(5, 100)
    log.add_view(["n1", "n2"], 3)
    log.add_many(5, 100)
    log.add_view(["n1"], 4)
    yield log
    log.writer.close()


def fill(spark, folder: Path, log: SampleLog, **settings) -> None:
    with Lake(folder) as lake:
        LogJob(spark, lake, Settings({"path": str(log.folder)}, **{"once": True, "batch_rows": 300, **settings})).run()


def table(folder: Path, name: str) -> list[dict]:
    return ds.dataset(folder / name, partitioning="hive").to_table().to_pylist()


def expect_all(folder: Path, log: SampleLog) -> None:
    """Every table says what the log holds."""
    messages = sorted(table(folder, "messages"), key=lambda row: row["offset"])
    assert [(row["sender"], row["sender_seq"], row["value"]) for row in messages] == log.sent
    assert [row["offset"] for row in messages] == list(range(len(log.sent)))
    assert all(row["arrived"] > row["timestamp"] for row in messages)
    per_sender = {sender: sum(each == sender for each, _, _ in log.sent) for sender in "abc"}
    rates = table(folder, "sender_rates")
    assert {sender: sum(row["messages"] for row in rates if row["sender"] == sender) for sender in "abc"} == per_sender
    latency = [row for row in table(folder, "latency") if row["sender"] is None]
    for lag in ("order", "arrival"):
        assert sum(row["messages"] for row in latency if row["lag"] == lag) == len(log.sent)
    views = table(folder, "view_rates")
    assert sum(row["messages"] for row in views if row["sender"] is None) == len(log.sent)


def test_a_log_becomes_tables_batch_by_batch(spark, tmp_path, log, monkeypatch):
    """And its small files become a large one, even if the job dies when that is written and does not count yet."""
    folder = tmp_path / "lake"
    real = Lake.commit

    def die_of_compaction(lake, state, staged, removed=()):
        if removed:
            raise Cut
        real(lake, state, staged)

    with monkeypatch.context() as patch:
        patch.setattr(Lake, "commit", die_of_compaction)
        with pytest.raises(SparkError, match="Cut"):
            fill(spark, folder, log, small_files=4)
    assert len(list(folder.glob("messages/*/*.parquet"))) == 4
    log.add_many(1, 50)
    log.add_view(["n1", "n2"], 5)
    fill(spark, folder, log, small_files=4)
    (merged,) = folder.glob("messages/*/*.parquet")
    assert merged.stem == f"{0:020}-{1049:020}"
    assert pq.ParquetFile(merged).read(["offset"]).column("offset").to_pylist() == list(range(1050))
    expect_all(folder, log)
    views = [(row["view_id"], row["offset"], row["joined"], row["left"]) for row in table(folder, "views")]
    assert views == [
        ("2:n1", 0, ["n1"], []), ("3:n1", 500, ["n2"], []), ("4:n1", 1000, [], ["n2"]), ("5:n1", 1050, ["n2"], [])
    ]  # fmt: skip
    # Spark reads it as it is, with the date as a column.
    frame = spark.read.parquet(str(folder / "messages"))
    assert frame.where("date = '2023-11-14'").selectExpr("sum(length)").collect() == [(1050 * 24,)]


def test_a_job_that_dies_before_or_after_the_step_that_counts_goes_on(spark, tmp_path, log, monkeypatch):
    """What is written does not count yet; what counts is not in place yet; all is done and nobody was told."""
    folder = tmp_path / "lake"
    real_commit, real_replace = Lake.commit, store._replace
    cuts = [
        (Lake, "commit", lambda *arguments: die()),
        (store, "_replace", lambda path, data: (real_replace(path, data), die())),
        (Lake, "commit", lambda *arguments: (real_commit(*arguments), die())),
    ]

    def die():
        raise Cut

    ends = []
    for cut in cuts:
        with monkeypatch.context() as patch, Lake(folder) as lake:
            patch.setattr(*cut)
            with pytest.raises(SparkError, match="Cut"):
                LogJob(spark, lake, Settings({"path": str(log.folder)}, True, batch_rows=150)).run()
        with Lake(folder) as lake:  # what a start does, without a job
            ends.append(lake.state.end)
            assert len(table(folder, "messages") if lake.state.batches else []) == (lake.state.end or 0)
    assert ends == [None, 150, 300]
    fill(spark, folder, log)
    expect_all(folder, log)


def test_a_growing_log_is_followed_until_it_is_stopped(spark, tmp_path):
    """From a member, over the network."""
    member = Member(tmp_path / "data")
    folder = tmp_path / "lake"
    try:
        with Lake(folder) as lake:
            commits = threading.Semaphore(0)
            settings = Settings({"servers": member.address}, interval_s=0.1)
            following = LogJob(spark, lake, settings, lambda state: commits.release())
            runner = threading.Thread(target=following.run)
            runner.start()
            for number in range(2):
                member.log.add([b"%d %d" % (number, each) for each in range(20)])
                assert commits.acquire(timeout=120)
            following.stop()
            runner.join(120)
            assert not runner.is_alive()
        rows = sorted(table(folder, "messages"), key=lambda row: row["offset"])
        assert [row["value"] for row in rows] == [data for _, _, data in member.log.sent]
    finally:
        member.close()


def test_traces_tell_the_causes(spark, tmp_path):
    log = SampleLog(tmp_path / "data")
    for view, members in (("1:a", ["n1"]), ("2:a", ["n1", "n2", "n3"]), ("3:a", ["n1", "n2"]), ("4:a", ["n1"])):
        log.add_many(1, 10)
        log.add_named_view(view, members)
    folder, trace = tmp_path / "lake", write_story(tmp_path / "story")

    def causes():
        rows = table(folder, "view_changes")
        return {(row["view_id"], row["member"]): (row["change"], row["cause"], row["reason"]) for row in rows}

    fill(spark, folder, log)
    assert set(causes().values()) == {("joined", "unknown", None), ("left", "unknown", None)}
    with Lake(folder) as lake:
        assert add_traces(spark, lake, [trace]) == {"story": 21}
    expected = causes()
    assert expected["3:a", "n3"] == ("left", "crashed", "network-fault network 1: silent")
    assert expected["4:a", "n2"] == ("left", "parted", None)
    # A view that comes after the traces has its cause at once; traces that come again change nothing.
    log.add_many(1, 10)
    log.add_named_view("6:a", ["n1", "n2", "n3"])
    fill(spark, folder, log)
    assert causes() == {
        **expected, ("6:a", "n2"): ("joined", "merged", None), ("6:a", "n3"): ("joined", "restarted", None)
    }  # fmt: skip
    before = table(folder, "trace_views")
    with Lake(folder) as lake:
        add_traces(spark, lake, [trace])
    assert table(folder, "trace_views") == before
    log.writer.close()


def test_what_does_not_belong_together_is_refused(spark, tmp_path, log):
    folder = tmp_path / "lake"
    with Lake(folder) as lake:
        lake.commit(State(group="orders", end=1000, batches=1), [])
    other = SampleLog(tmp_path / "other", group="trades")
    other.add_many(1, 10)
    with pytest.raises(SparkError, match=r"is of the group 'orders', the log of 'trades'"):
        fill(spark, folder, other)
    shorter = SampleLog(tmp_path / "shorter")
    shorter.add_many(1, 10)
    with pytest.raises(SparkError, match=r"holds offsets up to 999, and the log of 'orders' ends at 10: it is another"):
        fill(spark, folder, shorter)
    log.add_many(100, 250)
    log.drop_before(20_000)
    with pytest.raises(SparkError, match=r"offsets 1000 to \d+ are no longer in the log of 'orders'"):
        fill(spark, folder, log)
    with Lake(folder) as lake:
        source = {"path": str(log.folder), "failOnDataLoss": "false"}
        LogJob(spark, lake, Settings(source, True)).run()
    (gap,) = (row for row in table(folder, "gaps") if row["kind"] == "offsets")
    assert (gap["first"], gap["last"] + 1) == (1000, gap["offset"])
    assert len(table(folder, "messages")) == len(log.sent) - gap["offset"]
    with Lake(folder) as lake, pytest.raises(SparkError, match="has time slots of 1 s, not of 60 s"):
        spark_lake.set_bucket(lake, 60.0)
    other.writer.close()
    shorter.writer.close()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "say --path, --servers or --traces"),
        (["--path", "nowhere"], "nowhere is not a directory"),
        (["--path", "."], "there is no log here"),
        (["--servers", "127.0.0.1:1"], "127.0.0.1:1: Connection refused"),
        (["--traces", "nowhere"], "nowhere"),
    ],
)
def test_the_command_says_in_one_line_what_is_wrong(tmp_path, monkeypatch, capsys, spark, arguments, reason):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(spark, "stop", lambda: None)
    monkeypatch.setattr("ordercast.cli.spark_session.session", lambda *args, **options: spark)
    assert main(["spark", "lake", "lake", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert reason in line


def test_the_command_is_killed_and_started_again(spark, tmp_path, log, monkeypatch, capsys):
    """kill -9 of the process with the JVM, as soon as it has committed something."""
    folder = tmp_path / "lake"
    conf = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    command = [sys.executable, "-m", "ordercast", "spark", "lake", folder, "--path", log.folder, "--batch", "100",
               "--master", "local[2]", "--driver-memory", "512m", "--conf", conf]  # fmt: skip
    killed = subprocess.Popen(command, start_new_session=True, env=environment(), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not (folder / STATE).exists():
        assert time.monotonic() < deadline
        assert killed.poll() is None
        time.sleep(0.01)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    monkeypatch.setattr(spark, "stop", lambda: None)
    monkeypatch.setattr("ordercast.cli.spark_session.session", lambda *args, **options: spark)
    monkeypatch.setattr(spark_lake, "_until_signal", lambda job: None)
    assert main(["spark", "lake", str(folder), "--path", str(log.folder), "--once", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["group"], report["start"], report["end"]) == ("orders", 0, 1000)
    assert report["messages"] < 1000
    expect_all(folder, log)


def test_on_a_cluster_that_loses_a_worker_while_a_batch_is_written(cluster, cluster_spark, tmp_path, log, monkeypatch):
    folder = tmp_path / "lake"
    for _ in range(100):
        log.add_many(1, 500, 150)
    lost = threading.Event()
    real = Lake.commit

    def commit(lake, *arguments):
        if not lost.is_set():
            lost.set()
            cluster.kill_worker(0)
        real(lake, *arguments)

    monkeypatch.setattr(Lake, "commit", commit)
    monkeypatch.setattr("ordercast.spark.connector.parts.PARTITION_BYTES", 2**20)
    fill(cluster_spark, folder, log, batch_rows=30_000)
    cluster.start_worker()
    assert lost.is_set()
    expect_all(folder, log)
