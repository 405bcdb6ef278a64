"""The check of an export names every row that another program altered, removed or added in the target, and no other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import clickhouse_connect
import deltalake
import duckdb
import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import RETENTION, request_deletion
from penstock.landing.table_paths import Layout
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import TypedTable
from penstock.upkeep.changes import DELETED, Changes, Position
from penstock.upkeep.deletion.removal import execute_deletions
from penstock.upkeep.export import check, duckdb_file, row_differences
from penstock.upkeep.export.check import Comparison, compare
from penstock.upkeep.export.clickhouse import ClickhouseTarget
from penstock.upkeep.export.exporter import open_target
from penstock.upkeep.export.row_differences import RangeSums, comparable
from penstock.upkeep.export.target import TargetAway
from tests.engines.library_operations import append, other_rows
from tests.landing.typed import typed_life
from tests.landing.writing.messages import AT, source
from tests.upkeep.export.exported import Exported, exported
from tests.upkeep.test_changes import EVENTS, delete, land

ALL_KINDS = ("duckdb", "delta", "postgresql", "clickhouse")
COLUMNS = {
    "word": "string",
    "small": "int",
    "big": "bigint",
    "share": "double",
    "price": "decimal(20,8)",
    "day": "date",
    "moment": "timestamp",
    "is_new": "boolean",
    "tags": "array<string>",
    "user": "struct<id:string,n:decimal(30,20)>",
    "visits": "array<struct<at:timestamp>>",
}
VALUES: list[dict[str, Any]] = [
    {},
    {"word": "", "tags": [], "user": {}, "share": -0.0, "price": "0.00000001", "visits": [None, {}]},
    {
        "word": "nul\0, \"quote\" 'and' \\N \r\n\ttab \u2028 é",
        "small": -(2**31),
        "big": 2**63 - 1,
        "share": 5e-324,
        "price": "-999999999999.99999999",
        "day": "0001-01-01",
        "moment": "9999-12-31T23:59:59.999999Z",
        "is_new": False,
        "tags": ["", None, "null", "a,b"],
        "user": {"id": None, "n": "0.00000000000000000001"},
        "visits": [{"at": "2026-01-01T00:00:00.000001+05:30"}],
    },
    {
        "word": "x",
        "small": 1,
        "big": 2,
        "share": 0.1,
        "price": 1,
        "day": "2026-01-02",
        "moment": "2026-01-02T03:04:05Z",
    },
]


def compared(export: Exported) -> Comparison:
    with open_target(export.config, export.layout) as target:
        return compare(export.layout, export.config, target)


def execute(export: Exported, statement: str) -> None:
    """Execute a statement for ``{table}`` in a database."""
    config = export.config
    if config.scheme == "duckdb":
        with duckdb.connect(config.path) as connection:
            connection.execute(statement.format(table=config.target_table))
    elif config.scheme == "chdb":
        with clickhouse_connect.get_client(dsn=f"chdb://{config.path}") as client:
            client.command(statement.format(table=config.target_table), settings={"mutations_sync": 2})
    else:
        with psycopg.connect(config.to) as connection:
            connection.execute(statement.format(table=config.target_table))  # type: ignore[arg-type]


def alter(export: Exported, column: str, value: str, where: str) -> None:
    """Set a column of rows to an SQL value."""
    if export.config.scheme == "delta":
        deltalake.DeltaTable(export.config.path).update({column: value}, predicate=where)
    elif export.config.scheme == "chdb":
        execute(export, f"ALTER TABLE {{table}} UPDATE `{column}` = {value} WHERE {where}")
    else:
        execute(export, f'UPDATE {{table}} SET "{column}" = {value} WHERE {where}')


@pytest.fixture(params=ALL_KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(request: pytest.FixtureRequest, kind: str) -> str:
    return str(request.getfixturevalue("postgresql")) if kind == "postgresql" else ""


@pytest.fixture
def export(life: typed_life.Life, tmp_path: Path, kind: str, server: str) -> Exported:
    export = exported(kind, life.layout, tmp_path, server)
    export.step()
    return export


@pytest.fixture
def typed_export(tmp_path: Path, kind: str, server: str) -> Exported:
    """An export of a typed table with a column of each type."""
    table = TypedTable("click", "click", tuple(Column(name, of, name) for name, of in COLUMNS.items()))
    life = typed_life.Life(Layout.for_tables(tmp_path / "typed"), (table,))
    payloads = [typed_life.event(f"u{number}", **values) for number, values in enumerate(VALUES)]
    life.land(0, [source(list(enumerate(payloads)), annotations=[{"a": "", "é\0": "b"}, {}, {}, {}])], landed_at=AT)
    export = exported(kind, life.layout, tmp_path, server, source="events_click")
    assert export.step() == len(VALUES)
    return export


NEW_VALUES = {
    "word": {"*": "'y'"},
    "small": {"*": "2"},
    "big": {"*": "3"},
    "share": {"*": "0.10000000000000002"},
    "price": {"*": "1.00000001"},
    "day": {"*": "DATE '2026-01-03'", "clickhouse": "toDate32('2026-01-03')"},
    "moment": {
        "*": "TIMESTAMP '2026-01-02 03:04:05.000001'",
        "postgresql": "'2026-01-02 03:04:05.000001Z'",
        "duckdb": "'2026-01-02 03:04:05.000001Z'",
        "delta": "arrow_cast('2026-01-02T03:04:05.000001Z', 'Timestamp(Microsecond, Some(\"UTC\"))')",
        "clickhouse": "toDateTime64('2026-01-02 03:04:05.000001', 6, 'UTC')",
    },
    "is_new": {"*": "true"},
    "tags": {"*": "['x']", "postgresql": "'[\"x\"]'", "delta": "make_array('x')"},
    "user": {
        "duckdb": "{{'id': NULL, 'n': 0.00000000000000000001}}",
        "postgresql": "'{{}}'",
        "clickhouse": "'{{}}'",
    },
    "uuid": {"*": "'other'"},
    "host": {"*": "''"},
    "type": {"*": "NULL"},
}


def test_altered_value_of_any_column_is_named(typed_export: Exported, kind: str) -> None:
    assert compared(typed_export).is_equal
    expected = set()
    for column, values in NEW_VALUES.items():
        if value := values.get(kind, values.get("*")):
            alter(typed_export, column, value, '"offset" = 3')
            expected.add(column)
    comparison = compared(typed_export)
    assert not comparison.is_equal
    assert comparison.ranges == 1
    assert comparison.not_compared == ()
    assert {(difference.offset, difference.kind) for difference in comparison.differences} == {(3, check.ALTERED)}
    assert {difference.column for difference in comparison.differences} == expected
    texts = {difference.column: (difference.expected, difference.present) for difference in comparison.differences}
    assert texts["word"] == ("x", "y")
    assert texts["share"] == ("0.1", "0.10000000000000002")
    assert texts["price"] == ("1.00000000", "1.00000001")
    assert texts["moment"] == ("2026-01-02 03:04:05", "2026-01-02 03:04:05.000001")


def test_text_without_another_key_is_found(export: Exported) -> None:
    """The sums of keys are equal: this difference was not seen once."""
    alter(export, "data", "'{{}}'" if export.config.scheme != "delta" else "'{}'", "uuid = '1-2'")
    comparison = compared(export)
    assert comparison.table == comparison.target
    assert not comparison.is_equal
    (difference,) = comparison.differences
    assert (difference.kind, difference.column, difference.present) == (check.ALTERED, "data", "{}")
    assert json.loads(difference.expected)["path"] == "/2"


def remove_and_add(export: Exported, removed: int, copied: int) -> None:
    """Remove the row with an offset, and add another row again, and with an offset that no row has."""
    if export.config.scheme == "delta":
        table = deltalake.DeltaTable(export.config.path)
        row = table.to_pyarrow_table().filter(pa.compute.field("offset") == copied)
        table.delete(f'"offset" = {removed}')
        added = row.set_column(row.schema.get_field_index("offset"), "offset", pa.array([999_999], pa.int64()))
        deltalake.write_deltalake(export.config.path, pa.concat_tables([row, added]), mode="append")
        return
    other = {"chdb": "* REPLACE (999999 AS offset)", "duckdb": '* REPLACE (999999 AS "offset")'}
    if select := other.get(export.config.scheme):
        execute(export, f'INSERT INTO {{table}} SELECT * FROM {{table}} WHERE "offset" = {copied}')
        execute(
            export,
            f'INSERT INTO {{table}} SELECT {select} FROM (SELECT * FROM {{table}} WHERE "offset" = {copied} LIMIT 1)',
        )
    else:
        # A row cannot come twice: PostgreSQL has a unique index.
        execute(export, "INSERT INTO {table} (topic, \"offset\", uuid) VALUES ('t', 999999, 'new')")
    is_clickhouse = export.config.scheme == "chdb"
    execute(
        export,
        ("ALTER TABLE {table} DELETE" if is_clickhouse else "DELETE FROM {table}") + f' WHERE "offset" = {removed}',
    )


def test_removed_added_and_repeated_rows_are_named(export: Exported) -> None:
    remove_and_add(export, removed=1, copied=2)
    comparison = compared(export)
    assert comparison.target.rows - comparison.table.rows == (0 if export.config.scheme.startswith("postgres") else 1)
    named = [(difference.offset, difference.kind, difference.column) for difference in comparison.differences]
    repeated = [] if export.config.scheme.startswith("postgres") else [(2, check.REPEATED, "")]
    assert named == [(1, check.MISSING, ""), *repeated, (999_999, check.ADDED, "")]


@pytest.mark.parametrize("kind", ["duckdb", "postgresql", "clickhouse"], indirect=True)
def test_columns_of_others_are_no_difference_and_dropped_ones_are(export: Exported) -> None:
    execute(export, "ALTER TABLE {table} ADD COLUMN team " + ("String" if export.config.scheme == "chdb" else "TEXT"))
    assert compared(export).is_equal
    execute(export, "ALTER TABLE {table} DROP COLUMN host")
    comparison = compared(export)
    assert {(difference.column, difference.present) for difference in comparison.differences} == {("host", "null")}
    assert len(comparison.differences) == min(2 * EVENTS, check.MAX_ROWS)


@pytest.mark.parametrize("kind", ["duckdb", "postgresql", "clickhouse"], indirect=True)
def test_column_with_a_type_of_the_owner_is_called_not_compared(export: Exported, kind: str) -> None:
    of_owner = {
        "duckdb": 'ALTER TABLE {table} ALTER COLUMN "data" TYPE JSON',
        "postgresql": 'ALTER TABLE {table} ALTER COLUMN "data" TYPE jsonb USING "data"::jsonb',
        "clickhouse": "ALTER TABLE {table} MODIFY COLUMN data String DEFAULT ''",
    }
    texts = {"postgresql": 'ALTER TABLE {table} ALTER COLUMN "uuid" TYPE varchar(99)'}
    texts["clickhouse"] = "ALTER TABLE {table} MODIFY COLUMN uuid LowCardinality(Nullable(String))"
    for statement in (of_owner[kind], texts.get(kind)):
        if statement:
            execute(export, statement)
    comparison = compared(export)
    assert comparison.is_equal
    assert comparison.not_compared == ("data",)
    alter(export, "uuid", "'other'", '"offset" = 1')
    assert [difference.column for difference in compared(export).differences] == ["uuid"]


@pytest.mark.parametrize("kind", ALL_KINDS, indirect=True)
def test_columns_that_the_owner_added_are_called_not_compared(export: Exported, kind: str) -> None:
    assert compared(export).other_columns == ()
    if kind == "delta":
        columns = [deltalake.Field("Extra", "string")]
        deltalake.DeltaTable(export.config.path).alter.add_columns(columns)
    else:
        of_kind = {"postgresql": "jsonb", "duckdb": "JSON", "clickhouse": "Nullable(String)"}[kind]
        execute(export, f'ALTER TABLE {{table}} ADD COLUMN "Extra" {of_kind}')
    comparison = compared(export)
    assert comparison.is_equal
    assert (comparison.not_compared, comparison.other_columns) == ((), ("Extra",))


@pytest.mark.parametrize("kind", ["duckdb"], indirect=True)
def test_check_of_a_duckdb_file_that_is_larger_than_its_memory_ends(
    export: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(
        export,
        "CREATE TABLE large AS SELECT range AS n, md5(range::TEXT) || repeat('x', 40) AS text FROM range(900000)",
    )
    monkeypatch.setattr(duckdb_file, "CACHE_OF_READS", "24MiB")
    with open_target(export.config, export.layout) as target:
        assert compare(export.layout, export.config, target).is_equal
        connection = target._connection  # type: ignore[attr-defined]
        assert connection.execute("SELECT count(*), max(text) IS NULL FROM large").fetchone() == (900_000, False)
        ((bytes_used,),) = connection.execute("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").fetchall()
    assert bytes_used < 24 << 20


@pytest.mark.parametrize("kind", ["duckdb", "delta"], indirect=True)
def test_row_that_another_program_inserted_is_missing_until_all_rows_are_copied(export: Exported) -> None:
    landed, uuid = str(export.layout.landed), export.uuids()[0]
    append(landed, other_rows(landed, uuid))
    assert export.step() == 0
    assert [difference.kind for difference in compared(export).differences] == [check.MISSING]
    with open_target(export.config, export.layout) as target:
        target.forget()
    export.step()
    assert compared(export).is_equal
    assert f"other-{uuid}" in export.uuids()


def test_difference_is_named_while_batches_and_deletions_wait(life: typed_life.Life, export: Exported) -> None:
    delete(life.layout, "uuid = '0-1'")
    request_deletion(life.layout, RETENTION, parse_conditions("uuid = '0-2'"))
    execute_deletions(life.layout, typed_life.WINDOW)
    land(life, 2)
    comparison = compared(export)
    assert comparison.is_equal
    assert (comparison.batches_behind, comparison.deletions_behind) == (1, 2)
    assert comparison.table.rows == 2 * EVENTS - 2
    # A waiting deletion takes its row, however it was altered.
    alter(export, "host", "'altered'", "uuid IN ('0-1', '1-3')")
    named = [(difference.kind, difference.column, difference.present) for difference in compared(export).differences]
    assert named == [(check.ALTERED, "host", "altered")]


@pytest.mark.parametrize("kind", ["duckdb", "delta"], indirect=True)
def test_row_without_a_key_is_counted(export: Exported) -> None:
    if export.config.scheme == "delta":
        row = deltalake.DeltaTable(export.config.path).to_pyarrow_table().slice(0, 1)
        for name in ("topic", "offset"):
            row = row.set_column(row.schema.get_field_index(name), name, pa.nulls(1, row.schema.field(name).type))
        deltalake.write_deltalake(export.config.path, row, mode="append")
    else:
        execute(export, "INSERT INTO {table} (uuid) VALUES ('new')")
    comparison = compared(export)
    assert not comparison.is_equal
    assert (comparison.without_key, comparison.ranges) == (1, 0)


# No other process opens a DuckDB file during a check.
@pytest.mark.parametrize("kind", ["delta", "postgresql", "clickhouse"], indirect=True)
def test_step_during_the_check_is_waited_for(
    life: typed_life.Life, export: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each target yields the rows of one position, or the check is repeated."""
    expected_rows, steps = check._expected_rows, iter([1])

    def step_first(*arguments: Any) -> Iterator[pa.RecordBatch]:
        if next(steps, None):
            delete(life.layout, "uuid = '0-1'")
            land(life, 2)
            export.step()
        return expected_rows(*arguments)

    monkeypatch.setattr(check, "_expected_rows", step_first)
    assert compared(export).is_equal


@pytest.mark.parametrize("kind", ["clickhouse"], indirect=True)
def test_step_under_way_during_the_check_is_no_difference(
    life: typed_life.Life, export: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step has removed a row of a new deletion, and not yet stored its position."""
    expected_rows, steps = check._expected_rows, iter([1])

    def fail(*_: Any) -> None:
        raise InterruptedError

    def begin_step_first(*arguments: Any) -> Iterator[pa.RecordBatch]:
        if next(steps, None):
            delete(life.layout, "uuid = '0-1'")
            with monkeypatch.context() as patch:
                patch.setattr(ClickhouseTarget, "_insert_position", fail)
                with pytest.raises(TargetAway):
                    export.step()
        return expected_rows(*arguments)

    monkeypatch.setattr(check, "_expected_rows", begin_step_first)
    comparison = compared(export)
    assert comparison.is_equal
    assert (comparison.table.rows, comparison.deletions_behind) == (2 * EVENTS - 1, 1)


OTHER_TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "small": (pa.int64(), 2**40),
    "word": (pa.binary(), b"\xff"),
    "tags": (pa.string(), "a"),
    "user": (pa.string(), "a"),
}


def overwrite(export: Exported, rows: pa.Table, folders: list[str]) -> None:
    """Replace rows and columns of a Delta table, as another program does."""
    path = export.config.path
    deltalake.write_deltalake(path, rows, mode="overwrite", schema_mode="overwrite", partition_by=folders)


@pytest.mark.parametrize("kind", ["delta"], indirect=True)
def test_column_of_delta_with_another_type_is_called_not_compared(typed_export: Exported) -> None:
    table = deltalake.DeltaTable(typed_export.config.path)
    rows, folders = table.to_pyarrow_table(), table.metadata().partition_columns
    for name, (kind, value) in OTHER_TYPES.items():
        column = pa.array([value] * rows.num_rows, kind)
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    overwrite(typed_export, rows, folders)
    comparison = compared(typed_export)
    assert comparison.is_equal
    assert sorted(comparison.not_compared) == sorted(OTHER_TYPES)
    overwrite(typed_export, rows, [])
    with pytest.raises(TargetAway, match="has folders of another source"):
        compared(typed_export)
    offsets = rows["offset"].cast(pa.string())
    overwrite(typed_export, rows.set_column(rows.schema.get_field_index("offset"), "offset", offsets), folders)
    with pytest.raises(check.NotComparable, match="the types of topic, partition, offset"):
        compared(typed_export)


def test_check_names_a_few_rows_of_a_few_ranges(export: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    alter(export, "host", "'altered'", '"offset" > 0')
    monkeypatch.setattr(row_differences, "MAX_PARTS", 2)
    monkeypatch.setattr(check, "MAX_ROWS", 3)
    comparison = compared(export)
    assert [difference.offset for difference in comparison.differences] == [1, 2, 3]


@dataclass
class Rows:
    """A source of an export with these rows."""

    schema: pa.Schema
    batches: Sequence[pa.RecordBatch]

    def read(self, *_: Any) -> Iterator[pa.RecordBatch]:
        return iter(self.batches)


TEXTS = (
    st.none()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    | st.sampled_from(["\0", "", "\\N", "NULL", "\r\n", '"'])
)
TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))
DAYS = st.dates(date(1, 1, 1))
PRICES = st.decimals(allow_nan=False, allow_infinity=False, places=8, min_value=-(10**11), max_value=10**11)
# JSON has no other numbers, and nested values come from JSON.
FINITE = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([-0.0, 5e-324, 1e20])
FLOATS = st.floats() | st.sampled_from([-0.0, 0.0, float("nan"), float("inf"), 5e-324, 1e20])
STRATEGIES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "uuid": (pa.string(), TEXTS),
    "flag": (pa.bool_(), st.booleans()),
    "small": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "big": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "share": (pa.float64(), FLOATS),
    "price": (pa.decimal128(20, 8), PRICES),
    "long": (pa.decimal128(38, 20), PRICES),
    "bytes": (pa.binary(), st.binary(max_size=8)),
    "day": (pa.date32(), DAYS),
    "moment": (pa.timestamp("us", "UTC"), TIMES),
    "pairs": (
        pa.map_(pa.string(), pa.string()),
        st.dictionaries(TEXTS.filter(lambda t: t is not None), TEXTS, max_size=3),
    ),
    "words": (pa.list_(pa.string()), st.lists(TEXTS, max_size=3)),
    "shares": (pa.list_(pa.float64()), st.lists(st.none() | FINITE, max_size=3)),
    "moments": (pa.list_(pa.timestamp("us", "UTC")), st.lists(st.none() | TIMES, max_size=3)),
    "lists": (
        pa.list_(pa.list_(pa.int32())),
        st.lists(st.none() | st.lists(st.none() | st.integers(0, 3), max_size=2), max_size=3),
    ),
    "user": (
        pa.struct([("id", pa.string()), ("n", pa.decimal128(20, 8))]),
        st.fixed_dictionaries({"id": TEXTS, "n": st.none() | PRICES}),
    ),
    "users": (
        pa.list_(pa.struct([("id", pa.string())])),
        st.lists(st.none() | st.fixed_dictionaries({"id": TEXTS}), max_size=2),
    ),
}
SCHEMA = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())]
    + [(name, kind) for name, (kind, _) in STRATEGIES.items()]
    + [("date", pa.date32())]
)
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | of for name, (_, of) in STRATEGIES.items()}), min_size=1, max_size=6
)


@settings(max_examples=15, phases=[Phase.generate], suppress_health_check=[*HealthCheck])
@given(rows=ROWS)
def test_any_value_is_read_as_it_was_written(export: Exported, rows: list[dict[str, Any]]) -> None:
    """No false alarm: what the target gives back equals what the export says that it writes."""
    keys = [{"topic": "t", "partition": number % 2 or None, "offset": number} for number in range(len(rows))]
    batch = pa.RecordBatch.from_pylist(
        [{**key, **row, "date": date(2026, 1, 1)} for key, row in zip(keys, rows, strict=True)], schema=SCHEMA
    )
    batches = [batch.slice(start, 2) for start in range(0, len(rows), 2)]
    config = export.config.model_copy(update={"name": "odd"})
    if config.scheme == "delta":
        config = config.model_copy(update={"to": f"{config.to}_odd"})
    config = config if config.scheme == "delta" else config.model_copy(update={"table": f"{config.target_table}_odd"})
    with open_target(config, export.layout) as target:
        position = target.position()
        changes = Changes(
            Position((position or Position(0)).batch + 1, 0, 0, 0),
            is_complete=True,
            deleted=DELETED.empty_table(),
            source=Rows(SCHEMA, batches),  # type: ignore[arg-type]
            names=None,
            batch_times={},
        )
        assert target.apply(changes, changes.deleted, position) == len(rows)
        target.pin()
        assert target.match_columns(SCHEMA) == (SCHEMA.names, [])
        sums = RangeSums(1)
        for expected in batches:
            sums.add(comparable(target.stored(expected)), is_expected=True)
        for present in target.read(SCHEMA):
            sums.add(comparable(present), is_expected=False)
        assert sums.differing().num_rows == 0
