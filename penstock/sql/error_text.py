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


def explain_error(error: duckdb.Error, query: str, views: Sequence[str]) -> str:
    """Return an error of DuckDB as one line; ``views`` are the names that the query may select from."""
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
    if place:
        words = f"{words.rstrip('.')} ({_describe_place(place, query)})"
    step = _next_step(error, words, query, views)
    return f"{words}{step and ': '}{step}"


def _describe_place(place: re.Match[str], query: str) -> str:
    number, excerpt = int(place[1]), place[2]
    mark = len(place[3]) - len(f"LINE {number}: ")
    lines = query.split("\n")
    # DuckDB shows a part of a long line, and counts columns of a terminal.
    shown = excerpt.removeprefix(_ELLIPSIS).removesuffix(_ELLIPSIS)
    begin = lines[number - 1].find(shown) if shown.isascii() and 0 < number <= len(lines) else -1
    if begin < 0 or mark < 0:
        return f"line {number}"
    cut = len(_ELLIPSIS) if excerpt.startswith(_ELLIPSIS) else 0
    return f"line {number}, column {begin + mark - cut + 1}"


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
