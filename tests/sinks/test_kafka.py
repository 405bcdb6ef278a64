"""The Kafka handler: with an unreachable broker and with a real one."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.config import KafkaHandler
from penstock.counts import Origin
from penstock.kafka.broker import Broker
from penstock.kafka.client.plugins.encryption import Encryption
from penstock.kafka.client.plugins.flink_partitioner import partitions_of
from penstock.kafka.client.plugins.java_partitioner import partition_of
from penstock.records import ANNOTATIONS, body
from penstock.sinks import BadSettings, Delivered
from penstock.sinks.kafka import Kafka
from tests.conftest import QUICK_JAVA
from tests.kafka.kafka_helpers import Topics

ORIGIN = Origin("events", 60, 0, 0)
UNREACHABLE = {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 300}
KEY = "0123456789abcdef"


def handler(producer: dict[str, Any], **options: Any) -> Kafka:
    settings = {"type": "kafka", "default_topic": "", "producer": producer, **options}
    return Kafka("events", KafkaHandler.model_validate(settings))


def messages(*tags: str | None, payloads: list[bytes] | None = None) -> pa.RecordBatch:
    """Return a message for each of ``tags``, with the key of its ``pk:`` tag."""
    annotations = pa.array([[("tags", each)] if each else None for each in tags], ANNOTATIONS)
    keys = [
        next((tag[3:].encode() for tag in (each or "").split("\0") if tag.startswith("pk:")), None) for each in tags
    ]
    payloads = payloads or [b"%d" % number for number in range(len(tags))]
    return body(payloads, keys=pa.array(keys).cast(pa.binary()), annotations=annotations)


@pytest.mark.survives("handlers", "peer away")
def test_messages_fail_in_time_without_a_broker() -> None:
    kafka = handler(UNREACHABLE, default_topic="x")
    waits: list[float] = []
    kafka.on_wait = lambda: waits.append(time.monotonic())
    start = time.monotonic()
    assert kafka.deliver(messages(None, "kt:y", None), ORIGIN) == Delivered(0, failed=3)
    assert time.monotonic() - start < kafka.patience
    assert len(waits) > 1, "its forwarder beats while it waits for the broker"
    statistics = kafka.stat()
    assert statistics["failed_to_send"] == statistics["kafka"]["failedSendRate"]["count"] == 3
    assert statistics["kafka"]["messageRate"]["count"] == 0


def test_messages_without_topic_are_dropped() -> None:
    kafka = handler(UNREACHABLE)
    outcome = kafka.deliver(messages(None, "kt:null", "kt:", "kt:not allowed", "a"), ORIGIN)
    assert outcome == Delivered(0, dropped=5)
    assert kafka.stat()["refused_topics"] == 2
    assert kafka.stat()["kafka"]["droppedMessageRate"]["count"] == 5


def test_message_that_cannot_be_encrypted_has_failed() -> None:
    encryption = {"key": KEY, "transformation": "AES/CBC/NoPadding"}
    kafka = handler(UNREACHABLE, default_topic="x", encryption=encryption)
    assert kafka.deliver(messages(None, payloads=[b"no whole block"]), ORIGIN) == Delivered(0, failed=1)
    assert kafka.stat()["kafka"]["serializationErrorRate"]["count"] == 1


@pytest.mark.parametrize(
    "producer", [{"no.such.setting": "x"}, {"acks": "perhaps"}, {"message.timeout.ms": "soon"}, {"linger.ms": -5}]
)
def test_invalid_producer_setting_is_refused(producer: dict[str, Any]) -> None:
    with pytest.raises(BadSettings, match="producer"):
        handler({"bootstrap.servers": "127.0.0.1:1", **producer})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acks", 0),
        ("acks", "0"),
        ("acks", 0.0),
        ("acks", 0.4),
        ("acks", " -0x0"),
        ("acks", "08"),
        ("acks", "0b"),
        ("request.required.acks", "00"),
    ],
)
def test_producer_without_acknowledgements_is_refused(name: str, value: Any) -> None:
    """fluent/fluent-bit#11527, vectordotdev/vector#1842, elastic/beats#14973: a lost message counts as sent."""
    with pytest.raises(ValueError, match=f"{name} = 0: .* would count as delivered; use 1 or all"):
        handler({"bootstrap.servers": "127.0.0.1:1", name: value})


@pytest.mark.parametrize("value", [1, "all", "-1", "01", "0x1", "0x0f", "001"])
def test_producer_with_acknowledgements_is_accepted(value: Any) -> None:
    handler({"bootstrap.servers": "127.0.0.1:1", "acks": value})


@pytest.fixture
def topic(kafka_broker: Broker) -> Callable[[int], str]:
    """Return a function that creates topics."""
    admin = AdminClient({"bootstrap.servers": kafka_broker.address})

    def new(partitions: int) -> str:
        name = f"sinks-{uuid.uuid4().hex}"
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
        return name

    return new


def stored(broker: Broker, name: str, count: int, partitions: int = 1) -> list[confluent_kafka.Message]:
    topics = Topics(broker, "sinks")
    records_of_topic = topics.records(name, count, range(partitions))
    topics.close()
    return sorted(records_of_topic, key=lambda message: (message.value() or b"", message.offset()))


def test_messages_arrive_with_keys_in_the_requested_topic(kafka_broker: Broker, topic: Callable[[int], str]) -> None:
    default, requested = topic(1), topic(1)
    kafka = handler({"bootstrap.servers": kafka_broker.address}, default_topic=default)
    batch = messages(None, f"kt:{requested}\0pk:k", "pk:other", f"kt:{requested}", "kt:not allowed")
    assert kafka.deliver(batch, ORIGIN) == Delivered(5)
    default_records, requested_records = stored(kafka_broker, default, 3), stored(kafka_broker, requested, 2)
    assert [(m.value(), m.key()) for m in default_records] == [(b"0", None), (b"2", b"other"), (b"4", None)]
    assert [(m.value(), m.key()) for m in requested_records] == [(b"1", b"k"), (b"3", None)]
    assert [m.headers() for m in default_records] == [None, None, [("kt", b"not allowed")]]
    statistics = kafka.stat()["kafka"]
    assert (statistics["messageRate"]["count"], statistics["byteRate"]["count"]) == (5, 5)
    kafka.close()


@pytest.mark.parametrize("large", [False, True])
def test_records_have_their_origin_in_a_header(kafka_broker: Broker, topic: Callable[[int], str], large: bool) -> None:
    name = topic(1)
    producer = {"bootstrap.servers": kafka_broker.address, "large.message.enabled": large}
    kafka = handler(producer, default_topic=name, origin_header=True, host="edge-1")
    assert kafka.deliver(messages(None, "kt:not allowed", None), ORIGIN) == Delivered(3)
    assert kafka.deliver(messages(None, payloads=[b"3"]), Origin("events", 120, 0, 0)) == Delivered(1)
    # The header _t, the time of a message, is there only with large messages.
    headers = [[pair for pair in m.headers() or () if pair[0] != "_t"] for m in stored(kafka_broker, name, 4)]
    first, later = ("_penstock_origin", b"edge-1/events@60"), ("_penstock_origin", b"edge-1/events@120")
    assert headers == [[first], [first, ("kt", b"not allowed")], [first], [later]]
    assert all(sum(pair[0] == "_t" for pair in m.headers() or ()) <= 1 for m in stored(kafka_broker, name, 4))
    kafka.close()


@pytest.mark.parametrize("transformation", ["AES/GCM/NoPadding", "AES/CBC/PKCS5Padding"])
def test_messages_are_encrypted(kafka_broker: Broker, topic: Callable[[int], str], transformation: str) -> None:
    name = topic(1)
    encryption = {"key": KEY, "transformation": transformation}
    kafka = handler({"bootstrap.servers": kafka_broker.address}, default_topic=name, encryption=encryption)
    assert kafka.deliver(messages(None, None), ORIGIN) == Delivered(2)
    mode = transformation.split("/")[1]
    reader = Encryption(KEY.encode(), mode, padded=mode == "CBC")
    assert sorted(reader.decrypt(m.value() or b"") for m in stored(kafka_broker, name, 2)) == [b"0", b"1"]
    kafka.close()


@pytest.mark.parametrize("parallelism", [None, 128])
def test_keys_choose_the_partitions(kafka_broker: Broker, topic: Callable[[int], str], parallelism: int | None) -> None:
    name, keys = topic(4), [b"user-%d" % number for number in range(40)]
    options = {"max_parallelism": parallelism} if parallelism else {}
    kafka = handler({"bootstrap.servers": kafka_broker.address}, default_topic=name, **options)
    batch = messages(*(f"pk:{key.decode()}" for key in keys), payloads=keys)
    assert kafka.deliver(batch, ORIGIN) == Delivered(40)
    partitions = {m.key(): m.partition() for m in stored(kafka_broker, name, 40, 4)}
    flink = partitions_of(keys, 4, parallelism or 1).tolist()
    assert partitions == {key: flink[row] if parallelism else partition_of(key, 4) for row, key in enumerate(keys)}
    kafka.close()


@pytest.fixture
def creating_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that creates each topic that is asked for, with four partitions."""
    broker = Broker(tmp_path / "broker", memory="256m", options=(QUICK_JAVA,), settings={"num.partitions": "4"})
    broker.start()
    yield broker
    broker.stop()


def test_keys_choose_the_partitions_of_a_topic_that_is_being_created(creating_broker: Broker) -> None:
    keys = [b"user-%d" % number for number in range(40)]
    kafka = handler({"bootstrap.servers": creating_broker.address}, default_topic="created", max_parallelism=128)
    batch = messages(*(f"pk:{key.decode()}" for key in keys), payloads=keys)
    assert kafka.deliver(batch, ORIGIN) == Delivered(40)
    partitions = {m.key(): m.partition() for m in stored(creating_broker, "created", 40, 4)}
    assert partitions == dict(zip(keys, partitions_of(keys, 4, 128).tolist(), strict=True))
    kafka.close()


@pytest.mark.survives("handlers", "peer away")
def test_batch_is_not_repeated_if_the_partitions_of_a_topic_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sinks.kafka.BATCH_SLACK_S", 1.0)
    kafka = handler(UNREACHABLE, default_topic="x", max_parallelism=128)
    # An exception would make the forwarder deliver all topics of the batch again.
    assert kafka.deliver(messages("kt:y", "pk:k", "kt:z"), ORIGIN) == Delivered(0, failed=3)


def test_missing_topic_costs_no_messages_of_other_topics(kafka_broker: Broker, topic: Callable[[int], str]) -> None:
    name, missing = topic(1), f"sinks-{uuid.uuid4().hex}"
    settings = {"bootstrap.servers": kafka_broker.address, "allow.auto.create.topics": False}
    kafka = handler({**settings, "message.timeout.ms": 2_000}, default_topic=name, max_parallelism=128)
    batch = messages(f"kt:{missing}\0pk:k", None, "pk:k")
    assert kafka.deliver(batch, ORIGIN) == Delivered(2, failed=1)
    assert [m.value() for m in stored(kafka_broker, name, 2)] == [b"1", b"2"]
    waits: list[float] = []
    kafka.on_wait = lambda: waits.append(time.monotonic())
    assert kafka.deliver(messages(f"kt:{missing}\0pk:k"), ORIGIN) == Delivered(0, failed=1)
    assert waits == [], "the next batch does not wait for it"
    kafka.close()
