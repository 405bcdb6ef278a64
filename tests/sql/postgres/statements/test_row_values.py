"""Comparisons of rows, as text; ``test_seen_elsewhere`` has their answers next to PostgreSQL's."""

from __future__ import annotations

import pytest

from penstock.sql.postgres.statements.row_values import compare_columns
from penstock.sql.postgres.statements.statement import split


def rewrite(text: str) -> str:
    (statement,) = split(text)
    tokens = compare_columns(statement.tokens)
    return " ".join("".join(token.text for token in tokens).split())


def test_columns_are_compared_from_the_left() -> None:
    assert rewrite("select (a,b) = (1,f(2, 3))") == "select (( a) = ( 1) AND ( b) = ( f ( 2 , 3 )))"
    assert rewrite("select row(a,b) <> row(1,2)") == "select (( a) <> ( 1) OR ( b) <> ( 2))"
    assert rewrite("select (a->>'x', 1) <> (b, 2)") == "select (( a ->> 'x') <> ( b) OR ( 1) <> ( 2))"
    assert rewrite("select (a,b) <= (1,2)") == "select (( a) < ( 1) OR (( a) = ( 1) AND (( b) <= ( 2))))"


def test_row_is_null_if_all_columns_are() -> None:
    assert rewrite("select (a, b) is null") == "select (( a) is null AND ( b) is null)"
    assert (
        rewrite("where not row(a->>'x', 1) IS NOT NULL") == "where not (( a ->> 'x') is not null AND ( 1) is not null)"
    )


@pytest.mark.parametrize(
    "text",
    [
        "select f(a, b) = (1, 2)",
        "select f(a, b) is null, (a) is null, (select 1, 2) is null, (a, b) is true",
        "select (a, b) in ((1, 2))",
        "select (a) = (b), c",
        "select (a, b) = (1, 2, 3)",
        "select (a, b) = (select 1, 2)",
        "select (a, b) = (1, 2)::t",
        "select (a, b) || (c, d)",
        "select count(*) from t join u using (a, b)",
        f"select (a, b) = (1, f({', '.join('1' for _ in range(200))}))",
        "select (a, b) = (1, 2",
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert rewrite(text) == text


def test_comparison_in_parentheses_is_rewritten() -> None:
    assert rewrite("select ((a, b) > (c, d)) is true").startswith("select ((( a) > ( c) OR")
    assert rewrite("select x from t where (a, b) = (1, 2) and (c, d) = (3, 4)").count(" AND ") == 2
