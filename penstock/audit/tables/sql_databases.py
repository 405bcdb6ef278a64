"""Databases by the scheme of an address, such as ``postgresql://reader@db/shop?table=orders``."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from penstock.audit.tables.sql_table import Dialect, SqlTable
from penstock.audit.tables.table import TableUnreadable

CONNECT_TIMEOUT_S = 20
IS_WHOLE = "[0-9]{{1,18}}"
"""Regular expression of offsets and partitions in a template of SQL. Limit: 18 digits always fit into 64 bits."""


def open_database(address: str, options: Mapping[str, str]) -> SqlTable:
    """Return the table that ``?table=`` names in a database; ``options``: parameters of the driver's connect.

    Raises TableUnreadable, ModuleNotFoundError.
    """
    parts = urlsplit(address)
    query = dict(parse_qsl(parts.query))
    table = query.pop("table", "")
    if not table:
        raise TableUnreadable(f"{parts.scheme}: name the table with ?table=NAME")
    return SqlTable(DATABASES[parts.scheme](parts, {**query, **options}), table)


def _file(parts: SplitResult) -> str:
    """Return the path of a database in a file."""
    path = parts.path.removeprefix("/") if parts.path.startswith("//") else parts.path
    return unquote(path) or unquote(parts.netloc)


def _sqlite(parts: SplitResult, options: Mapping[str, str]) -> Dialect:
    def connect() -> Any:
        connection = sqlite3.connect(f"file:{_file(parts)}?mode=ro", uri=True, isolation_level=None)
        connection.execute("BEGIN")
        return connection

    # SQLite refuses a query in which one text is not JSON.
    text = "(CASE WHEN json_valid({column}) THEN CAST(json_extract({column}, '{path}') AS TEXT) END)"
    is_whole = f"{text} NOT GLOB '*[^0-9]*' AND length({text}) BETWEEN 1 AND 18"
    return Dialect(
        "SQLite",
        connect,
        (sqlite3.Error,),
        json_number=f"CASE WHEN {is_whole} THEN CAST({text} AS INTEGER) END",
        json_text=text,
        exact_text="CAST({column} AS TEXT)",
        # Each row may have another type.
        sample="typeof({offset}) NOT IN ('integer', 'null')",
    )


def _duckdb(parts: SplitResult, options: Mapping[str, str]) -> Dialect:
    import duckdb

    def connect() -> Any:
        return duckdb.connect(_file(parts), read_only=True).begin()

    # DuckDB refuses a query if one text is not JSON. A cast would round numbers that are not whole.
    text = "(CASE WHEN json_valid({column}) THEN json_extract_string({column}, '{path}') END)"
    return Dialect(
        "DuckDB",
        connect,
        (duckdb.Error,),
        divide="CAST({offset} AS BIGINT) // {size}",
        json_number=f"CASE WHEN regexp_full_match({text}, '{IS_WHOLE}') THEN TRY_CAST({text} AS BIGINT) END",
        json_text=text,
        exact_text="CAST({column} AS VARCHAR)",
    )


def _postgresql(parts: SplitResult, options: Mapping[str, str]) -> Dialect:
    import psycopg

    def connect() -> Any:
        url = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(options), ""))
        connection = psycopg.connect(url, connect_timeout=CONNECT_TIMEOUT_S)
        connection.read_only, connection.isolation_level = True, psycopg.IsolationLevel.REPEATABLE_READ
        return connection

    text = "({column}::jsonb #>> '{{{steps}}}')"
    return Dialect(
        "PostgreSQL",
        connect,
        (psycopg.Error,),
        # A named cursor lets the server keep the rows that are not fetched yet.
        cursor=lambda connection: connection.cursor(name="penstock_audit"),
        json_number=f"CASE WHEN {text} ~ '^{IS_WHOLE}$' THEN {text}::bigint END",
        json_text=text,
        # A CHAR is padded with blanks.
        exact_text="CAST({column} AS text)",
        padding=lambda column: " " if column.type_code == psycopg.postgres.types["bpchar"].oid else "",  # type: ignore[attr-defined]
    )


def _mysql(parts: SplitResult, options: Mapping[str, str]) -> Dialect:
    import pymysql
    from pymysql.constants import FIELD_TYPE
    from pymysql.cursors import SSCursor

    def connect() -> Any:
        parameters: dict[str, Any] = {
            "host": parts.hostname or "127.0.0.1",
            "port": parts.port or 3306,
            "user": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
            "database": unquote(parts.path.strip("/")),
            "connect_timeout": CONNECT_TIMEOUT_S,
            **{key: int(text) if key.endswith("timeout") and text.isdigit() else text for key, text in options.items()},
        }
        try:
            connection = pymysql.connect(cursorclass=SSCursor, **parameters)
        except (TypeError, ValueError) as error:  # of a parameter
            raise TableUnreadable(f"MySQL: {error}") from None
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        return connection

    text = "(CASE WHEN JSON_VALID({column}) THEN JSON_UNQUOTE(JSON_EXTRACT({column}, '{path}')) END)"
    # The usual collations ignore case, but topics that differ only in case are different topics.
    exact = " COLLATE utf8mb4_bin"
    return Dialect(
        "MySQL",
        connect,
        (pymysql.Error, OSError),
        quote="`",
        divide="{offset} DIV {size}",
        # MySQL casts a text that is not a number to 0, so only whole numbers are cast.
        json_number=f"CASE WHEN {text} REGEXP '^{IS_WHOLE}$' THEN CAST({text} AS SIGNED) END",
        json_text=f"CONVERT({text} USING utf8mb4){exact}",
        exact_text=f"CONVERT({{column}} USING utf8mb4){exact}",
        # A CHAR is padded with blanks, and a BINARY with zero bytes: both have this type.
        padding=lambda column: " \0" if column[1] == FIELD_TYPE.STRING else "",
    )


def _clickhouse(parts: SplitResult, options: Mapping[str, str]) -> Dialect:
    import clickhouse_connect
    from clickhouse_connect.driver.exceptions import Error

    options = dict(options)
    final = " FINAL" if options.pop("final", "") else ""

    def connect() -> Any:
        scheme = {"clickhouse": "http", "clickhouses": "https"}.get(parts.scheme, parts.scheme)
        query = urlencode(options)
        return clickhouse_connect.get_client(dsn=urlunsplit((scheme, parts.netloc, parts.path, query, "")))

    raw = "trim(BOTH '\"' FROM JSONExtractRaw({column}, {keys}))"
    return Dialect(
        "ClickHouse",
        connect,
        (Error, OSError),
        divide="intDiv({offset}, {size})",
        cursor=_ClickHouseCursor,
        # JSONExtract truncates other numbers.
        json_number=f"if(match({raw}, '^{IS_WHOLE}$'), toInt64OrNull({raw}), NULL)",
        json_text="JSONExtractString({column}, {keys})",
        # A FixedString is padded with zero bytes; an Enum is a number in the driver's format.
        exact_text="toString({column})",
        padding=lambda column: "\0" if "FixedString(" in column[1] else "",
        final=final,
    )


class _ClickHouseCursor:
    """The cursor that ``SqlTable`` needs, for a client of ClickHouse; the client's own one loads all rows."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.description: Sequence[tuple[str, str]] = ()
        self._stream: Any = None

    def execute(self, query: str) -> None:
        self._stream = self._client.query_row_block_stream(query)
        source = self._stream.source
        self.description = [(n, kind.name) for n, kind in zip(source.column_names, source.column_types, strict=True)]
        self._blocks: Iterator[Any] = self._stream.__enter__()

    def fetchmany(self, count: int) -> Any:
        return next((block for block in self._blocks if block), [])

    def close(self) -> None:
        if self._stream is not None:
            self._stream.__exit__(None, None, None)


DATABASES: Mapping[str, Callable[[SplitResult, Mapping[str, str]], Dialect]] = {
    "sqlite": _sqlite,
    "duckdb": _duckdb,
    "postgresql": _postgresql,
    "postgres": _postgresql,
    "mysql": _mysql,
    "mariadb": _mysql,
    "clickhouse": _clickhouse,
    "clickhouses": _clickhouse,
    "chdb": _clickhouse,
}
"""Functions that return the dialect of an address, by its scheme. ``clickhouses`` is ClickHouse by HTTPS, and ``chdb``
its embedded version.
"""
