"""`servers` of a real group: its members, in this process, serve their logs by the option `serve` and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException

from durable.party import Party, wait_until
from ordercast.log import LogReader
from ordercast.wire.keys import generate_key


@pytest.fixture
def party(tmp_path) -> Iterator[Party]:
    party = Party(tmp_path / "group")
    yield party
    party.close()


def servers(*members) -> str:
    return ",".join(str(member.status()["serves"]) for member in members)


def values(frame) -> list[bytes]:
    return [bytes(row.value) for row in frame.select("offset", "value").orderBy("offset").collect()]


def test_a_group_is_a_table_a_stream_and_a_sink(spark, party, tmp_path):
    one, two = party.join("n1", "n2", serve="127.0.0.1:0")
    one.send_many([b"%d" % number for number in range(500)]).wait(60)
    wait_until(lambda: LogReader(party.directory / "n2").end == 500, "the order on the other disk")
    table = spark.read.format("ordercast").option("servers", servers(two)).load()
    assert values(table) == [b"%d" % number for number in range(500)]

    # A stream reads from one member and publishes at the other; the member that it reads from goes, and comes back.
    def run() -> None:
        stream = spark.readStream.format("ordercast").options(servers=servers(two), startingOffsets="earliest")
        query = (
            stream.load().where("not startswith(cast(value as string), 'seen ')")
            .selectExpr("concat('seen ', cast(value as string)) as value")
            .writeStream.format("ordercast").trigger(availableNow=True)
            .options(servers=servers(one), checkpointLocation=str(tmp_path / "checkpoint")).start()
        )  # fmt: skip
        query.awaitTermination()

    run()
    party.stop("n2")
    (two,) = party.join("n2", serve="127.0.0.1:0")
    party.wait_for_primary()
    two.send_many([b"%d" % number for number in range(500, 600)]).wait(60)
    run()
    found = values(spark.read.format("ordercast").option("servers", servers(one, two)).load())
    plain = [value for value in found if not value.startswith(b"seen ")]
    assert plain == [b"%d" % number for number in range(600)]
    assert sorted(found[500:1000]) == sorted(b"seen " + value for value in plain[:500])
    assert sorted(value for value in found if value.startswith(b"seen ")) == sorted(b"seen " + each for each in plain)


def test_the_key_of_the_group(spark, party, tmp_path):
    key = tmp_path / "key"
    key.write_bytes(generate_key(os.urandom))
    key.chmod(0o600)
    (one,) = party.join("n1", serve="127.0.0.1:0", key=key)
    one.send(b"secret").wait(60)
    reader = spark.read.format("ordercast").option("servers", servers(one))
    assert values(reader.option("key", str(key)).load()) == [b"secret"]
    spark.createDataFrame([("more",)], "value string").write.format("ordercast").mode("append").options(
        servers=servers(one), key=str(key)
    ).save()
    assert values(reader.option("key", str(key)).load()) == [b"secret", b"more"]
    with pytest.raises(PySparkException, match="the group has a key: use option key"):
        spark.read.format("ordercast").option("servers", servers(one)).load().count()
