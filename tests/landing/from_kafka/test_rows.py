"""Tests of the conversion of Kafka records to rows of the landing."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.kafka.origin_header import OriginReader
from penstock.landing.event_rules import MAX_TIMESTAMP
from penstock.landing.from_kafka.rows import ROW, clamp_timestamps, rows_from_records
from tests.landing.from_kafka.kafka_records import TIMESTAMP, batch, record


def test_plain_records_become_rows() -> None:
    rows = rows_from_records(batch([record(b"x", b"k", {"a": b"1", "_t": b"12345678"}), record(None)]), OriginReader())
    assert rows.schema.equals(ROW)
    first, second = rows.to_pylist()
    assert (first["payload"], first["key"], first["annotations"], first["codec"]) == (b"x", b"k", [("a", "1")], None)
    assert (first["source"], first["bucket"], first["received"]) == ("kafka", TIMESTAMP.replace(second=0), TIMESTAMP)
    assert (second["payload"], second["annotations"]) == (None, None)


def test_codec_header_sets_codec_and_invalid_headers_are_accepted() -> None:
    odd_headers = {
        "headers": [{"key": "a", "value": b"\xff"}, {"key": "a", "value": None}, {"key": "codec", "value": b"syslog"}]
    }
    (row,) = rows_from_records(batch([{**record(b"<1>x"), **odd_headers}]), OriginReader()).to_pylist()
    assert (row["codec"], row["annotations"]) == ("syslog", [("a", "\ufffd"), ("a", None)])


def test_timestamps_out_of_range_are_clamped() -> None:
    millis = np.array([-(1 << 60), -1, 0, 5, MAX_TIMESTAMP, MAX_TIMESTAMP + 1, (1 << 63) - 1])
    clamped = clamp_timestamps(millis).cast(pa.int64())
    assert clamped.to_pylist() == [0, 0, 0, 5000, *[MAX_TIMESTAMP * 1000] * 3]


def test_origin_of_a_record_is_its_rows_source_and_minute_and_no_annotation() -> None:
    minute = int(TIMESTAMP.timestamp()) // 60 * 60 - 60
    records = [record(b"x", None, {"_penstock_origin": f"edge-1/events@{minute}".encode(), "a": b"1"}), record(b"y")]
    first, second = rows_from_records(batch(records), OriginReader()).to_pylist()
    assert (first["source"], first["bucket"].timestamp(), first["annotations"]) == (
        "edge-1/events",
        minute,
        [("a", "1")],
    )
    assert (second["source"], second["bucket"]) == ("kafka", TIMESTAMP.replace(second=0))
