"""Types of the columns of PostgreSQL's system tables, and its system functions as macros of DuckDB.

All tables of ``system_columns`` exist. Most are empty, as there are no indexes, constraints or functions of users;
``system_catalog`` fills the others.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.sql.postgres.catalog.system_columns import INFORMATION_SCHEMA_TABLES
from penstock.sql.postgres.statements.translation import OBJECT_TYPES

SCHEMA = "public"
"""Schema of the views and typed tables."""
OWNER = "penstock"
"""Role that owns all tables."""
COLUMN_TYPES: dict[str, tuple[str, pa.DataType, Any]] = {
    "b": ("BOOLEAN", pa.bool_(), False),
    "s": ("SMALLINT", pa.int16(), 0),
    "i": ("INTEGER", pa.int32(), 0),
    "n": ("BIGINT", pa.int64(), 0),
    "o": ("UINTEGER", pa.uint32(), 0),
    "r": ("FLOAT", pa.float32(), 0.0),
    "f": ("DOUBLE", pa.float64(), 0.0),
    "t": ("VARCHAR", pa.string(), ""),
    "p": ("VARCHAR", pa.string(), "-"),
    "q": ("VARCHAR", pa.string(), "NO"),
    "y": ("BLOB", pa.binary(), b""),
    "z": ("TIMESTAMPTZ", pa.timestamp("us", "UTC"), None),
    "l": ("INTERVAL", pa.month_day_nano_interval(), None),
    "a": ("VARCHAR[]", pa.list_(pa.string()), None),
    "c": ("BOOLEAN[]", pa.list_(pa.bool_()), None),
    "e": ("FLOAT[]", pa.list_(pa.float32()), None),
    "u": ("UINTEGER[]", pa.list_(pa.uint32()), None),
    "v": ("SMALLINT[]", pa.list_(pa.int16()), None),
}
"""Types of columns by their letter in ``system_columns``: of DuckDB, of Arrow, and the default.

A capital letter is a type whose default is null. ``o`` is the number of an object, ``p`` the name of a function, and
``q`` YES or NO.
"""
INFORMATION_SCHEMA_NAMES = frozenset({*INFORMATION_SCHEMA_TABLES, "_pg_expandarray"})
_NOTHING, _YES = "CAST(NULL AS VARCHAR)", "true"
FUNCTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    **dict.fromkeys(
        ("pg_get_expr", "pg_get_constraintdef", "pg_get_viewdef", "pg_get_ruledef", "pg_get_triggerdef"),
        (("a", "a, b", "a, b, c"), _NOTHING),
    ),
    **dict.fromkeys(
        ("pg_get_indexdef", "obj_description", "pg_get_partkeydef", "pg_get_functiondef", "pg_get_function_result"),
        (("a", "a, b", "a, b, c"), _NOTHING),
    ),
    **dict.fromkeys(
        (
            *("pg_get_function_arguments", "pg_get_function_identity_arguments", "pg_get_function_sqlbody"),
            *("pg_get_statisticsobjdef_columns", "pg_tablespace_location", "pg_describe_object"),
        ),
        (("a", "a, b, c"), _NOTHING),
    ),
    **dict.fromkeys(("col_description", "shobj_description", "pg_get_serial_sequence"), (("a, b",), _NOTHING)),
    **dict.fromkeys(
        (
            *("pg_type_is_visible", "pg_function_is_visible", "pg_operator_is_visible", "pg_opclass_is_visible"),
            *("pg_collation_is_visible", "pg_statistics_obj_is_visible"),
            *("pg_relation_is_publishable", "pg_ts_config_is_visible", "pg_conversion_is_visible"),
        ),
        (("a",), _YES),
    ),
    **dict.fromkeys(
        (
            *("has_table_privilege", "has_schema_privilege", "has_database_privilege", "has_function_privilege"),
            *("has_sequence_privilege", "has_language_privilege", "has_type_privilege", "has_any_column_privilege"),
            *("pg_has_role",),
        ),
        (("a, b", "a, b, c"), _YES),
    ),
    "has_column_privilege": (("a, b, c", "a, b, c, d"), _YES),
    **dict.fromkeys(
        (
            *("pg_total_relation_size", "pg_table_size", "pg_indexes_size", "pg_database_size", "pg_tablespace_size"),
            *("pg_stat_get_numscans", "pg_stat_get_live_tuples"),
        ),
        (("a",), "CAST(0 AS BIGINT)"),
    ),
    "pg_relation_size": (("a", "a, b"), "CAST(0 AS BIGINT)"),
    "pg_relation_is_updatable": (("a, b",), "0"),
    "pg_column_is_updatable": (("a, b, c",), "false"),
    "pg_is_in_recovery": (("",), "false"),
    "pg_is_other_temp_schema": (("a",), "false"),
    "pg_my_temp_schema": (("",), "CAST(0 AS BIGINT)"),
    "pg_postmaster_start_time": (("",), "now()"),
    "pg_conf_load_time": (("",), "now()"),
    "pg_encoding_to_char": (("a",), "'UTF8'"),
    "pg_char_to_encoding": (("a",), "6"),
    "pg_get_userbyid": (("a",), f"'{OWNER}'"),
    "current_schemas": (("a",), f"CASE WHEN a THEN ['pg_catalog', '{SCHEMA}'] ELSE ['{SCHEMA}'] END"),
    "set_config": (("a, b, c",), "b"),
    "pg_advisory_unlock_all": (("",), _NOTHING),
    "inet_server_addr": (("",), _NOTHING),
    "inet_client_addr": (("",), _NOTHING),
    "inet_server_port": (("",), "CAST(NULL AS INTEGER)"),
    "array_upper": (("a, n",), "nullif(len(a), 0)"),
    "array_lower": (("a, n",), "if(len(a) > 0, 1, NULL)"),
    "parse_ident": (
        ("a",),
        """list_transform(regexp_extract_all(a, '"(?:[^"]|"")*"|[^."]+'), lambda x: CASE WHEN x[1] = '"' """
        """THEN replace(x[2:-2], '""', '"') ELSE lower(x) END)""",
    ),
    "array_remove": (("a, x",), "list_filter(a, lambda v: v IS DISTINCT FROM x)"),
}
CAST_TYPES = {
    **dict.fromkeys((*OBJECT_TYPES, "regrole", "xid", "cid"), "UINTEGER"),
    **dict.fromkeys(("regtype", "regoperator", "regconfig", "regdictionary"), "VARCHAR"),
    **dict.fromkeys(("name", "cstring", "inet", "bpchar", "citext"), "VARCHAR"),
    **dict.fromkeys(("oidvector",), "UINTEGER[]"),
    "int2vector": "SMALLINT[]",
    "jsonb": "JSON",
}
"""DuckDB's types for the names of PostgreSQL's types in casts."""
TABLES_OF_FUNCTIONS = {
    "to_regclass": "pg_class",
    "to_regnamespace": "pg_namespace",
    "pg_show_all_settings": "pg_settings",
}
"""Tables that functions read."""
