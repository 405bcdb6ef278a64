"""Promotion of a topic and its pipeline to a real Kafka: no row is lost or doubled, also after kills."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from penstock.client.relay.tally import relayed_origin
from penstock.counts import Origin
from penstock.files.checked_document import read_document
from penstock.kafka.broker import Broker
from penstock.kafka.errors import KafkaAway
from penstock.kafka.origin_header import LOG_OFFSET_HEADER, ORIGIN_HEADER, OriginReader
from penstock.landing.from_kafka.continuity import KafkaContinuity
from penstock.landing.from_kafka.offset_map import OffsetMap, load_maps, map_path
from penstock.landing.from_kafka.rows import HEADERS
from penstock.proof.kafka_records import group_offsets
from penstock.proof.posts.ledger_client import LedgerClient
from penstock.proof.posts.moved_topics import post_moves
from penstock.records import SCHEMA
from penstock.spark.query.landing_query import Landing, start_landing
from penstock.spark.query.proof_worker import ProofWorker
from penstock.spark.views import read_landed
from penstock.upkeep.promote.kafka_writer import read_header_values
from penstock.upkeep.promote.promotion import CannotMove, Promotion, move_pipeline, to_records
from penstock.upkeep.repair.checkpoint_repair import SourceDiffers
from penstock.upkeep.trace.tracer import Tracer
from tests.spark.spark_daemon import daemon
from tests.spark.spark_helpers import HandWritten, append, event, landed_event

ROWS = 12_000


def test_record_has_the_time_and_headers_of_its_producer() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    annotations = [
        [("kafka.timestamp", "1700000000123"), ("h", "v")],
        [("kafka.base64.raw", "/w=="), ("kafka.none.empty", "")],
        [("kafka.timestamp", "soon")],
        None,
    ]
    rows = [{"payload": b"%d" % n, "timestamp": moment, "annotations": pairs} for n, pairs in enumerate(annotations)]
    records = list(to_records(range(4), pa.RecordBatch.from_pylist(rows, schema=SCHEMA), Origin("udp", 60, 0, 0)))
    log_time = int(moment.timestamp() * 1000)
    assert [(record.timestamp, list(record.headers)[1:]) for record in records] == [
        (1_700_000_000_123, [("h", b"v")]),
        (log_time, [("raw", b"\xff"), ("empty", None)]),
        (log_time, [("kafka.timestamp", b"soon")]),
        (log_time, []),
    ]
    assert [next(iter(record.headers)) for record in records] == [(LOG_OFFSET_HEADER, b"%d" % n) for n in range(4)]


def test_record_of_a_relayed_row_has_its_origin() -> None:
    row = {"payload": b"a", "timestamp": datetime(2026, 1, 1, tzinfo=UTC), "annotations": [("h", "v")]}
    part = pa.RecordBatch.from_pylist([row], schema=SCHEMA)
    (record,) = to_records([7], part, Origin("web1/events", 1_767_225_600, 0, 0, "syslog"))
    assert list(record.headers) == [
        (LOG_OFFSET_HEADER, b"7"),
        ("codec", b"syslog"),
        (ORIGIN_HEADER, b"web1/events@1767225600"),
        ("h", b"v"),
    ]


def test_origin_of_a_row_through_relays_is_read_back_however_late_it_came() -> None:
    """The record's time is the producer's or the log's, neither of which is near the minute of the first host."""
    site = relayed_origin("site", relayed_origin("edge-1", Origin("events", 1_767_225_600, 0, 0), "a/t"), "b/t")
    far = relayed_origin("S" * 20, relayed_origin("EDGE-12345", Origin("events", 1_767_225_600, 0, 0), "a/t"), "b/t")
    row = {"payload": b"a", "timestamp": datetime(2026, 3, 1, tzinfo=UTC)}
    old_row = {**row, "annotations": [("kafka.timestamp", "1700000000123")]}
    part = pa.RecordBatch.from_pylist([row, old_row], schema=SCHEMA)
    records = [record for origin in (site, far) for record in to_records([7, 8], part, origin)]
    headers = pa.array([[{"key": k, "value": v} for k, v in record.headers] for record in records], HEADERS)
    seconds = np.array([record.timestamp // 1000 for record in records])
    sources, buckets = OriginReader().read(headers, seconds)
    assert sources.to_pylist() == ["site/edge-1/events"] * 2 + [f"{'S' * 20}/EDGE-12345/"] * 2
    assert buckets.tolist() == [1_767_225_600] * 4


def land(spark: SparkSession, landing: Landing, ledger: LedgerClient) -> None:
    start_landing(spark, landing, available_now=True).wait(240)
    assert ProofWorker(landing, ledger).step()


@pytest.mark.survives("promotion to Kafka", "SIGKILL")
def test_killed_copy_resumes_and_copies_each_row_once(kafka_broker: Broker, tmp_path: Path) -> None:
    append(tmp_path / "topics", "t", *[[b"%d" % n for n in range(m, m + 1000)] for m in range(0, ROWS, 1000)])
    landing = Landing(tmp_path / "topics", tmp_path / "tables")
    path, name = map_path(landing.layout, "t"), f"p{uuid.uuid4().hex[:8]}"
    arguments = ["promote", "t", "--as", name, "--bootstrap", kafka_broker.address, "-o", f"data_dir={tmp_path}"]
    killed = subprocess.Popen([sys.executable, "-m", "penstock.cli.main", *arguments, "--copy-only", "--partitions=2"])
    deadline = time.monotonic() + 120
    while not path.exists() or len(path.read_bytes().splitlines()) < 2:
        assert killed.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.002)
    killed.kill()
    killed.wait()
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]) + lines[-1][:5])  # as if it had come no further than to Kafka

    kafka = {"bootstrap.servers": kafka_broker.address}
    promotion = Promotion(landing.topics, landing.layout, "t", kafka, name)
    copied = promotion.copy()
    assert copied < ROWS, path.read_text()[:2000]
    assert promotion.copy() == 0
    promotion.close()
    there = {
        int(value): (partition, offset)
        for partition in (0, 1)
        for offset, value in read_header_values(kafka, (name, partition), 0, LOG_OFFSET_HEADER)
    }
    assert sorted(there) == list(range(ROWS))
    offset_map = OffsetMap.load(path)
    assert offset_map is not None
    assert [offset_map.kafka_position(n) for n in range(ROWS)] == [there[n] for n in range(ROWS)]
    with pytest.raises(CannotMove, match=f"is already copied to {name}"):
        Promotion(landing.topics, landing.layout, "t", kafka, "other")


@pytest.mark.survives("promotion to Kafka", "foreign writer")
def test_topic_that_is_created_again_after_the_copy_is_refused(
    kafka_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path / "topics", "t", [event(0), event(1)])
    layout, name = Landing(tmp_path / "topics", tmp_path / "tables").layout, f"p{uuid.uuid4().hex[:8]}"
    HandWritten(layout).commit({"t": 2}, [landed_event(0, "u0"), landed_event(1, "u1")])
    kafka = {"bootstrap.servers": kafka_broker.address}

    def copy() -> int:
        promotion = Promotion(tmp_path / "topics", layout, "t", kafka, name)
        copied = promotion.copy()
        promotion.close()
        return copied

    assert (copy(), copy()) == (2, 0)
    admin = AdminClient(kafka)
    admin.delete_topics([name])[name].result(30)
    admin.create_topics([NewTopic(name, 1)])[name].result(30)
    for refused in (copy, lambda: move_pipeline(layout, kafka)):
        with pytest.raises(
            CannotMove, match=f"{name} of Kafka was deleted or created again since t was copied"
        ) as error:
            refused()
        assert f"delete {map_path(layout, 't')} and run `penstock promote t` again" in str(error.value)
    map_path(layout, "t").unlink()
    assert copy() == 2
    with monkeypatch.context() as unanswered:
        unanswered.setattr(KafkaContinuity, "before_reading", unanswered_request)
        with pytest.raises(KafkaAway):
            move_pipeline(layout, kafka)
    assert load_maps(layout)["t"].move is None
    assert move_pipeline(layout, kafka)["t"].begins == {0: 2}
    assert read_document(layout.continuity)["ids"].keys() == {name}


def unanswered_request(*_: object) -> None:
    raise KafkaAway("no answer in time")


@pytest.mark.spark
def test_pipeline_continues_in_kafka_at_its_offset(
    spark: SparkSession, kafka_broker: Broker, topics: Path, tmp_path: Path
) -> None:
    name, kafka = f"p{uuid.uuid4().hex[:8]}", {"bootstrap.servers": kafka_broker.address}
    landing = Landing(topics, tmp_path / "tables")
    append(topics, name, [event(0), event(1), b"text", event(1)])
    with daemon(tmp_path) as running:
        ledger = LedgerClient(running.http)
        land(spark, landing, ledger)
        large = event(7, data={"text": "x" * 2_000_000})
        running.log.topic(name)
    append(topics, name, [event(1), event(2), large, b"{bad"])
    # The minute of a row that was relayed is that of its host; the record's timestamp is the time of the copy here.
    minute = int(time.time()) // 60 * 60 - 3600
    append(topics, name, [event(number) for number in range(20, 25)], source="web1/events", bucket=minute)
    with daemon(tmp_path) as running:
        ledger = LedgerClient(running.http)
        promotion = Promotion(topics, landing.layout, name, kafka, name)
        assert promotion.copy() == 13
        promotion.close()
        assert move_pipeline(landing.layout, kafka)[name].landed == 4
        assert move_pipeline(landing.layout, kafka) == {}
        # A topic that is created again after the move is recognized before its first batch.
        assert read_document(landing.layout.continuity)["ids"].keys() == {name}
        for _ in range(2):
            post_moves(topics, landing.layout, ledger)
        with pytest.raises(SourceDiffers, match="landed from Kafka"):
            start_landing(spark, landing)
        # The group of lag tools has the proved ends; without a group nothing is committed.
        assert group_offsets(kafka, "") is None
        later = replace(landing, topic=name, kafka=kafka, kafka_group=f"lag-{name}")
        start_landing(spark, later, available_now=True).wait(240)
        assert ProofWorker(later, ledger).stop(0)
        committed = Consumer({**kafka, "group.id": f"lag-{name}"}).committed([TopicPartition(name, 0)], 30)
        assert committed[0].offset == Consumer({**kafka, "group.id": "x"}).get_watermark_offsets(committed[0], 30)[1]
        balance = running.ledger.balance()
        assert balance.unaccounted == 0, balance.document()["topics"]
        assert {topic.topic: topic.fates for topic in balance.topics}[name]["promoted"] == 9
        over_kafka, relayed = sorted(balance.hosts, key=lambda entry: entry.way)
        assert (relayed.way, relayed.accepted, relayed.fates) == ("relay", 5, {"promoted": 5})
        assert (over_kafka.way, over_kafka.accepted, over_kafka.fates) == ("kafka", 5, {"landed.event": 5})
        assert {(entry.host, entry.listener, entry.last_seen) for entry in balance.hosts} == {
            ("web1", "events", minute)
        }
    rows = [(row.partition, row.kind, row.uuid) for row in read_landed(spark, landing.tables).collect()]
    assert sorted(rows, key=str) == sorted(
        [
            *((None, "event", "u0"), (None, "event", "u1"), (None, "message", None)),
            *((0, "event", "u2"), (0, "event", "u7"), (0, "quarantine", None)),
            *((0, "event", f"u{number}") for number in range(20, 25)),
        ],
        key=str,
    )
    tracer = Tracer(topics, landing.layout)
    assert tracer.trace(name, 0).steps[-1].step == "kafka"
    trace = tracer.trace(name, 6)
    assert trace.fate == "promoted"
    there = trace.steps[-1].details
    assert tracer.trace(there["topic"], there["offset"]).fate == "landed.event"
