"""The description of the database that clients read first: ``pg_catalog``, ``information_schema``, and functions.

DuckDB has a part of them, with numbers of types that are its own. Here they have PostgreSQL's columns and the numbers
that are on the wire. A table or function is created in a connection only if a statement names it. ``system_tables`` has
the columns of all tables, this module the rows of the tables that have any.
"""

from __future__ import annotations

import re
import zlib
import zoneinfo
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

import duckdb
import pyarrow as pa

from penstock.landing.rows.engine import sql_literal
from penstock.sql.catalog import Catalog
from penstock.sql.postgres.catalog.system_columns import INFORMATION_SCHEMA_TABLES, TABLES
from penstock.sql.postgres.catalog.system_tables import (
    CAST_TYPES,
    COLUMN_TYPES,
    FUNCTIONS,
    OWNER,
    SCHEMA,
    TABLES_OF_FUNCTIONS,
)
from penstock.sql.postgres.statements.query_functions import QUERY_FUNCTIONS
from penstock.sql.postgres.statements.translation import INFORMATION_SCHEMA
from penstock.sql.postgres.types import (
    BY_OID,
    DATE,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    INTERVAL,
    NO_MODIFIER,
    NUMERIC,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    Column,
    column,
)
from penstock.sql.query import TOPICS

DATABASE, SYSTEM_SCHEMA = "penstock", "pg"
SERVER_VERSION = "16.0"
"""The version of PostgreSQL whose catalog and protocol clients may expect."""
OWNER_OID = 10
DATABASE_OID, PG_CATALOG_OID, PUBLIC_OID, INFORMATION_SCHEMA_OID, TOPICS_OID = 5, 11, 2200, 13_000, 13_001
FIRST_OID = 16_384
"""Numbers below are PostgreSQL's own."""
MAX_HASH = (1 << 31) - (1 << 20)
"""Numbers of tables stay below 2^31: clients cast them to integers."""
_SCHEMAS = {
    "pg_catalog": PG_CATALOG_OID,
    SCHEMA: PUBLIC_OID,
    "information_schema": INFORMATION_SCHEMA_OID,
    TOPICS: TOPICS_OID,
}
_TYPE_FUNCTIONS = {"typinput": "in", "typoutput": "out", "typreceive": "recv", "typsend": "send"}
_UNDERSCORED = frozenset({"json", "jsonb", "date", "time", "timestamp", "timestamptz", "interval", "numeric", "uuid"})
"""Types whose functions have an underscore in their names; clients know a type by these."""
_INTEGERS = frozenset({INT2, INT4, INT8})
_FLOATS = {FLOAT4: 24, FLOAT8: 53}
"""Bits of the mantissa."""
_TIMES = {DATE: 0, **dict.fromkeys((TIME, TIMESTAMP, TIMESTAMPTZ, INTERVAL), 6)}
"""Digits of the fraction of a second."""
_MAX_TEXT_BYTES = 1 << 30
_HEAP, _DEFAULT_TABLESPACE = 2, 1663
"""Numbers in PostgreSQL of the way in which tables are stored, and of where."""
_NAME_PART = re.compile(r'"((?:[^"]|"")*)"|([^".]+)')


@dataclass(frozen=True, slots=True)
class Relation:
    """A queryable table or topic."""

    schema: str
    name: str
    oid: int
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class SystemCatalog:
    """The description of all tables for one session. ``settings`` are the ones that a client may read."""

    catalog: Catalog
    user: str = OWNER
    settings: Mapping[str, str] = field(default_factory=dict)
    process: int = 0

    @cached_property
    def relations(self) -> list[Relation]:
        """The tables and topics, with numbers that depend on their names only."""
        topic_columns = tuple(column(name, kind) for name, kind in self.catalog.topic_columns.items())
        named = [
            (SCHEMA, view, tuple(column(name, kind) for name, kind in columns.items()))
            for view, columns in self.catalog.views.items()
        ]
        named += [(TOPICS, topic, topic_columns) for topic in self.catalog.topics]
        relations, numbers = [], set[int]()
        for schema, name, columns in sorted(named, key=lambda relation: relation[:2]):
            oid = FIRST_OID + zlib.crc32(f"{schema}.{name}".encode()) % MAX_HASH
            while oid in numbers:
                oid += 1
            numbers.add(oid)
            relations.append(Relation(schema, name, oid, columns))
        return relations

    def object_number(self, kind: str, name: str) -> int | None:
        """Return the number of an object by its name, as ``'name'::regclass`` does; None if it does not exist."""
        if name.isdecimal() and len(name) < 19:
            return int(name)
        parts = [(quoted or "").replace('""', '"') or bare.lower() for quoted, bare in _NAME_PART.findall(name)]
        match kind, parts:
            case "regnamespace", [schema]:
                return _SCHEMAS.get(schema)
            case "regtype", [*_, type_name]:
                kinds = [kind for kind in BY_OID.values() if type_name in (kind.name, kind.long_name)]
                return kinds[0].oid if kinds else None
            case "regclass", [*schema, table]:
                if table in TABLES:
                    return _system_oid(table)
                matches = [r for r in self.relations if r.name == table and r.schema == (schema or [SCHEMA])[-1]]
                return matches[0].oid if matches else None
        return None

    def install(self, connection: duckdb.DuckDBPyConnection, names: Iterable[str], existing: set[str]) -> None:
        """Create the tables, functions and types in ``names`` that are not ``existing``, and add them to it."""
        requested_names = {*names}
        if "text_of_format" in requested_names:
            requested_names |= {"quote_ident", "quote_literal"}
        if "zone" in requested_names:
            requested_names |= {"timezone"}  # AT TIME ZONE
        for name in requested_names & TABLES_OF_FUNCTIONS.keys():
            requested_names |= {TABLES_OF_FUNCTIONS[name]}
        for name in sorted(requested_names - existing):
            existing.add(name)
            for schema, tables in ((SYSTEM_SCHEMA, TABLES), (INFORMATION_SCHEMA, INFORMATION_SCHEMA_TABLES)):
                if name in tables:
                    self._make_table(connection, schema, name, tables[name])
            if name in FUNCTIONS:
                versions, body = FUNCTIONS[name]
                _make_function(connection, name, [(parameters, body) for parameters in versions])
            elif name in QUERY_FUNCTIONS:
                _make_function(connection, name, QUERY_FUNCTIONS[name])
            elif name == "current_setting":
                _make_function(connection, name, self._functions_of_settings())
            elif name in self._own_functions:
                _make_function(connection, name, self._own_functions[name])
            elif name == "quote_ident":
                _make_function(connection, name, [("a", _quoted_name(connection))])
            elif name in _EMPTY_TABLE_FUNCTIONS:
                columns = ", ".join(
                    f"NULL::{kind} AS {column}" for column, kind in _EMPTY_TABLE_FUNCTIONS[name].items()
                )
                rows = f"SELECT {columns} WHERE false"
                connection.execute(f"CREATE MACRO {DATABASE}.{SYSTEM_SCHEMA}.{name}(a) AS TABLE {rows}")
            elif name == "pg_get_keywords":
                columns = "keyword_name AS word, 'U' AS catcode, keyword_category AS catdesc"
                rows = f"SELECT {columns} FROM duckdb_keywords()"  # noqa: S608  a constant
                connection.execute(f"CREATE MACRO {DATABASE}.{SYSTEM_SCHEMA}.pg_get_keywords() AS TABLE {rows}")
            elif name == "pg_show_all_settings":
                rows = f"SELECT * FROM {SYSTEM_SCHEMA}.pg_settings"  # noqa: S608  a constant
                connection.execute(f"CREATE MACRO {DATABASE}.{SYSTEM_SCHEMA}.pg_show_all_settings() AS TABLE {rows}")
            elif name == "_pg_expandarray":
                connection.execute(
                    f"CREATE MACRO {DATABASE}.{INFORMATION_SCHEMA}._pg_expandarray(a) AS "
                    "{'x': unnest(a), 'n': generate_subscripts(a, 1)}"
                )
            if name in CAST_TYPES:
                connection.execute(f'CREATE TYPE {DATABASE}.{SYSTEM_SCHEMA}."{name}" AS {CAST_TYPES[name]}')

    def _functions_of_settings(self) -> list[tuple[str, str]]:
        """Return the versions of ``current_setting``, with the settings of now."""
        pairs = [f"{sql_literal(name.lower())}: {sql_literal(value)}" for name, value in self.settings.items()]
        setting = f"MAP {{{', '.join(pairs)}}}[lower(a)]"
        return [("a", setting), ("a, b", setting)]

    @cached_property
    def _own_functions(self) -> dict[str, list[tuple[str, str]]]:
        by_name: dict[str, int] = {}
        cases = []
        for kind in BY_OID.values():
            name = f"{kind.element.long_name}[]" if kind.element else kind.long_name
            cases.append(f"WHEN {kind.oid} THEN {sql_literal(name)}")
            by_name |= {name: kind.oid, kind.name: kind.oid}
        numbers = " ".join(f"WHEN {sql_literal(name)} THEN {oid}" for name, oid in by_name.items())
        classes, namespaces = f"{SYSTEM_SCHEMA}.pg_class", f"{SYSTEM_SCHEMA}.pg_namespace"
        relation = f"(SELECT min(oid) FROM {classes} WHERE relname = split_part(a, '.', -1))"  # noqa: S608  constants
        namespace = f"(SELECT min(oid) FROM {namespaces} WHERE nspname = a)"  # noqa: S608  constants
        # Topics are not in the search path: `SELECT * FROM t` does not find `topics.t`.
        hidden = ", ".join(str(relation.oid) for relation in self.relations if relation.schema != SCHEMA)
        return {
            "pg_table_is_visible": [("a", f"a NOT IN ({hidden})" if hidden else "a IS NOT NULL")],
            "version": [("", f"'PostgreSQL {SERVER_VERSION} (Penstock, DuckDB {duckdb.__version__})'")],
            "pg_user_name": [("", sql_literal(self.user))],
            "pg_backend_pid": [("", str(self.process))],
            "format_type": [("t, m", f"CASE t {' '.join(cases)} ELSE '???' END")],
            "to_regclass": [("a", relation)],
            "to_regtype": [("a", f"CASE lower(a) {numbers} END")],
            "to_regnamespace": [("a", namespace)],
        }

    def _make_table(self, connection: duckdb.DuckDBPyConnection, schema: str, name: str, layout: str) -> None:
        columns = [entry.split(":") for entry in layout.split()]
        rows = list(_ROWS[name](self)) if name in _ROWS else []
        arrays = {}
        for column_name, letter in columns:
            _, kind, default = COLUMN_TYPES[letter.lower()]
            default = default if letter.islower() else None
            arrays[column_name] = pa.array([row.get(column_name, default) for row in rows], kind)
        names = ", ".join(
            f'CAST("{column_name}" AS {COLUMN_TYPES[letter.lower()][0]}) AS "{column_name}"'
            for column_name, letter in columns
        )
        connection.register("_rows", pa.table(arrays))
        connection.execute(f'CREATE TABLE {DATABASE}.{schema}."{name}" AS SELECT {names} FROM _rows')  # noqa: S608
        connection.unregister("_rows")

    def _rows_of_pg_namespace(self) -> Iterator[dict[str, Any]]:
        for name, oid in _SCHEMAS.items():
            yield {"oid": oid, "nspname": name, "nspowner": OWNER_OID}

    def _rows_of_pg_class(self) -> Iterator[dict[str, Any]]:
        for relation in self.relations:
            yield {
                "oid": relation.oid,
                "relname": relation.name,
                "relnamespace": _SCHEMAS[relation.schema],
                "relowner": OWNER_OID,
                "relkind": "r",
                "relam": _HEAP,
                "reltuples": -1.0,
                "relpersistence": "p",
                "relnatts": len(relation.columns),
                "relreplident": "d",
                "relispopulated": True,
            }

    def _rows_of_pg_attribute(self) -> Iterator[dict[str, Any]]:
        for relation in self.relations:
            for number, entry in enumerate(relation.columns, 1):
                yield {
                    "attrelid": relation.oid,
                    "attname": entry.name,
                    "atttypid": entry.kind.oid,
                    "attlen": entry.kind.size,
                    "attnum": number,
                    "attcacheoff": -1,
                    "atttypmod": entry.modifier,
                    "attndims": int(entry.kind.element is not None),
                    "attislocal": True,
                    "attstattarget": -1,
                    "attstorage": "p" if entry.kind.size > 0 else "x",
                }

    def _rows_of_pg_proc(self) -> Iterator[dict[str, Any]]:
        # Npgsql tells arrays by the function that reads them.
        names = {row[column] for row in self._rows_of_pg_type() for column in _TYPE_FUNCTIONS}
        for name in sorted(names):
            yield {"oid": _system_oid(name), "proname": name, "pronamespace": PG_CATALOG_OID, "prokind": "f"}

    def _rows_of_pg_type(self) -> Iterator[dict[str, Any]]:
        for kind in BY_OID.values():
            stem = "array_" if kind.element else f"{kind.name}_" if kind.name in _UNDERSCORED else kind.name
            yield {
                "oid": kind.oid,
                "typname": kind.name,
                "typnamespace": PG_CATALOG_OID,
                "typowner": OWNER_OID,
                "typlen": kind.size,
                "typbyval": 0 < kind.size <= 8,
                "typtype": "b",
                "typcategory": kind.category,
                "typisdefined": True,
                "typdelim": ",",
                "typelem": kind.element.oid if kind.element else 0,
                "typarray": kind.array_oid,
                **{column: f"{stem}{ending}" for column, ending in _TYPE_FUNCTIONS.items()},
                "typtypmod": NO_MODIFIER,
            }

    def _rows_of_pg_database(self) -> Iterator[dict[str, Any]]:
        yield {
            "oid": DATABASE_OID,
            "datname": DATABASE,
            "datdba": OWNER_OID,
            "encoding": 6,
            "dattablespace": _DEFAULT_TABLESPACE,
            "datlocprovider": "c",
            "datallowconn": True,
            "datconnlimit": -1,
            "datcollate": "C",
            "datctype": "C",
        }

    def _rows_of_pg_am(self) -> Iterator[dict[str, Any]]:
        yield {"oid": _HEAP, "amname": "heap", "amhandler": "heap_tableam_handler", "amtype": "t"}

    def _rows_of_pg_tablespace(self) -> Iterator[dict[str, Any]]:
        yield {"oid": _DEFAULT_TABLESPACE, "spcname": "pg_default", "spcowner": OWNER_OID}

    def _rows_of_pg_roles(self) -> Iterator[dict[str, Any]]:
        for oid, name in {OWNER_OID: OWNER, **({FIRST_OID - 1: self.user} if self.user != OWNER else {})}.items():
            yield {
                "oid": oid,
                "rolname": name,
                "rolinherit": True,
                "rolcanlogin": True,
                "rolconnlimit": -1,
                "rolpassword": "********",
            }

    def _rows_of_pg_user(self) -> Iterator[dict[str, Any]]:
        for role in self._rows_of_pg_roles():
            yield {"usename": role["rolname"], "usesysid": role["oid"]}

    def _rows_of_pg_settings(self) -> Iterator[dict[str, Any]]:
        for name, setting in self.settings.items():
            yield {"name": name, "setting": setting, "context": "user", "vartype": "string", "source": "default"}

    def _rows_of_pg_stat_gssapi(self) -> Iterator[dict[str, Any]]:
        yield {"pid": self.process}

    def _rows_of_pg_tables(self) -> Iterator[dict[str, Any]]:
        for relation in self.relations:
            yield {"schemaname": relation.schema, "tablename": relation.name, "tableowner": OWNER}

    def _rows_of_pg_timezone_names(self) -> Iterator[dict[str, Any]]:
        for name in sorted(zoneinfo.available_timezones()):
            now = datetime.now(zoneinfo.ZoneInfo(name))
            yield {"name": name, "abbrev": now.tzname(), "utc_offset": now.utcoffset(), "is_dst": bool(now.dst())}

    def _rows_of_schemata(self) -> Iterator[dict[str, Any]]:
        for name in _SCHEMAS:
            yield {"catalog_name": DATABASE, "schema_name": name, "schema_owner": OWNER}

    def _rows_of_tables(self) -> Iterator[dict[str, Any]]:
        for relation in self.relations:
            yield {
                "table_catalog": DATABASE,
                "table_schema": relation.schema,
                "table_name": relation.name,
                "table_type": "BASE TABLE",
                "is_insertable_into": "NO",
                "is_typed": "NO",
            }

    def _rows_of_columns(self) -> Iterator[dict[str, Any]]:
        for relation in self.relations:
            for number, entry in enumerate(relation.columns, 1):
                yield {
                    "table_catalog": DATABASE,
                    "table_schema": relation.schema,
                    "table_name": relation.name,
                    "column_name": entry.name,
                    "ordinal_position": number,
                    "is_nullable": "YES",
                    "data_type": entry.kind.long_name,
                    **_precision(entry),
                    "udt_catalog": DATABASE,
                    "udt_schema": "pg_catalog",
                    "udt_name": entry.kind.name,
                    "dtd_identifier": str(number),
                    "is_identity": "NO",
                    "is_generated": "NEVER",
                    "is_updatable": "NO",
                }

    def _right_to_read(self, relation: Relation) -> dict[str, Any]:
        return {
            "grantor": OWNER,
            "grantee": self.user,
            "table_catalog": DATABASE,
            "table_schema": relation.schema,
            "table_name": relation.name,
            "privilege_type": "SELECT",
        }

    def _rows_of_table_privileges(self) -> Iterator[dict[str, Any]]:
        for relation in self.relations:
            yield {**self._right_to_read(relation), "is_grantable": "NO", "with_hierarchy": "NO"}

    def _rows_of_column_privileges(self) -> Iterator[dict[str, Any]]:
        for relation in self.relations:
            for entry in relation.columns:
                yield {**self._right_to_read(relation), "column_name": entry.name}

    def _rows_of_information_schema_catalog_name(self) -> Iterator[dict[str, Any]]:
        yield {"catalog_name": DATABASE}

    def _rows_of_enabled_roles(self) -> Iterator[dict[str, Any]]:
        yield {"role_name": self.user}

    def _rows_of_character_sets(self) -> Iterator[dict[str, Any]]:
        yield {"character_set_name": "UTF8"}


_ROWS: dict[str, Callable[[SystemCatalog], Iterator[dict[str, Any]]]] = {
    "pg_namespace": SystemCatalog._rows_of_pg_namespace,
    "pg_class": SystemCatalog._rows_of_pg_class,
    "pg_attribute": SystemCatalog._rows_of_pg_attribute,
    "pg_proc": SystemCatalog._rows_of_pg_proc,
    "pg_type": SystemCatalog._rows_of_pg_type,
    "pg_database": SystemCatalog._rows_of_pg_database,
    "pg_am": SystemCatalog._rows_of_pg_am,
    "pg_tablespace": SystemCatalog._rows_of_pg_tablespace,
    "pg_roles": SystemCatalog._rows_of_pg_roles,
    "pg_user": SystemCatalog._rows_of_pg_user,
    "pg_settings": SystemCatalog._rows_of_pg_settings,
    "pg_stat_gssapi": SystemCatalog._rows_of_pg_stat_gssapi,
    "pg_tables": SystemCatalog._rows_of_pg_tables,
    "pg_timezone_names": SystemCatalog._rows_of_pg_timezone_names,
    "schemata": SystemCatalog._rows_of_schemata,
    "tables": SystemCatalog._rows_of_tables,
    "columns": SystemCatalog._rows_of_columns,
    "table_privileges": SystemCatalog._rows_of_table_privileges,
    "column_privileges": SystemCatalog._rows_of_column_privileges,
    "role_column_grants": SystemCatalog._rows_of_column_privileges,
    "information_schema_catalog_name": SystemCatalog._rows_of_information_schema_catalog_name,
    "enabled_roles": SystemCatalog._rows_of_enabled_roles,
    "character_sets": SystemCatalog._rows_of_character_sets,
    "role_table_grants": SystemCatalog._rows_of_table_privileges,
}
"""Tables with rows; all others are empty."""
_EMPTY_TABLE_FUNCTIONS = {
    "pg_options_to_table": {"option_name": "VARCHAR", "option_value": "VARCHAR"},
}
"""Functions that answer no rows here, by the columns of their rows: no object has options."""


def _precision(entry: Column) -> dict[str, int]:
    """Return precision and size of a column as PostgreSQL's ``information_schema.columns`` has them."""
    kind = entry.kind
    if kind is NUMERIC:
        modifier = entry.modifier - 4
        bounds = {"numeric_precision": modifier >> 16, "numeric_scale": modifier & 0xFFFF}
        return {"numeric_precision_radix": 10, **(bounds if entry.modifier != NO_MODIFIER else {})}
    if kind in _INTEGERS:
        return {"numeric_precision": 8 * kind.size, "numeric_precision_radix": 2, "numeric_scale": 0}
    if kind in _FLOATS:
        return {"numeric_precision": _FLOATS[kind], "numeric_precision_radix": 2}
    if kind is TEXT:
        return {"character_octet_length": _MAX_TEXT_BYTES}
    return {"datetime_precision": _TIMES[kind]} if kind in _TIMES else {}


def _quoted_name(connection: duckdb.DuckDBPyConnection) -> str:
    """Return the expression of a name with quotes if it needs them. The keywords are constants, as in a lambda."""
    query = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'"
    keywords = ", ".join(sql_literal(word) for (word,) in connection.execute(query).fetchall())
    quoted = """'"' || replace(a, '"', '""') || '"'"""
    return f"CASE WHEN regexp_full_match(a, '[a-z_][a-z0-9_$]*') AND a NOT IN ({keywords}) THEN a ELSE {quoted} END"


def _system_oid(table: str) -> int:
    return 1 + zlib.crc32(table.encode()) % 1000


def _make_function(connection: duckdb.DuckDBPyConnection, name: str, versions: Sequence[tuple[str, str]]) -> None:
    bodies = ", ".join(f"({parameters}) AS {body}" for parameters, body in versions)
    connection.execute(f'CREATE MACRO {DATABASE}.{SYSTEM_SCHEMA}."{name}" {bodies}')


def open_database(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the database and its schemas, and make them the search path of unqualified names."""
    for statement in (
        f"ATTACH ':memory:' AS {DATABASE}",
        *(f"CREATE SCHEMA {DATABASE}.{schema}" for schema in (SCHEMA, SYSTEM_SCHEMA, INFORMATION_SCHEMA)),
        f"SET search_path = '{DATABASE}.{SCHEMA},{DATABASE}.{SYSTEM_SCHEMA}'",
        "SET default_null_order = 'postgres'",
    ):
        connection.execute(statement)
