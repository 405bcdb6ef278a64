"""Schemas of event types: what does not meet its type's schema goes to quarantine."""

from __future__ import annotations

import json

import pytest
from penstock.spark.query.message_kinds import Rules, classified
from pyspark.sql import SparkSession

from penstock.spark.query.type_schemas import BadSchema, parse_schemas

pytestmark = pytest.mark.spark
DDL = {"click": "path string, ms int NOT NULL, share double, ok boolean, tags array<string>, at timestamp"}
GOOD = [
    {"ms": 1},
    {"ms": -5, "path": "/x", "share": 1, "ok": True, "tags": ["a"], "other": {"is": "let through"}},
    {"ms": 1, "path": None, "share": 0.5, "tags": None, "at": "2026-01-01T00:00:00Z"},
]
BAD = [
    None,
    [],
    "text",
    {},
    {"ms": None},
    {"ms": "1"},
    {"ms": 1.5},
    {"ms": 1 << 40},
    {"ms": 1, "path": 7},
    {"ms": 1, "share": "0.5"},
    {"ms": 1, "ok": "true"},
    {"ms": 1, "tags": "a"},
    {"ms": 1, "at": "yesterday"},
]
SOURCE = (
    "topic string, offset bigint, timestamp timestamp, key binary, payload binary, type_url string, "
    "annotations map<string,string>, source string, bucket timestamp, received timestamp, codec string"
)


def event(kind: str, data: object) -> bytes:
    return json.dumps({"type": kind, "uuid": "u", "timestamp": 1, "data": data}).encode()


def test_an_event_is_what_its_types_schema_says_or_in_quarantine(spark: SparkSession) -> None:
    payloads = [event("click", data) for data in GOOD + BAD] + [event("view", data) for data in BAD]
    records = [{"topic": "t", "codec": "plog", "offset": n, "payload": bytearray(p)} for n, p in enumerate(payloads)]
    frame = spark.createDataFrame(records, SOURCE).coalesce(1)
    found = classified(frame, Rules(schemas=parse_schemas(spark, DDL))).orderBy("offset").collect()
    assert [row.reason for row in found] == [
        *[None] * len(GOOD),
        *["schema_not_met"] * len(BAD),
        *[None] * len(BAD),
    ]


def test_a_schema_that_is_none_is_refused_with_its_key(spark: SparkSession) -> None:
    with pytest.raises(BadSchema, match=r"pipeline\.schemas\.click: 'path strng'"):
        parse_schemas(spark, {"click": "path strng"})
