"""Which rows are meant."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.landing.requests.conditions import BEFORE, IN, NOT_IN, BadCondition, Condition, parse, rows_of
from penstock.landing.table.table_file import TableFile
from penstock.landing.table_paths import Layout
from tests.spark.spark_helpers import HandWritten, landed_event, landed_message


def test_conditions_are_those_of_sql() -> None:
    assert parse("host = 'web-1'") == [Condition("host", IN, ("web-1",))]
    assert parse(" TYPE in ('a', 'it''s', '')  AND date < '2026-01-31' ") == [
        Condition("type", IN, ("a", "it's", "")),
        Condition("date", BEFORE, ("2026-01-31",)),
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "a condition is like"),
        ("host = web", "a condition is like"),
        ("payload = 'x'", "no condition on 'payload'"),
        ("host < 'a'", "for the date alone"),
        ("date = 'today'", "is no date"),
        ("host = 'a' or type = 'b'", "joined by `and` alone"),
        ("host = 'a' and", "a condition is like"),
        ("host in ()", "a condition is like"),
    ],
)
def test_what_is_none_is_told(text: str, why: str) -> None:
    with pytest.raises(BadCondition, match=why):
        parse(text)


@given(st.text())
def test_any_text_is_understood_or_told(text: str) -> None:
    with contextlib.suppress(BadCondition):
        parse(text)


@given(st.text())
def test_any_value_can_be_asked_for(value: str) -> None:
    quoted = value.replace("'", "''")
    assert parse(f"uuid = '{quoted}'") == [Condition("uuid", IN, (value,))]


def test_all_of_them_have_to_hold(tmp_path: Path) -> None:
    table = HandWritten(Layout.for_tables(tmp_path / "tables"))
    rows = [landed_event(0, "a", host="x"), landed_event(1, "b", host="y"), landed_event(2, "c", host=None)]
    table.commit({"t": 4}, [*rows, landed_message(3)])
    event, message = table.files
    landed = table.layout.landed

    def found(name: str, *conditions: Condition) -> list[int]:
        return rows_of(landed, TableFile(name), conditions).nonzero()[0].tolist()

    assert found(event, Condition("host", IN, ("x", "y")), Condition("uuid", IN, ("b", "c"))) == [1]
    assert found(event, Condition("host", NOT_IN, ("x",))) == [1, 2]
    assert found(event, Condition("kind", IN, ("message",))) == []
    assert found(message, Condition("kind", IN, ("message",)), Condition("date", BEFORE, ("9999-01-01",))) == [0]
    assert found(message, Condition("date", BEFORE, ("2020-01-01",))) == []


@pytest.mark.parametrize("day", ["20260131", "2026-W05-6", "2026-01-31"])
def test_a_day_is_compared_as_folders_name_it(day: str) -> None:
    (condition,) = parse(f"date < '{day}'")
    assert condition.of_text("2026-01-30")
    assert not condition.of_text("2026-01-31")
    assert not condition.of_text("2026-11-22")
