"""Rows of a table sent back, into the log and into a real Kafka: each once."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from penstock.kafka.broker import Broker
from penstock.landing.from_kafka.range_assembler import RangeAssembler
from penstock.landing.from_kafka.read_back import LookBack, consumer, read
from penstock.records import body
from penstock.spark.query.landing_query import Landing, start_landing
from penstock.spark.replay import replay, select_rows
from penstock.spark.views import register_views
from penstock.upkeep.promote.kafka_writer import KafkaWriter
from penstock.upkeep.quarantine.send_once import Resender
from tests.spark.spark_helpers import append, event

pytestmark = pytest.mark.spark


class Killed(BaseException):
    """The process ends here."""


class Dies:
    """Passes batches on, and is killed before or after one."""

    def __init__(self, out: KafkaWriter, when: str) -> None:
        self._out, self._when = out, when

    def append_batch(self, topic: str, body: pa.RecordBatch, producer: tuple[str, int] | None = None) -> list[int]:
        if self._when == "before":
            raise Killed
        self._out.append_batch(topic, body, producer)
        raise Killed


@pytest.fixture
def landing(spark: SparkSession, topics: Path, tmp_path: Path) -> Landing:
    landing = Landing(topics, tmp_path / "tables", keep_payload=False)
    large = event(5, data={"text": "x" * 1_500_000})
    append(topics, "t", [event(1, data={"n": 1}), event(2, "view"), b"text"], [event(3), large])
    start_landing(spark, landing, available_now=True).wait(120)
    register_views(spark, landing.tables)
    return landing


def messages(broker: Broker, topic: str) -> Iterator[tuple[bytes, dict[str, str]]]:
    """The whole messages of a topic of one partition."""
    kafka = {"bootstrap.servers": broker.address}
    assembler = RangeAssembler(LookBack(kafka, 100), 100)
    with consumer(kafka) as client:
        _, end = client.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        for batch in read(client, (topic, 0), 0, end):
            for rows in assembler.add_batch(batch):
                for row in rows.to_pylist():
                    yield row["payload"], dict(row["annotations"] or ())


def test_rows_selected_by_condition_and_time_are_sent_once(
    spark: SparkSession, landing: Landing, kafka_broker: Broker, tmp_path: Path
) -> None:
    topic, kafka = f"r{uuid.uuid4().hex[:8]}", {"bootstrap.servers": kafka_broker.address}
    clicks = select_rows(spark, "events", "type = 'click'", None, None)
    assert [row.uuid for row in clicks.collect()] == ["u1", "u3", "u5"]
    assert select_rows(spark, "events", None, time.time() + 60, None).count() == 0
    assert select_rows(spark, "messages", None, 0.0, time.time() + 60).count() == 1

    out = KafkaWriter(kafka, topic)
    out.append_batch(topic, body([b"first"]))
    for when in ("after", "before"):
        path = tmp_path / "sent" / f"{when}.jsonl"
        killed = Resender(path, Dies(out, when), out.has_batch)
        with pytest.raises(Killed):
            replay(clicks.where("uuid != 'u5'"), topic, killed)
        assert replay(clicks, topic, Resender(path, out, out.has_batch)) == (1, 2)
        assert replay(clicks, topic, Resender(path, out, out.has_batch)) == (0, 3)
    out.close()
    first, *sent = messages(kafka_broker, topic)
    assert first == (b"first", {})
    assert sorted(mark["replay_of"] for _, mark in sent) == ["t:0", "t:0", "t:3", "t:3", "t:4", "t:4"]
    assert sent[0][0] == b'{"type":"click","uuid":"u1","host":"web-1","timestamp":1700000000001,"data":{"n":1}}'
    assert [len(payload) > 1_500_000 for payload, mark in sent if mark["replay_of"] == "t:4"] == [True, True]
