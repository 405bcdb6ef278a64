"""Columns of the system tables: PostgreSQL itself says which there are."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from penstock.sql.postgres.catalog.system_columns import INFORMATION_SCHEMA_TABLES, TABLES

# The server of the tests is newer than the one whose catalog is shown.
LATER_TABLES = {"pg_aios", "pg_shmem_allocations_numa", "pg_stat_checkpointer", "pg_wait_events"}
EARLIER_COLUMNS = {"attcacheoff", "colliculocale", "daticulocale", "domain_default", "parent"}
SYSTEM_COLUMNS = {"tableoid", "xmin"}


@pytest.mark.parametrize(
    ("schema", "tables"), [("pg_catalog", TABLES), ("information_schema", INFORMATION_SCHEMA_TABLES)]
)
def test_every_table_has_postgresqls_columns(
    schema: str, tables: dict[str, str], postgres: psycopg.Connection[Any]
) -> None:
    query = (
        "select c.relname, array_agg(a.attname::text) from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        "join pg_attribute a on a.attrelid = c.oid where n.nspname = %s and c.relkind in ('r', 'v') and attnum > 0 "
        "and not attisdropped and relname !~ '^_' group by 1"
    )
    of_server = {name: {*columns} for name, columns in postgres.execute(query, [schema]).fetchall()}
    assert of_server.keys() - tables.keys() <= LATER_TABLES
    removed = {
        column
        for name in of_server.keys() & tables.keys()
        if not name.startswith(("pg_stat", "pg_replication"))  # statistics of a server, which changed
        for column in {entry.partition(":")[0] for entry in tables[name].split()} - SYSTEM_COLUMNS - of_server[name]
    }
    assert removed <= EARLIER_COLUMNS


@pytest.mark.parametrize("binary", [False, True])
def test_every_table_is_read_in_text_and_binary(connection: psycopg.Connection[Any], binary: bool) -> None:
    with connection.cursor(binary=binary) as cursor:
        for schema, tables in (("pg_catalog", TABLES), ("information_schema", INFORMATION_SCHEMA_TABLES)):
            for name, layout in tables.items():
                cursor.execute(f"select * from {schema}.{name}")
                assert cursor.description is not None
                assert [column.name for column in cursor.description] == [
                    entry.partition(":")[0] for entry in layout.split()
                ]
                cursor.fetchall()


def test_numbers_of_objects_have_the_type_oid_and_sizes_fit(
    connection: psycopg.Connection[Any], postgres: psycopg.Connection[Any]
) -> None:
    query = (
        "select oid, relnatts, relpages, reltuples, relhasindex, c.tableoid, 'pg_class'::regclass::oid, cast(5 as oid) "
        "from pg_class c limit 1"
    )
    with connection.cursor(binary=True) as cursor, postgres.cursor(binary=True) as reference:
        types = [
            [column.type_code for column in reader.execute(query).description or ()] for reader in (cursor, reference)
        ]
    assert types[0] == types[1] == [26, 21, 23, 700, 16, 26, 26, 26]


def test_columns_have_postgresqls_precision(
    connection: psycopg.Connection[Any], postgres: psycopg.Connection[Any]
) -> None:
    query = (
        "select column_name, character_octet_length, numeric_precision, numeric_precision_radix, numeric_scale, "
        "datetime_precision from information_schema.columns where table_name = 'events' and column_name in "
        "('topic', 'partition', 'offset', 'received', 'date', 'data', 'payload') order by 1"
    )
    postgres.execute(
        'create temporary table events (topic text, partition int4, "offset" int8, received timestamptz, date date, '
        "data json, payload bytea)"
    )
    try:
        assert connection.execute(query).fetchall() == postgres.execute(query).fetchall()
    finally:
        postgres.execute("drop table events")
