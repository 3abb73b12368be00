"""`spark.readStream.format("ordercast")` on log files that grow."""

from __future__ import annotations

import shutil

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from ordercast.spark.connector import logs
from ordercast.spark.connector.columns import full_schema
from ordercast.spark.connector.options import read_options
from ordercast.spark.connector.stream import StreamReader
from ordercast.spark.errors import SparkError
from spark.samples import SampleLog


@pytest.fixture
def log(tmp_path):
    log = SampleLog(tmp_path / "data")
    yield log
    log.writer.close()


@pytest.fixture
def run(spark, tmp_path, log):
    """Runs the query over what is there now, and tells its batches as (rows, end)."""

    def run(checkpoint="checkpoint", **options):
        stream = spark.readStream.format("ordercast").options(path=str(log.folder), **options).load()
        query = (
            stream.select("offset", "value").writeStream.format("parquet").trigger(availableNow=True)
            .option("checkpointLocation", str(tmp_path / checkpoint)).option("path", str(tmp_path / "out")).start()
        )  # fmt: skip
        query.awaitTermination()
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

    return run


def offsets(spark, tmp_path):
    return [row.offset for row in spark.read.parquet(str(tmp_path / "out")).orderBy("offset").collect()]


def test_a_query_goes_on_where_it_stood_and_loses_and_repeats_nothing(spark, tmp_path, log, run):
    log.add_many(4, 250)
    assert run(startingOffsets="earliest", maxOffsetsPerTrigger="300") == [300, 300, 300, 100]
    assert run(startingOffsets="earliest") == []
    log.add_many(2, 250)
    assert run(startingOffsets="earliest") == [500]
    assert offsets(spark, tmp_path) == list(range(1500))


def test_a_new_query_begins_with_what_comes_unless_told(spark, tmp_path, log, run):
    log.add_many(1, 100)
    assert run() == []
    log.add_many(1, 50)
    assert run() == [50]
    assert offsets(spark, tmp_path) == list(range(100, 150))


def test_a_batch_whose_commit_was_lost_is_read_again_as_it_was(spark, tmp_path, log, run):
    log.add_many(4, 100)
    run(startingOffsets="earliest")
    (tmp_path / "checkpoint/commits/0").unlink()
    (tmp_path / "checkpoint/commits/.0.crc").unlink()
    shutil.rmtree(tmp_path / "out/_spark_metadata")  # else the sink would skip what it knows
    log.add_many(1, 100)
    assert run(startingOffsets="earliest") == [400, 100]
    assert offsets(spark, tmp_path) == list(range(500))


def test_retention_overtakes_a_query(spark, tmp_path, run, log):
    log.add_many(4, 250)
    run(startingOffsets="earliest")
    log.add_many(100, 250)
    log.drop_before(20_000)
    with pytest.raises(StreamingQueryException, match=r"offsets 1000 to \d+ are no longer in the log of 'orders'"):
        run()
    run(failOnDataLoss="false")
    seen = offsets(spark, tmp_path)
    assert seen[:1000] == list(range(1000))
    assert seen[-1] == 25_999
    assert seen[1000:] == list(range(seen[1000], 26_000))


# The reader itself, without a query around it.


def reader(log, **options):
    logs._open.clear()
    return StreamReader(full_schema(False), read_options({"path": str(log.folder), **options}, "stream"))


def at(place):
    return {"orders": {"0": place}}


def test_admission(log):
    log.add_many(5, 100)
    limited = reader(log, maxOffsetsPerTrigger="150")
    assert limited.getDefaultReadLimit() == ReadMaxRows(150)
    assert limited.latestOffset(at(0), ReadMaxRows(150)) == at(150)
    assert limited.latestOffset(at(0), ReadAllAvailable()) == at(500)
    assert limited.reportLatestOffset() == at(500)
    patient = reader(log, minOffsetsPerTrigger="600")
    assert patient.getDefaultReadLimit() == ReadMinRows(600)
    assert patient.latestOffset(at(0), ReadMinRows(600)) == at(0)
    log.add_many(1, 100)
    assert patient.latestOffset(at(0), ReadMinRows(600)) == at(600)
    assert reader(log, minOffsetsPerTrigger="9999", maxTriggerDelay="0s").latestOffset(at(0), ReadMinRows(9)) == at(600)


def test_available_now_ends_where_the_log_ended_when_it_began(log):
    log.add_many(5, 100)
    query = reader(log, minOffsetsPerTrigger="600")
    query.prepareForTriggerAvailableNow()
    log.add_many(5, 100)
    assert query.latestOffset(at(0), ReadMinRows(600)) == at(500)
    assert query.latestOffset(at(500), ReadMinRows(600)) == at(500)


def test_checkpoints_of_other_logs_are_refused(log):
    log.add_many(1, 100)
    query = reader(log)
    with pytest.raises(SparkError, match="the checkpoint is of the group 'trades', and the log of 'orders'"):
        query.latestOffset({"trades": {"0": 5}}, ReadAllAvailable())
    with pytest.raises(SparkError, match="the checkpoint stands at offset 101, and the log of 'orders' ends at 100"):
        query.latestOffset(at(101), ReadAllAvailable())
    with pytest.raises(SparkError, match="offsets 100 to 149 were in the log of 'orders' once"):
        query.partitions(at(50), at(150))
    assert query.partitions(at(100), at(100)) == []


def test_views_come_with_the_message_that_they_stand_before(log):
    log.add_many(1, 10)
    log.add_view(["n1"], 2)
    log.add_many(1, 10)
    log.add_view(["n1", "n2"], 3)
    query = reader(log, includeViews="true")

    def seen(start, end):
        batches = [batch for part in query.partitions(at(start), at(end)) for batch in query.read(part)]
        return [(row["offset"], row["kind"]) for batch in batches for row in batch.to_pylist() if row["kind"] == "view"]

    assert seen(0, 10) == []
    assert seen(10, 20) == [(10, "view")]
    log.add_many(1, 10)
    assert seen(20, 30) == [(20, "view")]
