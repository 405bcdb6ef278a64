"""A table of ClickHouse, which has no transactions.

Each row has the number of the step that brought it, in the column ``penstock_step``. A step is committed by one row in
the table of positions, inserted last. Rows of a step that has no such row are removed before the next step: rows of a
process that was killed, and rows of a request that the server finishes after its sender is gone.

Invariant: the number of a step is never used twice, so such late rows never count as rows of a later step.
"""
# ruff: noqa: S608 - names are quoted, and values are parameters or quoted literals

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlsplit, urlunsplit

import clickhouse_connect
import numpy as np
import pyarrow as pa
from clickhouse_connect.driver.exceptions import Error

from penstock.config.keys.export import ExportConfig
from penstock.landing.rows.engine import compute, pc, sql_literal
from penstock.upkeep.changes import READ_ROWS, Changes, Position
from penstock.upkeep.export.target import (
    FORGOTTEN,
    POSITIONS,
    Entry,
    TargetAway,
    TargetMoved,
    as_json,
    in_run,
    is_nested,
    pieces,
    select_entry,
    text_of_error,
)

STEP = "penstock_step"
RUNS_AT_ONCE = 500
"""Limit: runs of offsets in one statement; ClickHouse accepts 256 KB."""
RECEIVE_TIMEOUT_S = 600
"""Limit: time of one statement; a deletion rewrites parts of the table."""
_POSITION_COLUMNS = "name String, step UInt64, source String, batch Int64, deletion Int64, start Int64, landed_at Int64"
_LATER_COLUMNS = ("target_table String", "owner String")
_LOW_CARDINALITY = re.compile(r"LowCardinality\((.*)\)")
_WORD = re.compile(r"[A-Z]\w+")
_OWN_WORDS = frozenset(
    (
        "Nullable",
        "Array",
        "Map",
        "Bool",
        "Int32",
        "Int64",
        "Float64",
        "Decimal",
        "Date32",
        "DateTime64",
        "String",
        "UTC",
    )
)
_SETTINGS = {"async_insert": 0, "select_sequential_consistency": 1}
"""For all statements: an insert that a user's profile makes asynchronous is answered before its rows are there, or are
refused; a replica that is behind would show an earlier position."""
_SYNCED = {"mutations_sync": 2, "lightweight_deletes_sync": 2}
_DURABLE = "fsync_after_insert = 1, fsync_part_directory = 1"
"""Settings of tables. Crash: without them, a power failure takes rows whose position is on the disk."""
_FIRST, _LAST = datetime(1900, 1, 1, tzinfo=UTC), datetime(2299, 12, 31, 23, 59, 59, tzinfo=UTC)
"""Bounds of ClickHouse's times and days; others become null."""


class ClickhouseTarget:
    """A table of ClickHouse, over HTTP, or of its embedded version (``chdb:/FOLDER``)."""

    def __init__(self, config: ExportConfig, owner: str) -> None:
        self._config, self._owner, self._table = config, owner, _quoted(config.target_table)
        self._password, self._pinned_step = config.password(), 0
        with self._translated():
            timeouts: dict[str, Any] = {} if config.scheme == "chdb" else {"send_receive_timeout": RECEIVE_TIMEOUT_S}
            self._client: Any = clickhouse_connect.get_client(dsn=self._dsn(), settings=_SETTINGS, **timeouts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def _dsn(self) -> str:
        parts = urlsplit(self._config.to)
        if parts.scheme == "chdb":
            return f"chdb://{self._config.path}"
        scheme = {"clickhouse": "http", "clickhouses": "https"}[parts.scheme]
        user, _, host = parts.netloc.rpartition("@")
        login = f"{user or 'default'}:{quote(self._password, safe='')}"
        return urlunsplit((scheme, f"{login}@{host}", parts.path, parts.query, ""))

    def position(self) -> Position | None:
        with self._translated():
            return self._read_position()

    def has_other_rows(self) -> bool:
        with self._translated():
            if self._read_entry() is not None or not self._query(f"EXISTS TABLE {self._table}")[0][0]:
                return False
            return bool(self._query(f"SELECT 1 FROM {self._table} LIMIT 1"))

    def _read_position(self) -> Position | None:
        entry = self._read_entry()
        return None if entry is None else entry.position(self._config.source)

    def _read_entry(self) -> Entry | None:
        self._make_positions()
        query = (
            f"SELECT * EXCEPT step FROM (SELECT * FROM {POSITIONS} ORDER BY step DESC, owner DESC LIMIT 1 BY name) "
            f"WHERE {self._is_name} OR {self._is_table} ORDER BY name"
        )
        return select_entry([Entry(*row) for row in self._query(query)], self._config, self._owner)

    def _make_positions(self) -> None:
        columns = ", ".join([_POSITION_COLUMNS, *_LATER_COLUMNS])
        self._create(POSITIONS, columns, "(name, step)")
        # A table of earlier versions lacks columns.
        added = ", ".join(f"ADD COLUMN IF NOT EXISTS {column}" for column in _LATER_COLUMNS)
        self._command(f"ALTER TABLE {POSITIONS} {added}")

    def _create(self, table: str, columns: str, order: str) -> None:
        self._command(
            f"CREATE TABLE IF NOT EXISTS {table} ({columns}) ENGINE = MergeTree ORDER BY {order} SETTINGS {_DURABLE}"
        )
        # Tables of earlier versions do not have the settings. The engine, and a value, are the owner's choice.
        ((statement,),) = self._query(f"SHOW CREATE TABLE {table}")
        if "MergeTree" in statement and "fsync_after_insert" not in statement:
            self._command(f"ALTER TABLE {table} MODIFY SETTING {_DURABLE}")

    @property
    def _is_name(self) -> str:
        return f"name = {sql_literal(self._config.name)}"

    @property
    def _is_table(self) -> str:
        return f"target_table = {sql_literal(self._config.target_table)}"

    @property
    def _condition(self) -> str:
        return f"{self._is_name} AND owner IN ('', {sql_literal(self._owner)})"

    def apply(self, changes: Changes, deleted: pa.Table, before: Position | None) -> int:
        with self._translated():
            if self._read_position() != before:
                raise TargetMoved(f"{self._config.to}: another process moved the position")
            if before is None:
                # Order: before the first row. Crash: rows of a killed first step are this export's.
                self._insert_forgotten()
            self._make_table(changes.schema, is_replaced=changes.is_complete)
            self._remove_uncommitted()
            step = self._next_step()
            if not changes.is_complete:
                self._delete(deleted)
            added = 0
            for rows in changes.added():
                for piece in pieces(rows):
                    self._client.insert_arrow(
                        self._config.target_table, pa.Table.from_batches([_with_step(piece, step)])
                    )
                added += rows.num_rows
            if changes.is_complete:
                # Order: the new rows first. A process that is killed here has removed rows that the next one, which
                # begins at the same position, brings again.
                self._command(f"ALTER TABLE {self._table} DELETE WHERE {STEP} <> {step}")
            # Limit: without transactions another Penstock can come in until here. The later position then owns the
            # table, and removes the rows of the other one, which is refused.
            self._read_entry()
            after = changes.next
            # Order: last. Crash: without this row the step is done again, and what it brought is removed.
            self._insert_position(step, (after.batch, after.deletion, after.start, after.landed_at))
            return added

    def _insert_position(self, step: int, numbers: Sequence[int | None]) -> None:
        texts = [self._config.name, self._config.source, self._config.target_table, self._owner]
        name, source, table, owner = map(sql_literal, texts)
        values = ", ".join(map(str, numbers))
        self._command(f"INSERT INTO {POSITIONS} VALUES ({name}, {step}, {source}, {values}, {table}, {owner})")

    def _insert_forgotten(self) -> None:
        self._insert_position(self._next_step(), (FORGOTTEN, 0, 0, 0))

    def _next_step(self) -> int:
        # Microseconds, so that a step of a killed process has another number even if none of its rows came yet.
        ((newest,),) = self._query(f"SELECT max(step) FROM {POSITIONS} WHERE {self._is_name}")
        return max(int(newest) + 1, time.time_ns() // 1000)

    def _remove_uncommitted(self) -> None:
        """Remove the rows of steps without a position, if there are any."""
        condition = f"{STEP} NOT IN (SELECT step FROM {POSITIONS} WHERE {self._condition})"
        ((rows,),) = self._query(f"SELECT count() FROM {self._table} WHERE {condition}")
        if rows:
            self._command(f"ALTER TABLE {self._table} DELETE WHERE {condition}")

    def _delete(self, runs: pa.Table) -> None:
        for start in range(0, runs.num_rows, RUNS_AT_ONCE):
            # ALTER, not DELETE: it rewrites the parts, so that the rows are gone from the disk, too.
            condition = in_run(runs.slice(start, RUNS_AT_ONCE), _literal)
            self._command(f"ALTER TABLE {self._table} DELETE WHERE {condition}")

    def _make_table(self, schema: pa.Schema, *, is_replaced: bool) -> None:
        columns = {field.name: _sql_type(field.name, field.type) for field in schema}
        definitions = ", ".join(f"{_quoted(name)} {kind}" for name, kind in columns.items())
        self._create(self._table, f"{definitions}, {STEP} UInt64", "(topic, offset)")
        existing = self._columns()
        for name, kind in columns.items():
            if name not in existing:
                self._command(f"ALTER TABLE {self._table} ADD COLUMN {_quoted(name)} {kind}")
            elif is_replaced and existing[name] != kind and {*_WORD.findall(existing[name])} <= _OWN_WORDS:
                # A refill of the source gave the column another type. Types that are never made here, such as
                # LowCardinality(String), are a choice of the target's owner.
                self._command(f"ALTER TABLE {self._table} MODIFY COLUMN {_quoted(name)} {kind}")

    def _columns(self) -> dict[str, str]:
        """Return the types of the table's columns."""
        return {row[0]: row[1] for row in self._query(f"DESCRIBE TABLE {self._table}")}

    def pin(self) -> Position | None:
        with self._translated():
            self._make_positions()
            # Order: first. A step that is committed in between is noticed by ``has_newer_step``.
            self._pinned_step = self._newest_step()
            return self._read_position()

    def has_newer_step(self) -> bool:
        with self._translated():
            return self._newest_step() != self._pinned_step

    def _newest_step(self) -> int:
        ((newest,),) = self._query(f"SELECT max(step) FROM {POSITIONS} WHERE {self._condition}")
        return int(newest)

    def match_columns(self, schema: pa.Schema) -> tuple[list[str], list[str]]:
        with self._translated():
            existing = self._columns()
        own = {field.name: _sql_type(field.name, field.type) for field in schema}
        matching = [name for name in own if _LOW_CARDINALITY.sub(r"\1", existing.get(name, own[name])) == own[name]]
        return matching, [name for name in existing if name not in {*own, STEP}]

    def read(self, schema: pa.Schema, runs: pa.Table | None = None) -> Iterator[pa.RecordBatch]:
        # Rows of a step that does not count are not rows of the table; rows of other programs have no step.
        steps = f"SELECT step FROM {POSITIONS} WHERE {self._condition} AND step <= {self._pinned_step}"
        where = f"({STEP} = 0 OR {STEP} IN ({steps}))" + ("" if runs is None else f" AND ({in_run(runs, _literal)})")
        with self._translated():
            existing = self._columns()
            columns = ", ".join(_quoted(name) for name in schema.names if name in existing)
            query = f"SELECT {columns} FROM {self._table} WHERE {where}"
            with self._client.query_arrow_stream(
                query, use_strings=False, settings={"max_block_size": READ_ROWS}
            ) as tables:
                for rows in tables:
                    yield _in_schema(rows, schema)

    def stored(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = [_without_nulls(_as_stored(column)) for column in rows.columns]
        return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)

    def forget(self) -> None:
        with self._translated():
            self._make_positions()
            self._command(f"ALTER TABLE {POSITIONS} DELETE WHERE {self._is_name} OR {self._is_table}")
            self._insert_forgotten()

    def _command(self, text: str) -> None:
        self._client.command(text, settings=_SYNCED)

    def _query(self, text: str) -> Sequence[Sequence[Any]]:
        rows: Sequence[Sequence[Any]] = self._client.query(text).result_rows
        return rows

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (Error, OSError) as error:
            raise TargetAway(f"{self._config.to}: {text_of_error(error, self._password)}") from None


def _quoted(name: str) -> str:
    return ".".join(f"`{part}`" for part in name.split("."))


def _literal(text: str) -> str:
    return sql_literal(text.replace("\\", "\\\\"))


def _sql_type(name: str, kind: pa.DataType) -> str:
    if name in ("topic", "offset"):
        return {"topic": "String", "offset": "Int64"}[name]
    if isinstance(kind, pa.MapType):
        return "Map(String, String)"
    if isinstance(kind, pa.ListType):
        return f"Array({_sql_type('', kind.value_type)})"
    if isinstance(kind, pa.Decimal128Type):
        return f"Nullable(Decimal({kind.precision}, {kind.scale}))"
    names = {
        pa.bool_(): "Bool",
        pa.int32(): "Int32",
        pa.int64(): "Int64",
        pa.float64(): "Float64",
        pa.date32(): "Date32",
        pa.timestamp("us", "UTC"): "DateTime64(6, 'UTC')",
    }
    return f"Nullable({names.get(kind, 'String')})"


def _with_step(rows: pa.RecordBatch, step: int) -> pa.RecordBatch:
    columns = [_as_stored(column) for column in rows.columns]
    steps = pa.repeat(pa.scalar(step, pa.uint64()), rows.num_rows)
    return pa.RecordBatch.from_arrays([*columns, steps], names=[*rows.schema.names, STEP])


def _as_stored(column: pa.Array[Any]) -> pa.Array[Any]:
    """Return a column with JSON texts for structs, whose names and nulls ClickHouse would drop, and with its times.

    Arrays of ClickHouse are never null, so a null list is empty.
    """
    if isinstance(column, pa.ListArray) and pa.types.is_list(column.type):
        items = column.flatten()
        items = _as_stored(items) if is_nested(items.type) else items
        counts = pc.fill_null(pc.list_value_length(column), pa.scalar(0, pa.int32()))
        offsets = np.append(0, np.cumsum(np.asarray(counts)))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items)
    return as_json(column) if pa.types.is_struct(column.type) else _within_bounds(column)


def _within_bounds(column: pa.Array[Any]) -> pa.Array[Any]:
    if not (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
        return column
    low, high = (pa.scalar(bound, pa.timestamp("us", "UTC")).cast(column.type) for bound in (_FIRST, _LAST))
    fits = pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))
    bounded: pa.Array[Any] = pc.if_else(fits, column, pa.scalar(None, column.type))
    return bounded


def _without_nulls(column: pa.Array[Any]) -> pa.Array[Any]:
    """Return maps as ClickHouse has them, which knows no null there, as JSON texts."""
    if not isinstance(column.type, pa.MapType):
        return column
    pairs = "list_transform(map_entries(pairs), lambda e: struct_pack(k := e.key, v := coalesce(e.value, '')))"
    return compute({"text": f"coalesce(to_json(map_from_entries({pairs}))::VARCHAR, '{{}}')"}, pairs=column)["text"]


def _in_schema(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of ClickHouse, whose texts are bytes, in the form of ``ClickhouseTarget.stored``."""
    existing = {*rows.schema.names}
    columns: list[pa.Array[Any]] = []
    for field in schema:
        empty = _as_stored(pa.nulls(rows.num_rows, field.type))
        columns.append(_with_texts(rows[field.name], empty.type) if field.name in existing else _without_nulls(empty))
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _with_texts(column: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        # Another program wrote bytes that are no text; they differ from any text that an export writes.
        return pa.array(_decoded(column.to_pylist()), kind)


def _decoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return type(value)(map(_decoded, value)) if isinstance(value, list | tuple) else value
