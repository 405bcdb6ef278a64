"""A pipeline of Spark Structured Streaming that appends a topic to a Delta table, and can be killed after its commit.

Run as a program, it commits the first batch, writes a line, and waits: its process can then be killed at the one point
where the table has the batch and the Spark checkpoint does not.
"""

from __future__ import annotations

import sys
from pathlib import Path

import deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

COMMITTED = "the table has the batch"


def stream(spark: SparkSession, broker: str, topic: str, checkpoint: Path) -> DataStreamWriter:
    """Return a stream of the topic's records that ends with the present last record."""
    options = {"kafka.bootstrap.servers": broker, "subscribe": topic, "startingOffsets": "earliest"}
    records = spark.readStream.format("kafka").options(**options).load()
    return records.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)


def land_in_delta(spark: SparkSession, broker: str, topic: str, folder: Path, *, waits: bool = False) -> None:
    """Append the new records. ``waits``: never end, once the first batch is committed to the table."""

    def write(batch: DataFrame, number: int) -> None:
        deltalake.write_deltalake(str(folder / "t"), batch.toArrow(), mode="append")
        if waits:
            print(COMMITTED, flush=True)
            sys.stdin.read()

    query = stream(spark, broker, topic, folder / "checkpoint").foreachBatch(write).start()
    assert query.awaitTermination(120)


if __name__ == "__main__":
    from penstock.spark.session import build_session
    from penstock.testing.spark_extensions import KAFKA, package_settings

    settings = {"master": "local[1]", "driver.memory": "1g"}
    session = build_session({**package_settings([KAFKA]), **settings}, name="killed")
    land_in_delta(session, sys.argv[1], sys.argv[2], Path(sys.argv[3]), waits=True)
