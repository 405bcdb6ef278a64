"""Types of a statement before it runs: it is bound to empty tables with the columns of the real ones.

Invariant: nothing of the tables or the log is read, so a client may prepare as many statements as it likes.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.sql.postgres.catalog.system_catalog import (
    DATABASE,
    SystemCatalog,
    open_database,
)
from penstock.sql.postgres.catalog.system_tables import INFORMATION_SCHEMA_NAMES, SCHEMA
from penstock.sql.postgres.messages import SqlError
from penstock.sql.postgres.parameters import literal, quoted
from penstock.sql.postgres.statements.statement import Statement, split
from penstock.sql.postgres.statements.tokens import Token
from penstock.sql.postgres.statements.translation import INFORMATION_SCHEMA, Translation, translate
from penstock.sql.postgres.types import INT8, TEXT, TEXT_FORMAT, Column, PgType, column
from penstock.sql.query import CLOSED, SETTINGS, TOPICS, BadQuery, check_one_select, memory_limits, words_of

MEMORY_BYTES = 200_000_000
"""Limit for binding, which computes constant expressions only."""
MAX_STATEMENT_CHARS = 1 << 18
"""Limit for a client's text: the parsers of statements take time in proportion to it."""
MAX_TEXT_CHARS = 4 << 20
"""Limit for a statement's text with the parameters in their places."""
MAX_COLUMNS = 1_600
"""Limit of PostgreSQL, and of a message's count of columns."""
MAX_INFERRED, MAX_BINDINGS = 100, 10
"""Limits for the parameters whose types are inferred, and for the times that a statement is bound for that."""
_PREPARE = "PREPARE located AS "
_TYPE = r"([A-Z ]+(?:\(\d+,\d+\))?(?:\[\])*)"
_PREFIX = re.compile(r"^[A-Za-z ]+ Error: (?=\{)")
_CALL = re.compile(r'"?(\w+)"?\(\)')
_SQLSTATES: dict[type[duckdb.Error], str] = {
    duckdb.ParserException: "42601",
    duckdb.SyntaxException: "42601",
    duckdb.CatalogException: "42P01",
    duckdb.BinderException: "42000",
    duckdb.ConversionException: "22P02",
    duckdb.OutOfRangeException: "22003",
    duckdb.TypeMismatchException: "42804",
    duckdb.InvalidInputException: "22023",
    duckdb.InterruptException: "57014",
    duckdb.OutOfMemoryException: "53200",
    duckdb.PermissionException: "42501",
    duckdb.NotImplementedException: "0A000",
}
"""PostgreSQL's error codes by the class of DuckDB's error."""
INTERNAL, READ_ONLY = "XX000", "25006"
"""PostgreSQL's codes internal_error and read_only_sql_transaction."""


class StatementFailed(PenstockError):
    """A statement that cannot be answered; the client gets ``error`` and continues."""

    def __init__(self, error: SqlError) -> None:
        super().__init__(error.text)
        self.error = error


def syntax_error(token: Token) -> StatementFailed:
    """Return PostgreSQL's error for a token that is not expected."""
    return StatementFailed(SqlError("42601", f'syntax error at or near "{token.text[:40]}"', token.position + 1))


def split_checked(text: str) -> list[Statement]:
    """Return the statements of a client's text. Raises StatementFailed for a long text."""
    if len(text) > MAX_STATEMENT_CHARS:
        raise StatementFailed(SqlError("54000", f"a statement has at most {MAX_STATEMENT_CHARS:,} characters"))
    return split(text)


class Preparation:
    """The connection in which one session's statements are bound. Used on the session's thread only."""

    def __init__(self, catalog: SystemCatalog) -> None:
        self._catalog, self._existing = catalog, set[str]()
        # Replaces a parameter while its type is inferred. Random, so that no client can write the same text.
        self._placeholder = f"parameter {secrets.token_hex(8)} "
        self._connection = duckdb.connect(":memory:", config=SETTINGS)
        open_database(self._connection)
        # Limit: one thread, because binding computes next to nothing, and each session has a connection of its own.
        own_schemas = (f"CREATE SCHEMA {DATABASE}.{TOPICS}", "SET threads = 1", "SET errors_as_json = true")
        # Without the optimizer, a plan has each cast of the statement as it was bound.
        settings = ("SET TimeZone = 'UTC'", "PRAGMA disable_optimizer", *memory_limits(MEMORY_BYTES), *CLOSED)
        for statement in (*own_schemas, *settings):
            self._connection.execute(statement)

    def close(self) -> None:
        """Release the connection."""
        self._connection.close()

    def translate(self, statement: Statement, literals: Sequence[str]) -> Translation:
        """Return DuckDB's text of a statement. Raises StatementFailed if its parameters make it too long."""
        # Order: before the pieces are joined; a short text may name a long parameter many times.
        lengths = [len(literal) for literal in literals]
        chars = sum(
            lengths[number - 1]
            if token.kind == "parameter" and 0 < (number := int(token.text[1:])) <= len(lengths)
            else len(token.text)
            for token in statement.tokens
        )
        if chars > MAX_TEXT_CHARS:
            text = f"a statement with its parameters has at most {MAX_TEXT_CHARS:,} characters"
            raise StatementFailed(SqlError("54000", text))
        return translate(statement, literals, self._catalog.object_number, INFORMATION_SCHEMA_NAMES)

    def columns(self, translation: Translation) -> list[Column]:
        """Return the columns of a statement's answer. Raises StatementFailed."""
        relation = self._bind(translation)
        kinds = zip(relation.columns, relation.types, strict=True)
        return [column(_column_name(name), str(kind)) for name, kind in kinds]

    def arrow_schema(self, translation: Translation) -> pa.Schema:
        """Return the schema of a statement's answer, whose columns are ``text_of_enums``. Raises StatementFailed."""
        relation = self._bind(translation)
        # Invariant: the statement does not run, not even without rows: joins and sorts of generated rows would.
        kinds = [str(kind) for kind in relation.types]
        nulls = ", ".join("NULL" if kind in ('"NULL"', "NULL") else f"CAST(NULL AS {kind})" for kind in kinds)
        try:
            row = self._connection.sql(f"SELECT {nulls}")
            schema: pa.Schema = row.project(", ".join(text_of_enums(kinds))).to_arrow_table().schema
        except duckdb.Error as error:
            raise StatementFailed(self._explain(error, translation)) from None
        return pa.schema(
            [field.with_name(_column_name(name)) for field, name in zip(schema, relation.columns, strict=True)]
        )

    def infer_parameters(self, statement: Statement, oids: Sequence[int]) -> list[int]:
        """Return the oid of each parameter's type, 0 if unknown.

        The type is the declared one, else that of a cast in the statement, else the type to which DuckDB casts a text
        literal in the parameter's place. It stays unknown if DuckDB needs no cast, needs several types, or refuses a
        text there.
        """
        casts = statement.cast_types()
        inferred = [oid or casts.get(number, 0) for number, oid in enumerate(oids, 1)]
        if not statement.is_query or len(oids) > MAX_INFERRED:
            return inferred
        single, arrays = statement.without_any()
        # A place that needs a constant number, such as LIMIT, refuses a text: only this error shows its type.
        for _ in range(min(len(oids), MAX_BINDINGS)):
            literals = [
                literal(oid, TEXT_FORMAT, None) if oid else f"'{self._placeholder}{number}'"
                for number, oid in enumerate(inferred, 1)
            ]
            try:
                translation = self.translate(single, literals)
                self._install(translation)
                plan = self._connection.execute(f"EXPLAIN (FORMAT json) {translation.text}").fetchall()[0][1]
            except duckdb.Error as error:
                match = re.search(rf"'{self._placeholder}(\d+)' to INT64", _details(error)[0])
                if match is None:
                    return inferred
                inferred[int(match[1]) - 1] = INT8.oid
                continue
            except PenstockError:
                return inferred
            places: dict[int, set[PgType]] = {number: {TEXT} for number in arrays}
            for number, name in re.findall(rf"CAST\('{self._placeholder}(\d+)' AS {_TYPE}\)", plan):
                places.setdefault(int(number), set()).add(column("", name).kind)
            for number, kinds in places.items():
                kinds = kinds - {TEXT} if number in arrays and len(kinds) > 1 else kinds
                if inferred[number - 1] == 0 and len(kinds) == 1:
                    (kind,) = kinds
                    inferred[number - 1] = kind.array_oid if number in arrays else kind.oid
            return inferred
        return inferred

    def _install(self, translation: Translation) -> None:
        """Create the tables that a statement names. Raises BadQuery unless it is one SELECT, and duckdb.Error."""
        check_one_select(translation.text)
        words = words_of(translation.text)
        self._make_tables(words)
        self._catalog.install(self._connection, words, self._existing)

    def _bind(self, translation: Translation) -> duckdb.DuckDBPyRelation:
        try:
            self._install(translation)
            relation = self._connection.sql(translation.text)
        except BadQuery as error:
            if error.cause is None:
                raise StatementFailed(SqlError(READ_ONLY, str(error))) from None
            # The message begins with the function's name.
            offset = translation.text.casefold().find(str(error).partition(" ")[0])
            position = translation.source_position(offset) if offset >= 0 else 0
            raise StatementFailed(SqlError(code_of(error.cause), str(error), position)) from None
        except duckdb.Error as error:
            raise StatementFailed(self._explain(self._located(error, translation.text), translation)) from None
        if len(relation.columns) > MAX_COLUMNS:
            raise StatementFailed(SqlError("54011", f"an answer has at most {MAX_COLUMNS:,} columns"))
        return relation

    def install(self, connection: duckdb.DuckDBPyConnection, text: str) -> None:
        """Create the system tables that a statement's text names, in the connection that runs it."""
        open_database(connection)
        zone = self._catalog.settings.get("TimeZone", "UTC")
        connection.execute(f"SET TimeZone = {quoted(zone)}")
        self._catalog.install(connection, words_of(text), set())

    def _make_tables(self, words: set[str]) -> None:
        catalog = self._catalog.catalog
        named = {view: columns for view, columns in catalog.views.items() if view in words or "show" in words}
        for view, columns in named.items():
            self._make_table(SCHEMA, view, columns)
        if TOPICS in words:
            for topic in catalog.topics:
                if words.issuperset(words_of(topic)):
                    self._make_table(TOPICS, topic, catalog.topic_columns)

    def _make_table(self, schema: str, name: str, columns: Mapping[str, str]) -> None:
        key = f"{schema}.{name}"
        if key not in self._existing:
            self._existing.add(key)
            layout = ", ".join(f'"{column_name}" {kind}' for column_name, kind in columns.items())
            self._connection.execute(f'CREATE TABLE {DATABASE}.{schema}."{name}" ({layout})')

    def _located(self, error: duckdb.Error, text: str) -> duckdb.Error:
        """Return the same error with its position, which DuckDB leaves out for a relation."""
        try:
            self._connection.execute(f"{_PREPARE}{text}")
            self._connection.execute("DEALLOCATE located")
        except duckdb.Error as located:
            return located if type(located) is type(error) else error
        return error

    def _explain(self, error: duckdb.Error, translation: Translation) -> SqlError:
        text, position, missing = _details(error)
        code = code_of(error, missing)
        hint = f"Existing tables: {', '.join(self._catalog.catalog.views)}, {TOPICS}.NAME." if code == "42P01" else ""
        is_located = position is not None and position >= len(_PREPARE)
        source = translation.source_position((position or 0) - len(_PREPARE)) if is_located else 0
        return SqlError(code, text.replace(f"{INFORMATION_SCHEMA}.", "information_schema."), source, hint)


def text_of_enums(kinds: Sequence[str]) -> list[str]:
    """Return expressions for columns of some types; an enum becomes text, which needs no dictionary in Arrow."""
    return [
        f"CAST(#{number} AS VARCHAR) AS c{number}" if kind.startswith("ENUM(") else f"#{number} AS c{number}"
        for number, kind in enumerate(kinds, 1)
    ]


def _column_name(name: str) -> str:
    """Return a column's name; of a call without arguments, the function's, as in PostgreSQL."""
    if name == "count_star()":
        return "count"
    match = _CALL.fullmatch(name)
    return match[1] if match else name


def _details(error: duckdb.Error) -> tuple[str, int | None, str]:
    """Return text, position and kind of the missing object of DuckDB's error, which is JSON in a text."""
    words = str(error).strip()
    try:
        document = json.loads(_PREFIX.sub("", words))
        position = document.get("position")
        offset = int(position) if position is not None else None
        kind = str(document.get("type") or document.get("error_subtype") or "")
        return str(document["exception_message"]), offset, kind
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return words.partition(": ")[2] or words, None, ""


def code_of(error: duckdb.Error | None, missing: str = "") -> str:
    """Return PostgreSQL's code of an error of DuckDB."""
    if "Function" in missing or missing == "NO_MATCHING_FUNCTION":
        return "42883"
    if missing == "COLUMN_NOT_FOUND":
        return "42703"
    if missing == "Schema":
        return "3F000"
    return next((_SQLSTATES[kind] for kind in type(error).__mro__ if kind in _SQLSTATES), INTERNAL)
