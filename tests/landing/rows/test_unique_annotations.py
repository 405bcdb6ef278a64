"""Names of annotations are unique within a row of a table, and nothing that was sent is left out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.landing.rows.unique_annotations import unique_annotations
from penstock.records import ANNOTATIONS

Pairs = list[tuple[str, str | None]]
Rows = list[Pairs | None]


def expected(rows: Rows) -> Rows:
    """The rule in plain Python."""
    unique: Rows = []
    for pairs in rows:
        texts: dict[str, list[str | None]] = {}
        for name, text in pairs or ():
            texts.setdefault(name, []).append(text)
        joined = [
            (name, sent[0] if len(sent) == 1 else "\0".join(text or "" for text in sent))
            for name, sent in texts.items()
        ]
        unique.append(None if pairs is None else joined)
    return unique


def maps(rows: Rows) -> pa.Array[Any]:
    return pa.array(rows, ANNOTATIONS)


@pytest.mark.parametrize(
    ("pairs", "unique"),
    [
        ([("_a", "1"), ("_a", "2")], [("_a", "1\0002")]),
        ([("a", "1"), ("b", "x"), ("a", "1")], [("a", "1\0001"), ("b", "x")]),
        ([("", "1"), ("", "")], [("", "1\0")]),
        ([("a", None), ("b", None)], [("a", None), ("b", None)]),
        ([("a", None), ("a", "x"), ("b", None)], [("a", "\0x"), ("b", None)]),
        ([("a", "1"), ("A", "2"), ("a ", "3")], [("a", "1"), ("A", "2"), ("a ", "3")]),
    ],
)
def test_values_of_a_repeated_name_are_joined_by_nul_in_the_order_sent(pairs: Pairs, unique: Pairs) -> None:
    assert unique_annotations(maps([None, pairs, []])).to_pylist() == [None, unique, []]


def test_columns_without_repeated_names_are_the_same_object() -> None:
    for rows in ([], [None], [[], None], [[("a", "1")], [("a", "1"), ("b", "1")]]):
        column = maps(rows)
        assert unique_annotations(column) is column


def test_more_names_than_bits_of_a_word_stay_distinct() -> None:
    many: Pairs = [(f"n{number}", str(number)) for number in range(200)]
    column = maps([many, many])
    assert unique_annotations(column) is column
    (row,) = unique_annotations(maps([[*many, ("n199", "x")]])).to_pylist()
    assert row == [*many[:-1], ("n199", "199\0x")]


_NAMES = st.sampled_from(["", "a", "b", "_a", "\0", "é"]) | st.text(max_size=3)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.none() | st.lists(st.tuples(_NAMES, st.none() | st.text(max_size=4)), max_size=6), max_size=12),
    st.data(),
)
def test_any_annotations_follow_the_rule_also_in_slices(rows: Rows, data: st.DataObject) -> None:
    column = maps(rows)
    assert unique_annotations(column).to_pylist() == expected(rows)
    begin = data.draw(st.integers(0, len(rows)))
    end = data.draw(st.integers(begin, len(rows)))
    assert unique_annotations(column[begin:end]).to_pylist() == expected(rows[begin:end])
