"""A job that publishes a log into a group: SOURCE SERVERS CHECKPOINT. Run by tests, which kill it."""

from __future__ import annotations

import sys

from ordercast.spark.session import session


def main(source: str, servers: str, checkpoint: str) -> None:
    spark = session("sink job", master="local[2]", driver_memory="512m",
                    conf={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"})  # fmt: skip
    stream = spark.readStream.format("ordercast").options(
        path=source, startingOffsets="earliest", maxOffsetsPerTrigger="300"
    )
    query = (
        stream.load().select("value").writeStream.format("ordercast").trigger(availableNow=True)
        .options(servers=servers, checkpointLocation=checkpoint).start()
    )  # fmt: skip
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
