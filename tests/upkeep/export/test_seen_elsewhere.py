"""Public reports on programs that copy rows into databases, each tried with an export."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import clickhouse_connect
import pytest

from penstock.landing.table_paths import Layout
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import TypedTable
from penstock.upkeep.export.check import compare
from penstock.upkeep.export.exporter import open_target
from penstock.upkeep.export.target import POSITIONS
from tests.landing.typed import typed_life
from tests.landing.writing.messages import AT, source
from tests.upkeep.export.exported import exported, read_clickhouse, read_postgresql

TEXT = "é\u2028😀"
COLUMNS = (
    Column("at", "timestamp", "at"),
    Column("day", "date", "day"),
    Column("dec", "decimal(38,10)", "dec"),
    Column("order", "string", "order"),
    Column("s", "struct<t:timestamp,dec:decimal(38,10)>", "s"),
)
DIGITS = "1234567890123456789012345678.0123456789"
ROWS = [
    {"at": "0001-01-01T00:00:00Z", "day": "0001-01-01", "dec": "-0.0000000001", "order": "\\N"},
    {"at": "9999-12-31T23:59:59.999999Z", "day": "9999-12-31", "dec": DIGITS, "order": TEXT},
    {"order": "", "s": {"t": "2026-03-08T02:30:00.000001-05:00", "dec": DIGITS}},
]


def layout_of(folder: Path) -> Layout:
    """Return tables with a typed table of ROWS."""
    layout = Layout.for_tables(folder / "tables")
    life = typed_life.Life(layout, [TypedTable("click", "click", COLUMNS)])
    rows = [(index, typed_life.event(f"u{index}", **row)) for index, row in enumerate(ROWS)]
    life.land(0, [source(rows)], landed_at=AT)
    return layout


ENVIRONMENTS = [
    ("confluentinc/kafka-connect-jdbc#745, #1398 (days and old times move with the time zone)", {}),
    ("mjfryc/mjaron-tinyloki-java#30 (bytes are read in another encoding)", {"PGCLIENTENCODING": "LATIN1"}),
    ("confluentinc/kafka-connect-jdbc#676", {"PGTZ": "America/New_York", "PGDATESTYLE": "German"}),
]


@pytest.mark.parametrize(("reference", "variables"), ENVIRONMENTS, ids=[row[0] for row in ENVIRONMENTS])
def test_postgresql_has_the_values_whatever_the_environment_says(
    reference: str, variables: dict[str, str], tmp_path: Path, postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    export = exported("postgresql", layout_of(tmp_path), tmp_path, postgresql, source="events_click")
    export.step()
    for name in variables:
        monkeypatch.delenv(name)
    at = "to_char(at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')"
    columns = f"""{at}, day::text, dec::text, "order", s->>'t', s->>'dec'"""
    rows = read_postgresql(postgresql, f'select {columns} from {export.config.table} order by "offset"')
    assert rows == [
        ("0001-01-01 00:00:00.000000", "0001-01-01", "-0.0000000001", "\\N", None, None),
        ("9999-12-31 23:59:59.999999", "9999-12-31", DIGITS, TEXT, None, None),
        (None, None, None, "", "2026-03-08 07:30:00.000001+00", DIGITS),
    ], reference


def test_rows_of_clickhouse_are_on_the_disk_before_their_position(tmp_path: Path) -> None:
    """ClickHouse/ClickHouse#35603: without settings of the table, an insert is not synced."""
    export = exported("clickhouse", layout_of(tmp_path), tmp_path, source="events_click")
    export.step()
    path = tmp_path / "copy.clickhouse"
    for table in ("rows", POSITIONS):
        ((statement,),) = read_clickhouse(path, f"show create table {table}")
        assert "fsync_after_insert = 1, fsync_part_directory = 1" in statement
    with clickhouse_connect.get_client(dsn=f"chdb://{path}") as client:
        client.command("alter table rows reset setting fsync_after_insert, fsync_part_directory")
        client.command(f"alter table {POSITIONS} modify setting fsync_after_insert = 0")
    typed_life.Life(export.layout, [TypedTable("click", "click", COLUMNS)]).land(
        1, [source([(9, typed_life.event("u9"))])], landed_at=AT + 1
    )
    export.step()
    # A table of an earlier version gets the settings; a value that its owner has chosen stays.
    assert "fsync_after_insert = 1" in read_clickhouse(path, "show create table rows")[0][0]
    assert "fsync_after_insert = 0" in read_clickhouse(path, f"show create table {POSITIONS}")[0][0]
    assert export.uuids() == ["u0", "u1", "u2", "u9"]


def test_inserts_into_clickhouse_are_answered_once_they_are_done(tmp_path: Path) -> None:
    """ClickHouse/ClickHouse#55194, #41698: a user's profile may make inserts asynchronous, and their errors silent."""
    export = exported("clickhouse", layout_of(tmp_path), tmp_path, source="events_click")
    export.step()
    with clickhouse_connect.get_client(dsn=f"chdb://{tmp_path / 'copy.clickhouse'}") as client:
        client.command("set async_insert = 1")
        client.command("set wait_for_async_insert = 0")
        with open_target(export.config, export.layout) as target:
            query = "select value from system.settings where name = 'async_insert'"
            assert target._query(query) == [("0",)]  # type: ignore[attr-defined]


def test_columns_with_long_names_are_columns_of_their_own(tmp_path: Path, postgresql: str) -> None:
    """cloudquery/cloudquery#16587, trinodb/trino#12882: PostgreSQL cuts names, so that two become one."""
    names = ["a" * 70, "a" * 69 + "b"]
    table = TypedTable("click", "click", tuple(Column(name, "string", f"f{n}") for n, name in enumerate(names)))
    life = typed_life.Life(Layout.for_tables(tmp_path / "tables"), [table])
    export = exported("postgresql", life.layout, tmp_path, postgresql, source="events_click")
    for batch in range(2):
        life.land(batch, [source([(batch, typed_life.event(f"u{batch}", f0="x", f1="y"))])], landed_at=AT + batch)
        export.step()
    with open_target(export.config, export.layout) as target:
        assert compare(export.layout, export.config, target).is_equal
    query = f"select to_jsonb(t) from {export.config.table} t"
    rows = [row for (row,) in read_postgresql(postgresql, query)]
    assert [sorted(value for name, value in row.items() if name.startswith("aaa")) for row in rows] == [["x", "y"]] * 2


RIGHTS = """<clickhouse>
<profiles><default/></profiles><quotas><default/></quotas>
<users><default>
<password></password><profile>default</profile><quota>default</quota><networks><ip>::/0</ip></networks>
<grants>
<query>GRANT SELECT, INSERT, CREATE TABLE, ALTER DELETE, ALTER COLUMN ON default.*</query>
<query>GRANT READ ON FILE</query>
</grants>
</default></users>
</clickhouse>"""
"""The rights of docs/exports.md. The database of the embedded version also looks for tables in files."""
LIMITED_STEPS = """
import sys
from pathlib import Path
import clickhouse_connect
from penstock.landing.table_paths import Layout
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import TypedTable
from penstock.upkeep.export.check import compare
from penstock.upkeep.export.exporter import open_target
from tests.landing.typed.typed_life import CLICK, Life, event
from tests.landing.writing.messages import AT, source
from tests.upkeep.export.exported import exported
from tests.upkeep.test_changes import delete

WIDER = TypedTable("click", "click", (*CLICK.columns, Column("other", "string", "other")))
layout = Layout.for_tables(Path("tables"))
export = exported("clickhouse", layout, Path.cwd(), source="events_click")
for batch, table in enumerate([CLICK, CLICK, WIDER]):
    rows = [(2 * batch + n, event(f"u{batch}-{n}", ms=n, other="x")) for n in range(2)]
    Life(layout, [table]).land(batch, [source(rows)], landed_at=AT + batch)
    export.step()
delete(layout, "uuid = 'u0-1'")
export.step()
with open_target(export.config, layout) as target:
    assert compare(layout, export.config, target).is_equal
    target.forget()
assert export.step() == 5
client = clickhouse_connect.get_client(dsn=f"chdb://{export.config.path}")
try:
    client.command("DROP TABLE rows")
except clickhouse_connect.driver.exceptions.DatabaseError:
    print("limited")
"""


def test_clickhouse_user_with_the_documented_rights_is_enough(tmp_path: Path) -> None:
    users = tmp_path / "users.xml"
    users.write_text(RIGHTS)
    # The embedded version reads this file in its working directory.
    (tmp_path / "config.xml").write_text(f"<clickhouse><users_config>{users}</users_config></clickhouse>")
    command = [sys.executable, "-c", LIMITED_STEPS]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert process.stdout == "limited\n", process.stderr
