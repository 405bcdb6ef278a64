"""Patterns of LIKE and SIMILAR TO as DuckDB reads them; what they find is compared in ``test_seen_elsewhere``."""

from __future__ import annotations

import time

import pytest

from penstock.sql.postgres.parameters import BadParameter
from penstock.sql.postgres.statements.statement import split
from penstock.sql.postgres.statements.translation import translate


def translated(text: str) -> str:
    (statement,) = split(text)
    return translate(statement).text


@pytest.mark.parametrize(
    ("pattern", "behind"),
    [
        (r"'a\_b'", ""),
        (r"'a\_b'", " and true"),
        (r"'%' || upper('a\_b') || '%'", " = true"),
        (r"(select 'a\_b')", ", 1"),
        (r"'a\_b'::text", " group by 1"),
        ("t.p", " or x"),
        ("null", ""),
    ],
)
def test_backslash_is_the_escape_of_a_pattern(pattern: str, behind: str) -> None:
    text = f"select x not like {pattern}"
    assert translated(text + behind) == rf"{text} ESCAPE '\'{behind}"


@pytest.mark.parametrize(
    "text",
    ["x like 'a%'", "x like 'a' || '%'", r"x like 'a\_b' escape '!'", "x like lower('A')", "x like any(y)", "x like"],
)
def test_pattern_without_an_own_escape_is_left_as_it_is(text: str) -> None:
    assert translated(f"select {text}") == f"select {text}"


def test_pattern_of_similar_to_is_a_regular_expression() -> None:
    assert translated(r"select x similar to 'a.%_\%[%_](b|c)'") == r"select x similar to '(?s)a\..*.\%[%_](b|c)'"


@pytest.mark.parametrize("pattern", ["y", "'a' escape '!'", "lower('A')"])
def test_pattern_of_similar_to_that_is_no_plain_text_is_refused(pattern: str) -> None:
    with pytest.raises(BadParameter, match="SIMILAR TO"):
        translated(f"select x similar to {pattern.replace('lower', 'E')}")


@pytest.mark.parametrize("piece", ["a like ", "a like case ", "a like b(", "a like a || ", "a like (", "similar "])
def test_many_patterns_take_time_that_grows_with_their_number(piece: str) -> None:
    """Ten times the expected second."""
    begin_s = time.process_time()
    assert translated("select " + piece * 20_000)
    assert time.process_time() - begin_s < 10


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x !~* 'a.b'", "x !~* '(?s)a.b'"),
        (r"x ~ E'a.\n\\d'", "x ~ '(?s)a.\n\\d'"),
        ("x ~ E'a.' 'b'", "x ~ E'(?s)a.' 'b'"),
        (r"x ~ '\w.' 'b'", r"x ~ '(?s)[[:word:]\pL].' 'b'"),
        ("regexp_replace(f(x, 1), 'a.b', y)", "regexp_replace(f(x, 1), '(?s)a.b', y)"),
        (r"x ~ '\w\\w[\w.]\W'", r"x ~ '(?s)[[:word:]\pL]\\w[[:word:]\pL.][^[:word:]\pL]'"),
        ("x ~~ 'a.b'", "x ~~ 'a.b'"),
        ("x ~ y", "x ~ y"),
        ("~ 5", "~ 5"),
        ("regexp_replace(x)", "regexp_replace(x)"),
    ],
)
def test_point_of_a_regular_expression_matches_the_end_of_a_line(text: str, expected: str) -> None:
    assert translated(f"select {text}") == f"select {expected}"
