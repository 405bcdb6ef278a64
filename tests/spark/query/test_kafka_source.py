"""Kafka's records as Spark hands them over and as the landing takes them: headers go by way of a text."""

from __future__ import annotations

import base64
import json
import uuid

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from penstock.kafka.broker import Broker
from penstock.landing.from_kafka.rows import RECORD
from penstock.spark.query.kafka_source import as_records, kafka_records, topic_pattern
from tests.landing.from_kafka.kafka_records import batch, record

TEXT = pa.schema([pa.field("headers", pa.string()) if f.name == "headers" else f for f in RECORD])
ODD = [
    ("codec", b"plog"),
    ("", b""),
    ("twice", b"1"),
    ("twice", b"2"),
    ('"quo\\ted" \1 \u2028 \U0001f600', bytes(range(256))),
    ("null", None),
]
HEADER = st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.none() | st.binary())


def as_spark_does(headers: list[tuple[str, bytes | None]] | None) -> str | None:
    if not headers:
        return None
    named = [{"key": k} | ({} if v is None else {"value": base64.b64encode(v).decode()}) for k, v in headers]
    return json.dumps(named)


@given(st.lists(st.none() | st.lists(HEADER), min_size=1))
def test_headers_survive_the_text_form(records: list[list[tuple[str, bytes | None]] | None]) -> None:
    original = batch([record(b"x") for _ in records])
    texts = pa.array([as_spark_does(pairs) for pairs in records], pa.string())
    columns = [texts if f.name == "headers" else original.column(f.name) for f in TEXT]
    decoded = as_records(pa.RecordBatch.from_arrays(columns, schema=TEXT))
    assert decoded.schema == RECORD
    expected = [[{"key": k, "value": v} for k, v in pairs] if pairs else None for pairs in records]
    assert decoded.column("headers").to_pylist() == expected


@pytest.mark.spark
def test_records_are_read_unchanged(spark: SparkSession, kafka_broker: Broker) -> None:
    topic = f"t{uuid.uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": kafka_broker.address})
    for headers in ([], ODD):
        producer.produce(topic, b"value", b"key", 0, headers=headers)
    assert producer.flush(30) == 0
    stream = kafka_records(spark, (topic,), {"bootstrap.servers": kafka_broker.address}, max_rows=10)
    query = stream.writeStream.format("memory").queryName(topic).trigger(availableNow=True).start()
    query.awaitTermination(60)
    stored = spark.table(topic).orderBy("offset").toArrow().combine_chunks().to_batches()
    plain, odd = as_records(stored[0]).column("headers").to_pylist()
    assert plain is None
    assert [(header["key"], header["value"]) for header in odd] == ODD


def test_pattern_excludes_internal_topics() -> None:
    assert topic_pattern(("a.b*", "_own")) == r"(?!_)a\.b.*|_own"
