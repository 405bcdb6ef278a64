"""A client's text, split into statements and written as DuckDB reads it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sql.postgres.statements import split, tokens_of, translate
from penstock.sql.postgres.system_tables import INFORMATION_SCHEMA_NAMES

SQL = st.text("abE'\"$1;:/*- \n\\({[.", max_size=40)


WORDS = st.lists(
    st.sampled_from(["any", "all", "array", "unnest", "generate_subscripts", "from", "as", "k", *"()[],1-", "::", "$1"])
)


@given(SQL | st.text(max_size=20) | WORDS.map(" ".join))
def test_any_text_is_split_without_losing_a_character(text: str) -> None:
    tokens = list(tokens_of(text))
    assert "".join(token.text for token in tokens) == text
    assert [token.position for token in tokens] == [sum(len(t.text) for t in tokens[:n]) for n in range(len(tokens))]
    for statement in split(text):
        translate(statement, ["'x'"])


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("select 1; select 2", 2),
        ("select ';'; ", 1),
        ("select 'it''s;' -- ;\n", 1),
        ("/* ; /* ; */ ; */ select 1", 1),
        ("select $$;$$, $x$ ; $$ ; $x$", 1),
        ('select 1 as ";"', 1),
        ("select E'\\';'", 1),
        (" ; -- nothing\n;", 0),
        ("select 'unclosed; select 2", 1),
        ("select $a$ unclosed; select 2", 1),
    ],
)
def test_semicolon_in_a_text_or_comment_ends_no_statement(text: str, count: int) -> None:
    assert len(split(text)) == count


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select * from pg_catalog.pg_class", "select * from pg_class"),
        ('select * from "pg_catalog".pg_class', "select * from pg_class"),
        ("select 'pg_catalog.x'", "select 'pg_catalog.x'"),
        ("select * from information_schema.tables", "select * from ischema.tables"),
        ("select * from information_schema.unheard_of", "select * from information_schema.unheard_of"),
        ("where a OPERATOR(pg_catalog.~) 'x' COLLATE pg_catalog.default", "where a ~ 'x'  "),
        ("select current_user", "select pg_user_name()"),
        ("from t, unnest(a, b) k(x, y)", "from t, (SELECT unnest(a), unnest( b)) k(x, y)"),
        ("select unnest(array[1, 2])", "select unnest(array[1, 2])"),
        ("from generate_subscripts(a, 1) AS k", "from (SELECT generate_subscripts(a, 1)) AS k(k)"),
        ("from generate_subscripts(a, 1) k where", "from (SELECT generate_subscripts(a, 1)) k(k) where"),
        ("from generate_subscripts(a, 1) limit 1", "from (SELECT generate_subscripts(a, 1)) limit 1"),
        ("from generate_subscripts(a, 1) cross join t", "from (SELECT generate_subscripts(a, 1)) cross join t"),
        ("from t, generate_subscripts(a, 1) k", "from t, (SELECT generate_subscripts(a, 1)) k(k)"),
        ("select a[1, 2], generate_subscripts(b, 1) k", "select a[1, 2], generate_subscripts(b, 1) k"),
        (
            "select a is distinct from b, generate_subscripts(b, 1) from t group by a, generate_subscripts(b, 1)",
            "select a is distinct from b, generate_subscripts(b, 1) from t group by a, generate_subscripts(b, 1)",
        ),
        ("from generate_subscripts(a, 1) AS g(i)", "from (SELECT generate_subscripts(a, 1)) AS g(i)"),
        ("select unnest(x, recursive := true)", "select unnest(x, recursive := true)"),
        ("select unnest(x, max_depth := 2)", "select unnest(x, max_depth := 2)"),
        ("select 1 = any(array[1, 2", "select 1 = any(array[1, 2"),
        ("select all - array[1]", "select all - array[1]"),
        ("select any, array", "select any, array"),
        ("select generate_subscripts(a, 1) as k", "select generate_subscripts(a, 1) as k"),
        ("select 'public.t'::regclass", "select 7::regclass"),
        ("select 'none'::pg_catalog.regclass", "select CAST(NULL AS BIGINT)::regclass"),
        ("where a = ANY ('{r,\"p q\"}')", "where a = ANY (['r', 'p q'])"),
        ("where a = ANY ('{broken')", "where a = ANY ('{broken')"),
        ("select $1, '$1', \"$1\", $2", "select 'it''s', '$1', \"$1\",  5 "),
        ("select $3", "select $3"),
    ],
)
def test_statement_is_written_for_duckdb(text: str, expected: str) -> None:
    (statement,) = split(text)
    numbers = {"public.t": 7}
    translation = translate(statement, ["'it''s'", "5"], lambda _, name: numbers.get(name), INFORMATION_SCHEMA_NAMES)
    assert translation.text == expected


def test_operator_without_a_near_end_is_left_as_it_is() -> None:
    text = f"select operator({'a ' * 20})"
    assert translate(split(text)[0]).text == text


def test_position_is_the_one_in_the_clients_text() -> None:
    text = "select $1, pg_catalog.nofun(1)"
    (statement,) = split(f"select 1;{text}")[1:]
    translation = translate(statement, ["'a long text literal'"])
    position = translation.source_position(translation.text.index("nofun"))
    assert position == len("select 1;") + text.index("nofun") + 1


@pytest.mark.parametrize(
    "piece",
    [
        "to_char(",
        "#>array[",
        "#>array['a',",
        "operator(",
        "any(",
        "unnest(",
        "unnest(a,",
        "any(array[",
        "from generate_subscripts(",
    ],
)
def test_long_text_is_written_in_time_that_grows_with_its_length(piece: str) -> None:
    """Ten times the expected second: each piece must not look at all that follow."""
    (statement,) = split("select " + piece * 20_000)
    begin_s = time.process_time()
    assert translate(statement).text
    assert time.process_time() - begin_s < 10
