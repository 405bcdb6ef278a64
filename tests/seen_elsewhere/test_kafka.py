"""Public reports on clients and servers of Kafka: a row has its reference, a produced record, and the record that a
consumer of Penstock's topic gets.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from crc32c import crc32c

from penstock.kafka.absent_offsets import Absence, classify_fetched
from penstock.kafka.broker_connection import FetchedBatches
from penstock.records import as_batch
from penstock.server.kafka.records.decode import decode
from penstock.server.kafka.records.encode import encode
from tests.kafka.stored_batches import batch, control_batch
from tests.server.kafka.produced import CODECS, Record, in_topic, produced, read_back, records_of

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


@pytest.mark.parametrize("times", [(-1, NOW_MS, NOW_MS - 7_200_000), (NOW_MS, -1, NOW_MS - 5)])
def test_records_without_a_time_leave_others_theirs(times: tuple[int, ...]) -> None:
    """apache/iggy#4229 (a record without a time was refused, with its batch)."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for number, time in enumerate(times):
        assert builder.append(number, time - times[0], None, b"v", [])  # aiokafka takes -1 for a missing first time
    batch_bytes = bytearray(builder.build())
    batch_bytes[27:43] = struct.pack(">qq", times[0], max(times))
    batch_bytes[17:21] = struct.pack(">I", crc32c(bytes(batch_bytes[21:])))
    rows = as_batch(decode(bytes(batch_bytes), latest_time=NOW_MS).rows)
    records = records_of(encode(in_topic(rows, micros=LOG_TIME_MICROS)))
    assert [record.timestamp for record in records] == [LOG_TIME_MICROS // 1000 if time < 0 else time for time in times]


HEADER_BYTES = 61
"""Bytes of a batch in front of its records."""
MANY = [(b"k%d" % number, b"value %d " % number * 50, [("h", b"1")]) for number in range(100)]


def compressed(codec: str, compress: Callable[[bytes], bytes]) -> bytes:
    """Return a batch of MANY whose records are compressed by ``compress``."""
    plain = produced(MANY)
    packed = compress(plain[HEADER_BYTES:])
    checked = struct.pack(">h", CODECS[codec]) + plain[23:HEADER_BYTES] + packed
    size = HEADER_BYTES - 12 + len(packed)
    return plain[:8] + struct.pack(">i", size) + plain[12:17] + struct.pack(">I", crc32c(checked)) + checked


def in_parts(compress: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Return a function that compresses three parts, cut inside records, one by one."""
    return lambda data: b"".join(compress(part) for part in (data[:777], data[777:2000], data[2000:]))


def compress_by_arrow(codec: str) -> Callable[[bytes], bytes]:
    return lambda data: bytes(pa.compress(data, codec=codec, asbytes=True))


def zstd_stream(data: bytes) -> bytes:
    """Return a frame that does not state its size."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue().to_pybytes())


def snappy_chunk(data: bytes) -> bytes:
    packed = compress_by_arrow("snappy")(data)
    return struct.pack(">i", len(packed)) + packed


def java_snappy(data: bytes) -> bytes:
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + in_parts(snappy_chunk)(data)


COMPRESSIONS = [
    ("kafka-rust/kafka-rust#44 (a record in two chunks of snappy)", "snappy", java_snappy),
    ("confluentinc/librdkafka#645 (snappy without chunks)", "snappy", compress_by_arrow("snappy")),
    ("kafka-python-ng/kafka-python-ng#202 (several frames of zstd)", "zstd", in_parts(compress_by_arrow("zstd"))),
    ("kafka-python-ng/kafka-python-ng#202 (a frame of unknown size)", "zstd", zstd_stream),
    ("logstash-plugins/logstash-input-s3#96 (its kind: several members of gzip)", "gzip", in_parts(gzip.compress)),
]


@pytest.mark.parametrize(("reference", "codec", "compress"), COMPRESSIONS, ids=[row[0] for row in COMPRESSIONS])
def test_compressed_records_are_all_read(reference: str, codec: str, compress: Callable[[bytes], bytes]) -> None:
    assert read_back(in_topic(as_batch(decode(compressed(codec, compress)).rows))) == MANY, reference


PRESENT, CONTROL, ABORTED, COMPACTED = Absence.PRESENT, Absence.CONTROL, Absence.ABORTED, Absence.COMPACTED
TRANSACTIONS = b"".join(
    [
        batch(1, [0], producer=1) + control_batch(2, 1, commit=True),
        batch(3, [0], producer=1) + control_batch(4, 1, commit=False),
        batch(5, [0], producer=1) + control_batch(6, 1, commit=True),
    ]
)
STORED: list[tuple[str, bytes, list[tuple[int, int]], list[tuple[int, int, Absence]]]] = [
    (
        "kafka4beam/brod#659 (a commit between the abort that is announced and its records)",
        TRANSACTIONS,
        [(1, 3)],
        [(1, 2, PRESENT), (2, 3, CONTROL), (3, 4, ABORTED), (4, 5, CONTROL), (5, 6, PRESENT), (6, 7, CONTROL)],
    ),
    (
        "streamnative/kop#1283, confluentinc/librdkafka#3020 (aborted records between those of another producer)",
        batch(1, [0], producer=1)
        + batch(2, [0], producer=2)
        + batch(3, [0])
        + batch(4, [0], producer=1)
        + control_batch(5, 1, commit=False)
        + control_batch(6, 2, commit=True),
        [(1, 1)],
        [(1, 2, ABORTED), (2, 4, PRESENT), (4, 5, ABORTED), (5, 7, CONTROL)],
    ),
    (
        "segmentio/kafka-go#1164, #813, tulios/kafkajs#562, zendesk/ruby-kafka#555 (batches without records)",
        batch(1, [0, 1]) + batch(3, [], last=9) + batch(13, [0]),
        [],
        [(1, 3, PRESENT), (3, 13, COMPACTED), (13, 14, PRESENT)],
    ),
    (
        "zendesk/ruby-kafka#505, Parsely/pykafka#460 (a compacted batch keeps its offsets)",
        batch(1, [0, 4, 9], last=11),
        [],
        [
            (1, 2, PRESENT),
            (2, 5, COMPACTED),
            (5, 6, PRESENT),
            (6, 10, COMPACTED),
            (10, 11, PRESENT),
            (11, 13, COMPACTED),
        ],
    ),
    (
        "apache/spark#20836, #22207, #15102 (SPARK-23685, SPARK-25214: offsets that do not follow each other)",
        batch(1, [0], producer=1) + control_batch(2, 1, commit=True) + batch(5, [0, 2], last=4) + batch(12, [0]),
        [],
        [
            (1, 2, PRESENT),
            (2, 3, CONTROL),
            (3, 5, COMPACTED),
            (5, 6, PRESENT),
            (6, 7, COMPACTED),
            (7, 8, PRESENT),
            (8, 12, COMPACTED),
            (12, 13, PRESENT),
        ],
    ),
    (
        "apache/pinot#14716, segmentio/kafka-go#659 (markers were counted as lost, or consumed)",
        control_batch(1, 7, commit=True) + batch(2, [0], producer=7) + control_batch(3, 7, commit=True),
        [],
        [(1, 2, CONTROL), (2, 3, PRESENT), (3, 4, CONTROL)],
    ),
]


@pytest.mark.parametrize(("reference", "stored", "aborted", "expected"), STORED, ids=[row[0] for row in STORED])
def test_no_stored_record_is_called_absent(
    reference: str, stored: bytes, aborted: list[tuple[int, int]], expected: list[tuple[int, int, Absence]]
) -> None:
    end = expected[-1][1]
    fetched = FetchedBatches(memoryview(stored), aborted, end)
    position, spans = classify_fetched(fetched, 1, np.array([(1, end)], np.int64))
    joined: list[tuple[int, int, Absence]] = []
    for span in spans:
        if joined and joined[-1][2] == span.absence:
            joined[-1] = (joined[-1][0], span.end, span.absence)
        else:
            joined.append((span.begin, span.end, span.absence))
    assert (position, joined) == (end, expected), reference
