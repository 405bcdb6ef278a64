"""``COPY (SELECT ...) TO STDOUT`` and ``COPY table TO STDOUT``, in text, CSV and binary (PostgreSQL, COPY).

psql's ``\\copy``, connectorx (and Polars by it), ADBC and DuckDB read whole answers so. A row is one message, as
clients that take rows apart expect.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sql.postgres import messages
from penstock.sql.postgres.messages import SqlError
from penstock.sql.postgres.rows import data_rows, line_messages
from penstock.sql.postgres.session.preparation import StatementFailed, syntax_error
from penstock.sql.postgres.statements.statement import Statement
from penstock.sql.postgres.statements.tokens import Token, tokens_of
from penstock.sql.postgres.types import BINARY_FORMAT, TEXT_FORMAT, Column

_SYNTAX, _UNSUPPORTED, _INVALID = "42601", "0A000", "22023"
_BINARY_HEAD = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
_BINARY_END = struct.pack("!h", -1)
_ESCAPES = {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
"""Order: the backslash is first, because the others bring some."""
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", "'": "'"}
_ESCAPE = re.compile(r"\\(.)|''", re.DOTALL)
MAX_NULL_CHARS = 100
"""Limit for the text of a null: it is written for each null of an answer."""
_ON, _OFF = ("true", "on", "1", ""), ("false", "off", "0")
_IGNORED = frozenset({"with", "as", "using", "delimiters"})


@dataclass(frozen=True, slots=True)
class Copy:
    """A COPY to the client. ``form`` is text, csv or binary; ``forced`` are columns whose texts are always
    quoted, ``*`` for all.
    """

    query: Statement
    form: str = "text"
    delimiter: str = "\t"
    null: str = "\\N"
    header: bool = False
    quote: str = '"'
    escape: str = '"'
    forced: frozenset[str] = frozenset()

    @property
    def column_format(self) -> int:
        """Return the format of all columns on the wire."""
        return BINARY_FORMAT if self.form == "binary" else TEXT_FORMAT

    def start(self, columns: Sequence[Column]) -> bytes:
        """Return the messages before the rows."""
        form, count = self.column_format, len(columns)
        response = messages.message(b"H", struct.pack(f"!bH{count}H", form, count, *[form] * count))
        if form == BINARY_FORMAT or not self.header:
            return response
        names = pa.record_batch([pa.array([entry.name]) for entry in columns], [str(n) for n in range(count)])
        return response + bytes(replace(self, forced=frozenset()).rows(names, columns))

    def rows(self, batch: pa.RecordBatch, columns: Sequence[Column], *, are_first: bool = False) -> memoryview:
        """Return a message for each row. The columns of ``batch`` are the values of ``types.expression``."""
        if self.form == "binary":
            rows = data_rows(batch, columns, [BINARY_FORMAT] * len(columns), b"d")
            if not are_first:
                return rows
            # As PostgreSQL does, and rust-postgres expects: the head is not a message of its own.
            end = 1 + int.from_bytes(rows[1:5], "big")
            return memoryview(messages.message(b"d", _BINARY_HEAD + rows[5:end]) + rows[end:])
        lines: Any = pa.array([""] * batch.num_rows, pa.large_string())
        parts = list[Any]()
        for texts, entry in zip(batch.columns, columns, strict=True):
            parts += [self._encoded(texts.cast(pa.large_string()), entry, is_single=len(columns) == 1), self.delimiter]
        parts = [_text(part) if isinstance(part, str) else part for part in parts[:-1]]
        lines = pc.binary_join_element_wise(lines, *parts, _text("\n"), _text(""))
        return line_messages(lines.cast(pa.large_binary()))

    def end(self, row_count: int) -> bytes:
        """Return the messages after the rows."""
        head = b"" if row_count else _BINARY_HEAD
        trailer = messages.message(b"d", head + _BINARY_END) if self.form == "binary" else b""
        return trailer + messages.message(b"c")

    def _encoded(self, texts: Any, entry: Column, *, is_single: bool) -> Any:
        if self.form == "text":
            for char, escaped in _ESCAPES.items():
                texts = pc.replace_substring(texts, char, escaped)
            if self.delimiter not in _ESCAPES:
                texts = pc.replace_substring(texts, self.delimiter, f"\\{self.delimiter}")
            return pc.fill_null(texts, self.null)
        special = "".join(f"\\x{{{ord(char):x}}}" for char in {self.delimiter, self.quote, "\n", "\r"})
        quoted = pc.or_(pc.match_substring_regex(texts, f"[{special}]"), pc.equal(texts, _text(self.null)))
        if is_single:
            quoted = pc.or_(quoted, pc.equal(texts, _text("\\.")))  # alone in its line, it would end the rows
        if "*" in self.forced or entry.name in self.forced:
            quoted = pc.is_valid(texts)
        inner = texts
        for char in dict.fromkeys((self.escape, self.quote)):
            inner = pc.replace_substring(inner, char, f"{self.escape}{char}")
        enclosed = pc.binary_join_element_wise(_text(self.quote), inner, _text(self.quote), _text(""))
        return pc.fill_null(pc.if_else(quoted, enclosed, texts), self.null)


def _text(content: str) -> Any:
    return pa.scalar(content, pa.large_string())


def read_copy(statement: Statement) -> Copy:
    """Read a COPY. Raises StatementFailed for anything but rows to the client."""
    reader = _Tokens(statement)
    reader.take_word("copy")
    if reader.next_is("binary"):  # as before PostgreSQL 7.3; libraries still send it
        reader.position += 1
        return _with_options(_read_source(reader), {"format": "binary"})
    query = _read_source(reader)
    given: dict[str, str | list[str]] = {}
    for name, argument in _options(reader):
        if name in given:
            raise StatementFailed(SqlError(_SYNTAX, "an option of COPY is given twice"))
        given[name] = argument
    return _with_options(query, given)


@dataclass
class _Tokens:
    """The significant tokens of a COPY, in order."""

    statement: Statement
    position: int = 0
    tokens: list[Token] = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = self.statement.significant

    def next_is(self, *texts: str) -> bool:
        """Report whether the next token is one of some words or signs."""
        return self.position < len(self.tokens) and self.tokens[self.position].text.lower() in texts

    def next(self) -> Token:
        """Return the next token. Raises StatementFailed at the end."""
        if self.position >= len(self.tokens):
            raise self.failure()
        self.position += 1
        return self.tokens[self.position - 1]

    def take_word(self, text: str) -> None:
        """Take a word or sign. Raises StatementFailed for another one."""
        if not self.next_is(text):
            raise self.failure()
        self.position += 1

    def up_to_close(self) -> list[Token]:
        """Return the tokens up to the parenthesis that closes an open one. Raises StatementFailed."""
        first, depth = self.position, 1
        while depth:
            depth += {"(": 1, ")": -1}.get(self.next().text, 0)
        return self.tokens[first : self.position - 1]

    def with_blanks(self, tokens: list[Token]) -> list[Token]:
        """Return adjacent tokens with what separates them."""
        start, end = (tokens[0].position, tokens[-1].position) if tokens else (0, -1)
        return [token for token in self.statement.tokens if start <= token.position <= end]

    def failure(self) -> StatementFailed:
        """Return the error for the next token."""
        return syntax_error(self.tokens[min(self.position, len(self.tokens) - 1)])


def _read_source(reader: _Tokens) -> Statement:
    """Read what is copied, and that it goes to the client."""
    if reader.next_is("("):
        reader.next()
        tokens = reader.with_blanks(reader.up_to_close())
    else:
        tokens = list(tokens_of("SELECT "))
        name = [reader.next()]
        while reader.next_is("."):
            name += [reader.next(), reader.next()]
        columns = list(tokens_of("*"))
        if reader.next_is("("):
            reader.next()
            columns = reader.with_blanks(reader.up_to_close())
        tokens += [*columns, *tokens_of(" FROM "), *name]
    query = Statement(tokens)
    if reader.next_is("from"):
        raise StatementFailed(SqlError("25006", "the tables are read-only: only COPY ... TO STDOUT is allowed"))
    reader.take_word("to")
    if not reader.next_is("stdout"):
        raise StatementFailed(SqlError("42501", "files of the server are not written: COPY ... TO STDOUT is allowed"))
    reader.next()
    if not query.significant or not query.is_query:
        raise StatementFailed(SqlError(_UNSUPPORTED, "COPY is of a table or a SELECT"))
    return query


def _options(reader: _Tokens) -> Iterator[tuple[str, str | list[str]]]:
    """Yield the options of both spellings: ``(FORMAT csv, HEADER)`` and ``WITH CSV HEADER``."""
    while reader.next_is(*_IGNORED):
        reader.next()
    if reader.next_is("("):
        reader.next()
        while not reader.next_is(")"):
            name = reader.next().identifier
            yield name, _argument(reader, (",", ")"))
            if reader.next_is(","):
                reader.next()
        reader.take_word(")")
    while reader.position < len(reader.tokens):
        name = reader.next().identifier
        while reader.next_is(*_IGNORED):
            reader.next()
        if name in ("csv", "binary", "text"):
            yield "format", name
        elif name == "header":
            yield "header", ""
        elif name == "force" and reader.next_is("quote"):
            reader.next()
            names = [reader.next()]
            while reader.next_is(","):
                reader.next()
                names.append(reader.next())
            yield "force_quote", [token.identifier or token.text for token in names]
        elif name in ("delimiter", "null", "quote", "escape", "encoding"):
            yield name, _plain(reader.next())
        elif name:
            raise StatementFailed(SqlError(_SYNTAX, f"the option {name[:40]} of COPY is not known"))


def _argument(reader: _Tokens, ends: Sequence[str]) -> str | list[str]:
    if reader.next_is(*ends):
        return ""
    token = reader.next()
    if token.text != "(":
        return _plain(token)
    return [entry.identifier for entry in reader.up_to_close() if entry.identifier]


def _plain(token: Token) -> str:
    if token.kind != "text":
        return token.identifier or token.text
    content = token.content
    if content is None and token.text[:2] in ("E'", "e'"):
        content = _unescaped(token.text[2:-1])
    if content is None:
        raise StatementFailed(SqlError(_SYNTAX, f"{token.text[:40]} is not a text of COPY", token.position + 1))
    return content


def _unescaped(text: str) -> str | None:
    """Return the content of a text with escapes; None for an escape that is not a character in ``_ESCAPED``."""
    known = all(match[1] in _ESCAPED for match in _ESCAPE.finditer(text) if match[1])
    return _ESCAPE.sub(lambda match: _ESCAPED[match[1]] if match[1] else "'", text) if known else None


def _with_options(query: Statement, given: Mapping[str, str | list[str]]) -> Copy:
    form = str(given.get("format", "text")).lower()
    if form not in ("text", "csv", "binary"):
        raise StatementFailed(SqlError(_INVALID, f'COPY format "{form[:40]}" is not known: text, csv or binary'))
    unknown = given.keys() - {"format", "header", "delimiter", "null", "quote", "escape", "encoding", "force_quote"}
    if unknown:
        raise StatementFailed(SqlError(_UNSUPPORTED, f"the option {min(unknown)[:40]} of COPY is not supported"))
    only_csv = given.keys() & {"quote", "escape", "force_quote"} if form != "csv" else set()
    of_texts = given.keys() & {"header", "delimiter", "null"} if form == "binary" else set()
    if wrong := only_csv | of_texts:
        raise StatementFailed(
            SqlError(_UNSUPPORTED, f"the option {min(wrong)} of COPY is not one of the format {form}")
        )
    if str(given.get("encoding", "UTF8")).replace("-", "").upper() not in ("UTF8", "UNICODE"):
        raise StatementFailed(SqlError(_INVALID, "the only encoding is UTF8"))
    forced = given.get("force_quote", [])
    names = [forced] if isinstance(forced, str) else forced
    is_csv = form == "csv"
    quote = _one_char(given, "quote", '"')
    copy = Copy(
        query,
        form,
        _one_char(given, "delimiter", "," if is_csv else "\t"),
        str(given.get("null", "" if is_csv else "\\N")),
        _flag(given.get("header", "false")),
        quote,
        _one_char(given, "escape", quote),
        frozenset(names),
    )
    if copy.delimiter in (quote if is_csv else "\\.abcdefghijklmnopqrstuvwxyz0123456789") or copy.delimiter in "\r\n":
        raise StatementFailed(SqlError(_INVALID, f"COPY delimiter cannot be {copy.delimiter!r}"))
    if len(copy.null) > MAX_NULL_CHARS:
        raise StatementFailed(SqlError(_INVALID, f"the text for null has at most {MAX_NULL_CHARS} characters"))
    if any(char in copy.null for char in ("\r", "\n", copy.delimiter, quote if is_csv else "\n")):
        raise StatementFailed(SqlError(_INVALID, "the text for null has a character that separates or quotes"))
    return copy


def _one_char(given: Mapping[str, str | list[str]], name: str, default: str) -> str:
    text = given.get(name, default)
    if not isinstance(text, str) or len(text.encode()) != 1:
        raise StatementFailed(SqlError(_INVALID, f"COPY {name} must be a single one-byte character"))
    return text


def _flag(text: str | list[str]) -> bool:
    if not isinstance(text, str) or text.lower() not in (*_ON, *_OFF):
        raise StatementFailed(SqlError(_INVALID, "header is on or off"))
    return text.lower() in _ON
