"""A table in a file of DuckDB. The file is open during a step only, because DuckDB lets one process at a time write."""
# ruff: noqa: S608 - names are quoted, and values are parameters or quoted literals

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import pyarrow as pa

from penstock.config.keys.export import ExportConfig
from penstock.files.file_system import make_folder
from penstock.landing.rows.engine import SETTINGS
from penstock.upkeep.changes import READ_ROWS, Changes, Position
from penstock.upkeep.export.target import (
    FORGOTTEN,
    POSITIONS,
    Entry,
    TargetAway,
    TargetMoved,
    in_run,
    quoted,
    select_entry,
    text_of_error,
)

CACHE_OF_READS = "1GB"
"""Limit: memory of a check. DuckDB keeps what it read in up to 80 % of the machine's; rows are read once or twice."""
_IN_RUN = 'topic = run_topic AND partition IS NOT DISTINCT FROM run_partition AND "offset" >= first AND "offset" < last'
_RUN_COLUMNS = ["run_topic", "run_partition", "first", "last"]
_OWN_TYPES = frozenset(
    ("BOOLEAN", "INTEGER", "BIGINT", "DOUBLE", "DECIMAL", "BLOB", "DATE", "TIMESTAMP WITH TIME ZONE", "VARCHAR")
)
_COLUMNS = "name VARCHAR PRIMARY KEY, source VARCHAR, batch BIGINT, deletion BIGINT, start BIGINT, landed_at BIGINT"
_LATER_COLUMNS = ("target_table VARCHAR DEFAULT ''", "owner VARCHAR DEFAULT ''")


class DuckdbTarget:
    """A table in a file of DuckDB, with the types of the source."""

    def __init__(self, config: ExportConfig, owner: str) -> None:
        self._config, self._owner, self._table = config, owner, quoted(config.target_table)
        path = Path(config.path)
        with self._translated():
            make_folder(path.parent)
            self._connection = duckdb.connect(str(path), config={**SETTINGS, "preserve_insertion_order": False})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def position(self) -> Position | None:
        entry = self._read_entry()
        return None if entry is None else entry.position(self._config.source)

    def _read_entry(self) -> Entry | None:
        self._make_positions()
        query = f"SELECT * FROM {POSITIONS} WHERE name = ? OR target_table = ? ORDER BY name"
        with self._translated():
            rows = self._connection.execute(query, [self._config.name, self._config.target_table]).fetchall()
        return select_entry([Entry(*row) for row in rows], self._config, self._owner)

    def _make_positions(self) -> None:
        with self._translated():
            self._connection.execute("SET TimeZone = 'UTC'")
            self._connection.execute(f"CREATE TABLE IF NOT EXISTS {POSITIONS} ({_COLUMNS})")
            # A table of earlier versions lacks columns.
            for column in _LATER_COLUMNS:
                self._connection.execute(f"ALTER TABLE {POSITIONS} ADD COLUMN IF NOT EXISTS {column}")

    def has_other_rows(self) -> bool:
        if self._read_entry() is not None:
            return False
        with self._translated(), suppress(duckdb.CatalogException):  # there is no table yet
            return bool(self._connection.execute(f"SELECT 1 FROM {self._table} LIMIT 1").fetchall())
        return False

    def apply(self, changes: Changes, deleted: pa.Table, before: Position | None) -> int:
        with self._translated():
            self._connection.begin()
            # DuckDB refuses a second process, and this one runs one step of an export at a time.
            if self.position() != before:
                raise TargetMoved(f"{self._config.to}: another process moved the position")
            self._make_table(changes.schema, is_replaced=changes.is_complete)
            if changes.is_complete:
                self._connection.execute(f"DELETE FROM {self._table}")
            elif deleted.num_rows:
                self._connection.register("runs", _runs(deleted))
                self._connection.execute(f"DELETE FROM {self._table} USING runs WHERE {_IN_RUN}")
                self._connection.unregister("runs")
            added = pa.RecordBatchReader.from_batches(changes.schema, changes.added())
            self._connection.register("added", added)
            inserted = self._connection.execute(f"INSERT INTO {self._table} BY NAME SELECT * FROM added").fetchall()
            self._connection.unregister("added")
            after = changes.next
            self._store_position([after.batch, after.deletion, after.start, after.landed_at])
            # Crash: until here the file has nothing of the step, from here on all of it.
            self._connection.commit()
            return int(inserted[0][0])

    def _store_position(self, numbers: list[Any]) -> None:
        values = [self._config.name, self._config.source, *numbers, self._config.target_table, self._owner]
        self._connection.execute(f"INSERT OR REPLACE INTO {POSITIONS} VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)

    def _make_table(self, schema: pa.Schema, *, is_replaced: bool) -> None:
        if "." in self._config.target_table:
            self._connection.execute(
                f"CREATE SCHEMA IF NOT EXISTS {quoted(self._config.target_table.partition('.')[0])}"
            )
        self._connection.register("empty", schema.empty_table())
        self._connection.execute(f"CREATE TABLE IF NOT EXISTS {self._table} AS SELECT * FROM empty")
        existing = self._columns(self._table)
        for name, kind in self._columns("empty").items():
            if name not in existing:
                self._connection.execute(f"ALTER TABLE {self._table} ADD COLUMN {quoted(name)} {kind}")
            elif is_replaced and existing[name] != kind and existing[name].partition("(")[0] in _OWN_TYPES:
                # A refill of the source gave the column another type, and replaces all rows. Types that are never made
                # here, such as JSON, are a choice of the target's owner.
                self._connection.execute(
                    f"ALTER TABLE {self._table} ALTER COLUMN {quoted(name)} SET DATA TYPE {kind} USING NULL::{kind}"
                )
        self._connection.unregister("empty")

    def pin(self) -> Position | None:
        with self._translated():
            self._connection.execute(f"SET memory_limit = '{CACHE_OF_READS}'")
        # No other process opens the file until this one closes it.
        return self.position()

    def has_newer_step(self) -> bool:
        return False

    def match_columns(self, schema: pa.Schema) -> tuple[list[str], list[str]]:
        with self._translated():
            existing = self._columns(self._table)
            self._connection.register("empty", schema.empty_table())
            own = self._columns("empty")
            self._connection.unregister("empty")
        matching = [name for name in schema.names if existing.get(name, own[name]) == own[name]]
        return matching, [name for name in existing if name not in own]

    def _columns(self, table: str) -> dict[str, str]:
        """Return the types of a table's columns."""
        return {name: kind for name, kind, *_ in self._connection.execute(f"DESCRIBE {table}").fetchall()}

    def read(self, schema: pa.Schema, runs: pa.Table | None = None) -> Iterator[pa.RecordBatch]:
        with self._translated():
            existing = self._columns(self._table)
            columns = ", ".join(
                quoted(name) if name in existing else f"NULL AS {quoted(name)}" for name in schema.names
            )
            where = "" if runs is None else f" WHERE {in_run(runs)}"
            selected: Any = self._connection.sql(f"SELECT {columns} FROM {self._table}{where}")
            yield from selected.to_arrow_reader(READ_ROWS)

    def stored(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows

    def forget(self) -> None:
        with self._translated():
            self._make_positions()
            self._connection.begin()
            conditions = [self._config.target_table, self._config.name]
            self._connection.execute(f"DELETE FROM {POSITIONS} WHERE target_table = ? AND name <> ?", conditions)
            self._store_position([FORGOTTEN, 0, 0, 0])
            self._connection.commit()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (duckdb.Error, OSError) as error:
            raise TargetAway(f"{self._config.to}: {text_of_error(error)}") from None


def _runs(deleted: pa.Table) -> pa.Table:
    return deleted.select(["topic", "partition", "begin", "end"]).rename_columns(_RUN_COLUMNS)
