"""Records of Kafka as rows of the landing."""

from __future__ import annotations

import pyarrow as pa

from penstock.landing.event_rules import MAX_TIMESTAMP
from penstock.landing.from_kafka.rows import RECORD, ROW, bounded, rows_of
from tests.landing.from_kafka.kafka_records import AT, batch, record


def test_ordinary_records_are_rows_as_they_are() -> None:
    rows = rows_of(batch([record(b"x", b"k", {"a": b"1", "_t": b"12345678"}), record(None)]))
    assert rows.schema.equals(ROW)
    first, second = rows.to_pylist()
    assert (first["payload"], first["key"], first["annotations"], first["codec"]) == (b"x", b"k", [("a", "1")], None)
    assert (first["source"], first["bucket"], first["received"]) == ("kafka", AT.replace(second=0), AT)
    assert (second["payload"], second["annotations"]) == (None, None)


def test_the_codec_travels_in_a_header_and_odd_headers_do_no_harm() -> None:
    odd = {
        "headers": [{"key": "a", "value": b"\xff"}, {"key": "a", "value": None}, {"key": "codec", "value": b"syslog"}]
    }
    (row,) = rows_of(batch([{**record(b"<1>x"), **odd}])).to_pylist()
    assert (row["codec"], row["annotations"]) == ("syslog", [("a", "\ufffd"), ("a", None)])


def test_a_time_that_no_table_can_hold_is_the_nearest_that_it_can() -> None:
    times = [-(1 << 60), -1000, 0, 5, MAX_TIMESTAMP * 1000, MAX_TIMESTAMP * 1000 + 1, 1 << 62]
    found = bounded(pa.array(times, pa.int64()).cast(RECORD.field("timestamp").type)).cast(pa.int64())
    assert found.to_pylist() == [0, 0, 0, 5, *[MAX_TIMESTAMP * 1000] * 3]
