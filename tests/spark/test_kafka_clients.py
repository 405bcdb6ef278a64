"""Spark's own source and sink for Kafka over the log's own listener."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.server.running import Running

pytestmark = pytest.mark.spark


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Running]:
    server = Running(tmp_path / "topics", kafka=True)
    yield server
    server.stop()


def test_spark_writes_and_reads_in_batches_and_as_a_stream(
    spark: SparkSession, endpoint: Running, tmp_path: Path
) -> None:
    options = {"kafka.bootstrap.servers": endpoint.bound.kafka}
    rows = spark.range(1000).selectExpr("cast(id as string) as key", "concat('v', id) as value")
    rows.coalesce(1).write.format("kafka").options(**options, topic="t").save()
    rows = spark.read.format("kafka").options(**options, subscribe="t").load()
    texts = [row[0] for row in rows.selectExpr("cast(value as string)", "offset").orderBy("offset").collect()]
    assert texts == [f"v{number}" for number in range(1000)]
    stream = spark.readStream.format("kafka").options(**options, subscribe="t", startingOffsets="earliest").load()
    copied = stream.selectExpr("key", "value").writeStream.format("kafka").options(**options, topic="copy")
    query = copied.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert endpoint.log.topic("copy").end == 1000
