"""Ids of topics and ends of partitions tell a topic of a real Kafka from one that is created again."""

from __future__ import annotations

import threading
import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.files.checked_document import write_document
from penstock.handover.landing_failure import next_step
from penstock.kafka.broker import Broker
from penstock.kafka.errors import KafkaAway
from penstock.landing.from_kafka.continuity import KafkaContinuity
from penstock.landing.topics.continuity import OffsetsRestarted


@pytest.fixture
def topic(kafka_broker: Broker) -> str:
    name = f"t{uuid.uuid4().hex[:8]}"
    create(kafka_broker, name)
    return name


def create(broker: Broker, name: str) -> None:
    client = AdminClient({"bootstrap.servers": broker.address})
    client.create_topics([NewTopic(name, 1, 1)])[name].result(30)


def delete(broker: Broker, name: str) -> None:
    client = AdminClient({"bootstrap.servers": broker.address})
    client.delete_topics([name])[name].result(30)


def continuity(broker: Broker, marks: Path, pattern: str = "*") -> KafkaContinuity:
    return KafkaContinuity({"bootstrap.servers": broker.address}, [pattern], marks)


def test_topic_that_is_created_again_is_recognized(kafka_broker: Broker, topic: str, tmp_path: Path) -> None:
    marks = tmp_path / "marks.json"
    running = continuity(kafka_broker, marks, topic)
    running.before_reading({f"{topic}/0": 1})
    running.after_reading({f"{topic}/0": 1})
    delete(kafka_broker, topic)
    running.check()
    create(kafka_broker, topic)
    for step in (running.before_reading, running.after_reading):
        with pytest.raises(OffsetsRestarted, match=f"topic {topic} of Kafka was deleted and created again"):
            step({f"{topic}/0": 1})
    with pytest.raises(OffsetsRestarted):
        continuity(kafka_broker, marks, topic).check()
    continuity(kafka_broker, marks, "other").check()


def test_topic_that_is_created_again_while_its_first_batch_is_read_is_recognized(
    kafka_broker: Broker, topic: str, tmp_path: Path
) -> None:
    running = continuity(kafka_broker, tmp_path / "marks.json")
    running.before_reading({f"{topic}/0": 1})
    delete(kafka_broker, topic)
    create(kafka_broker, topic)
    with pytest.raises(OffsetsRestarted):
        running.after_reading({f"{topic}/0": 1})


def test_lower_end_is_confirmed_and_remembered(
    kafka_broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.landing.from_kafka.continuity.CUT_CONFIRMED_S", 1.0)
    producer = Producer({"bootstrap.servers": kafka_broker.address})
    for _ in range(5):
        producer.produce(topic, b"text")
    assert producer.flush(30) == 0
    marks, name = tmp_path / "marks.json", f"{topic}/0"
    running = continuity(kafka_broker, marks, topic)
    running.check_ends({name: 5}, {name: 5})
    with pytest.raises(KafkaAway, match="for a moment"):
        running.check_ends({name: 5}, {name: 3})
    running.check()
    with pytest.raises(OffsetsRestarted, match=f"partition {name} of Kafka ends at 3, and its offsets before 9"):
        running.check_ends({name: 9}, {name: 3})
    with pytest.raises(OffsetsRestarted, match="ends at 3"):
        continuity(kafka_broker, marks, topic).check()


def test_lower_end_that_passes_while_it_is_confirmed_is_no_cut(
    kafka_broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new leader shows a lower end until it knows what it has stored."""
    monkeypatch.setattr("penstock.landing.from_kafka.continuity.CUT_CONFIRMED_S", 60.0)
    producer = Producer({"bootstrap.servers": kafka_broker.address})
    running = continuity(kafka_broker, tmp_path / "marks.json", topic)

    def send_later() -> None:
        time.sleep(1)
        for _ in range(9):
            producer.produce(topic, b"text")
        producer.flush(30)

    sending = threading.Thread(target=send_later)
    sending.start()
    with pytest.raises(KafkaAway, match="planned again"):
        running.check_ends({f"{topic}/0": 9}, {f"{topic}/0": 3})
    sending.join()
    continuity(kafka_broker, tmp_path / "marks.json", topic).check()


def test_kafka_that_does_not_answer_is_checked_with_the_next_batch(tmp_path: Path) -> None:
    write_document(tmp_path / "marks.json", {"ids": {"t": "id"}, "cut": {}})
    KafkaContinuity({"bootstrap.servers": "127.0.0.1:1"}, ["t"], tmp_path / "marks.json").check()


def test_lower_end_of_a_partition_that_kafka_does_not_show_is_no_cut(kafka_broker: Broker, tmp_path: Path) -> None:
    """A broker that lags behind, or a topic that is being deleted: a cut would be remembered for good."""
    marks, topic = tmp_path / "marks.json", f"t{uuid.uuid4().hex[:8]}"
    running = continuity(kafka_broker, marks, topic)
    with pytest.raises(KafkaAway, match="planned again"):
        running.check_ends({f"{topic}/0": 9}, {f"{topic}/0": 3})
    continuity(kafka_broker, marks, topic).check()


def test_kafka_that_gives_no_ids_is_named_with_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.landing.from_kafka.continuity.MAX_WAIT_S", 0.0)
    monkeypatch.setattr("penstock.landing.from_kafka.continuity.ANSWER_TIMEOUT_S", 0.1)
    running = KafkaContinuity({"bootstrap.servers": "127.0.0.1:1"}, ["t"], tmp_path / "marks.json")
    with pytest.raises(KafkaAway, match=r"Kafka at 127\.0\.0\.1:1 does not give the ids of topics: [^{}]+$") as error:
        running.before_reading({"t/0": 1})
    assert "right to describe" in next_step(str(error.value))


def test_a_wait_for_kafka_is_announced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, seconds in (("MAX_WAIT_S", 3.0), ("ANNOUNCED_AFTER_S", 0.5), ("ANSWER_TIMEOUT_S", 0.5)):
        monkeypatch.setattr(f"penstock.landing.from_kafka.continuity.{name}", seconds)
    away = KafkaContinuity({"bootstrap.servers": "127.0.0.1:1"}, ["*"], tmp_path / "marks.json")
    with pytest.raises(KafkaAway):
        away.before_reading({"t/0": 1})
    (line,) = caplog.messages
    assert line.startswith("a batch waits up to 3 s for Kafka: Kafka at 127.0.0.1:1 does not give the ids of topics: ")
