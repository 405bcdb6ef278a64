"""Comparisons of rows, as ``(a, b) < (c, d)`` and ``(a, b) IS NULL``, as comparisons of their columns.

DuckDB compares rows like values of one type, for which two nulls are equal and a null is larger than anything else: a
page after ``(a, b) > ('x', 'y')`` has rows without a ``b``, which PostgreSQL leaves out. No row is null for
DuckDB; for PostgreSQL a row of nulls is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from penstock.sql.postgres.statements.parentheses import argument_commas, closing_parentheses
from penstock.sql.postgres.statements.tokens import END, Token, token_at

_OPERATORS = frozenset({"=", "<>", "!=", "<", "<=", ">", ">="})
_BEFORE_ROWS = frozenset(
    ("and", "or", "not", "where", "on", "having", "by", "select", "distinct", "when", "then", "else", "row", "qualify")
)
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

    def replace(opened: int, last: int) -> None:
        """Take over the tokens before a row; ``last`` is the last word of its comparison."""
        nonlocal end
        compared.extend(tokens[end : significant[opened - token_at(words, opened - 1).is_word("row")]])
        end = significant[last] + 1

    for opened in sorted(closing):
        if significant[opened] < end or not _is_row(words, opened):
            continue
        closed = closing[opened]
        if (test := _null_test_at(words, closed + 1)) and len(columns := _columns(words, opened, closed)) > 1:
            replace(opened, closed + len(test))
            compared += _null_test(columns, " ".join(test), words[closed + 1].position)
            continue
        signs = _operator_at(words, closed + 1)
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
            replace(opened, closing[right])
            compared += _comparison(left_columns, right_columns, operator, words[closed + 1].position)
    return [*compared, *tokens[end:]]


def _is_row(words: Sequence[Token], opened: int) -> bool:
    """Report whether a parenthesis may hold the columns of a row, by what is in front of it."""
    before = token_at(words, opened - 1)
    return before.is_word(*_BEFORE_ROWS) or before.text in ("", "(", ",")


def _operator_at(words: Sequence[Token], index: int) -> list[Token]:
    """Return the one or two signs of an operator."""
    first, second = token_at(words, index), token_at(words, index + 1)
    return [first, second] if second.text in ("=", ">") and _is_operator(first, second) else [first]


def _null_test_at(words: Sequence[Token], index: int) -> list[str]:
    """Return the words of ``IS NULL`` or ``IS NOT NULL``; none if there is another word."""
    test = [token_at(words, index + number).text.lower() for number in range(3)]
    return test[:2] if test[:2] == ["is", "null"] else test if test == ["is", "not", "null"] else []


def _is_operator(first: Token, second: Token) -> bool:
    """Report whether two tokens are signs next to each other."""
    return first.kind == second.kind == "sign" and second.position == first.position + len(first.text)


def _columns(words: Sequence[Token], opened: int, closed: int) -> list[Sequence[Token]]:
    """Return the columns of a row; none for a query, and for a long row, which is left to DuckDB."""
    if token_at(words, opened + 1).is_word("select", "with", "values", "from", "table"):
        return []
    bounds = [opened, *argument_commas(words, opened, closed), closed]
    return [words[begin + 1 : end] for begin, end in pairwise(bounds)]


def _separated(column: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens of a column with blanks between them, in place of comments."""
    for previous, token in pairwise((END, *column)):
        if not _is_operator(previous, token):  # as `->>`
            yield Token("space", " ", token.position)
        yield token


def _null_test(columns: Sequence[Sequence[Token]], test: str, position: int) -> Iterator[Token]:
    """Yield the tokens of a test of each column: a row is (not) null if all of its columns are (not)."""
    for index, column in enumerate(columns):
        yield Token("literal", f" {test} AND (" if index else "((", position)
        yield from _separated(column)
        yield Token("literal", ")", position)
    yield Token("literal", f" {test})", position)


def _comparison(
    left: Sequence[Sequence[Token]], right: Sequence[Sequence[Token]], operator: str, position: int
) -> Iterator[Token]:
    """Yield the tokens of a comparison of columns, from the left: the first ones that differ decide."""

    def compare(index: int, sign: str) -> Iterator[Token]:
        for text, column in (("(", left[index]), (f") {sign} (", right[index])):
            yield Token("literal", text, position)
            yield from _separated(column)
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
