"""The producer against a real broker: the integration tests of the Java library by their names, and more."""

from __future__ import annotations

import logging
import time
from typing import Any
from uuid import UUID

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from penstock.kafka import Producer
from penstock.kafka.auditing import Auditor, AuditType
from penstock.kafka.client.config import BadProperty
from penstock.kafka.client.plugins.java_partitioner import partition_of
from penstock.kafka.client.plugins.loading import CannotLoad
from penstock.kafka.large.chunks import CHUNK_HEADER_BYTES, decode_chunk
from penstock.kafka.large.headers import decode_large_message_header, decode_long
from penstock.testing import wait_until
from tests.kafka.kafka_helpers import DEADLINE, Topics, header, large, offsets, read, uid

LastKnown = list[tuple[KafkaError | None, Message]]


def producer(topics: Topics, chunk_bytes: int = 200, **config: Any) -> Producer:
    properties = {key.replace("_", "."): value for key, value in config.items()}
    base = {"bootstrap.servers": topics.address, "linger.ms": 1, "large.message.enabled": True}
    return Producer({**base, "max.message.segment.bytes": chunk_bytes, **properties})


def read_all(topics: Topics, topic: str, count: int, partitions: int = 1) -> list[Message]:
    consumer = topics.consumer(group_id=f"{topic}-all")
    consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
    return read(consumer, count)


@pytest.mark.parametrize("in_header", [False, True])
def test_large_message(topics: Topics, in_header: bool) -> None:
    topic, value = topics.new(), bytes(range(256)) * 4
    before = int(time.time() * 1000)
    with producer(topics, li_record_header_enable=in_header) as sender:
        sender.produce(topic, value, key=b"k", headers=[("mine", b"1")])
    after = int(time.time() * 1000)
    stored = topics.records(topic, 6)
    assert len(stored) == 6
    assert [len(record.value()) for record in stored] == [200 + (0 if in_header else CHUNK_HEADER_BYTES)] * 5 + [
        24 + 33 * (not in_header)
    ]
    (record,) = read_all(topics, topic, 1)
    assert (record.value(), record.key(), record.offset()) == (value, b"k", 5)
    details = large(record)
    assert (details.type, details.chunk, details.count, details.message_id) == (
        2 if in_header else 1,
        -1,
        6,
        UUID(int=0),
    )
    assert details.message_size == 1024
    stamp = header(record, "_t")
    assert stamp
    assert before <= decode_long(stamp[1]) <= after
    assert [name for name, _ in record.headers() or ()] == ["mine", "_t", "_lm"]


def test_always_use_large_message_envelope(topics: Topics) -> None:
    topic = topics.new()
    with producer(topics, li_large_message_segment_wrapping_required=True) as sender:
        sender.produce(topic, b"small")
    (stored,) = topics.records(topic, 1)
    assert len(stored.value()) == len(b"small") + CHUNK_HEADER_BYTES
    chunk = decode_chunk(stored.value())
    assert chunk
    assert (chunk.count, bytes(chunk.payload)) == (1, b"small")
    (record,) = read_all(topics, topic, 1)
    assert record.value() == b"small"
    assert large(record).count == 1


def test_send(topics: Topics) -> None:
    topic, reports = topics.new(), []
    values = [b"%04d" % number * (1 + number % 3 * 100) for number in range(60)]
    with producer(topics) as sender:
        for value in values:
            sender.produce(topic, value, on_delivery=lambda error, record: reports.append((error, record)))
        assert len(sender) > 0
        assert sender.flush(DEADLINE) == 0
        assert len(sender) == 0
    assert [error for error, _ in reports] == [None] * len(values)
    assert sorted(record.value() for _, record in reports) == sorted(values)
    records = read_all(topics, topic, len(values))
    assert [record.value() for record in records] == values
    assert sorted(offsets(records)) == sorted(record.offset() for _, record in reports)


def test_configured_callback_gets_reports_without_own_callback(topics: Topics) -> None:
    topic, reports = topics.new(), []
    sender = Producer(
        {
            "bootstrap.servers": topics.address,
            "large.message.enabled": "true",
            "max.message.segment.bytes": "200",
            "on_delivery": lambda error, record: reports.append((error, len(record))),
        }
    )
    sender.produce(topic, "small")
    sender.produce(topic, b"x" * 1000)
    sender.produce(topic, "own", callback=lambda error, record: reports.append(("own", len(record))))
    assert sender.flush(DEADLINE) == 0
    assert reports == [(None, 5), (None, 1000), ("own", 3)]


def test_timestamp_header(topics: Topics) -> None:
    topic, headers = topics.new(), [("a", b"1")]
    with producer(topics) as sender:
        sender.produce(topic, b"1", timestamp=12345, headers=headers)
        sender.produce(topic, b"2", timestamp=99, headers={"_t": b"\x00" * 7 + b"\x05"})
    with producer(topics, header_timestamp_enabled=False) as sender:
        sender.produce(topic, b"3", timestamp=12345)
        sender.produce(topic, b"4" * 1000)
    records = read_all(topics, topic, 4)
    stamps = [header(record, "_t") for record in records]
    assert [stamp and decode_long(stamp[1]) for stamp in stamps] == [12345, 5, None, None]
    assert records[0].timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, 12345)
    assert [name for name, _ in headers] == ["a", "_t"]


@pytest.mark.parametrize("wraps", [False, True])
def test_null_and_zero_length_values_keep_their_headers(topics: Topics, wraps: bool) -> None:
    topic = topics.new()
    with producer(topics, li_large_message_segment_wrapping_required=wraps) as sender:
        sender.produce(topic, None, key="k", headers=[("mine", b"1")])
        sender.produce(topic, b"", headers=[("mine", b"2")])
        sender.produce(topic, "", headers=[("mine", b"3")])
    records = read_all(topics, topic, 3)
    assert [record.value() for record in records] == [None, b"", b""]
    assert [dict(record.headers() or ())["mine"] for record in records] == [b"1", b"2", b"3"]
    assert all(header(record, "_lm") is None for record in records)


def test_serialization_exception(topics: Topics) -> None:
    topic = topics.new()

    def refuse(value: str, context: Any) -> bytes:
        if value == "bad":
            raise ValueError("refused")
        return f"{context.topic}:{value}".encode()

    with producer(topics, value_serializer=refuse, key_serializer=lambda key, _: key and key.encode()) as sender:
        sender.produce(topic, "1", key="a")
        with pytest.raises(ValueError, match="refused"):
            sender.produce(topic, "bad")
        sender.produce(topic, "2")
    records = read_all(topics, topic, 2)
    assert [(record.key(), record.value()) for record in records] == [
        (b"a", f"{topic}:1".encode()),
        (None, f"{topic}:2".encode()),
    ]


class LastPartition:
    """A partitioner of a user that always chooses the last partition."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, bytes | None, int]] = []

    def partition(self, topic: str, key: bytes | None, value: Any, partitions: int) -> int:
        self.calls.append((topic, key, len(value)))
        return partitions - 1


def test_custom_partitioning_of_large_message(topics: Topics) -> None:
    topic, partitioner = topics.new(4), LastPartition()
    with producer(topics, partitioner_class=partitioner, uuid_factory_class=lambda *_: uid(3)) as sender:
        sender.produce(topic, b"x" * 1000)
        sender.produce(topic, b"y" * 1000, key="k")
        sender.produce(topic, b"small")
        sender.produce(topic, b"elsewhere", partition=1)
    assert partitioner.calls == [(topic, uid(3).bytes, 1000), (topic, b"k", 1000), (topic, None, 5)]
    stored = topics.records(topic, 12, range(4))
    assert [record.partition() for record in stored if record.value() != b"elsewhere"] == [3] * 11


@pytest.mark.parametrize("partitioner", ["murmur2_random", "random", "consistent_random"])
def test_all_chunks_share_a_partition(topics: Topics, partitioner: str) -> None:
    topic = topics.new(5)
    with producer(topics, partitioner=partitioner) as sender:
        for number in range(12):
            sender.produce(topic, b"%d" % number * 500, key=b"" if number % 3 == 0 else None)
    stored = topics.records(topic, sum(-(-len(b"%d" % number * 500) // 200) for number in range(12)), range(5))
    partitions_of: dict[UUID, set[int]] = {}
    for record in stored:
        id_header = header(record, "_lm")
        assert id_header
        partitions_of.setdefault(decode_large_message_header(id_header[1]).message_id, set()).add(record.partition())
    assert len(partitions_of) == 12
    assert all(len(partitions) == 1 for partitions in partitions_of.values())
    assert len(read_all(topics, topic, 12, 5)) == 12


def test_partitions_of_keys_equal_those_of_the_java_client(topics: Topics) -> None:
    topic = topics.new(7)
    keys = [f"key-{number}" for number in range(40)]
    with producer(topics) as sender:
        for number, key in enumerate(keys):
            sender.produce(topic, b"x" * (1 + 500 * (number % 2)), key=key)
    records = read_all(topics, topic, len(keys), 7)
    assert {record.key(): record.partition() for record in records} == {
        key.encode(): partition_of(key.encode(), 7) for key in keys
    }


class Recorder(Auditor):
    """An auditor that stores its calls."""

    properties = ("auditor.word",)

    def __init__(self) -> None:
        self.config: dict[str, Any] = {}
        self.told: list[tuple[Any, str, int, AuditType]] = []
        self.closed = False

    def configure(self, config: Any) -> None:
        self.config = dict(config)

    def start(self) -> None:
        self.told.clear()

    def audit_token(self, key: Any, value: Any) -> Any:
        return key

    def record(
        self, token: Any, topic: str, timestamp: int | None, messages: int, size: int, audit_type: AuditType
    ) -> None:
        self.told.append((token, topic, size, audit_type))

    def close(self, timeout: float | None = None) -> None:
        self.closed = True


def test_producer_auditor_configured(topics: Topics) -> None:
    topic, auditor = topics.new(), Recorder()
    with producer(topics, auditor_class=auditor, auditor_word="w") as sender:
        assert isinstance(auditor.config["current.producer"], confluent_kafka.Producer)
        assert auditor.config["auditor.word"] == "w"
        sender.produce(topic, b"x" * 1000, key="key")
        sender.produce(topic, b"small", timestamp=5)
        sender.flush(DEADLINE)
        with pytest.raises(confluent_kafka.KafkaException, match="_UNKNOWN_PARTITION"):
            sender.produce(topic, b"x", partition=10)
    attempt, success, failure = AuditType.ATTEMPT, AuditType.SUCCESS, AuditType.FAILURE
    assert auditor.told == [
        ("key", topic, 1003, attempt),
        (None, topic, 5, attempt),
        ("key", topic, 1003, success),
        (None, topic, 5, success),
        (None, topic, 1, attempt),
        (None, topic, 1, failure),
    ]
    assert auditor.closed


def test_consumer_auditor_configured(topics: Topics) -> None:
    topic, auditor = topics.new(), Recorder()
    with producer(topics) as sender:
        sender.produce(topic, b"x" * 1000, key="key")
        sender.produce(topic, b"small")
    consumer = topics.consumer(auditor_class=auditor, auditor_word="w")
    consumer.assign([TopicPartition(topic, 0)])
    read(consumer, 2)
    assert auditor.config["auditor.word"] == "w"
    success = AuditType.SUCCESS
    assert auditor.told == [(b"key", topic, 1003, success), (None, topic, 5, success)]


def test_message_refused_by_the_broker_is_reported_once(topics: Topics) -> None:
    topic, reports = topics.new(max_message_bytes="500"), []
    with producer(topics, chunk_bytes=1000) as sender:
        sender.produce(
            topic, b"x" * 2500, key=b"k", on_delivery=lambda error, record: reports.append((error, record.value()))
        )
        assert sender.flush(DEADLINE) == 0
        sender.produce(topic, b"fits", on_delivery=lambda error, record: reports.append((error, record.value())))
        assert sender.flush(DEADLINE) == 0
    reports.sort(key=lambda record: len(record[1]))
    assert reports[0] == (None, b"fits")
    (error, value) = reports[1]
    assert len(reports) == 2
    assert value == b"x" * 2500
    assert error
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert "Sent 0 of 3 segments" in error.str()


def test_message_larger_than_the_queue_waits_for_space(topics: Topics) -> None:
    topic, value = topics.new(), bytes(300_000)
    with producer(topics, chunk_bytes=10_000, queue_buffering_max_kbytes=40) as sender:
        reports: list[Any] = []
        sender.produce(topic, value, on_delivery=lambda error, record: reports.append((error, len(record))))
        assert sender.flush(DEADLINE) == 0
        assert reports == [(None, 300_000)]
        with pytest.raises(BufferError):
            fill(sender, topic)
        assert sender.flush(DEADLINE) == 0


def fill(sender: Producer, topic: str) -> None:
    for _ in range(100):
        sender.produce(topic, b"x" * 9000)


def test_configuration_error_names_the_property(topics: Topics) -> None:
    base = {"bootstrap.servers": topics.address}
    wrong = {
        "large.mesage.enabled": (True, "did you mean 'large.message.enabled'"),
        "bootstrap.server": ("x", "did you mean 'bootstrap.servers'"),
        "auditor.wrd": ("x", "unknown property 'auditor.wrd'"),
        "large.message.enabled": ("perhaps", "large.message.enabled: 'perhaps' must be true or false"),
        "max.message.segment.bytes": (0, "max.message.segment.bytes: 0 must be from 1"),
        "current.producer": (1, "current.producer must not be set"),
        "key.serializer": ("x", "key.serializer: 'x' must be callable"),
    }
    for name, (value, message) in wrong.items():
        with pytest.raises(BadProperty, match=message):
            Producer({**base, "auditor.class": Recorder, name: value})
    with pytest.raises(CannotLoad, match=r"auditor\.class"):
        Producer({**base, "auditor.class": "no.such:Auditor"})


def wait_for_warning(caplog: pytest.LogCaptureFixture, text: str) -> None:
    def logged() -> bool:
        messages = [record.getMessage() for record in caplog.records]
        return any(text in message and "claim check" in message for message in messages)

    wait_until(logged, DEADLINE)


def test_compacted_topic_is_logged(topics: Topics, caplog: pytest.LogCaptureFixture) -> None:
    topic = topics.new(cleanup_policy="compact")
    with caplog.at_level(logging.WARNING, "penstock.kafka"), producer(topics) as sender:
        sender.produce(topic, b"x" * 1000, key=b"k")
        wait_for_warning(caplog, f"topic {topic} is compacted")


def test_mostly_large_messages_are_logged_once(topics: Topics, caplog: pytest.LogCaptureFixture) -> None:
    topic = topics.new()
    with caplog.at_level(logging.WARNING, "penstock.kafka"), producer(topics) as sender:
        for number in range(300):
            sender.produce(topic, b"x" * (10 if number % 3 else 250))
        assert not caplog.records
        for _ in range(200):
            sender.produce(topic, b"x" * 250)
        wait_for_warning(caplog, "messages are large")
    assert len([record for record in caplog.records if "are large" in record.getMessage()]) == 1


def test_produce_batch(topics: Topics) -> None:
    topic, reports = topics.new(2), []
    own_reports: list[object] = []
    batch: list[dict[str, Any]] = [
        {"value": b"small", "key": "k", "partition": 1},
        {
            "value": b"large" * 100,
            "key": b"k",
            "callback": lambda error, record: own_reports.append((error, record.value())),
        },
        {"value": "text", "headers": [("h", b"1")], "timestamp": 1_700_000_000_000},
    ]
    with producer(topics) as sender:
        assert sender.produce_batch(topic, batch, 0, lambda error, record: reports.append((error, record.value()))) == 3
        assert sender.produce_batch(topic, []) == 0
    assert (sorted(reports), own_reports) == ([(None, b"small"), (None, b"text")], [(None, b"large" * 100)])
    records_by_value = {record.value(): record for record in read_all(topics, topic, 3, partitions=2)}
    assert {value: record.partition() for value, record in records_by_value.items()} == {
        b"small": 1,
        b"large" * 100: 0,
        b"text": 0,
    }
    assert header(records_by_value[b"text"], "h") == ("h", b"1")
    assert records_by_value[b"text"].timestamp()[1] == 1_700_000_000_000
    assert not any("_error" in message for message in batch)


def test_batch_entry_that_cannot_be_queued_is_marked_like_in_confluent(topics: Topics) -> None:
    def marked(sender: Any) -> tuple[int, list[object]]:
        batch = [{"value": value} for value in (b"x" * 3000, b"one", b"two", b"three")]
        queued = sender.produce_batch("nobody", batch)
        sender.purge()
        return queued, [message["_error"].code() if "_error" in message else None for message in batch]

    config = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "queue.buffering.max.messages": 2}
    config |= {"message.max.bytes": 2000}
    expected = [KafkaError.MSG_SIZE_TOO_LARGE, None, None, KafkaError._QUEUE_FULL]
    assert marked(Producer(config)) == marked(confluent_kafka.Producer(config)) == (2, expected)


@pytest.mark.parametrize(
    "wrong", [({},), [1], [{"value": 1}], [{"key": 1.5}], [{"partition": "x"}]], ids=lambda wrong: str(wrong)
)
def test_invalid_batch_is_refused_with_the_text_of_confluent(wrong: Any) -> None:
    config = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    batch: Any = [{"value": b"good"}, *wrong] if isinstance(wrong, list) else wrong
    texts, reports = [], []
    for sender in (Producer(config), confluent_kafka.Producer(config)):
        with pytest.raises(TypeError) as refused:
            sender.produce_batch("t", batch, 0, reports.append)
        texts.append(str(refused.value))
        sender.purge()
        sender.flush(10)
    assert (texts[0], reports) == (texts[1], [])
