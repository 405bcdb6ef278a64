"""A check of columns in Spark's DDL without Spark: names of types and brackets.

Spark itself parses the text when the pipeline starts. This check finds the usual mistakes before a start, and accepts
what it does not know about a column: its options and comment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TYPES = frozenset(
    (
        *("array", "bigint", "binary", "boolean", "byte", "char", "character", "date", "dec", "decimal", "double"),
        *("float", "geography", "geometry", "int", "integer", "interval", "long", "map", "numeric", "real", "short"),
        *("smallint", "string", "struct", "time", "timestamp", "timestamp_ltz", "timestamp_ntz", "tinyint"),
        *("varchar", "variant", "void"),
    )
)
"""First words of the types of Spark 3.5 to 4.1."""
MAX_DEPTH = 100
"""Limit: the check calls itself for each level, and Spark's own parser does so too."""
_QUOTED = r"""`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_TOKEN = re.compile(rf"""\s*({_QUOTED}|[^\s<>(),:`'"]+|.)""", re.DOTALL)
_COMMENT = re.compile(rf"({_QUOTED})|--[^\n]*|/\*.*?\*/", re.DOTALL)


def check_ddl(text: str) -> str:
    """Return ``text`` if it can be columns in Spark's DDL, such as ``a INT, b ARRAY<STRING>``. Raises ValueError."""
    without_comments = _COMMENT.sub(lambda match: match[1] or " ", text)
    reader = _Reader(_TOKEN.findall(without_comments.strip()))
    try:
        # Spark also accepts no column at all, and one type such as struct<a:int>.
        if len(reader.tokens) == 1 or reader.tokens[1:2] == ["<"]:
            reader.read_type()
        elif reader.tokens:
            reader.read_columns("")
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None
    return text


@dataclass(slots=True)
class _Reader:
    """Reads tokens from the first to the last one."""

    tokens: list[str]
    position: int = 0
    depth: int = 0

    def read_columns(self, closing: str) -> None:
        while True:
            name = self._next()
            if not name or name in "<>(),:":
                raise ValueError(f"a column has a name and a type, and here is {name!r}")
            if self._peek() == ":":
                self._next()
            self.read_type()
            self._skip_options(closing)
            end = self._next()
            if end == closing:
                return
            if end != ",":
                raise ValueError(f"{closing!r} is missing" if not end else f"{end!r} has no counterpart")

    def read_type(self) -> None:
        word = self._next()
        if word.lower() not in TYPES:
            raise ValueError(f"{word!r} is not a type such as STRING, BIGINT, DOUBLE, BOOLEAN, DATE, ARRAY<STRING>")
        if self._peek() != "<":
            return
        self._next()
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ValueError(f"has more than {MAX_DEPTH} types inside each other")
        if word.lower() == "struct":
            if self._peek() == ">":
                self._next()
            else:
                self.read_columns(">")
        else:
            self._read_items(2 if word.lower() == "map" else 1)
        self.depth -= 1

    def _read_items(self, count: int) -> None:
        for number in range(1, count + 1):
            self.read_type()
            self._skip_options(">")
            if self._next() != ("," if number < count else ">"):
                raise ValueError("'>' is missing" if count == 1 else "a map has two types: MAP<STRING, INT>")

    def _skip_options(self, closing: str) -> None:
        """Skip NOT NULL, COMMENT, DEFAULT, (10, 2) and others."""
        depth = 0
        while (word := self._peek()) and (depth or word not in {",", ">", closing}):
            depth += (word == "(") - (word == ")")
            if depth < 0:
                break
            self._next()
        if depth:
            raise ValueError("a round bracket has no counterpart")

    def _peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self.position += 1
        return token
