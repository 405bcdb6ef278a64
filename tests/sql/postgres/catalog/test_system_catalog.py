"""The description of the database that clients read first."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from penstock.sql.catalog import Catalog
from penstock.sql.postgres.catalog.system_catalog import SystemCatalog
from penstock.sql.postgres.server import Server

CATALOG = Catalog({"events": {"n": "BIGINT", "d": "DECIMAL(12,4)"}}, ("a-topic",), {"payload": "BLOB"})


def test_number_of_an_object_depends_on_its_name_only() -> None:
    numbers = [
        SystemCatalog(catalog).object_number("regclass", '"topics"."a-topic"')
        for catalog in (CATALOG, Catalog({**CATALOG.views, "z": {}}, ("another", "a-topic"), {}))
    ]
    assert numbers[0] == numbers[1] is not None
    catalog = SystemCatalog(CATALOG)
    assert catalog.object_number("regclass", "EVENTS") == catalog.object_number("regclass", "public.events")
    assert catalog.object_number("regclass", "nosuch") is None
    assert catalog.object_number("regnamespace", "public") == 2200
    assert catalog.object_number("regtype", "bigint") == 20
    assert catalog.object_number("regclass", "16385") == 16385


FIRST_QUERIES: dict[str, str] = {
    "JDBC, tables": (
        "SELECT NULL AS TABLE_CAT, n.nspname AS TABLE_SCHEM, c.relname AS TABLE_NAME, CASE c.relkind WHEN 'r' THEN "
        "'TABLE' END AS TABLE_TYPE, d.description AS REMARKS FROM pg_catalog.pg_namespace n, pg_catalog.pg_class c "
        "LEFT JOIN pg_catalog.pg_description d ON (c.oid = d.objoid AND d.objsubid = 0 AND d.classoid = "
        "'pg_class'::regclass) WHERE c.relnamespace = n.oid AND c.relname LIKE 'events' AND n.nspname !~ '^pg_toast'"
    ),
    "JDBC, keys": (
        "SELECT a.attname, (i.keys).n AS key_seq FROM pg_catalog.pg_class ct JOIN pg_catalog.pg_attribute a ON "
        "(ct.oid = a.attrelid) JOIN (SELECT i.indexrelid, i.indrelid, i.indisprimary, "
        "information_schema._pg_expandarray(i.indkey) AS keys FROM pg_catalog.pg_index i) i ON (a.attnum = (i.keys).x)"
    ),
    "JDBC, keywords": (
        "select string_agg(word, ',') from pg_catalog.pg_get_keywords() where word <> ALL ('{a,abs,all}'::text[])"
    ),
    "psycopg, a type": (
        "SELECT typname AS name, oid, typarray AS array_oid, oid::regtype::text AS regtype, typdelim AS delimiter "
        "FROM pg_type t WHERE t.oid = to_regtype('bigint') ORDER BY t.oid"
    ),
    "Grafana, tables": (
        "select quote_ident(table_name) from information_schema.tables where quote_ident(table_schema) not in "
        "('information_schema', 'pg_catalog') and table_type = 'BASE TABLE'"
    ),
    "Grafana, version": "SELECT current_setting('server_version_num')::int/100 as version",
    "Grafana, TimescaleDB": "SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'",
    "Metabase, privileges": (
        "select t.schemaname, t.tablename from pg_catalog.pg_tables t where t.schemaname !~ '^pg_' and "
        "pg_catalog.has_any_column_privilege(current_user, '\"' || t.schemaname || '\".\"' || t.tablename || '\"', "
        "'select')"
    ),
    "Metabase, columns": (
        "SELECT c.column_name AS name, c.udt_name, c.ordinal_position - 1, c.table_schema, c.table_name, "
        "col_description(format('{}.{}', c.table_schema, c.table_name)::regclass::oid, c.ordinal_position) "
        "FROM information_schema.columns c WHERE c.table_schema = ANY (ARRAY['public'])"
    ),
    "Superset, views": (
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'public' AND "
        "c.relkind = ANY (ARRAY['v', 'm'])"
    ),
    "dbt, relations": (
        "select 'penstock' as database, tablename as name, schemaname as schema, 'table' as type from pg_tables where "
        "schemaname ilike 'public' union all select 'penstock', viewname, schemaname, 'view' from pg_views where "
        "schemaname ilike 'public' union all select 'penstock', matviewname, schemaname, 'materialized_view' from "
        "pg_matviews where schemaname ilike 'public'"
    ),
    "dbt, schemas": "select distinct nspname from pg_namespace",
    "dbt, a schema": "select count(*) from pg_namespace where nspname = 'public'",
    "dbt, dependencies": (
        "with relation as (select pg_rewrite.ev_class as class, pg_rewrite.oid as id from pg_rewrite), class as "
        "(select oid as id, relname as name, relnamespace as schema from pg_class), schema as (select "
        "pg_namespace.oid as id, pg_namespace.nspname as name from pg_namespace where nspname not like 'pg\\_%') "
        "select a.name as a, class.name as referenced_name, b.name as b from relation join class on "
        "relation.class=class.id join schema as a on class.schema=a.id join schema as b on class.schema=b.id "
        "group by a, referenced_name, b order by a, referenced_name, b"
    ),
    "DBeaver": (
        "SELECT db.oid, db.* FROM pg_catalog.pg_database db WHERE datallowconn AND NOT datistemplate OR db.datname = "
        "current_database() ORDER BY db.datname"
    ),
    "DBeaver, sizes": "select pg_catalog.pg_total_relation_size(c.oid), pg_size_pretty(0) from pg_class c",
    "Sequelize, columns": (
        'SELECT pk.constraint_type as "Constraint", c.column_name as "Field", c.data_type as "Type", (SELECT '
        "array_agg(e.enumlabel) FROM pg_catalog.pg_type t JOIN pg_catalog.pg_enum e ON t.oid=e.enumtypid WHERE "
        't.typname=c.udt_name) AS "special", (SELECT pgd.description FROM pg_catalog.pg_statio_all_tables AS st INNER '
        "JOIN pg_catalog.pg_description pgd on (pgd.objoid=st.relid) WHERE c.ordinal_position=pgd.objsubid AND "
        'c.table_name=st.relname) AS "Comment" FROM information_schema.columns c LEFT JOIN (SELECT tc.table_schema, '
        "tc.table_name, cu.column_name, tc.constraint_type FROM information_schema.TABLE_CONSTRAINTS tc JOIN "
        "information_schema.KEY_COLUMN_USAGE cu ON tc.table_schema=cu.table_schema AND tc.constraint_type='PRIMARY "
        "KEY') pk ON pk.table_schema=c.table_schema AND pk.column_name=c.column_name WHERE c.table_name = 'events'"
    ),
    "TypeORM, schema": "SELECT * FROM current_schema()",
    "TypeORM, database": "SELECT * FROM current_database()",
    "Django, indexes": (
        "SELECT indexname, array_agg(attname ORDER BY arridx), indisunique, array_agg(ordering ORDER BY arridx) FROM ("
        "SELECT c2.relname as indexname, idx.*, attr.attname, am.amname, CASE am.amname WHEN 'btree' THEN CASE "
        "(option & 1) WHEN 1 THEN 'DESC' ELSE 'ASC' END END as ordering, c2.reloptions as attoptions FROM (SELECT * "
        "FROM pg_index i, unnest(i.indkey, i.indoption) WITH ORDINALITY koi(key, option, arridx)) idx LEFT JOIN "
        "pg_class c ON idx.indrelid = c.oid LEFT JOIN pg_class c2 ON idx.indexrelid = c2.oid LEFT JOIN pg_am am ON "
        "c2.relam = am.oid LEFT JOIN pg_attribute attr ON attr.attrelid = c.oid AND attr.attnum = idx.key WHERE "
        "c.relname = 'events' AND pg_catalog.pg_table_is_visible(c.oid)) s2 GROUP BY indexname, indisunique"
    ),
    "peewee, indexes": (
        "SELECT i.relname, idx.indisunique, ARRAY(SELECT pg_get_indexdef(idx.indexrelid, k + 1, TRUE) FROM "
        "generate_subscripts(idx.indkey, 1) AS k ORDER BY k) FROM pg_catalog.pg_class AS t INNER JOIN "
        "pg_catalog.pg_index AS idx ON t.oid = idx.indrelid INNER JOIN pg_catalog.pg_class AS i ON idx.indexrelid = "
        "i.oid WHERE t.relname = 'events' AND t.relkind = 'r'"
    ),
    "pgAdmin, encryption": (
        "SELECT gss_authenticated, encrypted FROM pg_catalog.pg_stat_gssapi WHERE pid = pg_backend_pid()"
    ),
    "pgAdmin, settings": (
        "SELECT set_config('bytea_output','hex',false) FROM pg_show_all_settings() WHERE name = 'bytea_output'"
    ),
    "pgAdmin, roles": (
        "SELECT roles.oid as id, roles.rolname as name, CASE WHEN 'pg_signal_backend'=ANY(ARRAY(WITH RECURSIVE cte AS "
        "(SELECT pg_roles.oid,pg_roles.rolname FROM pg_roles WHERE pg_roles.oid = roles.oid UNION ALL SELECT m.roleid, "
        "pgr.rolname FROM cte cte_1 JOIN pg_auth_members m ON m.member = cte_1.oid JOIN pg_roles pgr ON pgr.oid = "
        "m.roleid) SELECT rolname FROM cte)) THEN True ELSE False END as can_signal_backend FROM pg_catalog.pg_roles "
        "as roles WHERE rolname = current_user"
    ),
    "DataGrip, schemas": (
        "select N.oid::bigint as id, N.xmin as state_number, nspname as name, D.description, "
        'pg_catalog.pg_get_userbyid(N.nspowner) as "owner" from pg_catalog.pg_namespace N left join '
        "pg_catalog.pg_description D on N.oid = D.objoid order by case when nspname = pg_catalog.current_schema() then "
        "-1::bigint else N.oid::bigint end"
    ),
    "DataGrip, tables": (
        "select T.relkind as table_kind, T.relname as table_name, T.oid as table_id, T.xmin as table_state_number, "
        "(select pg_catalog.array_agg(inhparent::bigint order by inhseqno)::varchar from pg_catalog.pg_inherits where "
        "T.oid = inhrelid) as ancestors, am.amname from pg_catalog.pg_class T left join pg_catalog.pg_am am on am.oid "
        "= T.relam where relnamespace = 2200::oid and relkind in ('r', 'm', 'v', 'f', 'p') order by 1, 3"
    ),
    "Grafana, tables of the search path": (
        "SELECT CASE WHEN quote_ident(table_schema) IN (SELECT CASE WHEN trim(s[i]) = '\"$user\"' THEN user "
        "ELSE trim(s[i]) END FROM "
        "generate_series(array_lower(string_to_array(current_setting('search_path'),','),1), "
        "array_upper(string_to_array(current_setting('search_path'),','),1)) as i, "
        "string_to_array(current_setting('search_path'),',') s) THEN quote_ident(table_name) ELSE "
        "quote_ident(table_schema) || '.' || quote_ident(table_name) END AS \"table\" FROM "
        "information_schema.tables ORDER BY 1"
    ),
    "Npgsql, types": (
        "SELECT typ.oid, typ.typname, CASE WHEN proc.proname='array_recv' THEN 'a' ELSE typ.typtype END AS "
        "typtype, CASE WHEN proc.proname='array_recv' THEN typ.typelem WHEN typ.typtype='r' THEN rngsubtype "
        "WHEN typ.typtype='m' THEN (SELECT rngtypid FROM pg_range WHERE rngmultitypid = typ.oid) WHEN "
        "typ.typtype='d' THEN typ.typbasetype END AS elemtypoid FROM pg_type AS typ LEFT JOIN pg_class AS cls "
        "ON (cls.oid = typ.typrelid) LEFT JOIN pg_proc AS proc ON proc.oid = typ.typreceive LEFT JOIN "
        "pg_range ON (pg_range.rngtypid = typ.oid)"
    ),
    "Npgsql, columns": (
        "SELECT column_name, udt_name::regtype::text AS data_type, character_maximum_length, "
        "character_set_catalog, collation_catalog FROM information_schema.columns"
    ),
    "ODBC, foreign keys": (
        "select a1.attname, i::int2 as key_seq from ((select cn.oid, conrelid, conkey, confupdtype, "
        "generate_series(array_lower(conkey, 1), array_upper(conkey, 1)) as i from pg_catalog.pg_constraint "
        "cn where contype = 'f') ref inner join pg_catalog.pg_class c1 on c1.oid = ref.conrelid) inner join "
        "pg_catalog.pg_attribute a1 on a1.attrelid = c1.oid and a1.attnum = conkey[i]"
    ),
    "psql, operator families": ('SELECT o.amopopr::pg_catalog.regoperator AS "Operator" FROM pg_catalog.pg_amop o'),
    "Tableau": "select current_schemas(false), current_schemas(true), current_catalog, session_user",
}


@pytest.mark.parametrize("name", FIRST_QUERIES)
def test_first_query_of_a_client_is_answered(connection: psycopg.Connection[Any], name: str) -> None:
    text = FIRST_QUERIES[name]
    assert connection.execute(text).description
    with psycopg.ClientCursor(connection) as cursor:
        assert cursor.execute(text).description


def test_tables_have_their_columns_with_postgresqls_types(connection: psycopg.Connection[Any]) -> None:
    columns = (
        "select column_name, data_type, udt_name from information_schema.columns where table_schema = 'public' and "
        "table_name = 'events' and column_name in ('offset', 'received', 'payload', 'data') order by 1"
    )
    assert connection.execute(columns).fetchall() == [
        ("data", "json", "json"),
        ("offset", "bigint", "int8"),
        ("payload", "bytea", "bytea"),
        ("received", "timestamp with time zone", "timestamptz"),
    ]
    types = (
        "select a.attname, format_type(a.atttypid, a.atttypmod) from pg_attribute a where a.attrelid = "
        "'public.events'::regclass and a.attname = 'uuid'"
    )
    assert connection.execute(types).fetchall() == [("uuid", "text")]


@pytest.mark.parametrize(
    "text",
    [
        "select a.x, k.* from (values (1, array[1, 2], array[3]), (2, array[5], array[6, 7])) a(x, p, q), "
        "unnest(a.p, a.q) with ordinality k(p, q, n) order by 1, n",
        "select a.x, k.p, k.q from (values (1, array[1, 2], array[3, 4])) a(x, p, q), unnest(a.p, a.q) k(p, q) "
        "order by 2",
        "select x, array(select k + 1 from generate_subscripts(a.p, 1) as k order by k) from (values (1, array[7, 8]), "
        "(2, array[9])) a(x, p) order by 1",
        "select k from generate_subscripts(array[7, 8], 1) k where k > 1",
        "select x, k from (values (1, array[7, 8]), (2, array[9])) a(x, p), generate_subscripts(a.p, 1) k order by 1",
        "select x, k from (values (1, array[7, 8])) a(x, p) join (values (1)) b(y) on x = y, "
        "generate_subscripts(a.p, 1) as k where k > 1",
        "select x, (select max(k) from generate_subscripts(a.p, 1) k) from (values (1, array[7, 8])) a(x, p)",
        "select 'a' = any(array(select 'a')), 'b' = any (array (with x as (select 'a') select * from x)), "
        "3 > all(array(select 2)), 1 = any(array(select 2) || array[1])",
        "select json_typeof(x::json), json_array_length('[1, 2]') from (values ('1'), ('1.5'), ('\"a\"'), ('null'), "
        "('[]'), ('{}'), ('true'), (null)) t(x)",
    ],
)
def test_arrays_are_tables_as_in_postgresql(
    connection: psycopg.Connection[Any], postgres: psycopg.Connection[Any], text: str
) -> None:
    assert connection.execute(text).fetchall() == postgres.execute(text).fetchall()


@pytest.mark.parametrize(
    "text",
    [
        "select format('%I.%I %s%% %L %L', 'a b', 'name', 5, 'it''s', null)",
        "select quote_ident(x) from (values ('name'), ('a b'), ('A'), ('select'), ('a\"b')) t(x)",
        "select parse_ident('a.\"B c\"'), (parse_ident('Events'))[1], array_length(parse_ident('x.y'), 1)",
        "select substring('ab12' from '[0-9]+'), substring('ab12' from '([a-z])b'), substring('a' from 'x')",
        "select substring('abcdef' from 2 for 3), substring('abcdef' from 2)",
        "select s[i] from generate_series(1, 2) as i, string_to_array('a,b', ',') s order by 1",
        "select 7 as n, generate_series(1, 3) as i order by 2",
        "select array_remove(array[1, 2, null, 1], 1)",
    ],
)
def test_functions_of_catalog_queries_answer_as_in_postgresql(
    connection: psycopg.Connection[Any], postgres: psycopg.Connection[Any], text: str
) -> None:
    assert connection.execute(text).fetchall() == postgres.execute(text).fetchall()


def test_arrays_are_recognised_by_the_function_that_reads_them(connection: psycopg.Connection[Any]) -> None:
    rows = {name: (kind, element) for _, name, kind, element in connection.execute(FIRST_QUERIES["Npgsql, types"])}
    assert rows["_int8"] == ("a", 20)
    assert rows["int8"] == ("b", None)


def test_sqlalchemy_reflects_the_tables(sql_server: Server) -> None:
    host, port = sql_server.address
    engine = sa.create_engine(f"postgresql+psycopg://ann@{host}:{port}/penstock")
    try:
        inspector = sa.inspect(engine)
        assert {"public", "topics"} <= {*inspector.get_schema_names()}
        assert {"events", "landed", "watermarks"} <= {*inspector.get_table_names()}
        assert not {"secret", "t"} & {*inspector.get_table_names()}
        assert inspector.get_table_names("topics") == ["secret", "t"]
        assert inspector.get_view_names() == []
        columns = {column["name"]: column["type"] for column in inspector.get_columns("events")}
        assert isinstance(columns["received"], sa.TIMESTAMP)
        assert isinstance(columns["offset"], sa.BigInteger)
        assert inspector.get_pk_constraint("events")["constrained_columns"] == []
        assert inspector.get_foreign_keys("events") == inspector.get_indexes("events") == []
        table = sa.Table("events", sa.MetaData(), autoload_with=engine)
        query = sa.select(table.c.uuid).where(table.c.topic == "t", table.c.offset >= 1).limit(5)
        with engine.connect() as connection:
            assert connection.execute(query).fetchall() == [("u1",)]
    finally:
        engine.dispose()
