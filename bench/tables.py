"""Spark rows/s through the data source, against Parquet and against Spark's own Kafka source with the same rows."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import numpy as np

from penstock.counts import Origin
from penstock.kafka.broker import Broker
from penstock.log import Log, TopicSettings
from penstock.records import binary_array, body
from penstock.spark.session import build_session
from penstock.spark.source.data_source import register
from penstock.testing.spark_extensions import KAFKA, package_settings

ROWS = 1_000_000
BATCH = 10_000
SIZE = 256
REPEATS = 3


def measure() -> dict[str, Any]:
    """Rows a second of sum(length(payload)) over a topic, over Parquet, and over a Kafka topic."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, Broker(Path(folder) / "kafka") as broker:
        path = Path(folder)
        appended = _fill(path / "topics")
        _produce(broker.address)
        spark = build_session(package_settings([KAFKA]))
        register(spark)
        try:
            topic = spark.read.format("penstock").option("path", str(path / "topics")).option("topic", "bench").load()
            topic.write.parquet(str(path / "parquet"))
            parquet = spark.read.parquet(str(path / "parquet"))
            read = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.address)
            kafka = read.option("subscribe", "bench").option("minPartitions", 2).load()
            kafka = kafka.withColumnRenamed("value", "payload")
            source_rate, parquet_rate, kafka_rate = _rate(topic), _rate(parquet), _rate(kafka)
        finally:
            spark.stop()
    return {
        "log_append_rows_per_s": round(appended),
        "spark_source_rows_per_s": round(source_rate),
        "spark_parquet_rows_per_s": round(parquet_rate),
        "spark_kafka_rows_per_s": round(kafka_rate),
        "spark_source_ratio_to_parquet": round(source_rate / parquet_rate, 2),
        "spark_source_ratio_to_kafka": round(source_rate / kafka_rate, 2),
    }


def _fill(folder: Path) -> float:
    """Append ROWS rows of SIZE bytes; rows a second."""
    log = Log(folder, TopicSettings(segment_size_limit=64 << 20))
    topic = log.topic("bench", create=True)
    offsets = np.arange(BATCH + 1, dtype=np.int32) * SIZE
    data = np.random.default_rng(1).integers(32, 127, BATCH * SIZE, dtype=np.uint8)
    payload = binary_array(offsets, data)
    started = time.perf_counter()
    for number in range(ROWS // BATCH):
        topic.append(body(payload), Origin("bench", 60 * (number // 10), 0, 0)).result()
    seconds = time.perf_counter() - started
    log.close()
    return ROWS / seconds


def _produce(address: str) -> None:
    """The same number of rows of the same size into a Kafka topic."""
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 20, "acks": 1})
    data = np.random.default_rng(1).integers(32, 127, BATCH * SIZE, dtype=np.uint8).tobytes()
    values = [data[begin : begin + SIZE] for begin in range(0, len(data), SIZE)]
    for _ in range(ROWS // BATCH):
        for value in values:
            producer.produce("bench", value)
        producer.flush(60)


def _rate(frame: Any) -> float:
    """The best of some runs: the first one warms up."""
    best = 0.0
    for _ in range(REPEATS):
        started = time.perf_counter()
        frame.selectExpr("sum(length(payload))").collect()
        best = max(best, ROWS / (time.perf_counter() - started))
    return best
