"""Ranges of a micro-batch from partitions of a real Kafka, as Spark asks for them."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql.types import StructType

from penstock.kafka.broker import Broker
from penstock.kafka.errors import KafkaAway
from penstock.spark.source import kafka_ranges
from penstock.spark.source.interfaces import ReadAllAvailable, ReadMaxRows
from penstock.spark.source.kafka_ranges import KafkaLandingSource, KafkaRangeReader, Offsets
from penstock.spark.source.landing_ranges import RANGES
from tests.kafka.kafka_helpers import Topics

EVERYTHING = ReadAllAvailable()
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def cluster(kafka_broker: Broker) -> Iterator[Topics]:
    topics = Topics(kafka_broker, f"k{time.time_ns():x}")
    yield topics
    topics.close()


def reader(cluster: Topics, hold: Path, *topics: str, until_available: bool = False) -> KafkaRangeReader:
    kafka = {"bootstrap.servers": cluster.address}
    return KafkaRangeReader(kafka, topics, 0, hold / "hold", until_available=until_available)


def ranges(planner: KafkaRangeReader, start: Offsets, end: Offsets) -> list[tuple[str, int, int]]:
    """All ranges of a batch, as the rows that its tasks get."""
    batches = [rows for part in planner.partitions(start, end) for rows in planner.read(part)]
    assert all(rows.schema == RANGES for rows in batches)
    found = [row for rows in batches for row in rows.to_pylist()]
    assert not any(row["again"] for row in found)
    return sorted((row["topic"], row["begin"], row["end"]) for row in found)


def test_partitions_begin_at_their_first_record(cluster: Topics, tmp_path: Path) -> None:
    topic = cluster.new(partitions=2)
    cluster.plain(topic, [b"x"] * 5)
    (deleted,) = cluster.admin.delete_records([TopicPartition(topic, 0, 2)]).values()
    deleted.result(30)
    planner = reader(cluster, tmp_path, topic)
    end = planner.latestOffset({}, EVERYTHING)
    assert end == {topic: {"0": 5, "1": 0}}
    assert ranges(planner, {}, end) == [(f"{topic}/0", 2, 5)]
    assert ranges(planner, end, end) == []
    # An expired range is planned all the same: its offsets are accounted for.
    assert ranges(planner, {topic: {"0": 1, "1": 0}}, end) == [(f"{topic}/0", 1, 5)]


def test_open_transactions_are_not_planned(cluster: Topics, tmp_path: Path) -> None:
    topic = cluster.new()
    cluster.plain(topic, [b"x"] * 3)
    with cluster.transaction(topic, [b"y"] * 2):
        assert reader(cluster, tmp_path, topic).latestOffset({}, EVERYTHING) == {topic: {"0": 3}}


def test_a_limit_is_shared_and_a_new_partition_joins(cluster: Topics, tmp_path: Path) -> None:
    first, second = cluster.new(), cluster.new()
    cluster.plain(first, [b"x"] * 30)
    cluster.plain(second, [b"x"] * 10)
    planner = reader(cluster, tmp_path, first, second)
    assert planner.latestOffset({}, ReadMaxRows(8)) == {first: {"0": 6}, second: {"0": 2}}
    assert planner.latestOffset({first: {"0": 30}}, ReadMaxRows(8)) == {first: {"0": 30}, second: {"0": 8}}


def test_offsets_stay_without_a_topic_and_a_lower_end_is_planned(cluster: Topics, tmp_path: Path) -> None:
    topic = cluster.new()
    cluster.plain(topic, [b"x"] * 3)
    start = {"gone": {"0": 7}, topic: {"0": 5}}
    end = reader(cluster, tmp_path, topic).latestOffset(start, EVERYTHING)
    assert end == {"gone": {"0": 7}, topic: {"0": 3}}
    assert ranges(reader(cluster, tmp_path, topic), start, end) == []


def test_nothing_is_planned_while_held_and_no_more_than_was_available(cluster: Topics, tmp_path: Path) -> None:
    topic = cluster.new()
    cluster.plain(topic, [b"x"] * 3)
    planner = reader(cluster, tmp_path, topic, until_available=True)
    assert planner.latestOffset({}, EVERYTHING) == {topic: {"0": 3}}
    cluster.plain(topic, [b"x"])
    assert planner.latestOffset({}, EVERYTHING) == {topic: {"0": 3}}
    (tmp_path / "hold").touch()
    assert planner.latestOffset({}, EVERYTHING) == {}


def test_a_cluster_that_is_away_for_a_moment_gets_no_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.landing.from_kafka.partitions.ANSWER_TIMEOUT_S", 0.5)
    start = {"t": {"0": 1}}
    planner, until_available = (
        KafkaRangeReader({"bootstrap.servers": NOWHERE}, ("t",), 0, tmp_path / "hold", until_available=ends)
        for ends in (False, True)
    )
    assert planner.latestOffset(start, EVERYTHING) == start
    with pytest.raises(KafkaAway, match="does not answer"):
        until_available.latestOffset(start, EVERYTHING)
    # The time runs from the first failure on: before, a batch may have taken long.
    monkeypatch.setattr(kafka_ranges, "AWAY_S", 0.0)
    planner = KafkaRangeReader({"bootstrap.servers": NOWHERE}, ("t",), 0, tmp_path / "hold")
    assert planner.latestOffset(start, EVERYTHING) == start
    with pytest.raises(KafkaAway, match="does not answer"):
        planner.latestOffset(start, EVERYTHING)


def test_source_has_its_options_and_workers_get_no_client(cluster: Topics, tmp_path: Path) -> None:
    topic = cluster.new()
    options = {"kafka.bootstrap.servers": cluster.address, "topic": topic, "maxRowsPerTrigger": "7"}
    source = KafkaLandingSource({**options, "holdFile": str(tmp_path / "hold"), "untilAvailable": "false"})
    planner = source.streamReader(StructType())
    assert isinstance(planner, KafkaRangeReader)
    assert planner.getDefaultReadLimit() == ReadMaxRows(7)
    assert planner.latestOffset(planner.initialOffset(), planner.getDefaultReadLimit()) == {topic: {"0": 0}}
    assert pickle.loads(pickle.dumps(planner)).latestOffset({}, EVERYTHING) == {topic: {"0": 0}}
