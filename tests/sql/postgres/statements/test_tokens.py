"""Tokens of any text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.sql.postgres.statements.statement import split
from penstock.sql.postgres.statements.tokens import tokens_of
from penstock.sql.postgres.statements.translation import translate

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
