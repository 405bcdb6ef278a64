"""Arrays of PostgreSQL as DuckDB's lists: in texts, as paths of JSON, and as tables of their elements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from penstock.sql.postgres.parameters import BadParameter, quoted, split_array
from penstock.sql.postgres.statements.parentheses import MAX_CALL_TOKENS, argument_commas
from penstock.sql.postgres.statements.tokens import Token, token_at

_UNNEST_OPTIONS = ("recursive", "max_depth", "keep_parent_names")
_AFTER_TABLE = (
    *("where", "order", "group", "having", "window", "limit", "offset", "fetch", "for", "on", "using", "tablesample"),
    *("union", "intersect", "except", "cross", "join", "natural", "inner", "left", "right", "full", "positional"),
    *("asof", "semi", "anti", "qualify"),
)
"""Words that may follow a table without an alias."""
_ROW_FUNCTIONS = ("generate_subscripts", "string_to_array")
ARRAY_TABLES = ("unnest", "generate_series", *_ROW_FUNCTIONS)
"""Functions that answer numbers, the elements of arrays, and their positions, as a table."""
MAX_PATH_TOKENS = 200
"""Limit for a path of JSON, as in ``#>> ARRAY['a', 'b']``."""


def array_table(
    tokens: Sequence[Token], index: int, opened: int, closed: int, is_table: bool, is_column: bool
) -> dict[int, str]:
    """Return DuckDB's texts, by index, for a table of arrays' elements, which it has as a query only.

    These are ``unnest(a, b) [WITH ORDINALITY]`` and ``FROM generate_subscripts(a, 1) AS k``; Django and peewee read
    the columns of indexes so, and Grafana the search path. {} for another call.
    """
    if closed - opened > MAX_CALL_TOKENS:
        return {}
    rest = [token.text.lower() for token in tokens[closed + 1 : closed + 4]]
    if tokens[index].is_word("generate_series", *_ROW_FUNCTIONS):
        if not is_table:
            # In place of a column, PostgreSQL answers a row for each number, and DuckDB a list.
            is_rows = is_column and tokens[index].is_word("generate_series")
            return {index: "unnest(generate_series", closed: "))"} if is_rows else {}
        # The name of the table is the name of its column, too.
        has_as = rest[:1] == ["as"]
        name, behind = closed + 1 + has_as, rest[1 + has_as : 2 + has_as]
        is_named = (
            name < len(tokens)
            and tokens[name].identifier
            and (has_as or not tokens[name].is_word(*_AFTER_TABLE))
            and behind != ["("]
        )
        alias = {name: f"{tokens[name].text}({tokens[name].text})"} if is_named else {}
        if tokens[index].is_word("generate_series"):
            return alias
        return {index: f"(SELECT {tokens[index].text}", closed: "))", **alias}
    commas = argument_commas(tokens, opened, closed)
    # DuckDB's own options follow a comma, too.
    if not commas or any(tokens[comma + 1].is_word(*_UNNEST_OPTIONS) for comma in commas):
        return {}
    texts = {index: "(SELECT unnest", **dict.fromkeys(commas, "), unnest("), closed: "))"}
    if rest[:2] == ["with", "ordinality"]:
        bounds = [opened, *commas, closed]
        arrays = [" ".join(token.text for token in tokens[begin + 1 : end]) for begin, end in pairwise(bounds)]
        longest = ", ".join(f"len({array})" for array in arrays)
        texts |= {closed: f"), unnest(range(1, greatest({longest}) + 1)))", closed + 1: "", closed + 2: ""}
    return texts


def json_path(tokens: Sequence[Token], index: int) -> tuple[str | None, int]:
    """Return ``'{a,0}'`` or ``ARRAY['a', '0']`` as DuckDB's path, and the index behind it; None for anything else."""
    elements, end = list[str](), index + 1
    token = token_at(tokens, index)
    try:
        if token.is_word("array") and end < len(tokens) and tokens[end].text == "[":
            # Limit: each path looks at a few tokens, not at the rest of the text.
            while end < min(len(tokens), index + MAX_PATH_TOKENS) and tokens[end].text != "]":
                end += 1
                if (content := tokens[end].content) is not None:
                    elements.append(content)
            if end >= len(tokens) or tokens[end].text != "]":
                return None, index
            end += 1
            if [entry.text for entry in tokens[end : end + 4]] == ["::", "text", "[", "]"]:
                end += 4
        else:
            elements = [(element or b"").decode() for element in split_array(token.content or "")]
    except (BadParameter, IndexError):
        return None, index
    escaped = [element if element.isdecimal() else '"' + element.replace('"', '\\"') + '"' for element in elements]
    path = "".join(f"[{element}]" if element.isdecimal() else f".{element}" for element in escaped)
    return quoted(f"${path}"), end


def array_literal(token: Token) -> str | None:
    """Return a text such as ``'{a,b}'`` as DuckDB's list; None for another token."""
    try:
        elements = split_array(token.content or "")
        return f"[{', '.join('NULL' if element is None else quoted(element.decode()) for element in elements)}]"
    except BadParameter:
        return None
