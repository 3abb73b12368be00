"""`write` and `writeStream.format("ordercast")`: exactly once, whatever is killed on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from ordercast.errors import NotPrimary
from ordercast.log import LogReader
from ordercast.serve.batches import Batches, without
from ordercast.serve.stages import decode_rows
from ordercast.spark.connector.options import sink_options
from ordercast.spark.connector.sink import _encode, check_sink_schema
from ordercast.spark.errors import SparkError
from serve.member import Member
from spark.samples import SampleLog

JOB = Path(__file__).with_name("sink_job.py")


@pytest.fixture
def member(tmp_path):
    member = Member(tmp_path / "data")
    yield member
    member.close()


@pytest.fixture
def source(tmp_path):
    """A log of another group, whose messages the sink publishes."""
    log = SampleLog(tmp_path / "source", group="source")
    log.add_many(4, 250)
    yield log
    log.writer.close()


def published(member: Member) -> list[bytes]:
    reader = LogReader(member.log.folder)
    fold = Batches()
    fold.advance(reader)
    return [data for batch in without(reader.read(0), fold.dead) for data in batch]


def expected(source: SampleLog) -> list[bytes]:
    return [data for _, _, data in source.sent]


def start(spark, source, member, checkpoint, **options):
    stream = spark.readStream.format("ordercast").option("path", str(source.folder))
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 300).load()
    return (
        stream.select("value").writeStream.format("ordercast").trigger(availableNow=True)
        .options(servers=member.address, checkpointLocation=str(checkpoint), **options).start()
    )  # fmt: skip


def run(*args, **options):
    start(*args, **options).awaitTermination()


def test_a_frame_with_keys_and_headers_is_published_and_read_back(spark, member):
    rows = [
        (b"k1", b"one", [("h", b"\x01")]),
        (None, b"two", None),
        (b"", b"", []),
    ]
    frame = spark.createDataFrame(rows, "key binary, value binary, headers array<struct<key:string,value:binary>>")
    frame.coalesce(1).write.format("ordercast").mode("append").option("servers", member.address).save()
    back = spark.read.format("ordercast").options(servers=member.address, includeHeaders="true").load()
    found = [
        (row.key, bytes(row.value), None if row.headers is None else [(h.key, bytes(h.value)) for h in row.headers])
        for row in back.orderBy("offset").collect()
    ]
    assert found == [(b"k1", b"one", [("h", b"\x01")]), (None, b"two", None), (b"", b"", [])]


def test_a_write_with_the_same_version_does_nothing(spark, member):
    frame = spark.createDataFrame([("text",)], "value string")
    for version in ("4", "4", "3", "5"):
        options = {"servers": member.address, "txnAppId": "daily", "txnVersion": version}
        frame.write.format("ordercast").mode("append").options(**options).save()
    assert published(member) == [b"text"] * 2


def test_a_stream_goes_on_and_publishes_each_row_once(spark, source, member, tmp_path):
    run(spark, source, member, tmp_path / "checkpoint")
    source.add_many(1, 100)
    run(spark, source, member, tmp_path / "checkpoint")
    assert published(member) == expected(source)
    assert member.published == 5


def test_a_lost_commit_is_replayed_and_adds_nothing(spark, source, member, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    run(spark, source, member, checkpoint)
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal())
    (checkpoint / f"commits/{last}").unlink()
    (checkpoint / f"commits/.{last}.crc").unlink()
    source.add_many(1, 100)
    member.restart()
    run(spark, source, member, checkpoint)
    assert published(member) == expected(source)


def test_a_new_checkpoint_needs_a_new_application(spark, source, member, tmp_path):
    run(spark, source, member, tmp_path / "one", txnAppId="app")
    with pytest.raises(StreamingQueryException, match="txnAppId 'app' was used by another query: a new checkpoint"):
        run(spark, source, member, tmp_path / "two", txnAppId="app")
    assert published(member) == expected(source)
    run(spark, source, member, tmp_path / "three", txnAppId="new")
    assert published(member) == expected(source) * 2


@pytest.mark.parametrize("step", ["before", "after"])
def test_a_member_that_fails_while_it_publishes(spark, source, member, tmp_path, step):
    """The query fails with what the member said, and a restart repeats nothing and loses nothing."""

    def fail() -> None:
        if member.published >= 2:
            raise NotPrimary("this member is not in the primary component")

    setattr(member, step, fail)
    with pytest.raises(StreamingQueryException, match="not in the primary component"):
        run(spark, source, member, tmp_path / "checkpoint")
    setattr(member, step, lambda: None)
    member.restart()
    run(spark, source, member, tmp_path / "checkpoint")
    assert published(member) == expected(source)


def test_a_member_that_is_unreachable(spark, source, member, tmp_path):
    address = member.address
    member.server.close()
    with pytest.raises(StreamingQueryException, match=rf"no member can be reached \({address}: Connection refused\)"):
        run(spark, source, member, tmp_path / "checkpoint")


@pytest.mark.parametrize("step", ["before", "after"])
def test_a_driver_that_is_killed_while_it_publishes(spark, source, member, tmp_path, step):
    """kill -9, while the member is about to order a batch and when it just has; then the query is started again."""
    # The job runs in a process of its own: its JVM dies with it.
    command = [sys.executable, JOB, str(source.folder), member.address, str(tmp_path / "checkpoint")]
    job = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
    killed = threading.Event()

    def kill() -> None:
        if not killed.is_set() and member.published >= 2:
            os.killpg(job.pid, signal.SIGKILL)
            killed.set()

    setattr(member, step, kill)
    assert job.wait(300) == -signal.SIGKILL
    assert killed.is_set()
    run(spark, source, member, tmp_path / "checkpoint")
    assert published(member) == expected(source)


def test_tasks_and_executors_that_are_killed(cluster, cluster_spark, source, member, tmp_path):
    """Each task's Python dies once among its rows; then a machine with an executor does, while a batch is written."""
    marks = tmp_path / "marks"
    marks.mkdir()

    def die_once(batches):
        from pyspark import TaskContext

        context = TaskContext.get()
        for batch in batches:
            yield batch
            try:
                (marks / f"{context.getLocalProperty('streaming.sql.batchId')}-{context.partitionId()}").touch(
                    exist_ok=False
                )
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)

    stream = cluster_spark.readStream.format("ordercast").option("path", str(source.folder))
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 500)
    stream = stream.option("minPartitions", 2).load().select("value").mapInArrow(die_once, "value binary")
    lost = threading.Event()

    def lose_a_worker() -> None:
        if not lost.is_set():
            lost.set()
            cluster.kill_worker(0)

    member.before = lose_a_worker
    query = (
        stream.writeStream.format("ordercast").trigger(availableNow=True)
        .options(servers=member.address, checkpointLocation=str(tmp_path / "checkpoint")).start()
    )  # fmt: skip
    query.awaitTermination()
    cluster.start_worker()
    assert lost.is_set()
    assert len(list(marks.iterdir())) == 4
    assert sorted(published(member)) == sorted(expected(source))


# Without a query around it.

BAD = {
    "no servers": ({}, "table", "option servers is needed: HOST:PORT,…"),
    "no port": ({"servers": "here"}, "table", "option servers: 'here' is not of the form HOST:PORT"),
    "unknown": ({"servers": "h:1", "topic": "a"}, "table", "there is no option 'topic'. Options: servers, key,"),
    "version alone": ({"servers": "h:1", "txnVersion": "1"}, "table", "name it with txnAppId"),
    "version": ({"servers": "h:1", "txnAppId": "a", "txnVersion": "x"}, "table", "is a number from 0 on, not 'x'"),
    "stream": ({"servers": "h:1", "txnVersion": "1"}, "stream", "option txnVersion is for a table, not for a stream"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_option(case):
    options, mode, reason = BAD[case]
    with pytest.raises(SparkError) as error:
        sink_options(options, mode)
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (StructType().add("v", BinaryType()), "the sink needs a column value (binary or string), not only v"),
        (StructType().add("value", IntegerType()), "column 'value' must be binary or string, not int"),
        (StructType().add("value", StringType()).add("id", IntegerType()), "the sink has no use for a column 'id'"),
        (StructType().add("value", StringType()).add("headers", StringType()), "column 'headers' must be array<"),
        (StructType().add("value", StringType()).add("topic", BinaryType()), "column 'topic' must be binary or string"),
    ],
)
def test_a_wrong_schema(schema, reason):
    with pytest.raises(SparkError) as error:
        check_sink_schema(schema)
    assert reason in str(error.value)


def test_rows_become_columns_of_bytes():
    table = pa.table({"value": pa.array([b"x", b"", b"abc"]), "key": pa.array([None, "k", ""], pa.string())})
    assert decode_rows(_encode(table.slice(0, 3))) == ([b"x", b"", b"abc"], [None, b"k", b""], None)
    assert decode_rows(_encode(table.slice(1, 2))) == ([b"", b"abc"], [b"k", b""], None)
    with pytest.raises(SparkError, match="column value: 1 rows have none"):
        _encode(pa.table({"value": pa.array([b"x", None])}))


@pytest.mark.parametrize(
    ("rows", "schema", "reason"),
    [
        ([(None,)], "value binary", "column value: 1 rows have none, and a message needs one"),
        ([(b"x", "trades")], "value binary, topic string", "the members are of the group 'orders', not of 'trades'"),
        ([(1,)], "value int", "column 'value' must be binary or string, not int"),
    ],
)
def test_what_spark_users_are_told(spark, member, rows, schema, reason):
    frame = spark.createDataFrame(rows, schema)
    with pytest.raises(PySparkException) as error:
        frame.write.format("ordercast").mode("append").option("servers", member.address).save()
    assert reason in str(error.value)
    assert published(member) == []


def test_a_log_is_not_overwritten(spark, member):
    with pytest.raises(PySparkException, match=r"a log is only ever appended to: use mode\('append'\)"):
        spark.range(1).selectExpr("'a' as value").write.format("ordercast").mode("overwrite").option(
            "servers", member.address
        ).save()
