"""Filling a typed table with rows that landed before it began: each row once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import REQUESTED, request_deletion
from penstock.landing.table.table_file import TableFile
from penstock.landing.table_paths import Layout
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import TypedTable
from penstock.landing.typed.typed_delta import BEFORE_FIRST_BATCH, TypedDelta, read_starts
from penstock.upkeep.compaction.compaction import compact_table
from penstock.upkeep.deletion.removal import execute_deletions
from penstock.upkeep.typed import fill as fill_module
from penstock.upkeep.typed.fill import CannotRestore, NotBegun, fill, restore_file
from tests.landing.typed.typed_life import CLICK, WINDOW, Life, event, read, uuids
from tests.landing.writing.messages import AT, DAY, source


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Four batches on two days; the typed table began with the last one."""
    layout = Layout.for_tables(tmp_path / "tables")
    before = Life(layout, [])
    for batch in range(3):
        rows = [(2 * batch, event(f"u{batch}", ms=batch)), (2 * batch + 1, event(f"v{batch}", "view"))]
        partition = None if batch < 2 else 1
        before.land(batch, [source(rows, at=AT + DAY * (batch // 2), partition=partition)])
    Life(layout).land(3, [source([(6, event("u3", ms=3))], at=AT + DAY)])
    assert uuids(layout.typed("click")) == ["u3"]
    return layout


def test_fill_adds_each_earlier_row_once(layout: Layout) -> None:
    assert read_starts(layout) == {"click": 2}
    days: list[tuple[int, int]] = []
    assert fill(layout, CLICK, lambda finished, total: days.append((finished, total))) == 3
    assert [(row["uuid"], row["ms"]) for row in read(layout.typed("click"))] == [(f"u{n}", n) for n in (0, 1, 3, 2)]
    assert (days, read_starts(layout)) == ([(0, 2), (1, 2)], {"click": BEFORE_FIRST_BATCH})
    assert fill(layout, CLICK) == 0
    Life(layout).land(4, [source([(7, event("u4"))])])
    assert uuids(layout.typed("click")) == uuids(layout.landed)


def test_row_that_lands_between_the_two_reads_is_not_filled_as_well(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    life, reads = Life(layout), []

    def landing_at_last(read: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            reads.append(read)
            if len(reads) == 3:  # the first one asks whether the typed table exists
                life.land(4, [source([(7, event("u4"))])])
            return read(*arguments)

        return call

    monkeypatch.setattr(fill_module, "table_of", landing_at_last(fill_module.table_of))
    monkeypatch.setattr(TypedDelta, "configured", landing_at_last(TypedDelta.configured))
    assert fill(layout, CLICK) == 3
    assert len(reads) == 3
    assert sorted(uuids(layout.typed("click"))) == ["u0", "u1", "u2", "u3", "u4"]


def test_filled_rows_of_nested_fields_are_as_landed_ones(tmp_path: Path) -> None:
    columns = (Column("id", "string", "user.id"), Column("ms", "int", 'data."a.b"'))
    table = TypedTable("click", "click", columns)
    users = [{"id": "x"}, {"id": 1, "more": None}, "bob", [{"id": "y"}]]
    events = [event(f"u{n}", user=user, data={"a.b": n}) for n, user in enumerate(users)]
    filled, landed = Layout.for_tables(tmp_path / "filled"), Layout.for_tables(tmp_path / "landed")
    Life(filled, []).land(0, [source(list(enumerate(events)))])
    Life(filled, [table])
    assert fill(filled, table) == len(users)
    Life(landed, [table]).land(0, [source(list(enumerate(events)))])
    request_deletion(landed, REQUESTED, parse_conditions("uuid = 'u3'"))
    request_deletion(filled, REQUESTED, parse_conditions("uuid = 'u3'"))
    assert [execute_deletions(layout, WINDOW) for layout in (filled, landed)] == [1, 1]
    rows = [(row["uuid"], row["id"], row["ms"], row["rest"]) for row in read(landed.typed("click"))]
    assert rows == [
        ("u0", "x", 0, None),
        ("u1", None, 1, '{"user":{"id":1,"more":null}}'),
        ("u2", None, 2, '{"user":"bob"}'),
    ]
    assert [(row["uuid"], row["id"], row["ms"], row["rest"]) for row in read(filled.typed("click"))] == rows


def test_table_that_pipeline_does_not_write_is_not_filled(layout: Layout) -> None:
    life = Life(layout, [])
    with pytest.raises(NotBegun, match="does not write events_click"):
        fill(layout, CLICK)
    life.land(4, [source([(7, event("u4"))])])
    Life(layout)
    assert read_starts(layout) == {"click": 4}
    assert fill(layout, CLICK) == 4
    assert uuids(layout.typed("click")) == uuids(layout.landed)


def test_killed_fill_resumes_at_next_day(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = TypedDelta.add, list[int]()

    def dies_later(table: TypedDelta, files: Any) -> None:
        calls.append(1)
        if len(calls) > 1:
            raise KeyboardInterrupt
        real(table, files)

    monkeypatch.setattr(TypedDelta, "add", dies_later)
    with pytest.raises(KeyboardInterrupt):
        fill(layout, CLICK)
    monkeypatch.undo()
    assert uuids(layout.typed("click")) == ["u0", "u1", "u3"]
    assert fill(layout, CLICK) == 1
    assert uuids(layout.typed("click")) == uuids(layout.landed)


def test_fill_reads_merged_files(layout: Layout) -> None:
    compact_table(layout.landed)
    assert fill(layout, CLICK) == 3
    assert uuids(layout.typed("click")) == uuids(layout.landed)


def test_batch_that_lands_during_fill_is_there_once(layout: Layout) -> None:
    life, landed = Life(layout), []

    def land(day: int, _: int) -> None:
        landed.append(day)
        life.land(3 + len(landed), [source([(100 + day, event(f"w{day}"))], at=AT + DAY * day)])

    fill(layout, CLICK, land)
    assert len(landed) == 2
    assert uuids(layout.typed("click")) == uuids(layout.landed)


def test_table_that_did_not_begin_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotBegun, match="does not exist yet: start the pipeline"):
        fill(Layout.for_tables(tmp_path), CLICK)


def files_of(layout: Layout) -> list[TableFile]:
    return TypedDelta(layout.typed("click")).active()


@pytest.mark.survives("typed tables and contracts", "damaged bytes")
def test_damaged_file_is_replaced_by_its_rows_of_landed(layout: Layout) -> None:
    fill(layout, CLICK)
    rows, files = read(layout.typed("click")), files_of(layout)
    restored = [restore_file(layout, CLICK, file) for file in files]
    assert sum(restored) == len(rows) == 4
    assert read(layout.typed("click")) == rows
    assert not {*files} & {*files_of(layout)}


def test_file_stays_if_rows_of_its_day_were_never_filled(layout: Layout) -> None:
    [file] = files_of(layout)
    with pytest.raises(CannotRestore, match="landed has 2 rows of that day that the table's other files lack"):
        restore_file(layout, CLICK, file)
    assert files_of(layout) == [file]
    assert [path.name for path in layout.typed("click").rglob("*.parquet")] == [Path(file).name]


def test_file_with_a_column_that_is_no_longer_configured_stays(layout: Layout) -> None:
    fill(layout, CLICK)
    file = files_of(layout)[0]
    with pytest.raises(CannotRestore, match="its columns ms are no longer configured"):
        restore_file(layout, TypedTable("click", "click", (Column("path", "string", "path"),)), file)
    assert file in files_of(layout)
