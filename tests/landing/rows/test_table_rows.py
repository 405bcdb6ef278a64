"""Kinds of messages and their columns."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.landing.event_rules import FOREIGN_CODECS
from penstock.landing.from_kafka.rows import ROW
from penstock.landing.rows.json_events import EventRules
from penstock.landing.rows.table_rows import Rules, table_rows
from penstock.landing.table_schema import FILE_SCHEMA
from penstock.wire.codecs import CODECS
from penstock.wire.request_protocols import REQUEST_PROTOCOLS
from tests.landing.rows.payloads import EVENTS, QUARANTINED
from tests.landing.rows.plain_judge import near_events

AT = datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=UTC)
Row = dict[str, Any]


def messages(payloads: list[bytes | None], codec: str | None = "plog", **more: object) -> pa.RecordBatch:
    base = {"topic": "t", "source": "s", "codec": codec, "timestamp": AT, "bucket": AT, "received": AT, **more}
    return pa.RecordBatch.from_pylist([{**base, "offset": n, "payload": p} for n, p in enumerate(payloads)], schema=ROW)


def classify(batch: pa.RecordBatch, rules: Rules | None = None) -> list[Row]:
    """Return the rows in order of offsets, each with its kind."""
    classified_rows: list[Row] = []
    for kind, rows in table_rows(batch, rules or Rules(), 1_700_000_000_000_005):
        assert rows.schema == FILE_SCHEMA
        classified_rows += [{"kind": kind, **row} for row in rows.to_pylist()]
    return sorted(classified_rows, key=lambda row: row["offset"])


def test_each_payload_has_its_kind_and_reason() -> None:
    rows = classify(messages([*EVENTS, *(payload for _, payload in QUARANTINED)]))
    assert [row["kind"] for row in rows] == ["event"] * len(EVENTS) + ["quarantine"] * len(QUARANTINED)
    assert [row["reason"] for row in rows] == [None] * len(EVENTS) + [reason for reason, _ in QUARANTINED]


def test_payload_without_brace_is_message() -> None:
    payloads = [b"text", b"", None, b" {}", b"\xef\xbb\xbf{}", b"\xff\x00"]
    rows = classify(messages(payloads))
    assert [(row["kind"], row["reason"], row["type"]) for row in rows] == [("message", None, None)] * 6
    assert [row["payload"] for row in rows] == payloads


@pytest.mark.parametrize("codec", ["plog", "lines", None])
def test_own_codecs_have_events(codec: str | None) -> None:
    assert [row["kind"] for row in classify(messages([EVENTS[0], b"x"], codec))] == ["event", "message"]


def test_all_payloads_of_syslog_are_syslog() -> None:
    rows = classify(messages([b"<34>1 x", EVENTS[0], b"{bad", None], codec="syslog"))
    assert [(row["kind"], row["reason"], row["uuid"]) for row in rows] == [("syslog", None, None)] * 4


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(near_events() | st.binary(max_size=9) | st.none(), st.sampled_from(["plog", "syslog", None])),
        min_size=1,
        max_size=60,
    )
)
def test_each_message_is_one_row(rows: list[tuple[bytes | None, str]]) -> None:
    batch = messages([payload for payload, _ in rows])
    codecs = pa.array([codec for _, codec in rows], pa.string())
    batch = batch.set_column(batch.schema.get_field_index("codec"), "codec", codecs)
    classified_rows = classify(batch)
    assert [row["offset"] for row in classified_rows] == list(range(len(rows)))
    assert [row["payload"] for row in classified_rows] == [payload for payload, _ in rows]
    assert all((row["reason"] is not None) == (row["kind"] == "quarantine") for row in classified_rows)
    assert all((row["uuid"] is not None) == (row["kind"] == "event") for row in classified_rows)
    assert classified_rows == classify(batch), "the same again"


@pytest.mark.parametrize(
    ("stamp", "time"),
    [
        ("2026-02-03T04:05:06.789012+01:00", "2026-02-03 03:05:06.789012"),
        ("2026-02-03T04:05:06.789012999Z", "2026-02-03 04:05:06.789012"),
        ("2026-02-03T04:05:06Z", "2026-02-03 04:05:06"),
        ("2026-02-03T04:05:06-00:30", "2026-02-03 04:35:06"),
        ("0001-01-01T00:00:00Z", "0001-01-01 00:00:00"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31 23:59:59.999000"),
        ("0001-01-01T00:00:00+01:00", None),
        ("9999-12-31T23:59:59-01:00", None),
        ("Feb  3 04:05:06", None),
        ("2026-13-03T04:05:06Z", None),
        ("2026-02-30T04:05:06Z", None),
        ("0000-01-01T00:00:00Z", None),
        ("2026-02-03T04:05:06", None),
        ("infinity", None),
        ("-", None),
        ("", None),
        (None, None),
    ],
)
def test_syslog_has_host_and_zoned_time(stamp: str | None, time: str | None) -> None:
    annotations = {"hostname": "web-1"} | ({"timestamp": stamp} if stamp is not None else {})
    (row,) = classify(messages([b"<34>1 x"], codec="syslog", annotations=list(annotations.items())))
    assert row["host"] == "web-1"
    assert row["event_time"] == (datetime.fromisoformat(time).replace(tzinfo=UTC) if time else None)


def test_syslog_fields_are_columns() -> None:
    annotations = {
        "severity": "crit",
        "facility": "auth",
        "app_name": "su",
        "proc_id": "7",
        "msg_id": "ID47",
        "more": "x",
    }
    (row,) = classify(messages([b"<34>1 x"], codec="syslog", annotations=list(annotations.items())))
    columns = ("severity", "facility", "app_name", "procid", "msgid")
    assert [row[name] for name in columns] == ["crit", "auth", "su", "7", "ID47"]
    assert dict(row["annotations"]) == annotations
    (row,) = classify(messages([EVENTS[0]], annotations=list(annotations.items())))
    assert [row[name] for name in columns] == [None] * 5


def test_quarantined_row_has_only_its_payload() -> None:
    valid = b'{"type":"a","uuid":"u","host":"h\\"","timestamp":1700000000000.25,"data":{"b":[1,"x"],"a":null}}'
    good, bad = classify(messages([valid, valid + b"x"]))
    assert [good[name] for name in ("type", "uuid", "host", "payload")] == ["a", "u", 'h"', valid]
    assert json.loads(good["data"]) == {"b": [1, "x"], "a": None}
    assert good["event_time"] == datetime(2023, 11, 14, 22, 13, 20, 250, tzinfo=UTC)
    assert [bad[name] for name in ("type", "uuid", "host", "event_time", "data")] == [None] * 5
    assert bad["payload"] == valid + b"x"


def test_row_has_its_origin() -> None:
    (row,) = classify(messages([b"text"], key=b"k", type_url="type.x/y", partition=3, annotations=[("a", "b")]))
    assert [row[name] for name in ("topic", "partition", "offset", "source", "key", "type_url")] == [
        *("t", 3, 0, "s", b"k", "type.x/y")
    ]
    assert [row[name] for name in ("timestamp", "bucket", "received")] == [AT] * 3
    assert row["landed_at"] == datetime(2023, 11, 14, 22, 13, 20, 5, tzinfo=UTC)
    assert row["annotations"] == [("a", "b")]


def test_rules_decide_on_events() -> None:
    rows = classify(messages([EVENTS[0]]), Rules(EventRules(("other",))))
    assert [(row["kind"], row["reason"]) for row in rows] == [("quarantine", "type_not_allowed")]


def test_empty_batch_has_no_rows() -> None:
    assert classify(messages([])) == []


def test_foreign_json_is_message_unless_it_is_nearly_an_event() -> None:
    payloads = [EVENTS[0], b'{"message":"m"}', b"{bad", b"text", b'{"type":"t","uuid":5}', b'{"type":5}']
    kinds = ["event", "message", "message", "message", "quarantine", "message"]
    for codec in FOREIGN_CODECS:
        rows = classify(messages(list(payloads), codec))
        assert [row["kind"] for row in rows] == kinds
        assert [row["reason"] for row in rows] == [None, None, None, None, "bad_uuid", None]


def test_codecs_of_request_protocols_are_foreign() -> None:
    assert {make().codec for make in REQUEST_PROTOCOLS} == {*FOREIGN_CODECS} - {*CODECS}


@pytest.mark.parametrize(
    ("codec", "name"), [("gelf", "timestamp"), ("hec", "time"), ("otlp", "time"), ("loki", "time")]
)
@pytest.mark.parametrize(
    ("number", "time"),
    [
        ("1545353025", "2018-12-21T00:43:45"),
        ("1545353025.25", "2018-12-21T00:43:45.250"),
        ("1.545353025E9", "2018-12-21T00:43:45"),
        ("1545353025250", "2018-12-21T00:43:45.250"),
        ("1545353025250.5", "2018-12-21T00:43:45.250500"),
        ("1545353025250123", "2018-12-21T00:43:45.250123"),
        ("1545353025250123456", "2018-12-21T00:43:45.250123"),
        ("1545353025250123999", "2018-12-21T00:43:45.250123"),
        ("1545353025250123.999", "2018-12-21T00:43:45.250123"),
        ("1545353025250.123999", "2018-12-21T00:43:45.250123"),
        ("1545353025.999999999", "2018-12-21T00:43:45.999999"),
        ("1.545353025250123999E18", "2018-12-21T00:43:45.250123"),
        ("0", "1970-01-01T00:00:00"),
        ("99999999999", "5138-11-16T09:46:39"),
        ("100000000000", "1973-03-03T09:46:40"),
        ("-1", None),
        ("1e400", None),
        ("NaN", None),
    ],
)
def test_magnitude_of_time_decides_its_unit(codec: str, name: str, number: str, time: str | None) -> None:
    (row,) = classify(messages([b"text"], codec, annotations=[(name, number)]))
    assert row["event_time"] == (datetime.fromisoformat(time).replace(tzinfo=UTC) if time else None)


@pytest.mark.parametrize(
    ("codec", "annotations", "columns"),
    [
        (
            "otlp",
            {
                "time": "1700000000123456789",
                "severity_text": "WARN",
                "trace_id": "ab",
                "span_id": "cd",
                "resource.host.name": "web-1",
            },
            {
                "event_time": datetime(2023, 11, 14, 22, 13, 20, 123456, UTC),
                "severity": "WARN",
                "trace_id": "ab",
                "span_id": "cd",
                "host": "web-1",
            },
        ),
        (
            "hec",
            {"time": "1700000000.25", "host": "h"},
            {"event_time": datetime(2023, 11, 14, 22, 13, 20, 250_000, UTC), "host": "h"},
        ),
        (
            "gelf",
            {"timestamp": "1700000000.25", "host": "h"},
            {"event_time": datetime(2023, 11, 14, 22, 13, 20, 250_000, UTC), "host": "h"},
        ),
        (
            "forward",
            {"timestamp": "2023-11-14T22:13:20.250000000Z", "tag": "t"},
            {"event_time": datetime(2023, 11, 14, 22, 13, 20, 250_000, UTC)},
        ),
        ("loki", {"time": "never"}, {"event_time": None}),
        (
            "gelf",
            {"time": "1500000000", "timestamp": "1700000000.25"},
            {"event_time": datetime(2023, 11, 14, 22, 13, 20, 250_000, UTC)},
        ),
        ("gelf", {"time": "1700000000.25"}, {"event_time": datetime(2023, 11, 14, 22, 13, 20, 250_000, UTC)}),
        # Go's time.Time{} as nanoseconds of 64 bits without a sign.
        (
            "otlp",
            {"time": "11651379494838206464", "observed_time": "1700000000250000000"},
            {"event_time": datetime(2023, 11, 14, 22, 13, 20, 250_000, UTC)},
        ),
        ("otlp", {"time": "11651379494838206464"}, {"event_time": None}),
        ("otlp", {"time": str(2**63 - 1)}, {"event_time": datetime(2262, 4, 11, 23, 47, 16, 854775, UTC)}),
        ("loki", {"time": "9" * 40}, {"event_time": None}),
        ("raw", {"time": "1700000000.25", "host": "h", "trace_id": "x"}, {}),
    ],
)
def test_annotations_of_protocols_are_columns(codec: str, annotations: dict[str, str], columns: Row) -> None:
    (row,) = classify(messages([b"text"], codec, annotations=list(annotations.items())))
    names = ("event_time", "severity", "trace_id", "span_id", "host")
    assert {name: row[name] for name in names} == {**dict.fromkeys(names), **columns}


def test_documents_of_json_and_bulk_alone_have_the_time_that_is_in_them() -> None:
    document = b'{"@timestamp":"2026-01-01T00:00:00Z"}'
    for codec in FOREIGN_CODECS:
        (row,) = classify(messages([document], codec))
        in_document = codec in ("json", "bulk")
        assert row["event_time"] == (datetime(2026, 1, 1, tzinfo=UTC) if in_document else None), codec
    mixed = pa.Table.from_batches([messages([document, b"x"], "hec"), messages([document], "bulk")])
    (batch,) = mixed.combine_chunks().to_batches()
    times = [rows["event_time"].to_pylist() for _, rows in table_rows(batch, Rules(), None)]
    assert sorted(str(time) for part in times for time in part) == ["2026-01-01 00:00:00+00:00", "None", "None"]


@pytest.mark.parametrize(
    ("text", "day"),
    [("2024", "2024-01-01"), ("2024-06", "2024-06-01"), ("2024-06-15", "2024-06-15"), ("2024-13", None)],
)
def test_dates_without_a_time_are_the_begin_of_their_year_month_or_day(text: str, day: str | None) -> None:
    (row,) = classify(messages([f'{{"@timestamp":"{text}"}}'.encode()], "bulk"))
    assert row["event_time"] == (datetime.fromisoformat(f"{day}T00:00:00+00:00") if day else None)
