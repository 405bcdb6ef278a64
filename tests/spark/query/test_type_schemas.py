"""Schemas of event types, as Spark writes columns."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.landing.rows.json_events import EventRules, event_columns
from penstock.spark.query.type_schemas import BadSchema, parse_schemas
from tests.config.syntax.test_spark_ddl import ACCEPTED, REFUSED

pytestmark = pytest.mark.spark
DDL = {
    "click": "path string, ms int NOT NULL, share double, ok boolean, tags array<string>, at timestamp, day date, "
    "price decimal(5,2), small tinyint, more struct<a: int>, map map<string, int>"
}
GOOD = [
    {"ms": 1},
    {"ms": -5, "path": "/x", "share": 1, "ok": True, "tags": ["a"], "other": {"is": "let through"}},
    {"ms": 1, "path": None, "share": 0.5, "tags": None, "at": "2026-01-01T00:00:00Z", "day": "2026-01-01"},
    {"ms": 1, "price": 123.45, "small": -128, "more": {"a": 1}, "map": {}},
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
    {"ms": 1, "day": "2026-02-30"},
    {"ms": 1, "price": 1234},
    {"ms": 1, "small": 128},
    {"ms": 1, "more": []},
    {"ms": 1, "map": "x"},
]


def event(kind: str, data: object) -> bytes:
    return json.dumps({"type": kind, "uuid": "u", "timestamp": 1, "data": data}).encode()


def test_event_that_violates_its_schema_is_quarantined(spark: SparkSession) -> None:
    payloads = [event("click", data) for data in GOOD + BAD] + [event("view", data) for data in BAD]
    rules = EventRules(schemas=parse_schemas(spark, DDL))
    reasons = event_columns(pa.array(payloads, pa.binary()), rules)["reason"].to_pylist()
    assert reasons == [*[None] * len(GOOD), *["schema_not_met"] * len(BAD), *[None] * len(BAD)]


def test_bad_schema_is_refused_with_its_key(spark: SparkSession) -> None:
    with pytest.raises(BadSchema, match=r"pipeline\.schemas\.click: 'path strng'"):
        parse_schemas(spark, {"click": "path strng"})


@pytest.mark.parametrize("ddl", REFUSED)
def test_columns_that_the_configuration_refuses_are_refused_by_spark(spark: SparkSession, ddl: str) -> None:
    with pytest.raises(BadSchema):
        parse_schemas(spark, {"click": ddl})


@pytest.mark.parametrize("ddl", ACCEPTED)
def test_columns_that_spark_accepts_are_accepted_by_the_configuration(spark: SparkSession, ddl: str) -> None:
    assert len(parse_schemas(spark, {"click": ddl})) == 1
