"""Rows that a refill would change, named before and after it."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pytest

from penstock.landing.table_paths import Layout
from penstock.landing.typed.column_types import Column, Rule
from penstock.landing.typed.columns import TypedTable
from penstock.upkeep.typed import changed_rows
from penstock.upkeep.typed.changed_rows import ChangedColumn, find_changed_rows
from penstock.upkeep.typed.refill import refill
from tests.landing.typed.typed_life import CLICK, Life, event, read
from tests.landing.writing.messages import AT, DAY, source

COLUMNS = (
    Column("path", "string", "path"),
    Column("price", "decimal(6,2)", "price"),
    Column("at", "timestamp", "at"),
    Column("user", "struct<id:string,sizes:array<int>>", "user"),
)


def landed(layout: Layout, table: TypedTable) -> None:
    """Land two batches of two days, of topics and of a partition of Kafka."""
    for batch, partition in enumerate((None, 0)):
        events = [
            event("a", path="/", price="1.50", at="2026-01-01T00:00:00Z", user={"id": "x", "sizes": [1]}),
            event("b", path="/b", price="9.99"),
            event("c", "view", path="/b"),
            event("d", price=7, user={"id": 1}),
        ]
        renamed = [text.replace(b'"uuid": "', f'"uuid": "{batch}'.encode()) for text in events]
        rows = source(list(enumerate(renamed, 10 * batch)), at=AT + DAY * batch, partition=partition)
        Life(layout, [table]).land(batch, [rows])


def test_unchanged_configuration_changes_no_row(tmp_path: Path) -> None:
    layout, table = Layout.for_tables(tmp_path), TypedTable("click", "click", COLUMNS)
    assert find_changed_rows(layout, table, 100) == []
    landed(layout, table)
    assert find_changed_rows(layout, table, 100, 5) == []


def test_rows_that_a_refill_changes_are_named_with_both_values(tmp_path: Path) -> None:
    layout, table = Layout.for_tables(tmp_path), TypedTable("click", "click", COLUMNS)
    landed(layout, table)
    rule = Rule("max", ('"8.00"',))
    path_column = Column("path", "string", "path", default='"/none"')
    changed_columns = (path_column, Column("price", "decimal(6,2)", "price", rules=(rule,)), *COLUMNS[2:])
    changed = TypedTable("click", "click", (*changed_columns, Column("more", "int", "more")))
    examples = [
        {"topic": "t", "partition": 0, "offset": 11, "uuid": "1b", "stored": '"9.99"', "configured": "null"},
        {"topic": "t", "partition": None, "offset": 1, "uuid": "0b", "stored": '"9.99"', "configured": "null"},
    ]
    path, price = find_changed_rows(layout, changed, 100, 5)
    assert (price.rows, price.examples) == (2, examples)
    assert (path.rows, [example["configured"] for example in path.examples]) == (2, ['"/none"', '"/none"'])
    assert find_changed_rows(layout, changed, 3) == [ChangedColumn("path", 1), ChangedColumn("price", 1)]

    before = {row["uuid"]: row for row in read(layout.typed("click"))}
    refill(layout, TypedTable("click", "click", changed_columns))
    after = {row["uuid"]: row for row in read(layout.typed("click"))}
    names = ("path", "price", "at", "user")
    differing = {(uuid, name) for uuid in before for name in names if before[uuid][name] != after[uuid][name]}
    assert differing == {("0b", "price"), ("1b", "price"), ("0d", "path"), ("1d", "path")}


def test_deleted_rows_and_another_type_are_left_out(tmp_path: Path) -> None:
    layout = Layout.for_tables(tmp_path)
    Life(layout).land(0, [source([(n, event(f"u{n}", path="/", ms=n)) for n in range(3)])])
    changed = TypedTable("click", "click", (Column("path", "string", "other"), Column("ms", "bigint", "other")))
    deltalake.DeltaTable(str(layout.typed("click"))).delete("uuid = 'u1'")
    assert find_changed_rows(layout, changed, 100) == [ChangedColumn("path", 2)]
    assert find_changed_rows(layout, CLICK, 100) == []


def test_files_of_a_table_that_lacks_rows_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, opened = Layout.for_tables(tmp_path), []
    for batch in range(4):
        Life(layout).land(batch, [source([(n, event(f"u{n}", path="/")) for n in (2 * batch, 2 * batch + 1)])])
        deltalake.DeltaTable(str(layout.typed("click"))).delete(f"uuid = 'u{2 * batch}'")
    open_rows = changed_rows.open_rows
    monkeypatch.setattr(changed_rows, "open_rows", lambda *file: (opened.append(file[1]), open_rows(*file))[1])
    changed = TypedTable("click", "click", (Column("path", "string", "other"),))
    assert find_changed_rows(layout, changed, 100) == [ChangedColumn("path", 4)]
    assert len(opened) == len({*opened}) == 4
