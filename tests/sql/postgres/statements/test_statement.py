"""A client's text, split into statements."""

from __future__ import annotations

import pytest

from penstock.sql.postgres.statements.statement import split


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
