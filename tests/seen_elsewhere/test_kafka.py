"""Public reports on clients and servers of Kafka: a row has its reference, a produced record, and the record that a
consumer of Penstock's topic gets.
"""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from penstock.records import as_batch
from penstock.server.kafka.records.decode import decode
from penstock.server.kafka.records.encode import encode
from tests.server.kafka.produced import Record, in_topic, read_back, records_of

NOW_MS = 1_700_000_000_000
LOG_TIME_MICROS = 1_700_000_009_000_000

RECORDS: list[tuple[str, Record]] = [
    ("vert-x3/vertx-kafka-client#313 (a header without a value)", (b"k", b"v", [("foo", None)])),
    ("quarkusio/quarkus#27245, tchiotludo/akhq#56", (b"k", b"v", [("a", b"1"), ("ce_subject", None), ("b", b"")])),
    ("redpanda-data/connect#1478 (headers with one name)", (None, b"v", [("h", b"1"), ("h", b"2")])),
    ("provectus/kafka-ui#4352, karafka/rdkafka-ruby#546", (None, b"v", [("h", b"1"), ("x", b""), ("h", b"2")])),
    ("chutney-testing/chutney-legacy#296 (name and value are repeated)", (None, b"v", [("h", b"1"), ("h", b"1")])),
    ("platformatic/kafka#373 (order)", (None, b"v", [("b", b"2"), ("a", b"1"), ("b", b"0")])),
    ("ag2ai/faststream#2458 (a header that is not UTF-8)", (None, b'{"a":1}', [("trash_header", b"\xc3\x28")])),
    ("mage-ai/mage-ai#5853 (a key that is not UTF-8)", (b"\x00\x01\x83\xff", b"v", [])),
    ("confluentinc/librdkafka#1386 (empty is not null)", (b"", b"", [("h", b"")])),
    ("tulios/kafkajs#185, ag2ai/faststream#2932 (a tombstone)", (b"k", None, [])),
    ("itadventurer/kafka-backup#21", (None, None, [("h", None)])),
]


@pytest.mark.parametrize(("reference", "record"), RECORDS, ids=[reference for reference, _ in RECORDS])
def test_record_is_consumed_as_it_was_produced(reference: str, record: Record) -> None:
    key, value, headers = record
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    assert builder.append(0, NOW_MS, key, value, headers)
    rows = as_batch(decode(bytes(builder.build())).rows)
    assert read_back(in_topic(rows)) == [record], reference


TIMES = [
    ("confluentinc/confluent-kafka-python#96 (a record has no time)", -1, LOG_TIME_MICROS // 1000),
    ("SOHU-Co/kafka-node#812, BrightTag/kafkameter#19", -1, LOG_TIME_MICROS // 1000),
    ("Parsely/pykafka#764 (the producer's time is lost)", NOW_MS - 5_000, NOW_MS - 5_000),
]


@pytest.mark.parametrize(("reference", "produced_ms", "consumed_ms"), TIMES, ids=[row[0] for row in TIMES])
def test_record_in_a_topic_with_create_time_has_a_time(reference: str, produced_ms: int, consumed_ms: int) -> None:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    assert builder.append(0, produced_ms, None, b"v", [])
    rows = as_batch(decode(bytes(builder.build()), latest_time=NOW_MS).rows)
    (record,) = records_of(encode(in_topic(rows, micros=LOG_TIME_MICROS)))
    assert record.timestamp == consumed_ms, reference
