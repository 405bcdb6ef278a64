"""Rebuilding a typed table after a change of its columns: exact, continued after a kill, never a mixture."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import deltalake
import pytest

from penstock.files.errors import UnknownFormat
from penstock.landing.landing_lock import acquire_landing_lock
from penstock.landing.table.delta_table import SchemaDiffers
from penstock.landing.table_paths import Layout
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import TypedTable
from penstock.landing.typed.typed_delta import BEFORE_FIRST_BATCH, TypedDelta, read_starts
from penstock.upkeep.compaction.typed_compaction import compact_typed
from penstock.upkeep.typed.fill import NotBegun
from penstock.upkeep.typed.refill import ColumnsNotConfigured, RefillWaits, refill
from tests.landing.typed.typed_life import CLICK, Life, as_format, event, kill_before_landed, read, uuids
from tests.landing.writing.messages import AT, DAY, source

CHANGED = TypedTable("click", "click", (Column("place", "string", "path"), Column("ms", "bigint", "ms")))
"""A wider type, and another name for a column."""
LARGE = 1 << 40


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Three batches on two days, of a table that began with the second one."""
    layout = Layout.for_tables(tmp_path / "tables")
    for batch in range(3):
        rows = [
            (2 * batch, event(f"u{batch}", path="/", ms=batch or LARGE)),
            (2 * batch + 1, event(f"v{batch}", "view")),
        ]
        Life(layout, [CLICK] if batch else []).land(batch, [source(rows, at=AT + DAY * (batch // 2))])
    return layout


def changed_rows(layout: Layout) -> list[tuple[object, ...]]:
    return [(row["uuid"], row["place"], row["ms"], row["rest"]) for row in read(layout.typed("click"))]


def test_refill_changes_type_name_and_columns(layout: Layout) -> None:
    with pytest.raises(SchemaDiffers, match="stop the pipeline and run `penstock tables refill click`"):
        Life(layout, [CHANGED])
    before, opened = read(layout.typed("click")), deltalake.DeltaTable(str(layout.typed("click")))
    with pytest.raises(ColumnsNotConfigured, match="events_click has columns that are not configured: path"):
        refill(layout, CHANGED)
    assert read(layout.typed("click")) == before
    days: list[tuple[int, int]] = []
    assert refill(layout, CHANGED, drop=True, report=lambda finished, total: days.append((finished, total))) == 3
    assert {*days} == {(0, 2), (1, 2)}
    expected = [("u0", "/", LARGE, None), ("u1", "/", 1, None), ("u2", "/", 2, None)]
    assert changed_rows(layout) == expected
    assert TypedDelta(layout.typed("click")).schema_now.names == [*CHANGED.schema.names]
    assert read_starts(layout) == {"click": BEFORE_FIRST_BATCH}
    assert not layout.typed_refill("click").exists()
    assert len(opened.file_uris()) == 2, "a reader that opened the old table has its files"
    Life(layout, [CHANGED]).land(3, [source([(6, event("u3", path="/", ms=LARGE))])])
    assert compact_typed(layout)[1] == 1
    assert sorted(changed_rows(layout), key=str) == [*expected, ("u3", "/", LARGE, None)]


def test_interrupted_refill_continues(layout: Layout) -> None:
    def interrupt(finished: int, total: int) -> None:
        if finished == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        refill(layout, CHANGED, drop=True, report=interrupt)
    folder = Path(str(layout.typed("click")))
    first_day = {path.name for path in folder.glob("date=*/*.parquet")}
    assert uuids(layout.typed("click")) == ["u1", "u2"], "the old table"
    assert refill(layout, CHANGED, drop=True) == 3
    names = {Path(name).name for name in TypedDelta(layout.typed("click")).active()}
    assert len(names & first_day) == len(names) - 1
    # Files of other rules are not used, nor ones that were removed as unused.
    with pytest.raises(KeyboardInterrupt):
        refill(layout, CHANGED, report=interrupt)
    for path in folder.glob("date=*/*.parquet"):
        if path.name not in names:
            path.unlink()
    assert refill(layout, CHANGED) == refill(layout, CLICK, drop=True) == 3
    assert [(row["path"], row["ms"]) for row in read(layout.typed("click"))] == [("/", None), ("/", 1), ("/", 2)]


@pytest.mark.survives("typed tables and contracts", "other format")
@pytest.mark.parametrize("table", [CLICK, CHANGED], ids=["same columns", "changed columns"])
def test_refill_with_documents_of_a_later_format_changes_nothing(table: TypedTable, layout: Layout) -> None:
    def interrupt(finished: int, total: int) -> None:
        if finished == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        refill(layout, table, drop=True, report=interrupt)
    before = read(layout.typed("click"))
    for path in (layout.typed_since, layout.typed_refill("click")):
        former, later = path.read_bytes(), as_format(path, 2)
        with pytest.raises(UnknownFormat, match=rf"{path.name} has format 2, this version of Penstock reads 1"):
            refill(layout, table, drop=True)
        assert (read(layout.typed("click")), path.read_bytes()) == (before, later)
        path.write_bytes(former)
    assert refill(layout, table, drop=True) == 3
    assert read_starts(layout) == {"click": BEFORE_FIRST_BATCH}


@pytest.mark.parametrize("table", [CLICK, CHANGED], ids=["same columns", "changed columns"])
def test_batch_that_is_ahead_is_repeated_after_a_refill(table: TypedTable, layout: Layout) -> None:
    rows = [source([(6, event("u3", path="/", ms=3)), (7, event("u4", path="/", ms=4))])]
    kill_before_landed(Life(layout), 3, rows)
    assert uuids(layout.typed("click")) == ["u1", "u2", "u3", "u4"]
    assert refill(layout, table, drop=True) == 3
    for _ in range(2):
        kill_before_landed(Life(layout, [table]), 3, rows)
    Life(layout, [table]).land(3, rows)
    assert uuids(layout.typed("click")) == uuids(layout.landed) == ["u0", "u1", "u2", "u3", "u4"]


def test_running_pipeline_keeps_its_columns(layout: Layout) -> None:
    handle = acquire_landing_lock(layout, threading.Event())
    try:
        with pytest.raises(RefillWaits, match="stop the pipeline and repeat the command"):
            refill(layout, CHANGED, drop=True)
        assert uuids(layout.typed("click")) == ["u1", "u2"]
        life = Life(layout)

        def land(finished: int, total: int) -> None:
            if not finished:
                life.land(3, [source([(6, event("u3", path="/", ms=3))])])

        same = TypedTable("click", "click", (CLICK.columns[0], Column("ms", "int", "ms", default="7")))
        assert refill(layout, same, report=land) == 3
        assert uuids(layout.typed("click")) == uuids(layout.landed) == ["u0", "u1", "u2", "u3"]
    finally:
        os.close(handle)
    assert refill(layout, CHANGED, drop=True) == 4
    assert [row[2] for row in changed_rows(layout)] == [LARGE, 1, 2, 3]


def test_table_that_does_not_exist_is_not_refilled(layout: Layout) -> None:
    with pytest.raises(NotBegun, match="does not exist yet"):
        refill(layout, TypedTable("view", "view"))
