"""Tests of the conditions that select rows."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.landing.requests.conditions import (
    BEFORE,
    IN,
    NOT_IN,
    BadCondition,
    Condition,
    matching_rows,
    parse_conditions,
)
from penstock.landing.table.table_file import TableFile
from penstock.landing.table_paths import Layout
from tests.spark.spark_helpers import HandWritten, landed_event, landed_message


def test_sql_conditions_are_parsed() -> None:
    assert parse_conditions("host = 'web-1'") == [Condition("host", IN, ("web-1",))]
    assert parse_conditions(" TYPE in ('a', 'it''s', '')  AND date < '2026-01-31' ") == [
        Condition("type", IN, ("a", "it's", "")),
        Condition("date", BEFORE, ("2026-01-31",)),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no condition at"),
        ("host = web", "no condition at"),
        ("payload = 'x'", "no condition on 'payload'"),
        ("host < 'a'", "applies to date only"),
        ("date = 'today'", "is not a date"),
        ("host = 'a' or type = 'b'", "only `and` joins"),
        ("host = 'a' and", "no condition at"),
        ("host in ()", "no condition at"),
    ],
)
def test_invalid_condition_is_refused(text: str, reason: str) -> None:
    with pytest.raises(BadCondition, match=reason):
        parse_conditions(text)


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with contextlib.suppress(BadCondition):
        parse_conditions(text)


@given(st.text())
def test_any_quoted_value_is_parsed(value: str) -> None:
    quoted = value.replace("'", "''")
    assert parse_conditions(f"uuid = '{quoted}'") == [Condition("uuid", IN, (value,))]


def test_rows_match_if_all_conditions_hold(tmp_path: Path) -> None:
    table = HandWritten(Layout.for_tables(tmp_path / "tables"))
    rows = [landed_event(0, "a", host="x"), landed_event(1, "b", host="y"), landed_event(2, "c", host=None)]
    table.commit({"t": 4}, [*rows, landed_message(3)])
    event, message = table.files
    landed = table.layout.landed

    def matches(name: str, *conditions: Condition) -> list[int]:
        return matching_rows(landed, TableFile(name), conditions).nonzero()[0].tolist()

    assert matches(event, Condition("host", IN, ("x", "y")), Condition("uuid", IN, ("b", "c"))) == [1]
    assert matches(event, Condition("host", NOT_IN, ("x",))) == [1, 2]
    assert matches(event, Condition("kind", IN, ("message",))) == []
    assert matches(message, Condition("kind", IN, ("message",)), Condition("date", BEFORE, ("9999-01-01",))) == [0]
    assert matches(message, Condition("date", BEFORE, ("2020-01-01",))) == []


@pytest.mark.parametrize("day", ["20260131", "2026-W05-6", "2026-01-31"])
def test_dates_are_compared_in_iso_format(day: str) -> None:
    (condition,) = parse_conditions(f"date < '{day}'")
    assert condition.holds_for_folder("2026-01-30")
    assert not condition.holds_for_folder("2026-01-31")
    assert not condition.holds_for_folder("2026-11-22")
