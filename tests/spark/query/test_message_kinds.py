"""The rules of events as Spark columns agree with those in Python."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from penstock.spark.query.message_kinds import Rules, classified
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from penstock.landing.event_rules import Event, judge
from tests.spark.spark_payloads import EVENTS, QUARANTINED

pytestmark = pytest.mark.spark

SOURCE = (
    "topic string, offset bigint, timestamp timestamp, key binary, payload binary, type_url string, "
    "annotations map<string,string>, source string, bucket timestamp, received timestamp, codec string, admitted string"
)


def rows(spark: SparkSession, payloads: list[bytes | None], codec: str = "plog", limited: bool = False) -> DataFrame:
    base = {"topic": "t", "source": "s", "codec": codec}
    records = [{**base, "offset": n, "payload": payload and bytearray(payload)} for n, payload in enumerate(payloads)]
    frame = spark.createDataFrame(records, SOURCE).coalesce(1)
    return frame if limited else frame.drop("admitted")


def classify(frame: DataFrame, rules: Rules | None = None) -> list[Row]:
    found = classified(frame, rules or Rules())
    texts = {"data": F.to_json("data"), "event_time": F.col("event_time").cast("string")}
    return found.withColumns(texts).orderBy("offset").collect()


def fate(row: Row) -> Event | str:
    return Event(row.type, row.uuid) if row.kind == "event" else row.reason


def test_every_payload_of_the_table_is_what_it_should_be(spark: SparkSession) -> None:
    found = classify(rows(spark, [*EVENTS, *(payload for _, payload in QUARANTINED)]))
    assert [fate(row) for row in found[: len(EVENTS)]] == [judge(payload) for payload in EVENTS]
    assert [row.reason for row in found[len(EVENTS) :]] == [reason for reason, _ in QUARANTINED]
    assert {row.kind for row in found[len(EVENTS) :]} == {"quarantine"}


WORDS = [
    "1e5",
    "{}",
    "[]",
    "null",
    "true",
    "NaN",
    '"type"',
    '"uuid"',
    '"timestamp"',
    '"data"',
    '"a"',
    "\\ud800",
    "\\u0061",
]
SCRAPS = st.sampled_from([*"{}[],:\"\\/'.-01é\U0001f600 \n\x00\x7f", *WORDS])
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@st.composite
def near_events(draw: st.DrawFn) -> bytes:
    """Events with some fields strange, and a piece of their text replaced."""
    fields: dict[str, Any] = {"type": "a", "uuid": "u", "timestamp": 1}
    fields.update(
        draw(st.dictionaries(st.sampled_from(["type", "uuid", "timestamp", "data", "x"]), VALUES, max_size=2))
    )
    text = json.dumps(fields, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    at, length = draw(st.integers(1, len(text))), draw(st.integers(0, 3))
    piece = draw(st.lists(SCRAPS, max_size=2).map("".join).map(str.encode) | st.binary(max_size=2) | st.just(b""))
    return text[:at] + piece + text[at + length :]


@settings(max_examples=8, deadline=None)
@given(
    st.lists(
        near_events() | st.lists(SCRAPS, max_size=9).map(lambda p: b"{" + "".join(p).encode()),
        min_size=150,
        max_size=150,
    )
)
def test_spark_and_python_judge_alike(spark: SparkSession, payloads: list[bytes]) -> None:
    for row, payload in zip(classify(rows(spark, payloads)), payloads, strict=True):
        assert fate(row) == judge(payload), payload


def test_what_does_not_begin_with_a_brace_is_a_message(spark: SparkSession) -> None:
    found = classify(rows(spark, [b"text", b"", None, b" {}", b"\xef\xbb\xbf{}", b"\xff\x00"]))
    assert [(row.kind, row.reason, row.type) for row in found] == [("message", None, None)] * 6
    assert [row.payload for row in found] == [b"text", b"", None, b" {}", b"\xef\xbb\xbf{}", b"\xff\x00"]


def test_what_the_syslog_codec_took_is_syslog_whatever_it_looks_like(spark: SparkSession) -> None:
    found = classify(rows(spark, [b"<34>1 x", EVENTS[0], b"{bad"], codec="syslog"))
    assert [(row.kind, row.reason, row.uuid) for row in found] == [("syslog", None, None)] * 3


@pytest.mark.parametrize(
    ("stamp", "time"),
    [
        ("2026-02-03T04:05:06.789012+01:00", "2026-02-03 03:05:06.789012"),
        ("2026-02-03T04:05:06Z", "2026-02-03 04:05:06"),
        ("Feb  3 04:05:06", None),
        ("2026-13-03T04:05:06Z", None),
        ("0000-01-01T00:00:00Z", None),
        ("2026-02-03T04:05:06", None),
    ],
)
def test_syslog_has_its_host_and_its_time_where_it_says_the_zone(
    spark: SparkSession, stamp: str, time: str | None
) -> None:
    annotations = F.create_map(F.lit("hostname"), F.lit("web-1"), F.lit("timestamp"), F.lit(stamp))
    (row,) = classify(rows(spark, [b"<34>1 x"], codec="syslog").withColumn("annotations", annotations))
    assert (row.host, row.event_time) == ("web-1", time)


def test_an_event_has_its_fields_and_a_quarantined_one_only_its_payload(spark: SparkSession) -> None:
    valid = b'{"type":"a","uuid":"u","host":"h\\"","timestamp":1700000000000.25,"data":{"b":[1,"x"],"a":null}}'
    good, bad = classify(rows(spark, [valid, valid + b"x"]))
    assert (good.type, good.uuid, good.host, good.payload) == ("a", "u", 'h"', valid)
    assert json.loads(good.data) == {"b": [1, "x"], "a": None}
    assert good.event_time == "2023-11-14 22:13:20.00025"
    assert (bad.type, bad.uuid, bad.host, bad.event_time, bad.data) == (None,) * 5
    assert bad.payload == valid + b"x"


def test_data_may_be_json_text_and_payloads_of_events_left_out(spark: SparkSession) -> None:
    frame = rows(spark, [b'{"type":"a","uuid":"u","timestamp":1,"data":{"b": 1}}', b"{bad", b"text"])
    found = classified(frame, Rules(data_format="json", keep_payload=False)).orderBy("offset").collect()
    assert [row.data for row in found] == ['{"b":1}', None, None]
    assert [row.payload for row in found] == [None, b"{bad", b"text"]


def test_only_types_in_the_list_are_let_in(spark: SparkSession) -> None:
    frame = rows(
        spark, [b'{"type":"a","uuid":"u","timestamp":1}', b'{"type":"b","uuid":"u","timestamp":1}'], limited=True
    )
    found = classify(frame, Rules(event_types=("b",)))
    assert [row.reason for row in found] == ["type_not_allowed", None]


def test_a_type_that_was_not_admitted_while_reading_is_one_too_many(spark: SparkSession) -> None:
    frame = rows(
        spark, [b'{"type":"a","uuid":"u","timestamp":1}', b'{"type":"b","uuid":"u","timestamp":1}'], limited=True
    )
    admitted = F.when(F.col("offset") == 0, F.lit("a"))
    assert [row.reason for row in classify(frame.withColumn("admitted", admitted))] == [None, "too_many_types"]
