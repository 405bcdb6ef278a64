"""Parentheses and commas of statements."""

from __future__ import annotations

from penstock.sql.postgres.statements.parentheses import argument_commas, closing_parentheses, commas_of_clauses
from penstock.sql.postgres.statements.statement import split


def test_commas_belong_to_their_call_or_clause() -> None:
    (statement,) = split("select a, f(b, g(c, d), [1, 2]) from t, u where x in (1, 2)")
    tokens = statement.significant
    commas = [index for index, token in enumerate(tokens) if token.text == ","]
    opened = next(index for index, token in enumerate(tokens) if token.text == "(")
    closed = closing_parentheses(tokens)[opened]
    assert tokens[closed + 1].is_word("from")
    assert argument_commas(tokens, opened, closed) == [commas[1], commas[3]]
    assert commas_of_clauses(tokens) == ({commas[5]}, {commas[0]})


def test_parenthesis_without_an_end_closes_nothing() -> None:
    (statement,) = split("select ) ( (1)")
    tokens = statement.significant
    assert closing_parentheses(tokens) == {3: 5}
