"""The description of the database that clients read first: ``pg_catalog``, ``information_schema``, and functions.

DuckDB has a part of them, with numbers of types that are its own. Here they have PostgreSQL's columns and the numbers
that are on the wire. A table or function is made in a connection only if a statement names it. Tables that would be
empty, as there are no indexes, constraints or functions of users, exist with the columns that clients select.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import duckdb
import pyarrow as pa

from penstock.landing.rows.engine import sql_literal
from penstock.sql.catalog import Catalog
from penstock.sql.postgres.statements import INFORMATION_SCHEMA, OBJECT_TYPES
from penstock.sql.postgres.types import BY_OID, NO_MODIFIER, NUMERIC, Column, column
from penstock.sql.query import TOPICS

DATABASE, SCHEMA, SYSTEM_SCHEMA = "penstock", "public", "pg"
SERVER_VERSION = "16.0"
"""The version of PostgreSQL whose catalog and protocol clients may expect."""
OWNER, OWNER_OID = "penstock", 10
DATABASE_OID, PG_CATALOG_OID, PUBLIC_OID, INFORMATION_SCHEMA_OID, TOPICS_OID = 5, 11, 2200, 13_000, 13_001
FIRST_OID = 16_384
"""Numbers below are PostgreSQL's own."""
_SCHEMAS = {
    "pg_catalog": PG_CATALOG_OID,
    SCHEMA: PUBLIC_OID,
    "information_schema": INFORMATION_SCHEMA_OID,
    TOPICS: TOPICS_OID,
}
_ARROW: dict[str, tuple[str, pa.DataType, Any]] = {
    "b": ("BOOLEAN", pa.bool_(), False),
    "n": ("BIGINT", pa.int64(), 0),
    "f": ("DOUBLE", pa.float64(), -1.0),
    "t": ("VARCHAR", pa.string(), ""),
    "x": ("VARCHAR", pa.string(), None),
    "a": ("VARCHAR[]", pa.list_(pa.string()), None),
    "v": ("BIGINT[]", pa.list_(pa.int64()), None),
    "z": ("TIMESTAMPTZ", pa.timestamp("us", "UTC"), None),
}
"""Types of columns by their letter below, and what a row has that says nothing: ``x`` is a text that may be null."""
_TABLES = {
    "pg_namespace": "oid:n nspname:t nspowner:n nspacl:a",
    "pg_class": (
        "oid:n relname:t relnamespace:n reltype:n reloftype:n relowner:n relam:n relfilenode:n reltablespace:n "
        "relpages:n reltuples:f relallvisible:n reltoastrelid:n relhasindex:b relisshared:b relpersistence:t relkind:t "
        "relnatts:n relchecks:n relhasrules:b relhastriggers:b relhassubclass:b relrowsecurity:b relforcerowsecurity:b "
        "relispopulated:b relreplident:t relispartition:b relrewrite:n relfrozenxid:n relminmxid:n relacl:a "
        "reloptions:a relpartbound:x"
    ),
    "pg_attribute": (
        "attrelid:n attname:t atttypid:n attlen:n attnum:n attcacheoff:n atttypmod:n attndims:n attbyval:b attalign:t "
        "attstorage:t attcompression:t attnotnull:b atthasdef:b atthasmissing:b attidentity:t attgenerated:t "
        "attisdropped:b attislocal:b attinhcount:n attstattarget:n attcollation:n attacl:a attoptions:a "
        "attfdwoptions:a attmissingval:a"
    ),
    "pg_type": (
        "oid:n typname:t typnamespace:n typowner:n typlen:n typbyval:b typtype:t typcategory:t typispreferred:b "
        "typisdefined:b typdelim:t typrelid:n typsubscript:t typelem:n typarray:n typinput:t typoutput:t typreceive:t "
        "typsend:t typmodin:t typmodout:t typanalyze:t typalign:t typstorage:t typnotnull:b typbasetype:n typtypmod:n "
        "typndims:n typcollation:n typdefaultbin:x typdefault:x typacl:a"
    ),
    "pg_database": (
        "oid:n datname:t datdba:n encoding:n datlocprovider:t datistemplate:b datallowconn:b datconnlimit:n "
        "dattablespace:n datcollate:t datctype:t daticulocale:x daticurules:x datcollversion:x datacl:a"
    ),
    "pg_roles": (
        "oid:n rolname:t rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b rolreplication:b "
        "rolconnlimit:n rolpassword:x rolvaliduntil:z rolbypassrls:b rolconfig:a"
    ),
    "pg_user": "usename:t usesysid:n usecreatedb:b usesuper:b userepl:b usebypassrls:b passwd:x valuntil:z useconfig:a",
    "pg_settings": (
        "name:t setting:t unit:x category:t short_desc:t context:t vartype:t source:t boot_val:t reset_val:t"
    ),
    "pg_tables": (
        "schemaname:t tablename:t tableowner:t tablespace:x hasindexes:b hasrules:b hastriggers:b rowsecurity:b"
    ),
    "pg_am": "oid:n amname:t amhandler:t amtype:t",
    "pg_tablespace": "oid:n spcname:t spcowner:n spcacl:a spcoptions:a",
    "pg_collation": "oid:n collname:t collnamespace:n collowner:n collprovider:t collcollate:x collctype:x",
    "pg_extension": "oid:n extname:t extowner:n extnamespace:n extrelocatable:b extversion:t",
    "pg_language": "oid:n lanname:t lanowner:n lanispl:b lanpltrusted:b",
    "pg_auth_members": "oid:n roleid:n member:n grantor:n admin_option:b inherit_option:b set_option:b",
    "pg_views": "schemaname:t viewname:t viewowner:t definition:t",
    "pg_matviews": "schemaname:t matviewname:t matviewowner:t tablespace:x hasindexes:b ispopulated:b definition:t",
    "pg_indexes": "schemaname:t tablename:t indexname:t tablespace:x indexdef:t",
    "pg_index": (
        "indexrelid:n indrelid:n indnatts:n indnkeyatts:n indisunique:b indnullsnotdistinct:b indisprimary:b "
        "indisexclusion:b indimmediate:b indisclustered:b indisvalid:b indcheckxmin:b indisready:b indislive:b "
        "indisreplident:b indkey:v indcollation:v indclass:v indoption:v indexprs:x indpred:x"
    ),
    "pg_constraint": (
        "oid:n conname:t connamespace:n contype:t condeferrable:b condeferred:b convalidated:b conrelid:n contypid:n "
        "conindid:n conparentid:n confrelid:n confupdtype:t confdeltype:t confmatchtype:t conislocal:b coninhcount:n "
        "connoinherit:b conkey:v confkey:v conpfeqop:v conppeqop:v conffeqop:v conexclop:v conbin:x"
    ),
    "pg_attrdef": "oid:n adrelid:n adnum:n adbin:x",
    "pg_description": "objoid:n classoid:n objsubid:n description:t",
    "pg_shdescription": "objoid:n classoid:n description:t",
    "pg_depend": "classid:n objid:n objsubid:n refclassid:n refobjid:n refobjsubid:n deptype:t",
    "pg_inherits": "inhrelid:n inhparent:n inhseqno:n inhdetachpending:b",
    "pg_enum": "oid:n enumtypid:n enumsortorder:f enumlabel:t",
    "pg_range": "rngtypid:n rngsubtype:n rngmultitypid:n rngcollation:n rngsubopc:n",
    "pg_proc": (
        "oid:n proname:t pronamespace:n proowner:n prolang:n procost:f prorows:f provariadic:n prokind:t prosecdef:b "
        "proleakproof:b proisstrict:b proretset:b provolatile:t proparallel:t pronargs:n pronargdefaults:n "
        "prorettype:n proargtypes:v proallargtypes:v proargmodes:a proargnames:a prosrc:t proacl:a"
    ),
    "pg_aggregate": "aggfnoid:n aggkind:t aggnumdirectargs:n",
    "pg_operator": "oid:n oprname:t oprnamespace:n oprleft:n oprright:n oprresult:n",
    "pg_opclass": "oid:n opcmethod:n opcname:t opcnamespace:n opcfamily:n opcintype:n opcdefault:b",
    "pg_cast": "oid:n castsource:n casttarget:n castfunc:n castcontext:t castmethod:t",
    "pg_trigger": (
        "oid:n tgrelid:n tgparentid:n tgname:t tgfoid:n tgtype:n tgenabled:t tgisinternal:b tgconstraint:n "
        "tgdeferrable:b tginitdeferred:b tgnargs:n"
    ),
    "pg_rewrite": "oid:n rulename:t ev_class:n ev_type:t ev_enabled:t is_instead:b",
    "pg_policy": "oid:n polname:t polrelid:n polcmd:t polpermissive:b polroles:v polqual:x polwithcheck:x",
    "pg_statistic_ext": (
        "oid:n stxrelid:n stxname:t stxnamespace:n stxowner:n stxstattarget:n stxkeys:v stxkind:a stxexprs:x"
    ),
    "pg_publication": "oid:n pubname:t pubowner:n puballtables:b",
    "pg_publication_rel": "oid:n prpubid:n prrelid:n prqual:x prattrs:v",
    "pg_publication_namespace": "oid:n pnpubid:n pnnspid:n",
    "pg_partitioned_table": "partrelid:n partstrat:t partnatts:n partdefid:n partattrs:v partclass:v partexprs:x",
    "pg_foreign_table": "ftrelid:n ftserver:n ftoptions:a",
    "pg_foreign_server": "oid:n srvname:t srvowner:n srvfdw:n srvtype:x srvversion:x srvoptions:a",
    "pg_foreign_data_wrapper": "oid:n fdwname:t fdwowner:n",
    "pg_sequence": "seqrelid:n seqtypid:n seqstart:n seqincrement:n seqmax:n seqmin:n seqcache:n seqcycle:b",
    "pg_sequences": "schemaname:t sequencename:t sequenceowner:t data_type:t start_value:n last_value:n",
    "pg_event_trigger": "oid:n evtname:t evtevent:t evtowner:n evtenabled:t",
    "pg_locks": "locktype:t database:n relation:n pid:n mode:t granted:b",
    "pg_stat_activity": "datid:n datname:t pid:n usename:t application_name:t state:t query:t query_start:z",
    "pg_stat_user_tables": "relid:n schemaname:t relname:t seq_scan:n n_live_tup:n n_dead_tup:n last_analyze:z",
    "pg_statio_user_tables": "relid:n schemaname:t relname:t heap_blks_read:n heap_blks_hit:n",
    "pg_prepared_statements": "name:t statement:t prepare_time:z from_sql:b",
    "pg_cursors": "name:t statement:t is_holdable:b is_binary:b is_scrollable:b creation_time:z",
    "pg_timezone_names": "name:t abbrev:t is_dst:b",
    "pg_db_role_setting": "setdatabase:n setrole:n setconfig:a",
}
_INFORMATION_SCHEMA = {
    "schemata": "catalog_name:t schema_name:t schema_owner:t default_character_set_name:x sql_path:x",
    "tables": (
        "table_catalog:t table_schema:t table_name:t table_type:t self_referencing_column_name:x "
        "is_insertable_into:t is_typed:t commit_action:x"
    ),
    "columns": (
        "table_catalog:t table_schema:t table_name:t column_name:t ordinal_position:n column_default:x is_nullable:t "
        "data_type:t character_maximum_length:x character_octet_length:x numeric_precision:x numeric_precision_radix:x "
        "numeric_scale:x datetime_precision:x interval_type:x collation_name:x domain_name:x udt_catalog:t "
        "udt_schema:t udt_name:t dtd_identifier:t is_identity:t identity_generation:x is_generated:t "
        "generation_expression:x is_updatable:t"
    ),
    "views": (
        "table_catalog:t table_schema:t table_name:t view_definition:t check_option:t is_updatable:t "
        "is_insertable_into:t"
    ),
    "table_constraints": (
        "constraint_catalog:t constraint_schema:t constraint_name:t table_catalog:t table_schema:t table_name:t "
        "constraint_type:t is_deferrable:t initially_deferred:t enforced:t"
    ),
    "key_column_usage": (
        "constraint_catalog:t constraint_schema:t constraint_name:t table_catalog:t table_schema:t table_name:t "
        "column_name:t ordinal_position:n position_in_unique_constraint:n"
    ),
    "constraint_column_usage": (
        "table_catalog:t table_schema:t table_name:t column_name:t constraint_catalog:t constraint_schema:t "
        "constraint_name:t"
    ),
    "referential_constraints": (
        "constraint_catalog:t constraint_schema:t constraint_name:t unique_constraint_catalog:t "
        "unique_constraint_schema:t unique_constraint_name:t match_option:t update_rule:t delete_rule:t"
    ),
    "table_privileges": (
        "grantor:t grantee:t table_catalog:t table_schema:t table_name:t privilege_type:t is_grantable:t "
        "with_hierarchy:t"
    ),
    "role_table_grants": (
        "grantor:t grantee:t table_catalog:t table_schema:t table_name:t privilege_type:t is_grantable:t "
        "with_hierarchy:t"
    ),
    "routines": "specific_name:t routine_catalog:t routine_schema:t routine_name:t routine_type:t data_type:t",
    "parameters": "specific_name:t ordinal_position:n parameter_mode:t parameter_name:t data_type:t",
    "sequences": "sequence_catalog:t sequence_schema:t sequence_name:t data_type:t",
    "triggers": "trigger_catalog:t trigger_schema:t trigger_name:t event_object_schema:t event_object_table:t",
    "enabled_roles": "role_name:t",
    "applicable_roles": "grantee:t role_name:t is_grantable:t",
    "character_sets": "character_set_catalog:x character_set_schema:x character_set_name:t",
    "element_types": "object_schema:t object_name:t object_type:t collection_type_identifier:t data_type:t",
}
INFORMATION_SCHEMA_NAMES = frozenset({*_INFORMATION_SCHEMA, "_pg_expandarray"})
_NOTHING, _YES = "CAST(NULL AS VARCHAR)", "true"
_FUNCTIONS: dict[str, tuple[tuple[str, ...], str]] = {
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
            *("pg_table_is_visible", "pg_type_is_visible", "pg_function_is_visible", "pg_operator_is_visible"),
            *("pg_opclass_is_visible", "pg_collation_is_visible", "pg_statistics_obj_is_visible"),
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
    "inet_server_addr": (("",), _NOTHING),
    "inet_client_addr": (("",), _NOTHING),
    "inet_server_port": (("",), "CAST(NULL AS INTEGER)"),
    "array_upper": (("a, n",), "nullif(len(a), 0)"),
    "array_lower": (("a, n",), "if(len(a) > 0, 1, NULL)"),
    "quote_ident": (("a",), """'"' || replace(a, '"', '""') || '"'"""),
    "quote_literal": (("a",), "'''' || replace(CAST(a AS VARCHAR), '''', '''''') || ''''"),
}
_TYPES = {
    **dict.fromkeys((*OBJECT_TYPES, "regrole", "xid", "cid"), "BIGINT"),
    **dict.fromkeys(("name", "cstring", "inet", "bpchar", "citext"), "VARCHAR"),
    **dict.fromkeys(("oidvector", "int2vector"), "BIGINT[]"),
    "jsonb": "JSON",
}
"""Names of types that casts use."""
_NEEDED = {"to_regclass": "pg_class", "to_regnamespace": "pg_namespace"}
"""Tables that functions read."""
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
            oid = FIRST_OID + zlib.crc32(f"{schema}.{name}".encode()) % (1 << 31)
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
                if table in _TABLES:
                    return _system_oid(table)
                matches = [r for r in self.relations if r.name == table and r.schema == (schema or [SCHEMA])[-1]]
                return matches[0].oid if matches else None
        return None

    def install(self, connection: duckdb.DuckDBPyConnection, names: Iterable[str], existing: set[str]) -> None:
        """Make the tables, functions and types that ``names`` mention, unless they are ``existing``, and enter them."""
        requested_names = {*names}
        for name in requested_names & _NEEDED.keys():
            requested_names |= {_NEEDED[name]}
        for name in sorted(requested_names - existing):
            existing.add(name)
            for schema, tables in ((SYSTEM_SCHEMA, _TABLES), (INFORMATION_SCHEMA, _INFORMATION_SCHEMA)):
                if name in tables:
                    self._make_table(connection, schema, name, tables[name])
            if name in _FUNCTIONS:
                versions, body = _FUNCTIONS[name]
                _make_function(connection, name, [(parameters, body) for parameters in versions])
            elif name in self._own_functions:
                _make_function(connection, name, self._own_functions[name])
            elif name == "pg_get_keywords":
                columns = "keyword_name AS word, 'U' AS catcode, keyword_category AS catdesc"
                rows = f"SELECT {columns} FROM duckdb_keywords()"  # noqa: S608  a constant
                connection.execute(f"CREATE MACRO {DATABASE}.{SYSTEM_SCHEMA}.pg_get_keywords() AS TABLE {rows}")
            elif name == "_pg_expandarray":
                connection.execute(
                    f"CREATE MACRO {DATABASE}.{INFORMATION_SCHEMA}._pg_expandarray(a) AS "
                    "{'x': unnest(a), 'n': generate_subscripts(a, 1)}"
                )
            if name in _TYPES:
                connection.execute(f'CREATE TYPE {DATABASE}.{SYSTEM_SCHEMA}."{name}" AS {_TYPES[name]}')

    @cached_property
    def _own_functions(self) -> dict[str, list[tuple[str, str]]]:
        by_name: dict[str, int] = {}
        cases = []
        for kind in BY_OID.values():
            name = f"{kind.element.long_name}[]" if kind.element else kind.long_name
            cases.append(f"WHEN {kind.oid} THEN {sql_literal(name)}")
            by_name |= {name: kind.oid, kind.name: kind.oid}
        numbers = " ".join(f"WHEN {sql_literal(name)} THEN {oid}" for name, oid in by_name.items())
        pairs = [f"{sql_literal(name.lower())}: {sql_literal(value)}" for name, value in self.settings.items()]
        setting = f"MAP {{{', '.join(pairs)}}}[lower(a)]"
        classes, namespaces = f"{SYSTEM_SCHEMA}.pg_class", f"{SYSTEM_SCHEMA}.pg_namespace"
        relation = f"(SELECT min(oid) FROM {classes} WHERE relname = split_part(a, '.', -1))"  # noqa: S608  constants
        namespace = f"(SELECT min(oid) FROM {namespaces} WHERE nspname = a)"  # noqa: S608  constants
        return {
            "version": [("", f"'PostgreSQL {SERVER_VERSION} (Penstock, DuckDB {duckdb.__version__})'")],
            "pg_user_name": [("", sql_literal(self.user))],
            "current_setting": [("a", setting), ("a, b", setting)],
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
            _, kind, default = _ARROW[letter]
            arrays[column_name] = pa.array([row.get(column_name, default) for row in rows], kind)
        names = ", ".join(
            f'CAST("{column_name}" AS {_ARROW[letter][0]}) AS "{column_name}"' for column_name, letter in columns
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

    def _rows_of_pg_type(self) -> Iterator[dict[str, Any]]:
        for kind in BY_OID.values():
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
                "typinput": "array_in" if kind.element else f"{kind.name}in",
                "typoutput": "array_out" if kind.element else f"{kind.name}out",
                "typreceive": "array_recv" if kind.element else f"{kind.name}recv",
                "typsend": "array_send" if kind.element else f"{kind.name}send",
                "typtypmod": NO_MODIFIER,
            }

    def _rows_of_pg_database(self) -> Iterator[dict[str, Any]]:
        yield {
            "oid": DATABASE_OID,
            "datname": DATABASE,
            "datdba": OWNER_OID,
            "encoding": 6,
            "datlocprovider": "c",
            "datallowconn": True,
            "datconnlimit": -1,
            "datcollate": "C",
            "datctype": "C",
        }

    def _rows_of_pg_roles(self) -> Iterator[dict[str, Any]]:
        for oid, name in {OWNER_OID: OWNER, **({FIRST_OID - 1: self.user} if self.user != OWNER else {})}.items():
            yield {"oid": oid, "rolname": name, "rolinherit": True, "rolcanlogin": True, "rolconnlimit": -1}

    def _rows_of_pg_user(self) -> Iterator[dict[str, Any]]:
        for role in self._rows_of_pg_roles():
            yield {"usename": role["rolname"], "usesysid": role["oid"]}

    def _rows_of_pg_settings(self) -> Iterator[dict[str, Any]]:
        for name, setting in self.settings.items():
            yield {"name": name, "setting": setting, "context": "user", "vartype": "string", "source": "default"}

    def _rows_of_pg_tables(self) -> Iterator[dict[str, Any]]:
        for relation in self.relations:
            yield {"schemaname": relation.schema, "tablename": relation.name, "tableowner": OWNER}

    def _rows_of_pg_timezone_names(self) -> Iterator[dict[str, Any]]:
        yield {"name": "UTC", "abbrev": "UTC"}

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

    def _rows_of_table_privileges(self) -> Iterator[dict[str, Any]]:
        for relation in self.relations:
            yield {
                "grantor": OWNER,
                "grantee": self.user,
                "table_catalog": DATABASE,
                "table_schema": relation.schema,
                "table_name": relation.name,
                "privilege_type": "SELECT",
                "is_grantable": "NO",
                "with_hierarchy": "NO",
            }

    def _rows_of_enabled_roles(self) -> Iterator[dict[str, Any]]:
        yield {"role_name": self.user}

    def _rows_of_character_sets(self) -> Iterator[dict[str, Any]]:
        yield {"character_set_name": "UTF8"}


_ROWS: dict[str, Callable[[SystemCatalog], Iterator[dict[str, Any]]]] = {
    "pg_namespace": SystemCatalog._rows_of_pg_namespace,
    "pg_class": SystemCatalog._rows_of_pg_class,
    "pg_attribute": SystemCatalog._rows_of_pg_attribute,
    "pg_type": SystemCatalog._rows_of_pg_type,
    "pg_database": SystemCatalog._rows_of_pg_database,
    "pg_roles": SystemCatalog._rows_of_pg_roles,
    "pg_user": SystemCatalog._rows_of_pg_user,
    "pg_settings": SystemCatalog._rows_of_pg_settings,
    "pg_tables": SystemCatalog._rows_of_pg_tables,
    "pg_timezone_names": SystemCatalog._rows_of_pg_timezone_names,
    "schemata": SystemCatalog._rows_of_schemata,
    "tables": SystemCatalog._rows_of_tables,
    "columns": SystemCatalog._rows_of_columns,
    "table_privileges": SystemCatalog._rows_of_table_privileges,
    "enabled_roles": SystemCatalog._rows_of_enabled_roles,
    "character_sets": SystemCatalog._rows_of_character_sets,
    "role_table_grants": SystemCatalog._rows_of_table_privileges,
}
"""Tables with rows; all others are empty."""


def _precision(entry: Column) -> dict[str, str]:
    if entry.kind is not NUMERIC or entry.modifier == NO_MODIFIER:
        return {}
    modifier = entry.modifier - 4
    return {"numeric_precision": str(modifier >> 16), "numeric_scale": str(modifier & 0xFFFF)}


def _system_oid(table: str) -> int:
    return 1 + zlib.crc32(table.encode()) % 1000


def _make_function(connection: duckdb.DuckDBPyConnection, name: str, versions: Sequence[tuple[str, str]]) -> None:
    bodies = ", ".join(f"({parameters}) AS {body}" for parameters, body in versions)
    connection.execute(f'CREATE MACRO {DATABASE}.{SYSTEM_SCHEMA}."{name}" {bodies}')


def open_database(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the database and its schemas, and let unqualified names mean them."""
    for statement in (
        f"ATTACH ':memory:' AS {DATABASE}",
        *(f"CREATE SCHEMA {DATABASE}.{schema}" for schema in (SCHEMA, SYSTEM_SCHEMA, INFORMATION_SCHEMA)),
        f"SET search_path = '{DATABASE}.{SCHEMA},{DATABASE}.{SYSTEM_SCHEMA}'",
    ):
        connection.execute(statement)
