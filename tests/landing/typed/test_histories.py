"""Generated histories of a typed table's columns and events: each engine reads what a plain reading of JSON says.

A history lands batches, and between them adds, drops, renames and widens columns, changes their paths and defaults,
refills, merges and deletes.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
from pyiceberg.catalog import load_catalog

from penstock.config.syntax.json_path import format_path
from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import REQUESTED, request_deletion
from penstock.landing.table_paths import Layout
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import TypedTable
from penstock.upkeep.compaction.typed_compaction import compact_all
from penstock.upkeep.deletion.removal import execute_deletions
from penstock.upkeep.typed.refill import refill
from tests.landing.typed.plain_reading import (
    ABSENT,
    Members,
    Plain,
    is_same,
    lookup,
    normalize,
    parse,
    read_columns,
    read_rest,
    read_value,
    struct_fields,
)
from tests.landing.typed.typed_life import WINDOW, Life
from tests.landing.writing.messages import source
from tests.upkeep.iceberg.mirror_life import mirror_of

KEYS = ("a", "A", "b", "x.y", "", "é", "id", "Id", "~/", "a b", "tags")
WIDER = {"int": "bigint", "bigint": "double", "double": "string", "string": "json", "boolean": "string"}
"""Types that a column becomes in a refill, as senders change it."""
SCALARS = ("string", "boolean", "int", "bigint", "double", "date", "timestamp")
DECIMALS = ("decimal(10,2)", "decimal(38,0)", "decimal(38,38)", "decimal(20,4)", "decimal(1,1)")
NESTED = (
    "array<string>",
    "array<decimal(38,10)>",
    "array<timestamp>",
    "array<json>",
    "struct<id:string,age:int>",
    "struct<a:decimal(38,20),tags:array<string>,at:timestamp>",
    "array<struct<id:string,n:bigint>>",
    "array<struct<id:string,n:double,tags:array<int>>>",
)
STRUCT = "struct<id:string,n:bigint,tags:array<string>>"
KINDS = (*SCALARS, *SCALARS, *DECIMALS, *NESTED, "json")
TEXTS: dict[str, tuple[str, ...]] = {
    "string": ('""', '"x"', '"\\u00e9\\ud83d\\ude00"', '"\\u0000"', '"null"', '"2026-01-31"', '"1.10"', '"\\ue000"'),
    "boolean": ("true", "false"),
    "int": ("0", "-0", "1", "-2147483648", "2147483647", "2147483648"),
    "bigint": ("9223372036854775807", "-9223372036854775808", "9223372036854775808", "9007199254740993", "1e3"),
    "double": ("0.1", "1e15", "1e16", "1.5e300", "-0.0", "5e-324", "1e-5", "0.30000000000000004", "123456789.125"),
    "date": ('"2026-01-31"', '"0001-01-01"', '"9999-12-31"', '"2026-02-30"', '"1582-10-10"', '"2026-1-31"'),
    "timestamp": (
        '"2026-01-31T14:00:00Z"',
        '"2026-01-31T14:00:00.123456Z"',
        '"2026-01-31T14:00:00.1234567Z"',
        '"2026-01-31T14:00:00+05:30"',
        '"2026-01-31T14:00:00"',
        '"2026-01-31 14:00:00Z"',
        '"0001-01-01T00:00:00+00:01"',
        '"9999-12-31T23:59:59.999999Z"',
        '"2026-03-29T02:30:00Z"',
    ),
    "decimal": (
        "1.10",
        '"1.10"',
        "1e15",
        "1E+15",
        "1000000000000000",
        "1000000000000000.0",
        "0.000001",
        "1e-7",
        "-0.00",
        "0." + "0" * 37 + "1",
        "9" * 38,
        "9" * 39,
        '"' + "9" * 38 + '"',
        "1" + "0" * 44,
        "12345678901234567890.123456789012345678",
        "12345678901234567.1234",
        "99999999.99",
        "99999999.995",
        "0.1",
        '"01.5"',
        '"1e3"',
    ),
}


class Generator:
    """Random columns, and random texts of ``data`` that mostly fit them."""

    def __init__(self, seed: int) -> None:
        self.random, self._columns = random.Random(seed), 0

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def column(self) -> Plain:
        self._columns += 1
        kind, depth = self.random.choice(KINDS), self.random.choice((1, 1, 1, 2, 3))
        path = tuple(self.random.choice(KEYS) for _ in range(depth))
        default = "unknown" if kind == "string" and self.chance(0.3) else None
        return Plain(f"c{self._columns}", kind, path, default)

    def text(self, kind: str, depth: int = 0) -> str:
        """Return the JSON text of a value that may fit a type."""
        if self.chance(0.12):
            return self.any_value(depth)
        if kind.startswith("array<"):
            items = [self.text(kind[6:-1], depth + 1) for _ in range(self.random.randrange(4))]
            return "[" + ", ".join(items) + "]"
        if kind.startswith("struct<"):
            members = [(name, self.text(of, depth + 1)) for name, of in struct_fields(kind).items() if self.chance(0.9)]
            if self.chance(0.15):
                members.append((self.random.choice(("new", *dict(members), "ID")), self.any_value(depth)))
            return self.object(members)
        return self.random.choice(TEXTS.get(kind.partition("(")[0], ('"x"', "1.50", "[1,{}]", '{"b":null}')))

    def any_value(self, depth: int) -> str:
        if depth < 3 and self.chance(0.4):
            keys = self.random.choices(KEYS, k=self.random.randrange(4))
            members = [(key, self.any_value(depth + 1)) for key in keys]
            return self.object(members) if self.chance(0.7) else "[" + ",".join(text for _, text in members) + "]"
        if self.chance(0.03):
            levels = self.random.choice((60, 300, 900))
            return "[" * levels + '{"a":1.10}' + "]" * levels
        return self.random.choice(("null", "{}", "[]", *(text for texts in TEXTS.values() for text in texts)))

    def object(self, members: Sequence[tuple[str, str]]) -> str:
        blank = self.random.choice(("", "", " ", "\n"))
        return "{" + ",".join(f"{blank}{json.dumps(key)}:{blank}{text}" for key, text in members) + "}"

    def data(self, columns: Sequence[Plain]) -> str:
        """Return a text of ``data``."""
        if self.chance(0.03):
            return self.any_value(0)
        tree: dict[str, Any] = {}
        for column in columns:
            node = tree
            for key in column.path[:-1]:
                node = node.setdefault(key, {}) if isinstance(node.get(key, {}), dict) else {}
            if self.chance(0.85) and not isinstance(node.get(column.path[-1]), dict):
                node[column.path[-1]] = "null" if self.chance(0.08) else self.text(column.kind)
        return self._written(tree)

    def _written(self, tree: dict[str, Any]) -> str:
        members = [(key, self._written(part) if isinstance(part, dict) else part) for key, part in tree.items()]
        if self.chance(0.2):
            members.append((self.random.choice(KEYS), self.any_value(1)))
        if members and self.chance(0.06):
            members.append((self.random.choice(members)[0], self.any_value(1)))
        self.random.shuffle(members)
        return self.object(members)


@dataclass
class Row:
    """An event with the columns of the time when it landed, or when the table was refilled."""

    text: str
    columns: Sequence[Plain]


class History:
    """A typed table, and what a plain reading says of it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.layout, self.generator = Layout.for_tables(folder / "tables"), Generator(seed)
        self.rows, self.columns, self._batches = dict[str, Row](), list[Plain](), 0
        self.names: list[str] = []
        """All columns of the table, configured or not."""
        self.is_strict, self.required = self.generator.chance(0.25), set[str]()
        for _ in range(self.generator.random.randrange(1, 5)):
            self._add()

    @property
    def table(self) -> TypedTable:
        columns = [
            Column(
                c.name,
                c.kind,
                format_path(c.path),
                default=json.dumps(c.default) if c.default else "",
                required=c.name in self.required,
            )
            for c in self.columns
        ]
        return TypedTable("t", "t", tuple(columns), strict=self.is_strict)

    def _is_quarantined(self, document: Any) -> bool:
        return self.is_strict and not (
            isinstance(document, Members) and all(self._fits(column, document) for column in self.columns)
        )

    def _fits(self, column: Plain, document: Any) -> bool:
        value = lookup(document, column.path)
        if value is ABSENT or value is None:
            return column.name not in self.required
        if not column.kind.startswith("struct<"):
            return read_value(column.kind, value)[0]
        if not isinstance(value, Members):
            return False
        # Fields that the struct does not name go to ``rest``.
        members = {name: value.first(name) for name in struct_fields(column.kind)}
        fields = struct_fields(column.kind)
        return all(read_value(of, None if members[n] is ABSENT else members[n])[0] for n, of in fields.items())

    def _add(self) -> None:
        column = self.generator.column()
        # Two columns of one field, or of a field and its object, are refused.
        if not any(c.path[: len(column.path)] == column.path[: len(c.path)] for c in self.columns):
            self.columns.append(column)
            self.names.append(column.name)
            if self.is_strict and column.default is None and self.generator.chance(0.3):
                self.required.add(column.name)

    def land(self) -> None:
        life, number = Life(self.layout, [self.table]), self._batches
        messages = []
        for index in range(self.generator.random.choice((3, 8, 40))):
            uuid, text = f"u{number}-{index}", self.generator.data(self.columns)
            payload = f'{{"type":"t","uuid":"{uuid}","timestamp":1,"data":{text}}}'
            messages.append((100 * number + index, payload.encode()))
            if not self._is_quarantined(parse(text)):
                self.rows[uuid] = Row(text, [*self.columns])
        life.land(number, [source(messages)])
        self._batches += 1

    def change(self) -> None:
        """Change the columns, or the files, as a user or the maintenance does."""
        change = self.generator.random.choice((self._add, self._drop, self._refill, self._refill, self._delete))
        change()
        if self.generator.chance(0.4):
            compact_all(self.layout)

    def _drop(self) -> None:
        if len(self.columns) > 1:
            self.columns.pop(self.generator.random.randrange(len(self.columns)))

    def _refill(self) -> None:
        chosen = self.generator.random.randrange(len(self.columns)) if self.columns else None
        if chosen is not None:
            column = self.columns[chosen]
            wider = WIDER.get(column.kind, "json")
            struct = f"array<{STRUCT}>" if "struct" in column.kind else STRUCT
            changed = self.generator.random.choice(
                (
                    replace(column, kind=wider, default=None),
                    replace(column, kind=struct, default=None),
                    replace(column, name=f"{column.name}_renamed"),
                    replace(column, kind="string", default="later"),
                    replace(column, path=(*column.path, "id")),
                )
            )
            self.columns[chosen] = changed
        assert refill(self.layout, self.table, drop=True) == len(self.rows)
        self.names = [column.name for column in self.columns]
        for row in self.rows.values():
            row.columns = [*self.columns]

    def _delete(self) -> None:
        if not self.rows:
            return
        uuid = self.generator.random.choice([*self.rows])
        request_deletion(self.layout, REQUESTED, parse_conditions(f"uuid = '{uuid}'"))
        execute_deletions(self.layout, WINDOW)
        del self.rows[uuid]

    def check(self, engine: str, rows: Sequence[dict[str, Any]]) -> None:
        assert sorted(row["uuid"] for row in rows) == sorted(self.rows), engine
        # Workaround: PyIceberg (0.12) reads a null list of structs as an empty one.
        nulls = (None, []) if engine.endswith("PyIceberg") else (None,)
        for row in rows:
            expected = self.rows[row["uuid"]]
            document = parse(expected.text)
            cells = read_columns(expected.columns, document)
            for column in expected.columns:
                present = row.get(column.name)
                if cells[column.name] is None and present in nulls:
                    continue
                assert is_same(column.kind, cells[column.name], present), (engine, column, expected.text, present)
            others = {*self.names} - cells.keys()
            assert all(row[name] in nulls for name in others if name in row), (engine, others, row)
            rest = ABSENT if row["rest"] is None else parse(row["rest"])
            expected_rest = read_rest(expected.columns, document)
            if rest is ABSENT or expected_rest is ABSENT:
                assert rest is expected_rest, (engine, expected.columns, expected.text, row["rest"])
            else:
                assert normalize(rest) == normalize(expected_rest), (engine, expected, row["rest"])


def by_delta_rs(folder: Path) -> pa.Table:
    files = SubTreeFileSystem(str(folder), LocalFileSystem())
    return deltalake.DeltaTable(str(folder)).to_pyarrow_table(filesystem=files)


def by_duckdb(folder: Path) -> pa.Table:
    files = SubTreeFileSystem(str(folder), LocalFileSystem())
    rows = deltalake.DeltaTable(str(folder)).to_pyarrow_dataset(filesystem=files)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", rows)
        return connection.sql("SELECT * FROM rows").to_arrow_table()


def by_polars(folder: Path) -> pa.Table:
    return pl.scan_delta(str(folder)).collect().to_arrow()


def by_pyiceberg(folder: Path) -> pa.Table:
    mirror_of(folder.parent).step()
    catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{folder.parent}.db")
    return catalog.load_table("penstock.events_t").scan().to_arrow()


ENGINES: dict[str, Callable[[Path], pa.Table]] = {
    "delta-rs": by_delta_rs,
    "DuckDB": by_duckdb,
    "Polars": by_polars,
    "PyIceberg": by_pyiceberg,
}


@contextmanager
def recursion_for_deep_events() -> Iterator[None]:
    """The plain reading is recursive, and events may have 999 levels. Parsers of other tests need the limit back."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


@recursion_for_deep_events()
def check_history(folder: Path, seed: int) -> None:
    history = History(folder, seed)
    history.land()
    for _ in range(history.generator.random.randrange(2, 6)):
        history.change()
        history.land()
    for engine, read in ENGINES.items():
        history.check(f"seed {seed}, {engine}", read(history.layout.typed("t")).to_pylist())


SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 203))]


@pytest.mark.parametrize("seed", SEEDS)
def test_each_engine_reads_what_a_plain_reading_says(tmp_path: Path, seed: int) -> None:
    check_history(tmp_path, seed)
