from __future__ import annotations

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatch

from penstock.records import ANNOTATIONS, body
from penstock.server.kafka.records.encode import empty, encode
from tests.server.kafka.produced import in_topic, read_back, records_of


def test_offsets_and_times_come_from_the_log():
    rows = in_topic(body([b"a", b"b", b"c"]), base=10, micros=1_700_000_000_999_998)
    batch = pa.concat_batches([rows.slice(0, 1), rows.slice(2)])  # 11 is in a gap
    records = records_of(encode(batch))
    assert [(record.offset, record.value) for record in records] == [(10, b"a"), (12, b"c")]
    assert [record.timestamp for record in records] == [1_700_000_000_999, 1_700_000_001_000]
    assert {record.timestamp_type for record in records} == {1}


def test_sliced_batch_is_encoded_correctly():
    annotations = pa.array([[("n", "0")], None, [("n", "2"), ("m", None)], []], ANNOTATIONS)
    keys, urls = pa.array([b"a", None, b"c", b""]), pa.array([None, None, None, "type/x"])
    rows = in_topic(body([b"0", b"1", None, b"3"], keys=keys, annotations=annotations, type_urls=urls))
    assert read_back(rows) == [
        (b"a", b"0", [("n", b"0")]),
        (None, b"1", []),
        (b"c", None, [("n", b"2"), ("m", None)]),
        (b"", b"3", [("type_url", b"type/x")]),
    ]
    assert read_back(rows.slice(1, 2)) == read_back(rows)[1:3]
    assert read_back(rows.slice(2)) == read_back(rows)[2:]


def test_annotation_that_looks_encoded_is_unchanged():
    annotations = pa.array([[("kafka.base64.a", "no base64!"), ("kafka.none.b", "")]], ANNOTATIONS)
    assert read_back(in_topic(body([b"x"], annotations=annotations))) == [
        (None, b"x", [("kafka.base64.a", b"no base64!"), ("b", None)])
    ]


def test_gap_is_a_batch_without_records():
    decoded = DefaultRecordBatch(bytearray(bytes(empty(5, 9))))
    assert (decoded.base_offset, decoded.next_offset, decoded.validate_crc(), list(decoded)) == (5, 9, True, [])
