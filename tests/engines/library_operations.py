"""Operations of other libraries on ``landed``, and what Penstock does; ``table_lines`` is a table of docs/tables.md.

``test_library_operations`` runs each of them between Penstock's commits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import deltalake
import polars as pl
import pyarrow as pa
from deltalake import CommitProperties
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from tests.engines.foreign_duckdb import duckdb_fails, duckdb_sql
from tests.engines.foreign_operations import COUNTED, DELETED_AGAIN, NAMED, REFUSED, REFUSED_BY_DELTA, TOLERATED

INSERTED = "inserted {rows} rows that Penstock did not land"


class LibraryOperation(NamedTuple):
    """A call on the table in a folder, and the result.

    ``run`` takes the folder and the version before Penstock's deletion of ``a-001``. ``rows``: how many rows the
    operation adds (positive) or removes (negative). ``words``: in the complaint or refusal.
    """

    library: str
    shown: str
    result: str
    run: Callable[[str, int], object]
    rows: int = 0
    words: str = ""


def rows_of(folder: str, uuids: Sequence[str], version: int | None = None) -> pa.Table:
    """Return rows of a version as a user reads them."""
    files = SubTreeFileSystem(folder, LocalFileSystem())
    filters = [("uuid", "in", list(uuids))]
    return deltalake.DeltaTable(folder, version=version).to_pyarrow_table(filesystem=files, filters=filters)


def other_rows(folder: str, *uuids: str) -> pa.Table:
    """Return copies of rows with other uuids, at offsets that no message has."""
    rows = rows_of(folder, uuids)
    others = pa.array([f"other-{uuid}" for uuid in rows["uuid"].to_pylist()])
    offsets = pa.array([offset + 1_000_000 for offset in rows["offset"].to_pylist()], pa.int64())
    for name, column in (("uuid", others), ("offset", offsets)):
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows


def append(folder: str, rows: Any, **options: Any) -> None:
    """Append rows by delta-rs."""
    deltalake.write_deltalake(folder, rows, mode="append", **options)


def merge(folder: str, rows: pa.Table) -> Any:
    """Return a merge of delta-rs by uuid."""
    return deltalake.DeltaTable(folder).merge(rows, "t.uuid = s.uuid", source_alias="s", target_alias="t")


def polars_merge(folder: str, rows: pa.Table) -> Any:
    """Return a merge of Polars by uuid."""
    options = {"predicate": "t.uuid = s.uuid", "source_alias": "s", "target_alias": "t"}
    return pl.DataFrame(rows).write_delta(folder, mode="merge", delta_merge_options=options)


def without(folder: str, uuid: str) -> pa.Table:
    """Return all rows but one."""
    files = SubTreeFileSystem(folder, LocalFileSystem())
    return deltalake.DeltaTable(folder).to_pyarrow_table(filesystem=files, filters=[("uuid", "!=", uuid)])


def with_team(rows: pa.Table) -> pa.Table:
    """Return rows with a column of their owner."""
    return rows.append_column("team", pa.array(["blue"] * rows.num_rows))


ONE, TWO = INSERTED.format(rows=1), INSERTED.format(rows=2)
BACK = "brought 1 deleted rows back"
OPERATIONS = (
    LibraryOperation(
        "delta-rs",
        '`write_deltalake(rows, mode="append")`',
        NAMED,
        lambda folder, _: append(folder, other_rows(folder, "a-005")),
        1,
        ONE,
    ),
    LibraryOperation(
        "delta-rs",
        'the same with `schema_mode="merge"` and a new column',
        NAMED,
        lambda folder, _: append(folder, with_team(other_rows(folder, "a-005")), schema_mode="merge"),
        1,
        ONE,
    ),
    LibraryOperation(
        "delta-rs",
        "the same with a `txn` of its own in the commit",
        NAMED,
        lambda folder, _: append(
            folder,
            other_rows(folder, "a-005"),
            commit_properties=CommitProperties(app_transactions=[deltalake.Transaction("job", 7)]),
        ),
        1,
        ONE,
    ),
    LibraryOperation(
        "delta-rs",
        "append of a row that Penstock deleted",
        DELETED_AGAIN,
        lambda folder, before: append(folder, rows_of(folder, ["a-001"], before)),
        0,
        BACK,
    ),
    LibraryOperation(
        "delta-rs",
        '`write_deltalake(rows, mode="overwrite")` with all rows but one',
        COUNTED,
        lambda folder, _: deltalake.write_deltalake(folder, without(folder, "a-011"), mode="overwrite"),
        -1,
    ),
    LibraryOperation(
        "delta-rs",
        "`DeltaTable.delete`",
        COUNTED,
        lambda folder, _: deltalake.DeltaTable(folder).delete("uuid = 'a-011'"),
        -1,
    ),
    LibraryOperation(
        "delta-rs",
        "`DeltaTable.update` of `host`",
        TOLERATED,
        lambda folder, _: deltalake.DeltaTable(folder).update({"host": "'changed'"}, predicate="uuid = 'a-005'"),
    ),
    LibraryOperation(
        "delta-rs",
        "`DeltaTable.merge` that updates one row and inserts another",
        NAMED,
        lambda folder, _: (
            merge(folder, pa.concat_tables([rows_of(folder, ["a-003"]), other_rows(folder, "a-005")]))
            .when_matched_update({"host": "'merged'"})
            .when_not_matched_insert_all()
            .execute()
        ),
        1,
        ONE,
    ),
    LibraryOperation(
        "delta-rs",
        "`DeltaTable.merge` that deletes",
        COUNTED,
        lambda folder, _: merge(folder, rows_of(folder, ["a-003"])).when_matched_delete().execute(),
        -1,
    ),
    LibraryOperation(
        "delta-rs",
        "`optimize.compact`, then `vacuum` of all old files",
        TOLERATED,
        lambda folder, _: (
            deltalake.DeltaTable(folder).optimize.compact(),
            deltalake.DeltaTable(folder).vacuum(0, dry_run=False, enforce_retention_duration=False),
        ),
    ),
    LibraryOperation(
        "delta-rs",
        '`optimize.z_order(["uuid"])`',
        TOLERATED,
        lambda folder, _: deltalake.DeltaTable(folder).optimize.z_order(["uuid"]),
    ),
    LibraryOperation(
        "delta-rs",
        "`create_checkpoint`, `cleanup_metadata`",
        TOLERATED,
        lambda folder, _: (
            deltalake.DeltaTable(folder).create_checkpoint(),
            deltalake.DeltaTable(folder).cleanup_metadata(),
        ),
    ),
    LibraryOperation(
        "delta-rs",
        "`restore` of the version before Penstock's deletion and 10 later rows",
        DELETED_AGAIN,
        lambda folder, before: deltalake.DeltaTable(folder).restore(before),
        -10,
        BACK,
    ),
    LibraryOperation(
        "delta-rs",
        "`alter.add_constraint`",
        REFUSED,
        lambda folder, _: deltalake.DeltaTable(folder).alter.add_constraint({"small": "host < 'z'"}),
        0,
        "small",
    ),
    LibraryOperation(
        "pandas",
        '`write_deltalake(frame, mode="append", schema_mode="merge")`',
        NAMED,
        lambda folder, _: append(
            # Pandas has no maps: they become lists of pairs, which delta-rs refuses.
            folder,
            other_rows(folder, "a-005", "a-006").drop_columns("annotations").to_pandas(),
            schema_mode="merge",
        ),
        2,
        TWO,
    ),
    LibraryOperation(
        "Polars",
        '`write_delta(mode="append")`',
        NAMED,
        lambda folder, _: pl.DataFrame(other_rows(folder, "a-005", "a-006")).write_delta(folder, mode="append"),
        2,
        TWO,
    ),
    LibraryOperation(
        "Polars",
        '`write_delta(mode="merge")` that updates one row and inserts another',
        NAMED,
        lambda folder, _: (
            polars_merge(folder, pa.concat_tables([rows_of(folder, ["a-003"]), other_rows(folder, "a-005")]))
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        ),
        1,
        ONE,
    ),
    LibraryOperation(
        "Polars",
        '`write_delta(mode="overwrite")` with all rows but one',
        COUNTED,
        lambda folder, _: pl.DataFrame(without(folder, "a-011")).write_delta(folder, mode="overwrite"),
        -1,
    ),
)
ANOTHER = (
    "SELECT * REPLACE ('other-' || uuid AS uuid, \"offset\" + 1000000 AS \"offset\") FROM landed WHERE uuid = 'a-005'"
)
DUCKDB_OPERATIONS = (
    LibraryOperation(
        "DuckDB", "`INSERT`", NAMED, lambda folder, _: duckdb_sql(folder, f"INSERT INTO landed {ANOTHER}"), 1, ONE
    ),
    LibraryOperation(
        "DuckDB",
        "`INSERT` of a row that Penstock deleted",
        DELETED_AGAIN,
        lambda folder, before: duckdb_sql(
            folder,
            f"INSERT INTO landed SELECT * FROM delta_scan('{folder}', version := {before}) WHERE uuid = 'a-001'",
        ),
        0,
        BACK,
    ),
    LibraryOperation(
        "DuckDB",
        "`DELETE`, `UPDATE`, `MERGE INTO`",
        REFUSED_BY_DELTA,
        lambda folder, _: [
            duckdb_fails(folder, statement)
            for statement in (
                "DELETE FROM landed WHERE uuid = 'a-011'",
                "UPDATE landed SET host = 'changed' WHERE uuid = 'a-005'",
                f"MERGE INTO landed USING ({ANOTHER}) AS s ON false WHEN NOT MATCHED THEN INSERT",
            )
        ],
    ),
)
"""Run by DuckDB's extension ``delta`` in an environment of its own."""


def table_lines() -> list[str]:
    """Return the lines of the page's table."""
    lines = ["| library | operation | result |", "| --- | --- | --- |"]
    for operation in (*OPERATIONS, *DUCKDB_OPERATIONS):
        rows = f", {-operation.rows} row" if operation.result == COUNTED else ""
        lines.append(f"| {operation.library} | {operation.shown} | {operation.result}{rows} |")
    return lines


if __name__ == "__main__":
    print("\n".join(table_lines()))
