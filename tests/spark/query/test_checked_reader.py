"""Offsets of a topic that begin again under its name: nothing lands at offsets of other messages, nothing is lost."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import deltalake
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from penstock.files.checked_document import write_document
from penstock.kafka.broker import Broker
from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import REQUESTED, DeletionRecord, request_deletion
from penstock.landing.spark_checkpoint import newest_plan
from penstock.landing.table.landed_table import table_of
from penstock.landing.topics.continuity import OffsetsRestarted
from penstock.log import Log
from penstock.spark.query.landing_query import Landing, RunningLanding, start_landing
from penstock.testing.pipe import wait_until
from penstock.upkeep.deletion.removal import execute_deletions
from penstock.upkeep.deletion.returned_rows import delete_returned_rows
from tests.spark.spark_helpers import append

pytestmark = pytest.mark.spark
TOPIC = "t"


@pytest.fixture
def landing(kafka_broker: Broker, topics: Path, tmp_path: Path) -> Landing:
    """A landing of two topics of Kafka, the first with a hundred rows, ten of which were deleted."""
    first, second = (f"t{uuid.uuid4().hex[:8]}" for _ in range(2))
    names = f"{first},{second}"
    landing = Landing(topics, tmp_path / "tables", topic=names, kafka={"bootstrap.servers": kafka_broker.address})
    for name in (first, second):
        create(landing, name)
    return landing


def names(landing: Landing) -> list[str]:
    return landing.topic.split(",")


def admin(landing: Landing) -> AdminClient:
    assert landing.kafka is not None
    return AdminClient(dict(landing.kafka))


def create(landing: Landing, name: str) -> None:
    client = admin(landing)
    client.create_topics([NewTopic(name, 1, 1)])[name].result(30)


def delete(landing: Landing, name: str) -> None:
    client = admin(landing)
    client.delete_topics([name])[name].result(30)


def recreate(landing: Landing, name: str) -> None:
    delete(landing, name)
    create(landing, name)


def send(landing: Landing, name: str, payloads: Iterable[bytes]) -> None:
    assert landing.kafka is not None
    producer = Producer({**landing.kafka, "linger.ms": 0})
    for payload in payloads:
        producer.produce(name, payload)
    assert producer.flush(30) == 0


def texts(begin: int, end: int) -> list[bytes]:
    return [b"text %d" % number for number in range(begin, end)]


def land(spark: SparkSession, landing: Landing) -> None:
    start_landing(spark, landing, available_now=True).wait(120)


def wait_until_refused(running: RunningLanding) -> None:
    wait_until(lambda: not running.is_running, 60)
    assert isinstance(running.failure(), OffsetsRestarted), running.failure()


def landed(landing: Landing) -> list[bytes]:
    rows = deltalake.DeltaTable(str(landing.layout.landed)).to_pyarrow_table(columns=["payload"])
    return sorted(rows["payload"].to_pylist(), key=lambda text: int(text.split()[1]))


def delete_rows(landing: Landing, name: str) -> None:
    request_deletion(landing.layout, REQUESTED, parse_conditions(f"topic = '{name}'"))
    assert execute_deletions(landing.layout, landing.window) == 1


@pytest.mark.parametrize("sent", [30, 100, 150])
def test_topic_of_kafka_that_is_created_again_stops_the_landing(
    spark: SparkSession, landing: Landing, sent: int
) -> None:
    first, second = names(landing)
    send(landing, first, texts(0, 100))
    land(spark, landing)
    delete_rows(landing, first)
    send(landing, first, texts(100, 110))
    land(spark, landing)
    recreate(landing, first)
    send(landing, first, texts(1000, 1000 + sent))
    send(landing, second, texts(500, 510))
    for _ in range(2):
        with pytest.raises(OffsetsRestarted, match=f"topic {first} of Kafka was deleted and created again"):
            land(spark, landing)
    assert landed(landing) == texts(100, 110), "rows of the new topic are not at offsets of the former one"
    # Other topics land on without it, and its messages under another name.
    land(spark, replace(landing, topic=second))
    third = f"t{uuid.uuid4().hex[:8]}"
    create(landing, third)
    send(landing, third, texts(1000, 1000 + sent))
    land(spark, replace(landing, topic=f"{second},{third}"))
    table = table_of(landing.layout)
    runs = DeletionRecord(landing.layout).readable_runs(by_penstock=True)
    assert delete_returned_rows(landing.layout, table, runs, table.active).rows == 0
    assert landed(landing) == texts(100, 110) + texts(500, 510) + texts(1000, 1000 + sent)
    with pytest.raises(OffsetsRestarted):
        land(spark, landing)


@pytest.mark.parametrize(("is_planned_without", "sent"), [(False, 150), (True, 150), (True, 0)])
def test_topic_that_is_created_again_stops_a_running_landing(
    spark: SparkSession, landing: Landing, is_planned_without: bool, sent: int
) -> None:
    first, second = names(landing)
    send(landing, first, texts(0, 100))
    running = start_landing(spark, landing)
    try:
        wait_until(lambda: table_of(landing.layout).newest() >= 0, 60)
        delete(landing, first)
        if is_planned_without:  # Spark forgets the topic's position
            send(landing, second, texts(100, 110))
            wait_until(lambda: len(landed(landing)) == 110, 60)
        create(landing, first)
        send(landing, first, texts(1000, 1000 + sent))
        wait_until_refused(running)
    finally:
        running.stop()
    assert landed(landing) == texts(0, 110 if is_planned_without else 100)
    with pytest.raises(OffsetsRestarted):
        land(spark, landing)
    assert newest_plan(landing.layout.checkpoint) == table_of(landing.layout).newest(), "no plan of the new offsets"


def test_lower_end_of_a_partition_stops_the_landing_for_good(spark: SparkSession, landing: Landing) -> None:
    """Without ids of topics, as before Kafka 2.8, or of tables of an earlier version."""
    first, _ = names(landing)
    send(landing, first, texts(0, 100))
    land(spark, landing)
    landing.layout.continuity.unlink()
    recreate(landing, first)
    send(landing, first, texts(1000, 1030))
    with pytest.raises(OffsetsRestarted, match=f"partition {first}/0 of Kafka ends at 30, and its offsets before 100"):
        land(spark, landing)
    send(landing, first, texts(1030, 1150))
    with pytest.raises(OffsetsRestarted, match=f"partition {first}/0 of Kafka ends at 30, and its offsets before 100"):
        land(spark, landing)
    assert landed(landing) == texts(0, 100)


def test_topic_that_was_not_configured_for_a_while_continues(spark: SparkSession, landing: Landing) -> None:
    first, second = names(landing)
    for name, begin in ((first, 0), (second, 100)):
        send(landing, name, texts(begin, begin + 50))
    land(spark, landing)
    send(landing, first, texts(50, 60))
    send(landing, second, texts(150, 160))
    land(spark, replace(landing, topic=first))
    assert landed(landing) == texts(0, 60) + texts(100, 150)
    land(spark, landing)
    assert landed(landing) == texts(0, 60) + texts(100, 160)


@pytest.fixture
def log_landing(spark: SparkSession, topics: Path, tmp_path: Path) -> Landing:
    landing = Landing(topics, tmp_path / "tables", topic=TOPIC)
    append(topics, TOPIC, texts(0, 100))
    land(spark, landing)
    return landing


@pytest.mark.parametrize("sent", [1, 30, 100, 150])
def test_replaced_log_stops_the_landing_until_it_is_put_back(
    spark: SparkSession, log_landing: Landing, sent: int
) -> None:
    topics = log_landing.topics
    delete_rows(log_landing, TOPIC)
    topics.rename(topics.with_name("former"))
    append(topics, TOPIC, texts(1000, 1000 + sent))
    for _ in range(2):
        with pytest.raises(OffsetsRestarted, match=f"topic {TOPIC} of the log begins again"):
            land(spark, log_landing)
    assert landed(log_landing) == []
    shutil.rmtree(topics)
    topics.with_name("former").rename(topics)
    append(topics, TOPIC, texts(100, 110))
    land(spark, log_landing)
    assert landed(log_landing) == texts(100, 110)


def test_log_that_is_replaced_during_a_batch_is_not_committed(spark: SparkSession, log_landing: Landing) -> None:
    topics = log_landing.topics
    running = start_landing(spark, log_landing)
    try:
        shutil.rmtree(topics)
        append(topics, TOPIC, texts(1000, 1150))
        wait_until_refused(running)
    finally:
        running.stop()
    assert landed(log_landing) == texts(0, 100)


def test_older_copy_of_the_log_with_new_rows_stops_the_landing(
    spark: SparkSession, log_landing: Landing, tmp_path: Path
) -> None:
    topics = log_landing.topics
    shutil.copytree(topics, tmp_path / "copy")
    append(topics, TOPIC, texts(100, 120))
    land(spark, log_landing)
    shutil.rmtree(topics)
    (tmp_path / "copy").rename(topics)
    land(spark, log_landing)  # nothing is lost yet
    append(topics, TOPIC, texts(1000, 1100))
    with pytest.raises(OffsetsRestarted, match="offset 119 landed with a message"):
        land(spark, log_landing)
    assert landed(log_landing) == texts(0, 120)


def test_topic_of_the_log_that_is_deleted_and_created_again_continues(
    spark: SparkSession, log_landing: Landing
) -> None:
    log = Log(log_landing.topics)
    log.delete(TOPIC)
    log.close()
    append(log_landing.topics, TOPIC, texts(1000, 1150))
    land(spark, log_landing)
    assert landed(log_landing) == texts(0, 100) + texts(1000, 1150)


def test_damaged_or_missing_marks_do_not_stop_the_landing(spark: SparkSession, log_landing: Landing) -> None:
    for document in ({"rows": {TOPIC: 3}}, {}):
        write_document(log_landing.layout.continuity, document)
        append(log_landing.topics, TOPIC, texts(100, 110))
        land(spark, log_landing)
    assert len(landed(log_landing)) == 120
