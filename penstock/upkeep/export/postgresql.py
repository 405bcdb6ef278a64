"""A table of PostgreSQL. Rows come by COPY, columns at a time."""
# ruff: noqa: S608 - names are quoted, and values are parameters or quoted literals

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import psycopg
import pyarrow as pa
import pyarrow.csv
from psycopg.conninfo import conninfo_to_dict

from penstock.config.keys.export import ExportConfig
from penstock.landing.rows.engine import compute, pc, text_bytes
from penstock.upkeep.changes import Changes, Position
from penstock.upkeep.export.target import (
    FORGOTTEN,
    PIECE_BYTES,
    POSITIONS,
    Entry,
    TargetAway,
    TargetMoved,
    as_json,
    in_run,
    is_nested,
    pieces,
    quoted,
    select_entry,
    text_of_error,
    without_nul,
)

CONNECT_TIMEOUT_S = 10
_ALIVE = {"keepalives_idle": "60", "keepalives_interval": "10", "keepalives_count": "6"}
"""Connection parameters that the address may change. A server whose host vanished is given up after two minutes: Linux
waits two hours for an answer. One that is only slow acknowledges, and is waited for: no ``tcp_user_timeout``, because
Linux then also gives up a server that reads nothing for this time, such as a COPY that waits for a lock.
"""
MAX_NAME_LENGTH = 63
"""Limit of PostgreSQL, in bytes; names of columns are ASCII."""
_POSITION_COLUMNS = (
    "name text PRIMARY KEY, source text NOT NULL, batch bigint NOT NULL, deletion bigint NOT NULL, "
    "start bigint NOT NULL, landed_at bigint NOT NULL, {}"
)
_LATER_COLUMNS = ("target_table text NOT NULL DEFAULT ''", "owner text NOT NULL DEFAULT ''")
_RUNS = "penstock_runs"
_RUN_COLUMNS = ("topic", "partition", "begin", "end")
# The words of the index, so that PostgreSQL uses it.
_IN_RUN = (
    f"t.topic = {_RUNS}.topic AND coalesce(t.partition, -1) = coalesce({_RUNS}.partition, -1) "
    f'AND t."offset" >= {_RUNS}."begin" AND t."offset" < {_RUNS}."end"'
)
_VARCHAR = re.compile(r"varchar(\(\d+\))?")
_EPOCH_DAYS, _EPOCH_US = 10_957, 946_684_800_000_000
"""Days and microseconds from 1970 to 2000, at which PostgreSQL's times begin."""
_OWN_TYPES = frozenset({"bool", "int4", "int8", "float8", "numeric", "bytea", "date", "timestamptz", "text", "json"})
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
"""Characters of a text with a meaning in COPY, the backslash first."""


class PostgresqlTarget:
    """A table of PostgreSQL.

    Nested columns are ``json``; PostgreSQL has no NUL characters in texts, so they become U+FFFD.
    """

    def __init__(self, config: ExportConfig, owner: str) -> None:
        self._config, self._owner, self._table = config, owner, quoted(config.target_table)
        self._password = config.password()
        with self._translated():
            address: dict[str, Any] = {**_ALIVE, **conninfo_to_dict(config.to)}
            password = self._password or address.pop("password", None)
            # COPY gets bytes of UTF-8: without the encoding, PostgreSQL would read them in that of PGCLIENTENCODING.
            address |= {"password": password, "connect_timeout": CONNECT_TIMEOUT_S, "client_encoding": "UTF8"}
            self._connection = psycopg.connect(**address)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def position(self) -> Position | None:
        with self._translated():
            position = self._read_position("")
            self._connection.rollback()
            return position

    def has_other_rows(self) -> bool:
        with self._translated():
            is_other = self._read_entry("") is None and self._exists(self._table)
            query = f"SELECT 1 FROM {self._table} LIMIT 1"
            has_rows = is_other and self._connection.execute(query).fetchone() is not None
            self._connection.rollback()
            return has_rows

    def _read_position(self, lock: str) -> Position | None:
        entry = self._read_entry(lock)
        return None if entry is None else entry.position(self._config.source)

    def _read_entry(self, lock: str) -> Entry | None:
        if not self._exists(POSITIONS):
            return None
        # As JSON: a table of earlier versions lacks columns.
        query = (
            f"SELECT to_jsonb(p) FROM {POSITIONS} p WHERE name = %s OR to_jsonb(p) ->> 'target_table' = %s "
            f"ORDER BY name{lock}"
        )
        rows = self._connection.execute(query, [self._config.name, self._config.target_table]).fetchall()
        lines = [{key.removeprefix("target_"): value for key, value in row.items()} for (row,) in rows]
        return select_entry([Entry(**line) for line in lines], self._config, self._owner)

    def _make_positions(self) -> None:
        self._connection.execute(
            f"CREATE TABLE IF NOT EXISTS {POSITIONS} ({_POSITION_COLUMNS.format(', '.join(_LATER_COLUMNS))})"
        )
        described = self._connection.execute(f"SELECT * FROM {POSITIONS} LIMIT 0").description or ()
        # Lock: ALTER waits for the steps of all exports, so it is executed only for a table of earlier versions.
        if "owner" not in [column.name for column in described]:
            for column in _LATER_COLUMNS:
                self._connection.execute(f"ALTER TABLE {POSITIONS} ADD COLUMN IF NOT EXISTS {column}")

    def _exists(self, table: str) -> bool:
        return self._connection.execute("SELECT to_regclass(%s)", [table]).fetchone() != (None,)

    def apply(self, changes: Changes, deleted: pa.Table, before: Position | None) -> int:
        with self._translated(), self._connection.transaction():
            self._make_positions()
            # Lock: another process waits here for the end of this step, and then sees the position behind it.
            if self._read_position(" FOR UPDATE") != before:
                raise TargetMoved(f"{self._config.to}: another process moved the position")
            self._make_table(changes.schema)
            if changes.is_complete:
                self._connection.execute(f"DELETE FROM {self._table}")
                self._set_types(changes.schema)
            elif deleted.num_rows:
                self._load_runs(deleted)
                self._connection.execute(f"DELETE FROM {self._table} t USING {_RUNS} WHERE {_IN_RUN}")
            added = self._copy(self._table, map(_column_name, changes.schema.names), changes.added())
            after = changes.next
            numbers = [after.batch, after.deletion, after.start, after.landed_at]
            # Lock: before its first step an export has no line that is locked. Another Penstock under its name waits
            # here, and its condition then sees the line.
            if not self._store_position(numbers, f"WHERE {POSITIONS}.owner IN ('', excluded.owner)"):
                raise TargetMoved(f"{self._config.to}: another Penstock exports under the name {self._config.name}")
            # Crash: the transaction ends with this block; until then the target has nothing of the step.
        return added

    def _store_position(self, numbers: list[Any], condition: str = "") -> int:
        """Insert or replace the line of the export; return the number of changed lines."""
        values = [self._config.name, self._config.source, *numbers, self._config.target_table, self._owner]
        return self._connection.execute(
            f"INSERT INTO {POSITIONS} VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (name) DO UPDATE SET "
            "source = excluded.source, batch = excluded.batch, deletion = excluded.deletion, start = excluded.start, "
            f"landed_at = excluded.landed_at, target_table = excluded.target_table, owner = excluded.owner {condition}",
            values,
        ).rowcount

    def _make_table(self, schema: pa.Schema) -> None:
        columns = {_column_name(field.name): _sql_type(field.type) for field in schema}
        definitions = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())
        namespace, dot, table = self._config.target_table.rpartition(".")
        if dot:
            self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(namespace)}")
        self._connection.execute(f"CREATE TABLE IF NOT EXISTS {self._table} ({definitions})")
        # A row that came twice would be an error, not a second row.
        index = quoted(f"{table[:40]}_{zlib.crc32(table.encode()):08x}_key")
        self._connection.execute(
            f'CREATE UNIQUE INDEX IF NOT EXISTS {index} ON {self._table} (topic, coalesce(partition, -1), "offset")'
        )
        existing = self._columns()
        for name, kind in columns.items():
            if name not in existing:
                self._connection.execute(f"ALTER TABLE {self._table} ADD COLUMN {quoted(name)} {kind}")

    def _columns(self) -> dict[str, str]:
        """Return the types of the table's columns."""
        described = self._connection.execute(f"SELECT * FROM {self._table} LIMIT 0").description or ()
        return {column.name: column.type_display for column in described}

    def _set_types(self, schema: pa.Schema) -> None:
        """Give columns of the emptied table the types that a refill of the source gave them."""
        existing = self._columns()
        for field in schema:
            name, kind = _column_name(field.name), _sql_type(field.type)
            # Types that are never made here, such as jsonb and varchar(20), are a choice of the target's owner.
            if existing[name] != kind and existing[name].partition("(")[0] in _OWN_TYPES:
                self._connection.execute(
                    f"ALTER TABLE {self._table} ALTER COLUMN {quoted(name)} TYPE {kind} USING NULL::{kind}"
                )

    def _load_runs(self, runs: pa.Table) -> None:
        self._connection.execute(
            f'CREATE TEMPORARY TABLE {_RUNS} (topic text, partition integer, "begin" bigint, "end" bigint) '
            "ON COMMIT DROP"
        )
        self._copy(_RUNS, _RUN_COLUMNS, iter(runs.select([*_RUN_COLUMNS]).to_batches()))

    def _copy(self, table: str, columns: Any, batches: Iterator[pa.RecordBatch]) -> int:
        names, rows = ", ".join(map(quoted, columns)), 0
        with self._connection.cursor().copy(f"COPY {table} ({names}) FROM STDIN") as copy:
            for batch in batches:
                rows += batch.num_rows
                for piece in pieces(batch):
                    copy.write(_copy_text(piece))
        return rows

    def pin(self) -> Position | None:
        with self._translated():
            self._connection.rollback()
            # Invariant: all statements from here on see one version.
            self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            return self._read_position("")

    def has_newer_step(self) -> bool:
        return False

    def match_columns(self, schema: pa.Schema) -> tuple[list[str], list[str]]:
        with self._translated():
            existing = {name: _VARCHAR.sub("text", kind) for name, kind in self._columns().items()}
        own = {field.name: _sql_type(field.type) for field in schema}
        matching = [name for name, kind in own.items() if existing.get(_column_name(name), kind) == kind]
        return matching, [name for name in existing if name not in {*map(_column_name, own)}]

    def read(self, schema: pa.Schema, runs: pa.Table | None = None) -> Iterator[pa.RecordBatch]:
        with self._translated():
            existing = self._columns()
            kinds = {_column_name(field.name): field.type for field in schema}
            columns = ", ".join(_as_text(name, kind) if name in existing else "NULL" for name, kind in kinds.items())
            where = "" if runs is None else f" WHERE {in_run(runs)}"
            options = "FORMAT csv, FORCE_QUOTE *, ENCODING 'UTF8'"
            query = f"COPY (SELECT {columns} FROM {self._table}{where}) TO STDOUT ({options})"
            with self._connection.cursor().copy(query) as copy:
                for lines in _pieces_of_lines(copy):
                    yield _from_csv(lines, schema)

    def stored(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([*map(_as_read, _stored(rows).columns)], names=rows.schema.names)

    def forget(self) -> None:
        with self._translated(), self._connection.transaction():
            self._make_positions()
            self._connection.execute(f"DELETE FROM {POSITIONS} WHERE target_table = %s", [self._config.target_table])
            self._store_position([FORGOTTEN, 0, 0, 0])

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.Error, OSError) as error:
            raise TargetAway(f"{self._config.to}: {text_of_error(error, self._password)}") from None


def _column_name(name: str) -> str:
    """Return a name that PostgreSQL does not cut: cut names of two columns may be the same."""
    return name if len(name) <= MAX_NAME_LENGTH else f"{name[:54]}_{zlib.crc32(name.encode()):08x}"


def _sql_type(kind: pa.DataType) -> str:
    """Return a type by the name that PostgreSQL shows for a column."""
    if is_nested(kind):
        return "json"
    if isinstance(kind, pa.Decimal128Type):
        return f"numeric({kind.precision},{kind.scale})"
    names = {
        pa.bool_(): "bool",
        pa.int32(): "int4",
        pa.int64(): "int8",
        pa.float64(): "float8",
        pa.binary(): "bytea",
        pa.date32(): "date",
        pa.timestamp("us", "UTC"): "timestamptz",
    }
    return names.get(kind, "text")


def _stored(rows: pa.RecordBatch) -> pa.RecordBatch:
    columns = [without_nul(column) if pa.types.is_string(column.type) else column for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def _copy_text(rows: pa.RecordBatch) -> bytes:
    """Return rows in the text format of COPY: fields separated by tabs, ``\\N`` for null."""
    columns = [_column_text(column).cast(pa.large_string()) for column in _stored(rows).columns]
    options = {"null_handling": "replace", "null_replacement": "\\N"}
    line_end = pa.scalar("\n", pa.large_string())
    joined = pc.binary_join_element_wise(*columns, pa.scalar("\t", pa.large_string()), **options)
    lines = pc.binary_join_element_wise(joined, pa.scalar("", pa.large_string()), line_end)
    _, content = text_bytes(lines.cast(pa.string()))
    return content.tobytes()


def _column_text(column: pa.Array[Any]) -> pa.Array[Any]:
    if pa.types.is_binary(column.type):
        # The backslash of a bytea in hexadecimal digits is escaped like any other.
        return compute({"text": "'\\\\x' || hex(bytes)"}, bytes=column)["text"]
    text: pa.Array[Any] = as_json(column) if is_nested(column.type) else column.cast(pa.string())
    if not pa.types.is_string(column.type) and not is_nested(column.type):
        return text
    for character, escape in _ESCAPES.items():
        text = pc.replace_substring(text, pattern=character, replacement=escape)
    return text


def _as_text(name: str, kind: pa.DataType) -> str:
    """Return an SQL expression for a column as text; times and floating numbers are numbers with the same bits."""
    column = quoted(name)
    if pa.types.is_binary(kind):
        return f"encode({column}, 'hex')"
    if pa.types.is_float64(kind):
        return f"('x' || encode(float8send({column}), 'hex'))::bit(64)::bigint"
    if pa.types.is_timestamp(kind):
        return f"('x' || encode(timestamptz_send({column}), 'hex'))::bit(64)::bigint"
    if pa.types.is_date32(kind):
        return f"('x' || encode(date_send({column}), 'hex'))::bit(32)::int"
    return f"{column}::text"


def _pieces_of_lines(lines: Iterable[Any]) -> Iterator[bytes]:
    """Join lines of COPY, which sends each row by itself, to about PIECE_BYTES."""
    piece, size = list[bytes](), 0
    for line in lines:
        piece.append(bytes(line))
        size += len(piece[-1])
        if size >= PIECE_BYTES:
            yield b"".join(piece)
            piece, size = [], 0
    if piece:
        yield b"".join(piece)


def _from_csv(lines: bytes, schema: pa.Schema) -> pa.RecordBatch:
    texts = pyarrow.csv.read_csv(
        io.BytesIO(lines),
        pyarrow.csv.ReadOptions(column_names=schema.names, block_size=len(lines) + 1, use_threads=False),
        pyarrow.csv.ParseOptions(newlines_in_values=True),
        pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(schema.names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    columns = [_from_text(texts[field.name].combine_chunks(), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _from_text(text: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    """Return the values of texts, in the form of ``_as_read``."""
    if pa.types.is_binary(kind):
        return compute({"bytes": "unhex(digits)"}, digits=text)["bytes"]
    if pa.types.is_float64(kind):
        return text.cast(pa.int64()).view(kind)
    # Sums wrap: PostgreSQL has an infinite time, which no export writes.
    if pa.types.is_timestamp(kind):
        time: pa.Array[Any] = pc.add(text.cast(pa.int64()), _EPOCH_US)
        return time.view(kind)
    if pa.types.is_date32(kind):
        day: pa.Array[Any] = pc.add(text.cast(pa.int32()), pa.scalar(_EPOCH_DAYS, pa.int32()))
        return day.view(kind)
    return text if is_nested(kind) or pa.types.is_decimal(kind) else text.cast(kind)


def _as_read(column: pa.Array[Any]) -> pa.Array[Any]:
    if pa.types.is_decimal(column.type):
        return compute({"text": "number::VARCHAR"}, number=column)["text"]
    return as_json(column) if is_nested(column.type) else column
