"""Pairs of a column and a field of the record are parsed, and anything else is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.audit.fields import BadField, FieldPair, parse_pair


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("id", FieldPair("id", '$."id"')),
        ("order.id", FieldPair("order.id", '$."order"."id"')),
        ("id=key", FieldPair("id", "key")),
        ("id=header:order-id", FieldPair("id", "header:order-id")),
        ("id=$.order.lines[0].id", FieldPair("id", "$.order.lines[0].id")),
        ('id=$."a b"', FieldPair("id", '$."a b"')),
    ],
)
def test_pairs_are_parsed(text: str, pair: FieldPair) -> None:
    assert parse_pair(text) == pair
    assert parse_pair(str(pair)) == pair


@pytest.mark.parametrize("text", ["", "=key", "id=header:", "id=order.id", "id=$", "id=$.a'b", "id=$.a; DROP"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(BadField, match="is not COLUMN=FIELD"):
        parse_pair(text)


@given(st.text())
def test_any_text_is_a_pair_or_refused(text: str) -> None:
    try:
        pair = parse_pair(text)
    except BadField:
        return
    assert "'" not in pair.field or pair.header or not pair.field.startswith("$")
