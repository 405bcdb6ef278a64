"""Typed tables have each landed event once, across crashes between the commits."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow.dataset as ds
import pytest

import penstock.tables
from penstock.errors import PenstockError
from penstock.files.errors import UnknownFormat
from penstock.landing.table.delta_table import DeltaTable, SchemaDiffers
from penstock.landing.table_paths import Layout
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import TypedTable
from penstock.landing.typed.typed_delta import BEFORE_FIRST_BATCH, TypedDelta, existing_typed_tables, read_starts
from penstock.landing.typed.typed_tables import TypedTableAhead, check_columns
from penstock.landing.writing.part_writer import write_part
from penstock.upkeep.compaction.typed_compaction import compact_typed
from tests.landing.table.foreign_writer import commit
from tests.landing.typed.typed_life import (
    CLICK,
    Killed,
    Life,
    as_format,
    event,
    kill_before_landed,
    killed,
    read,
    uuids,
)
from tests.landing.writing.messages import AT, DAY, source


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout.for_tables(tmp_path / "tables")


def test_typed_table_has_events_of_its_type_as_columns(layout: Layout) -> None:
    life = Life(layout)
    first = [(0, event("a", path="/x", ms=5)), (1, event("b", "view")), (2, event("c", path=1, ms=None, more=[1]))]
    life.land(
        0, [source([*first, (3, b"text"), (4, event("a"))])], [source([(0, event("d", ms=7))], at=AT + DAY, topic="s")]
    )
    rows = read(layout.typed("click"))
    assert [(row["topic"], row["offset"], row["uuid"], row["path"], row["ms"], row["rest"]) for row in rows] == [
        ("s", 0, "d", None, 7, None),
        ("t", 0, "a", "/x", 5, None),
        ("t", 2, "c", None, None, '{"path":1,"more":[1]}'),
    ]
    assert {(row["host"], row["type"]) for row in rows} == {("web-1", "click")}
    assert len({row["date"] for row in rows}) == 2
    landed = {row["uuid"]: row for row in read(layout.landed) if row["type"] == "click"}
    landed_columns = ("timestamp", "received", "landed_at", "event_time", "source", "date")
    assert all(row[name] == landed[row["uuid"]][name] for row in rows for name in landed_columns)


def test_duplicates_are_in_neither_table(layout: Layout) -> None:
    life = Life(layout)
    life.land(0, [source([(0, event("a")), (1, event("b"))])], [source([(2, event("a")), (3, event("c"))])])
    life.land(1, [source([(4, event("c")), (5, event("d")), (6, event("d"))])])
    assert uuids(layout.typed("click")) == uuids(layout.landed) == ["a", "b", "c", "d"]


def active_and_stored(layout: Layout) -> tuple[set[str], set[str]]:
    """Return the files of the typed table, and all files in its folder."""
    folder = layout.typed("click")
    assert isinstance(folder, Path)
    return {*TypedDelta(folder).active()}, {str(path.relative_to(folder)) for path in folder.rglob("*.parquet")}


def test_files_that_tasks_wrote_are_committed_unless_a_duplicate_is_in_them(layout: Layout) -> None:
    life = Life(layout)
    job = replace(life.job, typed=life.typed.writer())
    parts = [write_part([source([(0, event("a")), (1, event("b", "view"))])], job, AT)]
    (written,) = parts[0].files[0].typed.values()
    life.commit.land(0, lambda: parts)
    assert written is not None
    assert active_and_stored(layout) == ({written.file.name}, {written.file.name})
    life.land(1, [source([(2, event("c"))])], [source([(3, event("c")), (4, event("d"))])])
    assert uuids(layout.typed("click")) == ["a", "c", "d"]
    active, stored = active_and_stored(layout)
    assert active == stored, "replaced files are removed"


def test_batch_is_repeated_with_the_files_of_its_tasks(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(layout)
    job = replace(life.job, typed=life.typed.writer())
    parts = [write_part([source([(0, event("a"))])], job, AT)]
    with monkeypatch.context() as patch:
        patch.setattr(life.table, "commit", killed)
        with pytest.raises(Killed):
            life.commit.land(0, lambda: parts)
    life.commit.land(0, lambda: parts)
    assert uuids(layout.typed("click")) == uuids(layout.landed) == ["a"]


@pytest.mark.survives("typed tables and contracts", "changed configuration")
def test_tables_that_change_during_a_batch_have_its_rows_as_configured_now(layout: Layout) -> None:
    life = Life(layout)
    job = replace(life.job, typed=life.typed.writer())
    parts = [write_part([source([(0, event("a", user="ann")), (1, event("b", "view"))])], job, AT)]
    wider = TypedTable("click", "click", (*CLICK.columns, Column("user", "string", "user")))
    life.typed.change((wider, TypedTable("view", "view")))
    life.commit.land(0, lambda: parts)
    assert [row["user"] for row in read(layout.typed("click"))] == ["ann"]
    assert uuids(layout.typed("view"), "view") == ["b"]


def test_batch_without_the_type_adds_no_version(layout: Layout) -> None:
    life = Life(layout)
    life.land(0, [source([(0, event("a"))])])
    version = deltalake.DeltaTable(str(layout.typed("click"))).version()
    life.land(1, [source([(1, event("b", "view"))])])
    assert deltalake.DeltaTable(str(layout.typed("click"))).version() == version


def test_changed_tables_are_written_from_the_next_batch_on(layout: Layout) -> None:
    life = Life(layout)
    life.land(0, [source([(0, event("a", path="/x")), (1, event("b", "view", path="/y"))])])
    view = TypedTable("view", "view", (Column("path", "string", "path", required=True),), strict=True)
    wider = TypedTable("click", "click", (*CLICK.columns, Column("user", "string", "user")))
    life.typed.change((wider, view))
    assert life.typed.strict == (view,)
    life.land(1, [source([(2, event("c", user="ann")), (3, event("d", "view", path="/z"))])])
    assert [(row["uuid"], row["user"]) for row in read(layout.typed("click"))] == [("a", None), ("c", "ann")]
    assert uuids(layout.typed("view"), "view") == ["d"]
    assert read_starts(layout) == {"click": BEFORE_FIRST_BATCH, "view": 0}
    with pytest.raises(SchemaDiffers):
        life.typed.change((TypedTable("click", "click", (Column("path", "int", "path"),)),))
    life.land(2, [source([(4, event("e", user="bob"))])])
    assert [row["user"] for row in read(layout.typed("click"))] == [None, "ann", "bob"], "the tables are as before"


@pytest.mark.survives("typed tables and contracts", "other format")
def test_starts_of_a_later_format_stop_the_landing_and_stay(layout: Layout) -> None:
    Life(layout).land(0, [source([(0, event("a"))])])
    former, later = layout.typed_since.read_bytes(), as_format(layout.typed_since, 2)
    for _ in range(2):
        with pytest.raises(UnknownFormat, match=r"typed\.json has format 2, this version of Penstock reads 1"):
            Life(layout)
    assert layout.typed_since.read_bytes() == later
    layout.typed_since.write_bytes(former)
    Life(layout).land(1, [source([(1, event("b"))])])
    assert uuids(layout.typed("click")) == uuids(layout.landed) == ["a", "b"]


@pytest.mark.survives("typed tables and contracts", "other format")
@pytest.mark.parametrize(
    ("protocol", "error"),
    [
        ({"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["later"]}, "has later, which Penstock does"),
        (
            {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["later"], "writerFeatures": ["later"]},
            "cannot be read: .*'later' is not supported",
        ),
        ({"minReaderVersion": 4, "minWriterVersion": 8}, "cannot be read: .*Unsupported minimum reader version 4"),
    ],
)
def test_typed_table_of_a_later_protocol_is_named_and_nothing_lands(
    layout: Layout, protocol: dict[str, Any], error: str
) -> None:
    life = Life(layout, (CLICK, TypedTable("view", "view")))
    life.land(0, [source([(0, event("a")), (1, event("b", "view"))])])
    rows = [source([(2, event("c")), (3, event("d", "view"))])]
    folder = layout.typed("view")
    assert isinstance(folder, Path)
    version = commit(folder, [{"protocol": protocol}], "UPGRADE PROTOCOL")
    for _ in range(2):
        with pytest.raises(PenstockError, match=f"events_view.* {error}"):
            life.land(1, rows)
        assert uuids(layout.landed) == ["a"]
    (folder / "_delta_log" / f"{version:020}.json").unlink()
    life = Life(layout, (CLICK, TypedTable("view", "view")))
    life.land(1, rows)
    assert uuids(layout.typed("click")) == uuids(layout.landed) == ["a", "c"], "no row twice"
    assert uuids(layout.typed("view"), "view") == ["b", "d"]


@pytest.mark.survives("typed tables and contracts", "SIGKILL")
def test_tables_agree_after_a_kill_between_commits(layout: Layout) -> None:
    life = Life(layout)
    life.land(0, [source([(0, event("a"))])])
    rows = [source([(1, event("b", ms=1)), (2, event("c"))])]
    kill_before_landed(life, 1, rows)
    assert (uuids(layout.typed("click")), uuids(layout.landed)) == (["a", "b", "c"], ["a"]), "one batch ahead"
    for _ in range(2):
        life = Life(layout)
        life.land(1, rows, landed_at=AT + 1)
        assert uuids(layout.typed("click")) == uuids(layout.landed) == ["a", "b", "c"]
    landing_times = {
        table: {row["landed_at"] for row in read(table)} for table in (layout.landed, layout.typed("click"))
    }
    assert landing_times[layout.landed] == landing_times[layout.typed("click")]


@pytest.mark.parametrize(
    "repeated", [[(1, event("b"))], [(1, b"text")], [(1, event("b")), (2, event("c")), (3, event("d"))]]
)
def test_repeated_batch_replaces_its_first_attempt(layout: Layout, repeated: list[tuple[int, bytes]]) -> None:
    life = Life(layout)
    life.land(0, [source([(0, event("a"))])])
    kill_before_landed(life, 1, [source([(1, event("b")), (2, event("c"))])])
    kill_before_landed(Life(layout), 1, [source([(2, event("c"))])])
    Life(layout).land(1, [source(repeated)])
    Life(layout).land(2, [source([(9, event("z"))])])
    assert uuids(layout.typed("click")) == uuids(layout.landed)


def test_files_through_a_batch_are_without_a_batch_that_lands_in_between(layout: Layout) -> None:
    life = Life(layout)
    life.land(0, [source([(0, event("a"))])])

    class Slow(TypedDelta):
        def files(self, from_batch: int = 0) -> Iterator[tuple[int, list[str]]]:
            batches = [*super().files(from_batch)]
            life.land(1, [source([(1, event("b"))])])
            return iter(batches)

    table = Slow(layout.typed("click"))
    before = table.active()
    assert table.through(0) == before
    assert len(table.active()) == 2


def test_batch_ahead_is_not_merged(layout: Layout) -> None:
    life = Life(layout)
    for batch in range(3):
        life.land(batch, [source([(batch, event(f"u{batch}"))])])
    rows = [source([(3, event("u3"))])]
    kill_before_landed(life, 3, rows)
    assert compact_typed(layout) == (3, 1)
    Life(layout).land(3, rows)
    assert uuids(layout.typed("click")) == uuids(layout.landed) == ["u0", "u1", "u2", "u3"]
    assert compact_typed(layout)[1] <= 1
    assert uuids(layout.typed("click")) == ["u0", "u1", "u2", "u3"]


def test_relanded_rows_are_in_typed_table_once(layout: Layout) -> None:
    life = Life(layout)
    life.land(0, [source([(0, event("a")), (1, event("b"))])])
    relanded = source([(0, event("a")), (1, event("b")), (2, event("c"))], relands=True)
    kill_before_landed(life, 1, [relanded])
    assert [row["offset"] for row in read(layout.typed("click"))] == [0, 1, 2]
    Life(layout).land(1, [relanded])
    assert [row["offset"] for row in read(layout.typed("click"))] == [0, 1, 2]


def test_added_column_is_null_in_existing_rows(layout: Layout) -> None:
    Life(layout).land(0, [source([(0, event("a", path="/", ok=True))])])
    more = TypedTable("click", "click", (Column("ok", "boolean", "ok"), *CLICK.columns))
    life = Life(layout, [more])
    life.land(1, [source([(1, event("b", path="/", ok=True))])])
    rows = read(layout.typed("click"))
    assert [(row["path"], row["ok"], row["rest"]) for row in rows] == [("/", None, '{"ok":true}'), ("/", True, None)]
    Life(layout).land(2, [source([(2, event("c", path="/", ok=False))])])
    rows = read(layout.typed("click"))
    assert [row["ok"] for row in rows] == [None, True, None], "a column that is no longer configured stays"
    assert compact_typed(layout) == (3, 1)
    assert read(layout.typed("click")) == rows


def test_changed_column_type_is_refused(layout: Layout) -> None:
    Life(layout)
    for column in (Column("ms", "string", "ms"), Column("MS", "int", "ms")):
        changed = [TypedTable("click", "click", (column,))]
        with pytest.raises(SchemaDiffers, match="column ms of type int"):
            Life(layout, changed)
        with pytest.raises(SchemaDiffers, match=r"column ms of type int.*`penstock tables refill click`$"):
            check_columns(layout, changed)


def test_check_of_columns_creates_no_table_and_no_column(layout: Layout) -> None:
    Life(layout)
    more = TypedTable("click", "click", (*CLICK.columns, Column("ok", "boolean", "ok")))
    check_columns(layout, [more, TypedTable("view", "view", CLICK.columns)])
    assert "ok" not in TypedDelta(layout.typed("click")).schema.names
    assert not TypedDelta.configured(layout, TypedTable("view", "view")).exists


def test_strict_table_quarantines_events_that_do_not_fit(layout: Layout) -> None:
    columns = (Column("path", "string", "path", required=True), Column("ms", "int", "ms"))
    life = Life(layout, [TypedTable("click", "click", columns, strict=True)])
    good = [(0, event("a", path="/", ms=1, more=1)), (1, event("b", path="/")), (2, event("c", "view", path=1))]
    bad = [(3, event("d")), (4, event("e", path="/", ms="1")), (5, event("f", path=None))]
    life.land(0, [source([*good, *bad])])
    assert uuids(layout.typed("click")) == uuids(layout.landed) == ["a", "b"]
    reasons = {row["offset"]: row["reason"] for row in read(layout.landed) if row["kind"] == "quarantine"}
    assert reasons == dict.fromkeys((3, 4, 5), "schema_not_met")


def test_table_configured_later_logs_its_start(layout: Layout, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Life(layout, []).land(0, [source([(0, event("a"))])])
        assert not caplog.messages
        Life(layout).land(1, [source([(1, event("b"))])])
    assert caplog.messages == [
        "events_click has what landed after batch 0; `penstock tables fill click` brings in what landed before"
    ]
    assert (uuids(layout.typed("click")), read_starts(layout)) == (["b"], {"click": 0})
    Life(layout)
    assert (read_starts(layout), len(caplog.messages)) == ({"click": 0}, 1)
    Life(layout, []).land(2, [source([(2, event("c"))])])
    Life(layout)
    assert read_starts(layout) == {"click": 2}, "it was not configured for a batch"


def test_table_configured_first_has_all_batches(layout: Layout) -> None:
    Life(layout)
    assert read_starts(layout) == {"click": BEFORE_FIRST_BATCH}


def test_typed_table_ahead_of_landed_is_refused(layout: Layout) -> None:
    life = Life(layout)
    for batch in range(3):
        life.land(batch, [source([(batch, event(f"u{batch}"))])])
    other_layout = Layout.for_tables(layout.tables.parent / "other")
    other_layout.tables.mkdir()
    layout.typed("click").rename(other_layout.typed("click"))
    with pytest.raises(TypedTableAhead, match="events_click has batches up to 2"):
        Life(other_layout)


def test_torn_commit_is_repeated(layout: Layout) -> None:
    life = Life(layout)
    life.land(0, [source([(0, event("a"))])])
    kill_before_landed(life, 1, [source([(1, event("b"))])])
    newest = max((layout.typed("click") / "_delta_log").glob("*.json"))
    newest.write_bytes(b"")
    Life(layout).land(1, [source([(1, event("b"))])])
    assert uuids(layout.typed("click")) == uuids(layout.landed) == ["a", "b"]


def test_typed_table_continues_after_a_checkpoint(layout: Layout) -> None:
    life = Life(layout)
    for batch in range(105):
        life.land(batch, [source([(batch, event(f"u{batch}"))])])
    assert list((layout.typed("click") / "_delta_log").glob("*.checkpoint.parquet"))
    assert uuids(layout.typed("click")) == uuids(layout.landed)
    kill_before_landed(life, 105, [source([(105, event("x"))])])
    Life(layout).land(105, [source([(105, event("y"))])])
    assert uuids(layout.typed("click")) == uuids(layout.landed)


def test_existing_typed_tables_skips_other_tables(layout: Layout) -> None:
    assert existing_typed_tables(layout) == []
    Life(layout)
    (table,) = existing_typed_tables(layout)
    assert table.schema.names == [*CLICK.schema.names]
    assert penstock.tables.open(layout.tables, "events_click").count_rows() == 0
    shutil.copytree(layout.landed, layout.tables / "events_of_before")
    assert [existing.folder.name for existing in existing_typed_tables(layout)] == ["events_click"]
    assert TypedDelta.configured(layout, CLICK).newest() == DeltaTable(layout.landed).newest() == -1


def test_filters_match_typed_columns_and_nulls(layout: Layout) -> None:
    Life(layout, [TypedTable("click", "click")]).land(0, [source([(0, event("a", ms=1))])])
    Life(layout).land(1, [source([(1, event("b", ms=5))])])
    Life(layout).land(2, [source([(2, event("c"))])])
    rows = deltalake.DeltaTable(str(layout.typed("click"))).to_pyarrow_dataset()

    def matching_uuids(condition: ds.Expression) -> list[str]:
        return sorted(rows.to_table(filter=condition)["uuid"].to_pylist())

    assert matching_uuids(ds.field("uuid") == "b") == matching_uuids(ds.field("ms") > 4) == ["b"]
    assert matching_uuids(ds.field("ms").is_null()) == ["a", "c"]
    assert matching_uuids(ds.field("type") == "click") == ["a", "b", "c"]
