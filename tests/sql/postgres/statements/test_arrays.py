"""Arrays of PostgreSQL as DuckDB's lists and tables."""

from __future__ import annotations

import pytest

from penstock.sql.postgres.statements.arrays import array_literal, json_path
from penstock.sql.postgres.statements.statement import split
from penstock.sql.postgres.statements.tokens import Token
from penstock.sql.postgres.statements.translation import translate


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("'{r,\"p q\",NULL}'", "['r', 'p q', NULL]"),
        ("'{}'", "[]"),
        ("'{broken'", None),
        ("17", None),
    ],
)
def test_text_of_an_array_is_a_list(text: str, elements: str | None) -> None:
    assert array_literal(Token("text", text, 0)) == elements


@pytest.mark.parametrize(
    ("text", "path", "count"),
    [
        ("'{a,0,b c}'", """'$."a"[0]."b c"'""", 1),
        ("array['a', '0']::text[]", """'$."a"[0]'""", 10),
        ("array['a'", None, 0),
    ],
)
def test_path_of_json_is_written_for_duckdb(text: str, path: str | None, count: int) -> None:
    (statement,) = split(text)
    assert json_path(statement.significant, 0) == (path, count)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from t, unnest(a, b) k(x, y)", "from t, (SELECT unnest(a), unnest( b)) k(x, y)"),
        ("select unnest(array[1, 2])", "select unnest(array[1, 2])"),
        ("from generate_subscripts(a, 1) AS k", "from (SELECT generate_subscripts(a, 1)) AS k(k)"),
        ("from generate_subscripts(a, 1) k where", "from (SELECT generate_subscripts(a, 1)) k(k) where"),
        ("from generate_subscripts(a, 1) limit 1", "from (SELECT generate_subscripts(a, 1)) limit 1"),
        ("from generate_subscripts(a, 1) cross join t", "from (SELECT generate_subscripts(a, 1)) cross join t"),
        ("from t, generate_subscripts(a, 1) k", "from t, (SELECT generate_subscripts(a, 1)) k(k)"),
        ("select a[1, 2], generate_subscripts(b, 1) k", "select a[1, 2], generate_subscripts(b, 1) k"),
        ("from generate_subscripts(a, 1) AS g(i)", "from (SELECT generate_subscripts(a, 1)) AS g(i)"),
        ("select unnest(x, recursive := true)", "select unnest(x, recursive := true)"),
        ("select unnest(x, max_depth := 2)", "select unnest(x, max_depth := 2)"),
        ("select generate_subscripts(a, 1) as k", "select generate_subscripts(a, 1) as k"),
        (
            "select a is distinct from b, generate_subscripts(b, 1) from t group by a, generate_subscripts(b, 1)",
            "select a is distinct from b, generate_subscripts(b, 1) from t group by a, generate_subscripts(b, 1)",
        ),
    ],
)
def test_arrays_are_tables_of_their_elements(text: str, expected: str) -> None:
    assert translate(*split(text)).text == expected
