"""Absent offsets of a partition of Kafka, and records that can still be read."""

from __future__ import annotations

import tracemalloc
from uuid import UUID

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.kafka.broker import Broker
from penstock.kafka.large.headers import LARGE_MESSAGE, V3, LargeMessageHeader, encode_large_message_header, message_key
from penstock.landing.offset_runs import as_runs
from penstock.proof.reread.kafka import KafkaRecords
from tests.spark.spark_helpers import event

FAR_END = 200_000_000


def test_absent_offsets_take_no_memory_each(kafka_broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": kafka_broker.address})
    admin.create_topics([NewTopic("mostly-gone", 1)])["mostly-gone"].result(30)
    producer = Producer({"bootstrap.servers": kafka_broker.address})
    for number in range(10):
        producer.produce("mostly-gone", event(number))
    assert producer.flush(30) == 0
    admin.delete_records([TopicPartition("mostly-gone", 0, 3)])[TopicPartition("mostly-gone", 0)].result(30)
    tracemalloc.start()
    records = KafkaRecords({"bootstrap.servers": kafka_broker.address}, 100).read_again(
        "mostly-gone/0", as_runs([(0, 5), (6, FAR_END)])
    )
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [suspect.offset for suspect in records.suspects] == [3, 4, 6, 7, 8, 9]
    gaps = [(gap.begin, gap.end, gap.reason, gap.counts["kafka"][0]) for gap in records.absent]
    assert gaps == [(0, 3, "expired_before", 3), (10, FAR_END, "expired_unread", FAR_END - 10)]
    assert peak < 10 << 20


def test_messages_whose_earlier_chunks_lie_before_the_range_are_read_again(kafka_broker: Broker) -> None:
    """Offsets 0 and 2 have the chunks of a large message, 1 and 3 plain messages."""
    admin = AdminClient({"bootstrap.servers": kafka_broker.address})
    admin.create_topics([NewTopic("split-in-two", 1)])["split-in-two"].result(30)
    producer = Producer({"bootstrap.servers": kafka_broker.address})
    message_id, payload = UUID(int=7), event(1)
    pieces = [payload[:20], payload[20:]]
    for number, piece in enumerate(pieces):
        header = encode_large_message_header(LargeMessageHeader(V3, message_id, number, 2, len(payload)))
        producer.produce("split-in-two", piece, message_key(message_id), headers=[(LARGE_MESSAGE, header)])
        producer.produce("split-in-two", event(2))
    assert producer.flush(30) == 0
    reader = KafkaRecords({"bootstrap.servers": kafka_broker.address}, 100)
    messages = {
        offset: text
        for batch in reader.messages("split-in-two/0", as_runs([(2, 4)]))
        for offset, text in zip(batch["offset"].to_pylist(), batch["payload"].to_pylist(), strict=True)
    }
    assert messages == {2: payload, 3: event(2)}
    reread = reader.read_again("split-in-two/0", as_runs([(2, 3)]))
    assert ([suspect.offset for suspect in reread.suspects], list(reread.segments)) == ([2], [])
