"""Columns of PostgreSQL's system tables, and its system functions as macros of DuckDB.

Tables that would be empty here, as there are no indexes, constraints or functions of users, exist with the columns that
clients select. ``system_catalog`` fills the others.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.sql.postgres.statements import OBJECT_TYPES

SCHEMA = "public"
"""Schema of the views and typed tables."""
OWNER = "penstock"
"""Role that owns all tables."""
COLUMN_TYPES: dict[str, tuple[str, pa.DataType, Any]] = {
    "b": ("BOOLEAN", pa.bool_(), False),
    "n": ("BIGINT", pa.int64(), 0),
    "f": ("DOUBLE", pa.float64(), -1.0),
    "t": ("VARCHAR", pa.string(), ""),
    "x": ("VARCHAR", pa.string(), None),
    "a": ("VARCHAR[]", pa.list_(pa.string()), None),
    "v": ("BIGINT[]", pa.list_(pa.int64()), None),
    "z": ("TIMESTAMPTZ", pa.timestamp("us", "UTC"), None),
}
"""Types of columns by their letter below: of DuckDB, of Arrow, and the default; ``x`` is a text that may be null."""
TABLES = {
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
    "pg_locks": (
        "locktype:t database:n relation:n page:n tuple:n virtualxid:x transactionid:x classid:n objid:n objsubid:n "
        "virtualtransaction:t pid:n mode:t granted:b fastpath:b waitstart:z"
    ),
    "pg_stat_activity": "datid:n datname:t pid:n usename:t application_name:t state:t query:t query_start:z",
    "pg_stat_gssapi": "pid:n gss_authenticated:b principal:x encrypted:b credentials_delegated:b",
    "pg_stat_user_tables": "relid:n schemaname:t relname:t seq_scan:n n_live_tup:n n_dead_tup:n last_analyze:z",
    "pg_stat_all_tables": "relid:n schemaname:t relname:t seq_scan:n n_live_tup:n n_dead_tup:n last_analyze:z",
    "pg_statio_user_tables": "relid:n schemaname:t relname:t heap_blks_read:n heap_blks_hit:n",
    "pg_statio_all_tables": "relid:n schemaname:t relname:t heap_blks_read:n heap_blks_hit:n",
    "pg_prepared_statements": "name:t statement:t prepare_time:z from_sql:b",
    "pg_cursors": "name:t statement:t is_holdable:b is_binary:b is_scrollable:b creation_time:z",
    "pg_timezone_names": "name:t abbrev:t is_dst:b",
    "pg_db_role_setting": "setdatabase:n setrole:n setconfig:a",
}
TABLES |= {name: f"{layout} xmin:n" for name, layout in TABLES.items() if layout.startswith(("oid:", "att", "ind"))}
"""Tables by name: their columns with the letters of the types. DataGrip reads ``xmin``, a system column."""
INFORMATION_SCHEMA_TABLES = {
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
    "quote_ident": (("a",), """'"' || replace(a, '"', '""') || '"'"""),
    "quote_literal": (("a",), "'''' || replace(CAST(a AS VARCHAR), '''', '''''') || ''''"),
}
CAST_TYPES = {
    **dict.fromkeys((*OBJECT_TYPES, "regrole", "xid", "cid"), "BIGINT"),
    **dict.fromkeys(("name", "cstring", "inet", "bpchar", "citext"), "VARCHAR"),
    **dict.fromkeys(("oidvector", "int2vector"), "BIGINT[]"),
    "jsonb": "JSON",
}
"""DuckDB's types for the names of PostgreSQL's types in casts."""
TABLES_OF_FUNCTIONS = {
    "to_regclass": "pg_class",
    "to_regnamespace": "pg_namespace",
    "pg_show_all_settings": "pg_settings",
}
"""Tables that functions read."""
