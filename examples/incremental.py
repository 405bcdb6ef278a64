"""Incremental reads for schedulers: wait for a table, and load its changes. Used by docs/tables.md."""

import json
import urllib.request
from pathlib import Path

import duckdb
import pyarrow as pa

import penstock.tables


def is_complete(table: str, until: float, daemon: str = "http://127.0.0.1:8844") -> bool:
    """Whether a table has all that every topic received before a time, in seconds since the epoch."""
    with urllib.request.urlopen(f"{daemon}/watermarks") as answer:
        marks = [mark for mark in json.load(answer)["tables"] if mark["table"] == table]
    return bool(marks) and all(mark["until"] >= until for mark in marks)


def load_changes(tables: Path, view: str, database: Path) -> int:
    """Apply the changes of a view since the last call to a table of DuckDB; return the number of added rows."""
    with duckdb.connect(str(database)) as connection:
        connection.execute("create table if not exists positions (name text primary key, position text)")
        known = connection.execute("select position from positions where name = ?", [view]).fetchall()
        changes = penstock.tables.changes(tables, view, known[0][0] if known else None)
        connection.begin()
        connection.register("empty", changes.schema.empty_table())
        connection.register("deleted", changes.deleted)
        rows = 0
        connection.execute(f"create table if not exists {view} as select * from empty")
        if changes.is_complete:
            connection.execute(f"delete from {view}")
        connection.execute(
            f"""delete from {view} where exists (select 1 from deleted d where d.topic = {view}.topic
                and d.partition is not distinct from {view}.partition
                and {view}."offset" >= d."begin" and {view}."offset" < d."end")"""
        )
        for added in changes.added():
            connection.register("added", pa.table(added))
            connection.execute(f"insert into {view} by name select * from added")
            rows += added.num_rows
        connection.execute("insert or replace into positions values (?, ?)", [view, str(changes.next)])
        connection.commit()
        return rows
