"""Parentheses of a statement, and the commas between what is in them."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.sql.postgres.statements.tokens import Token

MAX_CALL_TOKENS = 200
"""Limit: tokens of the arguments of a call that is rewritten, as calls may be nested; a longer one goes to DuckDB
unchanged."""
_AFTER_TABLES = (
    *("select", "where", "order", "group", "having", "window", "limit", "offset", "fetch", "for", "qualify"),
    *("union", "intersect", "except"),
)
"""Words that end the tables of a FROM."""


def argument_commas(tokens: Sequence[Token], opened: int, closed: int) -> list[int]:
    """Return the indexes of the commas between the arguments of a call; none for a call that is too long."""
    depth, commas = 0, list[int]()
    for number in range(opened, closed if closed - opened <= MAX_CALL_TOKENS else opened):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(tokens[number].text, 0)
        if tokens[number].text == "," and depth == 1:
            commas.append(number)
    return commas


def closing_parentheses(tokens: Sequence[Token]) -> dict[int, int]:
    """Return the index of the parenthesis that closes each open one."""
    closing, opened = dict[int, int](), list[int]()
    for index, token in enumerate(tokens):
        if token.text == "(":
            opened.append(index)
        elif token.text == ")" and opened:
            closing[opened.pop()] = index
    return closing


def commas_of_clauses(tokens: Sequence[Token]) -> tuple[set[int], set[int]]:
    """Return the indexes of the commas between the tables of a FROM, and of those between the columns of a SELECT."""
    commas: dict[str, set[int]] = {"from": set(), "select": set()}
    clauses = [""]
    for index, token in enumerate(tokens):
        if token.text in ("(", "["):
            clauses.append("")
        elif token.text in (")", "]") and len(clauses) > 1:
            clauses.pop()
        elif token.text == "," and clauses[-1]:
            commas[clauses[-1]].add(index)
        elif token.is_word("from"):
            if not (index and tokens[index - 1].is_word("distinct")):  # IS DISTINCT FROM
                clauses[-1] = "from"
        elif token.is_word(*_AFTER_TABLES):
            clauses[-1] = "select" if token.is_word("select") else ""
    return commas["from"], commas["select"]
