"""The text of a query's error: one line with the place in the query and the next step, made of DuckDB's lines."""

from __future__ import annotations

import re
from collections.abc import Sequence

import duckdb

from penstock.config.nearest_name import nearest

_PLACE = re.compile(r"\n+LINE (\d+): (.*)\n( *)\^+\s*$")
"""DuckDB's last lines: the number of a line, an excerpt of it, and a mark under a part of the excerpt."""
_ELLIPSIS = "..."
_REPEATED_NAMES = ("Map keys must be unique", "Arrow map contains duplicate key")
"""Errors of DuckDB for files that landed before annotation names became unique."""
_NO_COLUMN = re.compile(r'Referenced column "([^"]+)" not found')
_NO_TABLE = re.compile(r"Catalog Error: Table with name (\S+) does not exist")


def explain_error(error: duckdb.Error, query: str, views: Sequence[str], *, is_verbatim: bool = True) -> str:
    """Return an error of DuckDB as one line; ``views`` are the names that the query may select from.

    No place is named unless the query ``is_verbatim``: its author knows no other text.
    """
    text = str(error).strip()
    if any(sign in text for sign in _REPEATED_NAMES):
        return "a row has an annotation name twice, which DuckDB refuses: run `penstock tables repair` once"
    place = _PLACE.search(text)
    # The candidates of a function are a line each, dozens for an operator.
    words = " ".join(text[: place.start() if place else None].partition("\n\tCandidate functions:")[0].split())
    if table := _NO_TABLE.match(words):
        # DuckDB suggests tables of its catalog.
        hint = nearest(table[1], views)
        words = f"{table[0]}{hint if 'did you mean' in hint else ''}"
    is_parsed = not isinstance(error, duckdb.ParserException)
    if place and is_verbatim and (described := _describe_place(place, query, is_parsed=is_parsed)):
        words = f"{words.rstrip('.')} ({described})"
    step = _next_step(error, words, query, views)
    return f"{words}{step and ': '}{step}"


def _describe_place(place: re.Match[str], query: str, *, is_parsed: bool) -> str:
    """Return line and column in the query, the line alone, or "" if the place is unknown."""
    number, excerpt = int(place[1]), place[2]
    mark = len(place[3]) - len(f"LINE {number}: ") - len(_ELLIPSIS) * excerpt.startswith(_ELLIPSIS)
    # DuckDB shows a part of a long line.
    shown = excerpt.removeprefix(_ELLIPSIS).removesuffix(_ELLIPSIS)
    lines = query.split("\n")
    if is_parsed:
        # Workaround: DuckDB 2.0 counts lines in the text that it runs. That one lacks the blanks and comments before
        # the query, and a limit puts lines of DuckDB's own before it.
        same = [index for index, line in enumerate(lines, 1) if shown in line]
        if len(same) != 1:
            return ""
        number = same[0]
    if not 0 < number <= len(lines):
        return ""
    # The mark counts columns of a terminal, where a tab has none.
    visible = [index for index, character in enumerate(shown) if character.isprintable()] + [len(shown)]
    begin = lines[number - 1].find(shown)
    if begin < 0 or not shown.isascii() or not 0 <= mark < len(visible):
        return f"line {number}"
    return f"line {number}, column {begin + visible[mark] + 1}"


def _next_step(error: duckdb.Error, words: str, query: str, views: Sequence[str]) -> str:
    """Return what the author of the query may do; empty if DuckDB's words say it."""
    if _NO_TABLE.match(words):
        return f"Existing views: {', '.join(views)}"
    if isinstance(error, duckdb.ParserException) and re.search(r"\boffset\b", query, re.IGNORECASE):
        return 'the column "offset" needs quotes: it is an SQL keyword'
    if (column := _NO_COLUMN.search(words)) and f'"{column[1]}"' in query:
        return f"a text has single quotes: '{column[1]}'"
    if isinstance(error, duckdb.ConversionException) and "convert" in words:
        return "try_cast gives NULL instead"
    return ""
