"""Comparisons of rows, as ``(a, b) < (c, d)``, as comparisons of their columns.

DuckDB compares rows like values of one type, for which two nulls are equal and a null is larger than anything else: a
page after ``(a, b) > ('x', 'y')`` has rows without a ``b``, which PostgreSQL leaves out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from penstock.sql.postgres.statements.parentheses import argument_commas, closing_parentheses
from penstock.sql.postgres.statements.tokens import END, Token, token_at

_OPERATORS = frozenset({"=", "<>", "!=", "<", "<=", ">", ">="})
_BEFORE_ROWS = ("and", "or", "not", "where", "on", "having", "select", "when", "then", "else", "row", "qualify")
"""Words before a parenthesis that is a row; behind another name it holds the arguments of a call."""
_BEHIND_VALUES = ("::", "[", ".")


def compare_columns(tokens: Sequence[Token]) -> list[Token]:
    """Return a statement's tokens with comparisons of columns in place of comparisons of rows."""
    if not any(token.text == "," for token in tokens):
        return [*tokens]
    significant = [index for index, token in enumerate(tokens) if token.kind not in ("space", "comment")]
    words = [tokens[index] for index in significant]
    closing = closing_parentheses(words)
    compared, end = list[Token](), 0
    for opened in sorted(closing):
        if (begin := significant[opened]) < end or not _is_row(words, opened):
            continue
        closed, signs = closing[opened], _operator_at(words, closing[opened] + 1)
        operator, right = "".join(sign.text for sign in signs), closed + 1 + len(signs)
        right += token_at(words, right).is_word("row")
        if operator not in _OPERATORS or right not in closing:
            continue
        left_columns, right_columns = _columns(words, opened, closed), _columns(words, right, closing[right])
        # Of another length, or with a cast or a field behind it, it is left to DuckDB.
        if (
            len(left_columns) == len(right_columns) > 1
            and token_at(words, closing[right] + 1).text not in _BEHIND_VALUES
        ):
            if token_at(words, opened - 1).is_word("row"):
                begin = significant[opened - 1]
            compared += tokens[end:begin]
            compared += _comparison(left_columns, right_columns, operator, words[closed + 1].position)
            end = significant[closing[right]] + 1
    return [*compared, *tokens[end:]]


def _is_row(words: Sequence[Token], opened: int) -> bool:
    """Report whether a parenthesis may hold the columns of a row, by what is in front of it."""
    before = token_at(words, opened - 1)
    return before.is_word(*_BEFORE_ROWS) or before.text in ("", "(", ",")


def _operator_at(words: Sequence[Token], index: int) -> list[Token]:
    """Return the one or two signs of an operator."""
    first, second = token_at(words, index), token_at(words, index + 1)
    return [first, second] if second.text in ("=", ">") and _is_operator(first, second) else [first]


def _is_operator(first: Token, second: Token) -> bool:
    """Report whether two tokens are signs next to each other."""
    return first.kind == second.kind == "sign" and second.position == first.position + len(first.text)


def _columns(words: Sequence[Token], opened: int, closed: int) -> list[Sequence[Token]]:
    """Return the columns of a row; none for a query, and for a long row, which is left to DuckDB."""
    if token_at(words, opened + 1).is_word("select", "with", "values", "from", "table"):
        return []
    bounds = [opened, *argument_commas(words, opened, closed), closed]
    return [words[begin + 1 : end] for begin, end in pairwise(bounds)]


def _comparison(
    left: Sequence[Sequence[Token]], right: Sequence[Sequence[Token]], operator: str, position: int
) -> Iterator[Token]:
    """Yield the tokens of a comparison of columns, from the left: the first ones that differ decide."""

    def compare(index: int, sign: str) -> Iterator[Token]:
        for text, column in (("(", left[index]), (f") {sign} (", right[index])):
            yield Token("literal", text, position)
            for previous, token in pairwise((END, *column)):
                # Between the signs of one operator, as `->>`, there is no blank; comments between others are left out.
                if not _is_operator(previous, token):
                    yield Token("space", " ", token.position)
                yield token
        yield Token("literal", ")", position)

    last = len(left) - 1
    if operator in ("=", "<>", "!="):
        for index in range(len(left)):
            yield Token("literal", "(" if index == 0 else " AND " if operator == "=" else " OR ", position)
            yield from compare(index, operator)
        yield Token("literal", ")", position)
        return
    for index in range(len(left)):
        yield Token("literal", "(", position)
        yield from compare(index, operator if index == last else operator[0])
        if index < last:
            yield Token("literal", " OR (", position)
            yield from compare(index, "=")
            yield Token("literal", " AND ", position)
    yield Token("literal", "))" * last + ")", position)
