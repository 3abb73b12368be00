"""`spark.read.format("ordercast")` on log files."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from ordercast.spark.connector.columns import ROWS
from ordercast.spark.connector.options import read_options
from ordercast.spark.errors import SparkError
from spark.samples import START_US, SampleLog

DAY = "2023-11-14"


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """Several segments, small chunks and one that is larger than an Arrow batch, keys, headers, views."""
    log = SampleLog(tmp_path_factory.mktemp("sample"))
    log.add_view(["n1"], 1)
    log.add_many(12, 300)
    log.add([b"keyed", b"not", b""], [b"k1", None, b""], [[("type", b"order"), ("x", b"\xff")], None, []])
    log.add_view(["n1", "n2"], 2)
    log.add_many(20, 100)
    log.add([b"%d" % number for number in range(ROWS + 10)])
    log.add_view(["n1", "n2", "n3"], 3)
    log.close()
    assert len(list((log.folder / "log").iterdir())) > 2
    return log


def read(spark, log, **options):
    return spark.read.format("ordercast").options(path=str(log.folder), **options).load()


def test_every_message_once_in_its_place(spark, sample):
    rows = read(spark, sample).orderBy("offset").select("offset", "sender", "sender_seq", "value").collect()
    assert [row.offset for row in rows] == list(range(len(sample.sent)))
    assert [(row.sender, row.sender_seq, bytes(row.value)) for row in rows] == sample.sent


def test_the_columns_are_kafka_s_and_then_ours(spark, sample):
    frame = read(spark, sample, includeHeaders="true")
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "int"), ("offset", "bigint"),
        ("timestamp", "timestamp"), ("timestampType", "int"), ("headers", "array<struct<key:string,value:binary>>"),
        ("kind", "string"), ("sender", "string"), ("sender_seq", "bigint"), ("view_id", "string"),
        ("service", "string"),
    ]  # fmt: skip
    keyed, without, empty = frame.where("offset between 3600 and 3602").orderBy("offset").collect()
    assert (keyed.key, keyed.value) == (b"k1", b"keyed")
    assert [(header.key, bytes(header.value)) for header in keyed.headers] == [("type", b"order"), ("x", b"\xff")]
    assert (without.key, without.headers) == (None, None)
    assert (empty.key, empty.headers, empty.value) == (b"", [], b"")
    assert (keyed.topic, keyed.partition, keyed.timestampType, keyed.kind) == ("orders", 0, 0, "message")
    assert (keyed.sender, keyed.view_id, keyed.service) == ("a", "8:n1", "agreed")
    assert keyed.timestamp == datetime.fromtimestamp((START_US + 12_000) / 1e6, UTC).replace(tzinfo=None)


def test_ranges_in_parallel_cover_the_log(spark, sample):
    frame = read(spark, sample, minPartitions="7")
    assert frame.rdd.getNumPartitions() == 7
    seen = frame.agg(F.count("*"), F.countDistinct("offset"), F.max("offset")).first()
    assert tuple(seen) == (len(sample.sent), len(sample.sent), len(sample.sent) - 1)


def test_views_are_rows_before_the_message_that_they_stand_before(spark, sample):
    views = read(spark, sample, includeViews="true", minPartitions="3").where("kind = 'view'").orderBy("offset")
    found = [(row.offset, row.view_id, json.loads(bytes(row.value))["members"], row.sender) for row in views.collect()]
    assert found == [
        (0, "1:n1", ["n1"], None),
        (3603, "2:n1", ["n1", "n2"], None),
        (len(sample.sent), "3:n1", ["n1", "n2", "n3"], None),
    ]


def test_a_schema_with_fewer_columns_reads_only_these(spark, sample):
    frame = spark.read.format("ordercast").schema("offset long, value binary").load(str(sample.folder))
    assert frame.columns == ["offset", "value"]
    assert bytes(frame.where("offset = 17").first().value) == sample.sent[17][2]


@pytest.mark.parametrize(
    ("options", "first", "end"),
    [
        ({"startingOffsets": "100", "endingOffsets": '{"orders": {"0": 250}}'}, 100, 250),
        ({"startingOffsets": '{"orders": {"0": -2}}', "endingOffsets": "3"}, 0, 3),
        ({"startingTimestamp": str(START_US // 1000 + 3), "endingTimestamp": str(START_US // 1000 + 5)}, 900, 1500),
        ({"startingOffsets": "5", "endingOffsets": "5"}, None, None),
        ({"subscribe": "orders", "endingOffsets": "1"}, 0, 1),
    ],
)
def test_a_part_of_the_log(spark, sample, options, first, end):
    found = read(spark, sample, **options).agg(F.min("offset"), F.max("offset") + 1, F.count("*")).first()
    assert tuple(found) == (first, end, 0 if end is None else end - first)


@pytest.mark.parametrize(
    ("condition", "first", "end"),
    [
        ("offset >= 10 and offset < 20", 10, 20),
        ("offset > 10 and offset <= 20 and offset <= 15", 11, 16),
        ("offset = 301", 301, 302),
        ("offset >= 5000 and offset < 5000", None, None),
        (f"timestamp >= timestamp'{DAY} 22:13:20.002' and timestamp < timestamp'{DAY} 22:13:20.004'", 600, 1200),
        (f"timestamp > timestamp'{DAY} 22:13:20.002' and timestamp <= timestamp'{DAY} 22:13:20.003'", 900, 1200),
    ],
)  # fmt: skip
def test_limits_of_offset_and_time_are_pushed_down_when_asked(spark, sample, condition, first, end):
    """With them the scan reads no other rows, and without them the answer is the same."""
    pushed = read(spark, sample, pushFilters="true").where(condition)
    plan = pushed._jdf.queryExecution().executedPlan().toString()
    assert "offset#" not in plan.partition("Filter")[2].partition("BatchScan")[0].replace("isnotnull(offset#", "")
    for frame in (pushed, read(spark, sample).where(condition)):
        found = frame.agg(F.min("offset"), F.max("offset") + 1, F.count("*")).first()
        assert tuple(found) == (first, end, 0 if end is None else end - first)


def test_what_retention_removed_is_an_error_or_skipped(spark, tmp_path):
    log = SampleLog(tmp_path, segment_bytes=4096)
    log.add_many(20, 50)
    log.drop_before(400)
    log.close()
    first = read(spark, log).agg(F.min("offset")).first()[0]
    assert 0 < first <= 400
    with pytest.raises(PySparkException, match=r"offsets 0 to \d+ are no longer in the log of 'orders'"):
        read(spark, log, startingOffsets="0").count()
    assert read(spark, log, startingOffsets="0", failOnDataLoss="false").count() == 1000 - first


def test_a_damaged_log_is_named_with_its_place(spark, tmp_path):
    log = SampleLog(tmp_path, segment_bytes=2**20)
    log.add_many(3, 100)
    log.close()
    (segment,) = (tmp_path / "log").iterdir()
    raw = bytearray(segment.read_bytes())
    raw[1000] ^= 1
    segment.write_bytes(raw)
    with pytest.raises(PySparkException, match=r"LogCorrupt: .*\.seg: damaged at byte \d+ \(offset 0\)"):
        read(spark, log).count()


def test_a_log_that_lost_a_segment(spark, tmp_path):
    log = SampleLog(tmp_path, segment_bytes=4096)
    log.add_many(20, 50)
    log.close()
    sorted((tmp_path / "log").iterdir())[2].unlink()
    with pytest.raises(PySparkException, match="or a segment is missing"):
        read(spark, log).count()


BAD = {
    "nothing": ({}, "one of the options path (a log's folder) and servers (HOST:PORT,…) is needed"),
    "both": ({"path": "/a", "servers": "h:1"}, "one of the options path"),
    "unknown": ({"path": "/a", "startingOfsets": "earliest"}, "there is no option 'startingofsets'. Options: path,"),
    "empty": ({"path": " "}, "option path is empty"),
    "offset": ({"startingOffsets": "soon"}, "option startingOffsets is earliest, latest, an offset or"),
    "negative": ({"startingOffsets": "-3"}, "option startingOffsets is earliest, latest, an offset or"),
    "partition": ({"endingOffsets": '{"orders": {"1": 5}}'}, "a group has one partition, 0, not '1'"),
    "two groups": ({"subscribe": "a,b"}, "a source reads one group, not 'a,b'"),
    "another group": ({"subscribe": "a", "startingOffsets": '{"b": {"0": 5}}'}, "names the group 'b', subscribe 'a'"),
    "from the end": ({"startingOffsets": "latest"}, "a table cannot begin with latest"),
    "to the beginning": ({"endingOffsets": "earliest"}, "a table cannot end with earliest"),
    "time": ({"startingTimestamp": "yesterday"}, "is a time in milliseconds since 1970, not 'yesterday'"),
    "count": ({"minPartitions": "0"}, "option minPartitions is a number from 1 on, not '0'"),
    "flag": ({"includeViews": "maybe"}, "option includeViews is true or false, not 'maybe'"),
    "streams only": ({"maxOffsetsPerTrigger": "5"}, "option maxOffsetsPerTrigger is for a stream, not for a table"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_option_of_a_table(case):
    options, reason = BAD[case]
    with pytest.raises(SparkError) as error:
        read_options(options if case in ("nothing", "both", "empty") else {"path": "/a", **options}, "table")
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


BAD_STREAM = {
    "tables only": ({"endingOffsets": "5"}, "option endingOffsets is for a table, not for a stream"),
    "more than most": ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "9 is more than maxOffsetsPer"),
    "delay": ({"maxTriggerDelay": "long"}, "option maxTriggerDelay is a duration such as 500ms, 10s or 15m"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_STREAM)
def test_a_wrong_option_of_a_stream(case):
    options, reason = BAD_STREAM[case]
    with pytest.raises(SparkError) as error:
        read_options({"path": "/a", **options}, "stream")
    assert reason in str(error.value)


def last_line(error: PySparkException) -> str:
    lines = [line for line in str(error).splitlines() if line.startswith("ordercast.")]
    assert len(lines) == 1, error
    return lines[0].partition(": ")[2]


@pytest.mark.parametrize(
    ("options", "schema", "reason"),
    [
        ({"path": "/nowhere"}, None, "option path: /nowhere is not a directory that this machine has"),
        ({"path": "/tmp"}, None, "/tmp: there is no log here"),
        ({"pathh": "/tmp"}, None, "there is no option 'pathh'"),
        ({"subscribe": "trades"}, None, "the log is of the group 'orders', not of 'trades'"),
        ({"startingOffsets": "99999999"}, None, "99999999 lies behind the end of the log"),
        ({"endingOffsets": "99999999"}, None, "99999999 lies behind the end of the log"),
        ({}, "offset int", "column 'offset' is of type bigint, not int"),
        ({}, "ofset long", "there is no column 'ofset'. Columns: key, value"),
        ({}, "headers array<struct<key:string,value:binary>>", "set the option includeHeaders"),
    ],
)  # fmt: skip
def test_what_spark_users_are_told(spark, sample, options, schema, reason):
    reader = spark.read.format("ordercast").options(**{"path": str(sample.folder), **options})
    with pytest.raises(PySparkException) as error:
        (reader.schema(schema) if schema else reader).load().count()
    assert reason in last_line(error.value)
