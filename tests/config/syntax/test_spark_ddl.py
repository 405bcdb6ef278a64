"""Columns in Spark's DDL, checked without Spark; ``tests/spark/query/test_type_schemas.py`` compares with Spark."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.syntax.spark_ddl import check_ddl

REFUSED = {
    "a BANANA": "'BANANA' is not a type such as",
    "a": "'a' is not a type such as",
    "INT a": "'a' is not a type such as",
    "a INT,": "a column has a name and a type, and here is ''",
    "a ARRAY<INT": "'>' is missing",
    "a MAP<INT>": "a map has two types",
    "a ARRAY<BANANA>": "'BANANA' is not a type such as",
    "a STRUCT<b: BANANA>": "'BANANA' is not a type such as",
    "a INT>": "'>' has no counterpart",
    "a DECIMAL(10, 2": "a round bracket has no counterpart",
    "a INT)": "a round bracket has no counterpart",
}
ACCEPTED = [
    "",
    "int",
    "a: int, `b c` string not null comment 'x, (y'",
    "struct<a:int,b:array<map<string,decimal(10,2)>>>",
    "a struct<>, b struct<c int, d: array<array<real>>>",
    "a interval day to second, b timestamp_ntz, c timestamp_ltz, d void",
    "user STRING, -- the user\n n INT",
    "a INT /* x, y */, b STRING COMMENT 'a -- b',\n-- next\nc INT -- last",
    "c dec, d numeric(3), e long, f short, g byte, h binary, i date, time int, date date",
]


@pytest.mark.parametrize("text", ACCEPTED)
def test_columns_that_spark_accepts_are_accepted(text: str) -> None:
    assert check_ddl(text) == text


@pytest.mark.parametrize(("text", "complaint"), REFUSED.items())
def test_columns_that_spark_refuses_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(f"{text!r}: {complaint}")):
        check_ddl(text)


def test_deep_types_are_refused_without_recursion_errors() -> None:
    with pytest.raises(ValueError, match="more than 100 types inside each other"):
        check_ddl("a " + "ARRAY<" * 100_000)


@given(st.text(alphabet="a INTSRUCARYMP<>(),:`'\\9-/*\n", max_size=60) | st.text(max_size=20))
def test_any_text_is_accepted_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert check_ddl(text) == text
