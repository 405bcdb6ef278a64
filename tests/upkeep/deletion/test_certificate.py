"""Certificates of deletions, and that deleted rows are in no copy, for readers of all kinds."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

from penstock.files.checked_document import read_document, write_document
from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import REQUESTED, RETENTION, request_deletion
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table_paths import Layout
from penstock.upkeep.compaction.typed_compaction import compact_all
from penstock.upkeep.deletion.certificate import certify
from penstock.upkeep.deletion.foreign import note_foreign_changes
from penstock.upkeep.deletion.removal import execute_deletions
from penstock.upkeep.export import exporter
from penstock.upkeep.iceberg import mirrored_table
from penstock.upkeep.typed.fill import fill
from penstock.upkeep.typed.refill import refill
from tests.landing.typed.typed_life import CLICK, WINDOW, Life, event, read
from tests.landing.writing.messages import AT, source
from tests.upkeep.export.exported import Exported, exported
from tests.upkeep.iceberg.mirror_life import mirror_of

ERASED = "erase-me"


def payloads(batch: int) -> list[bytes]:
    """Return events, rows in quarantine and messages; ERASED is in each one of the user u1."""
    users: list[Any] = ["u1", "u2", "u1", 17, None]
    events = [event(f"{batch}-{n}", user={"id": user}, note=_note(user)) for n, user in enumerate(users)]
    other_type = event(f"{batch}-5", "view", user={"id": "u1"}, note=ERASED)
    bad_uuid = event("", user={"id": "u1"}, note=ERASED)
    escaped = event(f"{batch}-6", user={"id": "u1"}, note=ERASED).replace(b'"u1"', b'"\\u00751"')
    return [*events, other_type, bad_uuid, escaped, b"text", event(f"{batch}-7", user=["u1"], note="u1")]


def _note(user: Any) -> str:
    return ERASED if user == "u1" else "stays"


def land(life: Life, batch: int) -> None:
    foreign = json.dumps({"data": {"user": {"id": "u1"}, "note": ERASED}, "short_message": "m"}).encode()
    rows = list(enumerate(payloads(batch), batch * 100))
    life.land(batch, [source(rows)], [source([(batch * 100 + 50, foreign)], codec="gelf")], landed_at=AT + batch)


def rows_of_all_readers(layout: Layout, exports: Iterable[Exported]) -> dict[str, list[Any]]:
    """Return the rows of all copies, as other programs read them."""
    catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{layout.tables}.db")
    copies: dict[str, list[Any]] = {
        "landed by delta-rs": read(layout.landed),
        "typed by delta-rs": read(layout.typed("click")),
        "landed by PyIceberg": catalog.load_table("penstock.landed").scan().to_arrow().to_pylist(),
        "typed by PyIceberg": catalog.load_table("penstock.events_click").scan().to_arrow().to_pylist(),
    }
    for name in ("landed", "events_click"):
        files = [str(layout.tables / name / file) for file in DeltaTable(layout.tables / name).active()]
        with duckdb.connect() as connection:
            copies[f"{name} by DuckDB"] = connection.execute(
                "from read_parquet(?, union_by_name=true)", [files]
            ).fetchall()
    for export in exports:
        copies[export.config.name] = export.read()
    return copies


def texts_on_disk(*folders: Path) -> list[Path]:
    """Return the Parquet files that have the text ERASED, whether a table lists them or not."""
    files = [file for folder in folders for file in folder.rglob("*.parquet") if "_delta_log" not in file.parts]
    assert files
    return [file for file in files if ERASED in str(pq.read_table(file, partitioning=None).to_pylist())]


def test_rows_deleted_by_field_are_in_no_copy_and_do_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirrored_table, "EXPIRY_INTERVAL_S", -1.0)
    layout = Layout.for_tables(tmp_path / "tables")
    life = Life(layout)
    land(life, 0)
    land(life, 1)
    mirror = mirror_of(layout.tables)
    exports = [exported(kind, layout, tmp_path, source="landed", name=kind) for kind in ("duckdb", "delta")]

    def step() -> dict[str, list[Any]]:
        for export in exports:
            export.step()
        mirror.step()
        return rows_of_all_readers(layout, exports)

    before = step()
    assert all(ERASED in str(before[name]) for name in before if "by" in name)
    request_deletion(layout, REQUESTED, parse_conditions("data.user.id = 'u1'"))
    assert execute_deletions(layout, WINDOW) == 1
    certificate = certify(layout, 1)
    assert certificate["tables"] == {"landed": 12, "events_click": 6}
    waiting = {"duckdb": "waiting", "delta": "waiting"}
    assert certificate["copies"] == {"replaced_files": "waiting", "iceberg": "waiting", "exports": waiting}
    after = step()
    assert texts_on_disk(tmp_path / "copy"), "replaced files of the copy"
    rest = {"duckdb": "rows_deleted", "delta": "waiting"}
    assert certify(layout, 1)["copies"] == {"replaced_files": "waiting", "iceberg": "waiting", "exports": rest}
    assert {name: len(before[name]) - len(rows) for name, rows in after.items()} == {
        name: 6 if "typed" in name or "click" in name else 12 for name in before
    }
    assert ERASED not in str(after)
    # Work that reads or writes all rows again brings no row back.
    land(life, 2)
    compact_all(layout)
    refill(layout, CLICK)
    fill(layout, CLICK)
    request_deletion(layout, RETENTION, parse_conditions("data.user.id = 'u1'"))
    assert execute_deletions(layout, WINDOW) == 1
    compact_all(layout)
    final = step()
    assert ERASED not in str(final)
    assert len(final["landed by delta-rs"]) == 3 * (len(payloads(0)) + 1 - 6)
    counts = {name: len(rows) for name, rows in final.items() if "typed" not in name and "click" not in name}
    assert counts == dict.fromkeys(counts, 15)
    monkeypatch.setattr(mirrored_table, "SNAPSHOT_HOURS", -1.0)
    mirror.step()
    DeltaTable(layout.landed).vacuum(0)
    assert texts_on_disk(layout.typed("click")), "replaced files of the typed table"
    assert certify(layout, 1)["copies"]["replaced_files"] == "waiting"
    DeltaTable(layout.typed("click")).vacuum(0)
    monkeypatch.setattr(exporter, "UPKEEP_INTERVAL_S", 0.0)
    monkeypatch.setattr(exporter, "KEEP_HOURS", 0)
    exports[1].step()
    assert texts_on_disk(layout.tables, tmp_path / "copy") == []
    assert ERASED not in str(rows_of_all_readers(layout, exports))
    removed = {"duckdb": "rows_deleted", "delta": "removed"}
    assert certify(layout, 1)["copies"] == {"replaced_files": "removed", "iceberg": "removed", "exports": removed}


def test_export_without_retention_is_named_in_the_certificate(tmp_path: Path) -> None:
    layout = Layout.for_tables(tmp_path / "tables")
    land(Life(layout), 0)
    export = exported("duckdb", layout, tmp_path, source="landed", name="copy", retention=False)
    export.step()
    for why in (RETENTION, REQUESTED):
        request_deletion(layout, why, parse_conditions(f"type = '{'view' if why == REQUESTED else 'click'}'"))
    assert execute_deletions(layout, WINDOW) == 2
    export.step()
    assert [certify(layout, number)["copies"]["exports"] for number in (1, 2)] == [
        {"copy": "retained"},
        {"copy": "rows_deleted"},
    ]
    following = replace(export, config=export.config.model_copy(update={"retention": True}))
    following.step()
    request_deletion(layout, RETENTION, parse_conditions("kind = 'message'"))
    assert execute_deletions(layout, WINDOW) == 1
    following.step()
    states = [certify(layout, number)["copies"]["exports"]["copy"] for number in (1, 3)]
    assert states == ["retained", "rows_deleted"], "the rows of the first one are in the export forever"
    (layout.exports / "copy.json").write_text("{")
    assert certify(layout, 2)["copies"]["exports"] == {"copy": "unknown"}
    following.step()
    states = [certify(layout, number)["copies"]["exports"]["copy"] for number in (1, 2, 3)]
    assert states == ["unknown", "rows_deleted", "unknown"], "what was skipped is no longer known"


def test_rows_that_another_program_deleted_wait_for_its_replaced_files(tmp_path: Path) -> None:
    layout = Layout.for_tables(tmp_path / "tables")
    land(Life(layout), 0)
    before = {*DeltaTable(layout.landed).active()}
    deltalake.DeltaTable(str(layout.landed)).delete("type = 'view'")
    assert note_foreign_changes(layout) == 1
    assert execute_deletions(layout, WINDOW) == 1
    certificate = certify(layout, 1)
    assert {*certificate["replaced_files"]} == before - {*DeltaTable(layout.landed).active()} != set()
    assert certificate["copies"] == {"replaced_files": "waiting", "typed_tables": "retained", "exports": {}}
    DeltaTable(layout.landed).vacuum(0)
    assert certify(layout, 1)["copies"]["replaced_files"] == "removed"


@pytest.mark.survives("merge, deletion, restore", "other format")
def test_record_of_an_earlier_version_does_not_say_that_files_are_removed(tmp_path: Path) -> None:
    layout = Layout.for_tables(tmp_path / "tables")
    land(Life(layout), 0)
    request_deletion(layout, REQUESTED, parse_conditions("type = 'click'"))
    assert execute_deletions(layout, WINDOW) == 1
    done = layout.deletions / "000001.done.json"
    document = read_document(done)
    for name in ("replaced", "typed_replaced"):
        document.pop(name, None)
    write_document(done, document)
    assert certify(layout, 1)["copies"]["replaced_files"] == "unknown"


def test_iceberg_snapshot_of_a_moment_before_the_deletion_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout.for_tables(tmp_path / "tables")
    land(Life(layout), 0)
    mirror = mirror_of(layout.tables)
    mirror.step()
    delete = DeltaTable.delete

    def delete_after_mirror(table: DeltaTable, *arguments: Any) -> None:
        mirror.step()
        delete(table, *arguments)

    request_deletion(layout, REQUESTED, parse_conditions("type = 'view'"))
    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "delete", delete_after_mirror)
        assert execute_deletions(layout, WINDOW) == 1
    DeltaTable(layout.landed).vacuum(0)
    assert certify(layout, 1)["copies"] == {"replaced_files": "removed", "iceberg": "waiting", "exports": {}}
    mirror.step()
    assert certify(layout, 1)["copies"]["iceberg"] == "removed"


def test_rows_of_typed_tables_are_counted_once_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout.for_tables(tmp_path / "tables")
    land(Life(layout), 0)
    request_deletion(layout, REQUESTED, parse_conditions("data.user.id = 'u1'"))
    delete = DeltaTable.delete

    def die_at_landed(table: DeltaTable, *arguments: Any) -> None:
        if table.folder == layout.landed:
            raise KeyboardInterrupt
        delete(table, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "delete", die_at_landed)
        with pytest.raises(KeyboardInterrupt):
            execute_deletions(layout, WINDOW)
    replaced = texts_on_disk(layout.typed("click"))
    assert execute_deletions(layout, WINDOW) == 1
    certificate = certify(layout, 1)
    assert certificate["tables"] == {"landed": 6, "events_click": 3}
    names = certificate["typed_replaced_files"]["events_click"]
    assert [layout.typed("click") / name for name in names] == replaced
