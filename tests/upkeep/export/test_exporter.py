"""Exports to real targets: each row once, deletions included, wherever a step is killed."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import clickhouse_connect
import deltalake
import duckdb
import polars as pl
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis.strategies import binary

from penstock.config.keys.export import ExportConfig
from penstock.config.keys.tree import Settings
from penstock.files.checked_document import read_document, write_document
from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import RETENTION, DeletionRecord, request_deletion
from penstock.landing.table.delta_table import VectorNotApplicable
from penstock.landing.table.landed_table import table_of
from penstock.landing.table_paths import Layout
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import TypedTable
from penstock.testing import wait_until
from penstock.upkeep.changes import read_changes
from penstock.upkeep.compaction.typed_compaction import compact_all
from penstock.upkeep.deletion.removal import execute_deletions
from penstock.upkeep.export import clickhouse, delta_copy, duckdb_file, postgresql
from penstock.upkeep.export.check import NotComparable, compare
from penstock.upkeep.export.exporter import Exporter, Exporters, open_target, read_state
from penstock.upkeep.export.target import TargetAway, TargetInUse, TargetMoved, TargetOwned
from penstock.upkeep.typed.refill import refill
from tests.landing.table.foreign_writer import add_without_vector, delete_again_without_vector, delete_by_vector
from tests.landing.typed import typed_life
from tests.landing.writing.messages import AT, source
from tests.system.host_network import Link
from tests.upkeep.export.exported import Exported, exported, read_clickhouse, read_delta, read_duckdb, read_postgresql
from tests.upkeep.export.widened_life import NARROW, WIDE, number_of
from tests.upkeep.export.widened_life import land as land_narrow_or_wide
from tests.upkeep.killed_life import killed_lives
from tests.upkeep.test_changes import EVENTS, delete, land, lose_and_reland, uuids

KINDS = ("duckdb", "delta", "postgresql")
ALL_KINDS = (*KINDS, "clickhouse")


class Died(BaseException):
    """The end of a process, as its target sees it."""


@pytest.fixture
def server(request: pytest.FixtureRequest) -> str:
    """The address of PostgreSQL."""
    address: str = request.getfixturevalue("postgresql")
    return address


@pytest.fixture(params=ALL_KINDS)
def export(request: pytest.FixtureRequest, life: typed_life.Life, tmp_path: Path) -> Exported:
    server = request.getfixturevalue("postgresql") if request.param == "postgresql" else ""
    return exported(request.param, life.layout, tmp_path, server)


def is_proved(export: Exported) -> bool:
    with open_target(export.config, export.layout) as target:
        comparison = compare(export.layout, export.config, target)
        assert comparison.table.rows > 0
        return comparison.is_equal and not comparison.batches_behind and not comparison.deletions_behind


def is_proved_behind(export: Exported) -> bool:
    with open_target(export.config, export.layout) as target:
        comparison = compare(export.layout, export.config, target)
        return comparison.is_equal and comparison.batches_behind == 1


def test_target_has_batches_without_deleted_rows(life: typed_life.Life, export: Exported) -> None:
    assert export.step() == 2 * EVENTS
    assert export.uuids() == uuids(0, 1)
    land(life, 2)
    compact_all(life.layout)
    delete(life.layout, "uuid in ('0-1', '2-1')")
    assert export.step() == EVENTS - 1
    assert export.uuids() == sorted({*uuids(0, 1, 2)} - {"0-1", "2-1"})
    assert is_proved(export)


def test_lost_rows_that_land_again_are_in_the_target_once(life: typed_life.Life, export: Exported) -> None:
    export.step()
    lose_and_reland(life, 2)
    assert is_proved_behind(export)
    assert export.step() == 2 * EVENTS
    assert export.uuids() == uuids(0, 1, 2)
    assert is_proved(export)


@pytest.mark.parametrize("kind", KINDS)
def test_deletions_by_a_field_of_data_reach_targets_of_typed_tables(
    life: typed_life.Life, tmp_path: Path, kind: str, server: str
) -> None:
    export = exported(kind, life.layout, tmp_path, server, source="events_click")
    export.step()
    delete(life.layout, "data.path = '/3'")
    export.step()
    assert export.uuids() == [uuid for uuid in uuids(0, 1) if not uuid.endswith("-3")]
    assert is_proved(export)


@pytest.mark.parametrize("kind", KINDS)
def test_refill_of_a_typed_table_copies_all_rows_again(
    life: typed_life.Life, tmp_path: Path, kind: str, server: str
) -> None:
    export = exported(kind, life.layout, tmp_path, server, source="events_click")
    assert export.step() == 2 * EVENTS
    refill(life.layout, life.tables[0])
    assert export.step() == 2 * EVENTS
    assert export.uuids() == uuids(0, 1)
    assert is_proved(export)
    assert export.step() == 0


def test_rows_of_retention_stay_if_it_is_not_exported(life: typed_life.Life, tmp_path: Path) -> None:
    export = exported("duckdb", life.layout, tmp_path, retention=False)
    export.step()
    delete(life.layout, "uuid = '0-1'")
    request_deletion(life.layout, RETENTION, parse_conditions("uuid = '0-2'"))
    execute_deletions(life.layout, typed_life.WINDOW)
    export.step()
    assert export.uuids() == [uuid for uuid in uuids(0, 1) if uuid != "0-1"]
    assert is_proved(export)


def test_retention_that_is_not_exported_is_stored_before_the_target_has_the_step(
    life: typed_life.Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = exported("duckdb", life.layout, tmp_path, retention=False)
    export.step()
    request_deletion(life.layout, RETENTION, parse_conditions("uuid = '0-2'"))
    execute_deletions(life.layout, typed_life.WINDOW)
    apply = duckdb_file.DuckdbTarget.apply

    def apply_and_die(*arguments: Any) -> int:
        apply(*arguments)
        raise Died

    with monkeypatch.context() as killed:
        killed.setattr(duckdb_file.DuckdbTarget, "apply", apply_and_die)
        with pytest.raises(Died):
            export.step()
    export.step()
    assert export.uuids() == uuids(0, 1)
    (deletion,) = DeletionRecord(life.layout).runs_since(0)
    assert read_document(life.layout.exports / "copy.json")["applied"]["skipped"] == [deletion[0].number]


@pytest.mark.survives("export", "changed configuration")
def test_added_columns_of_typed_tables_are_added(life: typed_life.Life, tmp_path: Path, server: str) -> None:
    exports = [exported(kind, life.layout, tmp_path, server, source="events_click") for kind in KINDS]
    for export in exports:
        export.step()
    wider = TypedTable("click", "click", (*life.tables[0].columns, Column("tags", "array<string>", "tags")))
    again = typed_life.Life(life.layout, (wider,))
    again.land(2, [source([(20, typed_life.event("new", path="/", tags=["a\tb\\", None]))])], landed_at=AT + 2)
    for export in exports:
        assert export.step() == 1
    table = exports[2].config.table
    assert read_duckdb(tmp_path / "copy.duckdb", "select tags from rows where uuid = 'new'") == [(["a\tb\\", None],)]
    assert read_postgresql(server, f"select tags from {table} where uuid = 'new'") == [(["a\tb\\", None],)]
    assert ("new", ["a\tb\\", None]) in read_delta(tmp_path / "copy", ("uuid", "tags"))


NASTY = "tab\t quote' \" back\\slash \\. \n\\.\n nul\0 \u2028 é"


def test_any_text_arrives_as_it_is(tmp_path: Path, server: str) -> None:
    life = typed_life.Life(Layout.for_tables(tmp_path / "tables"))
    life.land(0, [source([(0, NASTY.encode()), (1, b"\xff\0\\x")], annotations=[{"a\tb": NASTY}, {}])], landed_at=AT)
    exports = {kind: exported(kind, life.layout, tmp_path, server, source="landed") for kind in ALL_KINDS}
    for export in exports.values():
        export.step()
        assert is_proved(export)
    table = exports["postgresql"].config.table
    query = 'select payload, annotations from {} order by "offset"'
    expected = [(NASTY.encode(), {"a\tb": NASTY}), (b"\xff\0\\x", {})]
    assert read_postgresql(server, query.format(table)) == expected
    assert read_duckdb(tmp_path / "copy.duckdb", query.format("rows")) == expected
    hexed = 'select hex(payload), annotations from rows order by "offset"'
    assert read_clickhouse(tmp_path / "copy.clickhouse", hexed) == [(a.hex().upper(), b) for a, b in expected]
    copied = dict(read_delta(tmp_path / "copy", ("payload", "annotations")))
    assert copied == {payload: list(pairs.items()) for payload, pairs in expected}


class Dying:
    """A connection whose process ends at the n-th call of a method that reaches the target."""

    def __init__(self, connection: Any, calls: Iterator[int], at: int) -> None:
        self._connection, self._calls, self._at = connection, calls, at

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._connection, name)
        if not callable(attribute) or name in ("close", "register", "unregister"):
            return attribute

        def call(*arguments: Any, **keys: Any) -> Any:
            if next(self._calls) == self._at:
                raise Died
            returned = attribute(*arguments, **keys)
            # The answer to a commit may be lost, too.
            if name == "commit" and next(self._calls) == self._at:
                raise Died
            return returned

        return call


@contextmanager
def dying_at(number: int, client: Any) -> Iterator[None]:
    """End a step at the n-th call of any target; chdb has one session, which stays open."""

    opened: list[Any] = []

    def counted(connect: Callable[..., Any], calls: Iterator[int]) -> Callable[..., Any]:
        def open_dying(*arguments: Any, **keys: Any) -> Dying:
            opened.append(connect(*arguments, **keys))
            return Dying(opened[-1], calls, number)

        return open_dying

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duckdb_file.duckdb, "connect", counted(duckdb.connect, iter(range(1000))))
        patch.setattr(clickhouse.clickhouse_connect, "get_client", counted(lambda *_, **__: client, iter(range(1000))))
        calls = {"postgresql": iter(range(1000)), "delta": iter(range(1000))}

        def wrap(owner: Any, name: str, kind: str, *, also_after: bool = False) -> None:
            original = getattr(owner, name)

            def call(*arguments: Any, **keys: Any) -> Any:
                if next(calls[kind]) == number:
                    raise Died
                returned = original(*arguments, **keys)
                if also_after and next(calls[kind]) == number:
                    raise Died
                return returned

            patch.setattr(owner, name, call)

        wrap(psycopg.Connection, "execute", "postgresql")
        wrap(psycopg.Copy, "write", "postgresql")
        wrap(psycopg.Transaction, "__exit__", "postgresql", also_after=True)
        wrap(delta_copy, "write_files", "delta", also_after=True)
        wrap(delta_copy.CopiedTable, "_write", "delta", also_after=True)
        try:
            yield
        finally:
            # As the kernel does it for a process that ended.
            for connection in opened:
                connection.close()


def test_step_that_ends_at_any_call_is_done_once_by_the_next(
    life: typed_life.Life, tmp_path: Path, server: str
) -> None:
    exports = {kind: exported(kind, life.layout, tmp_path, server) for kind in ALL_KINDS}
    client = clickhouse_connect.get_client(dsn=f"chdb://{tmp_path}/copy.clickhouse")
    close, client.close = client.close, lambda: None
    open_kinds, expected, number = {*ALL_KINDS}, {*uuids(0, 1)}, 0
    try:
        while open_kinds:
            for kind in sorted(open_kinds):
                if kind == "clickhouse" and number % 2:
                    continue  # half of its calls, because each takes long
                before = copied(exports[kind], client)
                try:
                    with dying_at(number, client):
                        exports[kind].step()
                    open_kinds.discard(kind)
                except Died:
                    if kind != "clickhouse":
                        assert copied(exports[kind], client) in (before, sorted(expected)), f"{kind}, call {number}"
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(clickhouse.clickhouse_connect, "get_client", lambda *_, **__: client)
                    exports[kind].step()
                assert copied(exports[kind], client) == sorted(expected), f"{kind}, call {number}"
            batch, number = number + 2, number + 1
            land(life, batch)
            delete(life.layout, f"uuid = '{batch - 1}-0'")
            expected = (expected | {*uuids(batch)}) - {f"{batch - 1}-0"}
            for kind in {*ALL_KINDS} - open_kinds:
                exports.pop(kind, None)
        assert number > 10, "each target is called several times"
    finally:
        close()


def copied(export: Exported, client: Any) -> list[str]:
    """Return the uuids in a target, as far as it exists."""
    if export.config.scheme == "chdb":
        if not client.query("exists table rows").result_rows[0][0]:
            return []
        return sorted(str(row[0]) for row in client.query("select uuid from rows").result_rows)
    try:
        return export.uuids()
    except Exception:  # noqa: BLE001 - each reader has its own error for a table that does not exist yet
        return []


@pytest.mark.survives("export", "SIGKILL")
def test_rows_that_a_killed_sender_left_in_clickhouse_are_removed(life: typed_life.Life, tmp_path: Path) -> None:
    export = exported("clickhouse", life.layout, tmp_path)
    export.step()
    with clickhouse_connect.get_client(dsn=f"chdb://{tmp_path}/copy.clickhouse") as client:
        client.command("insert into rows select * except penstock_step, 7 from rows limit 3")
    assert len(export.uuids()) == 2 * EVENTS + 3
    land(life, 2)
    export.step()
    assert export.uuids() == uuids(0, 1, 2)


def test_two_processes_do_not_copy_a_batch_twice(life: typed_life.Life, tmp_path: Path) -> None:
    export = exported("duckdb", life.layout, tmp_path)
    changes = read_changes(life.layout, "events")
    export.step()
    with open_target(export.config, life.layout) as target, pytest.raises(TargetMoved):
        target.apply(changes, changes.deleted, None)
    assert export.uuids() == uuids(0, 1)


@pytest.mark.survives("export", "foreign writer")
def test_first_step_replaces_no_rows_of_others(life: typed_life.Life, export: Exported) -> None:
    export.step()
    other = replace(export, config=export.config.model_copy(update={"name": "other"}))
    with pytest.raises(TargetInUse, match="`penstock export rebuild other --yes`"):
        other.step()
    land(life, 2)
    assert export.step() == EVENTS
    assert export.uuids() == uuids(0, 1, 2)
    assert is_proved(export)
    with open_target(other.config, life.layout) as target:
        target.forget()
    assert other.step() == 3 * EVENTS
    assert other.uuids() == uuids(0, 1, 2)


@pytest.fixture
def second(export: Exported, tmp_path: Path) -> Exported:
    """The export of another Penstock, with the same name, target and table, and one batch more."""
    life = typed_life.Life(Layout.for_tables(tmp_path / "second"))
    for batch in range(3):
        land(life, batch)
    return replace(export, layout=life.layout)


@pytest.mark.survives("export", "foreign writer")
def test_export_of_another_penstock_under_its_name_is_refused(
    life: typed_life.Life, export: Exported, second: Exported
) -> None:
    export.step()
    with pytest.raises(TargetOwned, match=r"another Penstock.* give export .* `penstock export rebuild .* --yes`"):
        second.step()
    assert "another Penstock" in read_failure(second)
    land(life, 2)
    delete(life.layout, "uuid = '0-1'")
    export.step()
    assert export.uuids() == sorted({*uuids(0, 1, 2)} - {"0-1"})
    assert is_proved(export)
    with open_target(second.config, second.layout) as target:
        target.forget()
    with pytest.raises(TargetOwned, match="another Penstock"):
        export.step()
    assert second.step() == 3 * EVENTS
    assert second.uuids() == uuids(0, 1, 2)
    with pytest.raises(TargetOwned, match="another Penstock"):
        export.step()
    assert is_proved(second)


def read_failure(export: Exported) -> str:
    """Return what ``penstock export list`` says of an export whose step fails in its thread."""
    exporter = export.exporter()
    exporter.start()
    exporter.request_stop()
    assert exporter.join(60)
    return str(read_state(export.layout, export.config.name)["failure"])


@pytest.mark.survives("export", "foreign writer")
@pytest.mark.parametrize("export", KINDS[1:], indirect=True)
def test_first_steps_of_two_penstocks_do_not_mix(export: Exported, second: Exported) -> None:
    """The other one commits when the first look at the position is over."""
    owner, name = {
        "delta": (delta_copy.CopiedTable, "_write"),
        "postgresql": (postgresql.PostgresqlTarget, "_make_table"),
    }[export.config.scheme]
    original = getattr(owner, name)
    with pytest.MonkeyPatch.context() as patch:

        def call(*arguments: Any, **keys: Any) -> Any:
            patch.undo()
            export.step()
            return original(*arguments, **keys)

        patch.setattr(owner, name, call)
        with pytest.raises((TargetMoved, TargetOwned), match="another"):
            second.step()
    assert export.uuids() == uuids(0, 1)
    assert is_proved(export)


@pytest.mark.parametrize("kind", ["duckdb", "postgresql", "clickhouse"])
def test_positions_of_an_earlier_version_are_continued(
    life: typed_life.Life, tmp_path: Path, kind: str, server: str
) -> None:
    export = exported(kind, life.layout, tmp_path, server)
    export.step()
    land(life, 2)
    drop = "alter table penstock_exports drop column {}"
    if kind == "duckdb":
        with duckdb.connect(export.config.path) as connection:
            columns = "name varchar primary key, source varchar, batch bigint, deletion bigint, start bigint"
            connection.execute(f"create table earlier ({columns}, landed_at bigint)")
            connection.execute("insert into earlier select * exclude (target_table, owner) from penstock_exports")
            connection.execute("drop table penstock_exports")
            connection.execute("alter table earlier rename to penstock_exports")
    elif kind == "postgresql":
        with psycopg.connect(server) as connection:
            for column in ("target_table", "owner"):
                connection.execute(drop.format(column))  # type: ignore[arg-type]
    else:
        with clickhouse_connect.get_client(dsn=f"chdb://{export.config.path}") as client:
            for column in ("target_table", "owner"):
                client.command(drop.format(column))
    assert is_proved_behind(export)
    assert export.step() == EVENTS
    assert export.uuids() == uuids(0, 1, 2)
    assert is_proved(export)


@pytest.mark.survives("export", "changed configuration")
def test_export_of_another_source_replaces_all_rows(life: typed_life.Life, export: Exported) -> None:
    export.step()
    other = replace(export, config=export.config.model_copy(update={"source": "events_click"}))
    assert other.step() == 2 * EVENTS
    assert is_proved(other)
    assert other.step() == 0
    other = replace(export, config=export.config.model_copy(update={"source": "landed"}))
    if export.config.scheme == "delta":
        with pytest.raises(TargetAway, match="has folders of another source: give export copy an address of its own"):
            other.step()
    else:
        assert other.step() == 2 * EVENTS + 2
        assert is_proved(other)


@pytest.mark.survives("export", "changed configuration")
@pytest.mark.parametrize("export", ["duckdb", "postgresql", "clickhouse"], indirect=True)
def test_export_into_another_table_copies_all_rows(life: typed_life.Life, export: Exported) -> None:
    export.step()
    table = f"{export.config.table}_2"
    other = replace(export, config=export.config.model_copy(update={"table": table}))
    assert other.step() == 2 * EVENTS
    assert is_proved(other)


@pytest.mark.survives("export", "foreign writer")
@pytest.mark.parametrize("kind", KINDS)
def test_altered_rows_are_found_and_a_rebuild_replaces_them(
    life: typed_life.Life, tmp_path: Path, kind: str, server: str
) -> None:
    export = exported(kind, life.layout, tmp_path, server)
    with open_target(export.config, life.layout) as target, pytest.raises(NotComparable, match="nothing was copied"):
        compare(life.layout, export.config, target)
    export.step()
    if kind == "duckdb":
        with duckdb.connect(export.config.path) as connection:
            connection.execute("update rows set uuid = 'other' where uuid = '0-1'")
    elif kind == "postgresql":
        with psycopg.connect(server) as connection:
            connection.execute(f"delete from {export.config.table} where uuid = '0-1'")  # type: ignore[arg-type]
    else:
        deltalake.DeltaTable(export.config.path).delete("uuid = '0-1'")
    assert not is_proved(export)
    with open_target(export.config, life.layout) as target:
        target.forget()
    assert export.step() == 2 * EVENTS
    assert is_proved(export)


LISTED_TWICE = [add_without_vector, lambda folder, name: delete_again_without_vector(folder, name, [0, 1])]


@pytest.mark.survives("export", "foreign writer")
@pytest.mark.parametrize("faulty", LISTED_TWICE, ids=["one vector", "two vectors"])
def test_file_of_a_delta_copy_that_another_program_lists_twice_waits_for_a_rebuild(
    life: typed_life.Life, tmp_path: Path, faulty: Callable[[Path, str], int]
) -> None:
    """delta-rs would read one of the entries: rows that were deleted would be in the copy again, for good."""
    export, copy = exported("delta", life.layout, tmp_path), tmp_path / "copy"
    export.step()
    name = pa.table(deltalake.DeltaTable(str(copy)).get_add_actions())["path"][0].as_py()
    delete_by_vector(copy, name, [0])
    faulty(copy, name)
    version = deltalake.DeltaTable(str(copy)).version()
    land(life, 2)
    with pytest.raises(VectorNotApplicable, match=r"is in the table 2 times.*`penstock export rebuild .* --yes`"):
        export.step()
    assert deltalake.DeltaTable(str(copy)).version() == version
    with open_target(export.config, life.layout) as target:
        target.forget()
    assert export.step() == 3 * EVENTS
    assert is_proved(export)
    assert sorted(pl.scan_delta(str(copy)).collect()["uuid"]) == uuids(0, 1, 2)


@pytest.mark.survives("export", "foreign writer")
@pytest.mark.parametrize("is_restored", [True, False])
def test_delta_copy_into_which_deleted_rows_came_back_is_copied_again(
    life: typed_life.Life, tmp_path: Path, is_restored: bool, caplog: pytest.LogCaptureFixture
) -> None:
    export, copy = exported("delta", life.layout, tmp_path), str(tmp_path / "copy")
    export.step()
    version, rows = deltalake.DeltaTable(copy).version(), deltalake.DeltaTable(copy).to_pyarrow_table()
    delete(life.layout, "uuid = '0-1'")
    land(life, 2)
    export.step()
    remaining = [uuid for uuid in uuids(0, 1, 2) if uuid != "0-1"]
    assert export.uuids() == remaining
    if is_restored:
        deltalake.DeltaTable(copy).restore(version)
    else:
        deltalake.write_deltalake(copy, rows.filter(pc.field("uuid") == "0-1"), mode="append")
    assert "0-1" in export.uuids()
    newest = deltalake.DeltaTable(copy).history(1)[0]
    export.step()
    assert export.uuids() == remaining
    assert f"version {newest['version']} of delta:{copy} is {newest['operation']} of" in caplog.text
    assert is_proved(export)
    assert export.step() == 0


def test_rows_that_another_program_changes_in_a_delta_copy_stay_changed(life: typed_life.Life, tmp_path: Path) -> None:
    export, copy = exported("delta", life.layout, tmp_path), str(tmp_path / "copy")
    export.step()
    deltalake.DeltaTable(copy).update({"host": "'changed'"}, predicate="uuid = '0-1'")
    land(life, 2)
    assert export.step() == EVENTS
    rows = deltalake.DeltaTable(copy).to_pyarrow_table(columns=["uuid", "host"]).to_pylist()
    assert [row["uuid"] for row in rows if row["host"] == "changed"] == ["0-1"]


def test_small_files_of_a_delta_copy_are_merged(life: typed_life.Life, tmp_path: Path) -> None:
    export = exported("delta", life.layout, tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta_copy, "MERGED_FILES", 3)
        patch.setattr("penstock.upkeep.export.exporter.UPKEEP_INTERVAL_S", 0.0)
        for batch in range(2, 5):
            export.step()
            land(life, batch)
        export.step()
    assert len(list((tmp_path / "copy").glob("date=*/*.parquet"))) > 3
    assert len(deltalake.DeltaTable(str(tmp_path / "copy")).file_uris()) <= 3
    assert export.uuids() == uuids(0, 1, 2, 3, 4)
    assert export.step() == 0
    assert is_proved(export)


@pytest.mark.survives("export", "peer away")
def test_target_that_is_away_is_reported_once_and_retried(
    life: typed_life.Life, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no").write_text("a file, and no folder")
    config = ExportConfig(name="copy", to=f"duckdb:{tmp_path}/no/copy.duckdb")
    exporters = Exporters(life.layout, [config], lambda hours: None)
    monkeypatch.setattr(exporters._exporters[0], "_config", config.model_copy(update={"every": 0.01}))
    exporters.start()
    wait_until(lambda: "export copy: not up to date" in caplog.text, 60)
    wait_until(lambda: read_state(life.layout, "copy")["failure"] != "", 60)
    (tmp_path / "no").unlink()
    wait_until(lambda: read_state(life.layout, "copy")["batch"] == 1, 60)
    assert exporters.stop(60)
    assert read_state(life.layout, "copy")["failure"] == ""
    assert sum("not up to date" in message for message in caplog.messages) == 1


@pytest.fixture
def link(server: str) -> Iterator[Link]:
    """A link to PostgreSQL over TCP."""
    (folder,) = parse_qs(urlsplit(server).query)["host"]
    link = Link("127.0.0.1", f"{folder}/.s.PGSQL.5432")
    yield link
    link.close()


@pytest.mark.survives("export", "slow peer")
def test_target_that_does_not_answer_delays_neither_other_exports_nor_the_end(
    life: typed_life.Life, tmp_path: Path, server: str, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent, fast = exported("postgresql", life.layout, tmp_path, server), exported("duckdb", life.layout, tmp_path)
    address = f"postgresql://postgres@{link.address}/postgres"
    configs = [silent.config.model_copy(update={"to": address}), fast.config]
    exporters = Exporters(life.layout, configs, lambda hours: None)
    for exporter in exporters._exporters:
        monkeypatch.setattr(exporter, "_config", exporter._config.model_copy(update={"every": 0.01}))
    exporters.start()
    wait_until(lambda: read_state(life.layout, silent.config.name)["batch"] == 1, 60)
    link.is_up.clear()
    land(life, 2)
    wait_until(lambda: read_state(life.layout, "copy")["batch"] == 2, 60)
    assert not exporters.stop(0.1)
    assert read_state(life.layout, silent.config.name)["batch"] == 1
    link.is_up.set()
    assert exporters.stop(60)
    assert silent.uuids() == fast.uuids() == uuids(0, 1, 2)


def test_server_whose_host_vanished_is_given_up(life: typed_life.Life, tmp_path: Path, server: str, link: Link) -> None:
    """Without these limits, TCP waits two hours for an answer.

    TCP_USER_TIMEOUT must stay 0: with it, Linux gives up a server that acknowledges and reads nothing for this time.
    """
    for options, idle_s in (("", 60), ("?keepalives_idle=7", 7)):
        address = f"postgresql://postgres@{link.address}/postgres{options}"
        with open_target(ExportConfig(name="copy", to=address, table="t"), life.layout) as target:
            assert isinstance(target, postgresql.PostgresqlTarget)
            with socket.socket(fileno=os.dup(target._connection.fileno())) as connection:
                names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
                limits = [connection.getsockopt(socket.IPPROTO_TCP, name) for name in names]
        assert limits == [idle_s, 10, 6, 0]


def test_restart_calls_no_export_up_to_date_whose_target_is_away(life: typed_life.Life, tmp_path: Path) -> None:
    (tmp_path / "no").write_text("a file, and no folder")
    config = ExportConfig(name="away", to=f"duckdb:{tmp_path}/no/copy.duckdb", every=3600)
    life.layout.exports.mkdir(parents=True)
    write_document(life.layout.exports / "away.json", {"at": 1_770_000_000.5, "source": config.source})
    exporters = Exporters(life.layout, [config], lambda hours: None)
    exporters.start()
    until = read_state(life.layout, "away")["until"]
    assert exporters.stop(30)
    assert (until, read_state(life.layout, "away")["until"]) == ("2026-02-02T02:40:00+00:00",) * 2


def test_export_is_up_to_date_while_nothing_has_landed(tmp_path: Path) -> None:
    layout = Layout.for_tables(tmp_path / "tables")
    config = ExportConfig(name="early", to=f"duckdb:{tmp_path}/copy.duckdb")
    layout.exports.mkdir(parents=True)
    write_document(layout.exports / "early.json", {"at": 1_770_000_000.5, "source": config.source})
    start = int(time.time())
    assert Exporter(layout, config, lambda hours: None).step() == 0
    assert datetime.fromisoformat(read_state(layout, "early")["until"]).timestamp() >= start


def test_thread_exports_what_landed_last_before_it_stops(life: typed_life.Life, tmp_path: Path) -> None:
    export = exported("duckdb", life.layout, tmp_path, every=3600)
    life.layout.exports.mkdir(parents=True)
    (life.layout.exports / "gone.json").write_text("{}")
    exporters = Exporters(life.layout, [export.config], lambda hours: None)
    exporters.start()
    assert exporters.stop(60)
    assert export.uuids() == uuids(0, 1)
    assert [path.name for path in life.layout.exports.iterdir()] == ["copy.json"], "others are no longer late"


def test_password_is_not_in_errors(life: typed_life.Life, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("hidden-word\n")
    file.chmod(0o600)
    for address in ("postgresql://penstock@127.0.0.1:1/shop", "clickhouse://penstock@127.0.0.1:1/shop"):
        config = ExportConfig(name="copy", to=address, password_file=file)
        with pytest.raises(TargetAway) as away:
            Exporter(life.layout, config, lambda hours: time.time()).step()
        assert "hidden-word" not in str(away.value)
        assert "127.0.0.1" in str(away.value)


def test_daemon_and_pipeline_name_one_folder_of_states(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    assert settings.export_states == Layout.for_tables(settings.tables).exports


@pytest.mark.survives("export", "damaged bytes")
@given(state=binary(max_size=64))
def test_any_state_is_read_or_called_damaged(tmp_path_factory: pytest.TempPathFactory, state: bytes) -> None:
    layout = Layout.for_tables(tmp_path_factory.mktemp("tables"))
    layout.exports.mkdir(parents=True)
    (layout.exports / "copy.json").write_bytes(state)
    assert read_state(layout, "copy") == {
        "batch": -1,
        "until": "",
        "failure": "its state is damaged: the next step writes it again",
    }


def test_typed_table_without_a_batch_is_waited_for(life: typed_life.Life, tmp_path: Path) -> None:
    export = exported("duckdb", life.layout, tmp_path, source="events_order")
    assert export.step() == 0


@pytest.mark.survives("export", "SIGKILL")
@pytest.mark.survives("export", "changed configuration")
@pytest.mark.parametrize("kind", KINDS)
def test_columns_that_widen_during_kills_have_each_number_once(tmp_path: Path, kind: str, server: str) -> None:
    """The sums are exact: a row that is lost, doubled, or cut to 32 bits would change them."""
    layout = Layout.for_tables(tmp_path / "tables")
    land_narrow_or_wide(layout, NARROW, 0, 1 << 30)
    export = exported(kind, layout, tmp_path, server, source="events_click", name="rows")
    arguments = (str(tmp_path / "tables"), export.config.to, export.config.table or export.config.name)
    with killed_lives("tests.upkeep.export.widened_life") as lives:
        for kill in range(4):
            lives.kill(0.2 + 0.13 * kill, *arguments, -1)
        first_wide = table_of(layout).newest() + 1
        refill(layout, WIDE)
        for kill in range(5):
            lives.kill(0.1 + 0.13 * kill, *arguments, first_wide)
    Exporter(layout, export.config, lambda hours: None).step()
    batches = range(table_of(layout).newest() + 1)
    assert batches.stop > first_wide > 1
    expected = [number_of(batch, row, first_wide) for batch in batches for row in range(20)]
    prices = sum((Decimal(f"{b}.0001" if b >= first_wide else f"{b}.25") for b in batches), Decimal(0)) * 20
    sums = "select count(*), count(distinct uuid), sum(ms), sum(price) from {}"
    if kind == "postgresql":
        totals = read_postgresql(server, sums.format(export.config.table))
    elif kind == "duckdb":
        totals = read_duckdb(tmp_path / "copy.duckdb", sums.format("rows"))
    else:
        rows = deltalake.DeltaTable(str(tmp_path / "copy")).to_pyarrow_table()
        totals = duckdb.sql(sums.format("rows")).fetchall()
        assert rows.schema.field("ms").type == pa.int64()
    assert totals == [(len(expected), len(expected), sum(expected), prices)]
    assert is_proved(export)


def test_columns_of_clickhouse_widen(life: typed_life.Life, tmp_path: Path) -> None:
    layout = Layout.for_tables(tmp_path / "widened")
    land_narrow_or_wide(layout, NARROW, 0, 1 << 30)
    export = exported("clickhouse", layout, tmp_path, source="events_click")
    export.step()
    own_type = "LowCardinality(Nullable(String))"
    with clickhouse_connect.get_client(dsn=f"chdb://{tmp_path / 'copy.clickhouse'}") as client:
        client.command(f"alter table rows modify column uuid {own_type}")
    refill(layout, WIDE)
    land_narrow_or_wide(layout, WIDE, 1, 1)
    export.step()
    expected = sum(number_of(batch, row, 1) for batch in (0, 1) for row in range(20))
    query = "select count(), sum(ms), toString(sum(price)) from rows"
    assert read_clickhouse(tmp_path / "copy.clickhouse", query) == [(40, expected, "25.002")]
    query = "select type from system.columns where table = 'rows' and name = 'uuid'"
    assert read_clickhouse(tmp_path / "copy.clickhouse", query) == [(own_type,)]


def test_own_type_of_the_owner_of_a_target_stays(life: typed_life.Life, tmp_path: Path, server: str) -> None:
    """A text that does not fit the owner's varchar stops the step as a whole; once it is wider, each row comes once."""
    export = exported("postgresql", life.layout, tmp_path, server)
    export.step()
    with psycopg.connect(server) as connection:
        alter = f"alter table {export.config.table} alter column uuid type varchar({{}})"
        connection.execute(alter.format(3))  # type: ignore[arg-type]
        connection.commit()
        land(life, 2)
        life.land(3, [source([(40, typed_life.event("longer", path="/"))])], landed_at=AT + 3)
        with pytest.raises(TargetAway, match="value too long for type character varying"):
            export.step()
        assert export.uuids() == uuids(0, 1)
        connection.execute(alter.format(20))  # type: ignore[arg-type]
        connection.commit()
    assert export.step() == EVENTS + 1
    assert export.uuids() == sorted([*uuids(0, 1, 2), "longer"])
    query = (
        f"select atttypmod from pg_attribute where attrelid = '{export.config.table}'::regclass and attname = 'uuid'"
    )
    assert read_postgresql(server, query) == [(24,)]


def test_structs_are_json_in_clickhouse(tmp_path: Path) -> None:
    """ClickHouse makes a text without names of a tuple, and ``(NULL)`` of a null."""
    columns = (Column("user", "struct<id:string,n:int>", "user"), Column("all", "array<struct<n:int>>", "all"))
    layout = Layout.for_tables(tmp_path / "tables")
    payloads = [typed_life.event("a", user={"id": "x"}, all=[{"n": 1}, None]), typed_life.event("b")]
    typed_life.Life(layout, [TypedTable("click", "click", columns)]).land(0, [source(list(enumerate(payloads)))])
    exported("clickhouse", layout, tmp_path, source="events_click").step()
    rows = read_clickhouse(tmp_path / "copy.clickhouse", 'SELECT user, "all" FROM rows ORDER BY "offset"')
    assert rows == [('{"id":"x","n":null}', ['{"n":1}', None]), (None, [])]
