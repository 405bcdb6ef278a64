"""The balance of healthy Kafka topics, through the pipeline: control records, aborts and compaction are not losses."""

from __future__ import annotations

import json
import signal
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from penstock.config import load
from penstock.counts import Counts, lost
from penstock.kafka.absent_offsets import Absence, AbsentOffsets
from penstock.kafka.broker import Broker
from penstock.kafka.origin_header import ORIGIN_HEADER, encode_origin
from penstock.ledger.rebuild import rebuild_balance
from penstock.ledger.receipt import receipt
from penstock.ledger.receipt_words import remarks
from penstock.proof.posts.tables import table_posts
from penstock.testing.pipe import wait_until
from tests.spark.pipeline_in_session import run_once
from tests.spark.spark_daemon import daemon
from tests.spark.spark_helpers import event
from tests.spark.test_pipeline import start

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
COMPACTION = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}

KILLED = """
import os, signal, sys
from penstock.proof.posts.ledger_client import LedgerClient
from penstock.spark import pipeline
when = sys.argv.pop(1)
post = LedgerClient.post

def post_and_kill(*words):
    if when == "after":
        post(*words)
    os.kill(os.getpid(), signal.SIGKILL)

LedgerClient.post = post_and_kill
sys.exit(pipeline.main())
"""


class Cluster:
    """Topics of a broker with one partition each, under names of one test."""

    def __init__(self, broker: Broker) -> None:
        self.kafka = {"bootstrap.servers": broker.address}
        self.prefix = f"b{uuid.uuid4().hex[:8]}"
        self.admin = AdminClient(self.kafka)
        self.numbers = iter(range(1_000_000))

    def create(self, kind: str, **config: str) -> str:
        topic = f"{self.prefix}-{kind}"
        self.admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(30)
        return topic

    def send(self, topic: str, count: int, keys: Iterable[bytes | None] = ()) -> None:
        producer, ordered_keys = Producer(self.kafka), iter(keys)
        for _ in range(count):
            producer.produce(topic, event(next(self.numbers)), next(ordered_keys, None))
        assert producer.flush(30) == 0

    def send_transactions(self, topic: str, outcomes: Iterable[bool], size: int) -> None:
        producer = Producer({**self.kafka, "transactional.id": topic})
        producer.init_transactions(30)
        for commits in outcomes:
            producer.begin_transaction()
            for _ in range(size):
                producer.produce(topic, event(next(self.numbers)))
            producer.flush(30)  # an abort would drop what is still queued
            producer.commit_transaction(30) if commits else producer.abort_transaction(30)

    def delete_before(self, topic: str, offset: int) -> None:
        partition = TopicPartition(topic, 0, offset)
        self.admin.delete_records([partition])[partition].result(30)

    def compact(self, topic: str, end: int) -> None:
        """Wait until Kafka has compacted offsets [0, end) but for the last record of each key."""

        def is_compacted() -> bool:
            self.send(topic, 1, [b"roll"])
            spans = AbsentOffsets(self.kafka).classify((topic, 0), [(0, end)])
            return any(span.absence is Absence.COMPACTED for span in spans)

        wait_until(is_compacted, 60)


def committed_offsets(cluster: Cluster, *topics: str) -> list[int]:
    """Return the offsets of the group that shows lag tools how far the pipeline is."""
    consumer = Consumer({**cluster.kafka, "group.id": "penstock-pipeline"})
    offsets = consumer.committed([TopicPartition(topic, 0) for topic in topics], timeout=30)
    consumer.close()
    return [partition.offset for partition in offsets]


def test_balance_of_healthy_topics_has_no_losses_and_names_a_real_one(
    spark: SparkSession, kafka_broker: Broker, tmp_path: Path
) -> None:
    cluster = Cluster(kafka_broker)
    transactions, compacted = cluster.create("transactions"), cluster.create("compacted", **COMPACTION)
    expired = cluster.create("expired")
    cluster.send_transactions(transactions, [True, False, True, True, False, True, True, False, True, True], 10)
    cluster.send(compacted, 40, [b"k%d" % (number % 4) for number in range(40)])
    cluster.compact(compacted, 40)
    cluster.send(expired, 10)
    cluster.delete_before(expired, 4)
    settings = [
        "pipeline.source=kafka",
        f"pipeline.topics={json.dumps([f'{cluster.prefix}-*'])}",
        *(f"pipeline.kafka.{key}={text}" for key, text in cluster.kafka.items()),
    ]
    with daemon(tmp_path) as running:

        def fates(topic: str) -> dict[str, int]:
            (book,) = (book for book in running.ledger.balance().topics if book.topic == f"{topic}/0")
            return dict(book.fates)

        assert run_once(spark, tmp_path, running.http, settings) == 0
        assert fates(transactions) == {
            "landed.event": 70,
            "not_a_message.aborted": 30,
            "not_a_message.control": 10,
        }
        cleaned = Counts(fates(compacted))
        assert set(cleaned) == {"landed.event", "compacted"}
        assert cleaned["compacted"] >= 36
        assert fates(expired) == {"landed.event": 6, "gap.expired_before": 4}
        balance = running.ledger.balance()
        document: dict[str, Any] = json.loads(json.dumps(balance.document()))
        assert (balance.unaccounted, receipt(document).lost) == (0, 0)
        assert receipt(document).sent == 70 + 6 + cleaned["landed.event"]
        assert remarks(receipt(document)) == (
            f"{44 + cleaned['compacted']} offsets of Kafka hold no message: {cleaned['compacted']} compacted, "
            "30 of aborted transactions, 10 control records, 4 expired before the first batch"
        )

        cluster.send(expired, 10)
        cluster.delete_before(expired, 13)
        assert run_once(spark, tmp_path, running.http, settings) == 0
        assert fates(expired) == {"landed.event": 13, "gap.expired_before": 4, "gap.expired_unread": 3}
        assert lost(fates(expired)) == {"gap.expired_unread": 3}
        assert running.ledger.balance().unaccounted == 0
        assert committed_offsets(cluster, expired) == [20]
        before = running.ledger.balance().document()
    loaded = load(None, [f"data_dir={tmp_path}", *settings])
    rebuilt = rebuild_balance(loaded.topics, loaded.buffers, [], table_posts(loaded), lambda: before, None)
    assert rebuilt["differs"] == []
    assert rebuilt["unaccounted"] == 0


@pytest.mark.survives("hosts", "SIGKILL")
def test_hosts_of_records_count_once_after_kills_around_the_post_and_in_a_rebuild(
    spark: SparkSession, kafka_broker: Broker, tmp_path: Path
) -> None:
    cluster = Cluster(kafka_broker)
    topic = cluster.create("hosts")
    minute = int(time.time()) // 60 * 60 - 120
    settings = ["pipeline.source=kafka", f'pipeline.topics=["{topic}"]']
    settings += [f"pipeline.kafka.{key}={text}" for key, text in cluster.kafka.items()]
    options = [word for setting in settings for word in ("-o", setting)]
    sent: dict[tuple[str, int], int] = {}
    producer = Producer(cluster.kafka)

    def send(count: int) -> None:
        for number in range(count):
            key = f"web{number % 3}/udp", minute + 60 * (number % 2)
            header = encode_origin(key[0].partition("/")[0], "udp", key[1])
            producer.produce(topic, event(next(cluster.numbers)), headers={ORIGIN_HEADER: header})
            sent[key] = sent.get(key, 0) + 1
        # Such a header is of no host.
        producer.produce(topic, event(next(cluster.numbers)), headers={ORIGIN_HEADER: b"web1/udp@\xff"})
        assert producer.flush(30) == 0

    with daemon(tmp_path, now=time.time) as running:
        for when in ("before", "after"):
            send(30)
            killed = start(tmp_path, running.http, *options, program=("-c", KILLED, when))
            stderr = killed.communicate(timeout=300)[1]
            assert killed.returncode == -signal.SIGKILL, stderr
        send(30)
        assert run_once(spark, tmp_path, running.http, settings) == 0
        fates = running.ledger.landed()[f"{topic}/0"].counts
        landed = {key: counts["landed.event"] for key, counts in fates.items() if key[0] != "kafka"}
        assert landed == sent
        assert sum(counts["landed.event"] for (source, _), counts in fates.items() if source == "kafka") == 3
        before = running.ledger.balance().document()
    assert {(row["host"], row["accepted"]) for row in before["hosts"]} == {(f"web{host}", 30) for host in range(3)}
    loaded = load(None, [f"data_dir={tmp_path}", *settings])
    rebuilt = rebuild_balance(loaded.topics, loaded.buffers, [], table_posts(loaded), lambda: before, None)
    assert (rebuilt["differs"], rebuilt["unaccounted"]) == ([], 0)
    assert rebuilt["hosts"] == before["hosts"]
