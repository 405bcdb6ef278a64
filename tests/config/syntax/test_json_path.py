"""Paths of fields: the syntax, its errors, and that texts and keys convert into each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.syntax.json_path import BadPath, format_path, parse_path


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("host", ("host",)),
        ("user.id", ("user", "id")),
        ('attributes."http.method"', ("attributes", "http.method")),
        ('"user.id"', ("user.id",)),
        (r'"a\"b\u00e9\\"."[0]"', ('a"bé\\', "[0]")),
        ("first name.@timestamp.0.é/~$", ("first name", "@timestamp", "0", "é/~$")),
        ('""', ("",)),
        ("a\\b", ("a\\b",)),
    ],
)
def test_path_is_keys_from_the_outside_in(text: str, keys: tuple[str, ...]) -> None:
    assert parse_path(text) == keys


@pytest.mark.parametrize(
    ("text", "reason", "character"),
    [
        ("", "the key is empty", 1),
        ("user..id", "the key is empty", 6),
        ("user.", "the key is empty", 6),
        ('user."id', "a quote is not closed", 6),
        ('user"id"', "a dot or the end is expected", 5),
        ("items[0].id", "a dot or the end is expected", 6),
        ("[0]", "elements of lists have no path", 1),
        ("items.[0]", "elements of lists have no path", 7),
        ("user. id", "begins or ends with a blank is quoted", 6),
        ("$.user.id", "a path begins with a key: user.id", 1),
        (r'"\x"', "a string of JSON", 1),
        (r'"\ud800"', "a string of JSON", 1),
        ("a\nb", "a dot or the end is expected", 2),
    ],
)
def test_invalid_path_names_reason_and_character(text: str, reason: str, character: int) -> None:
    with pytest.raises(BadPath) as raised:
        parse_path(text)
    assert repr(text) in str(raised.value)
    assert reason in str(raised.value)
    assert str(raised.value).endswith(f"(character {character})")


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), min_size=1, max_size=4).map(tuple))
def test_any_keys_have_a_path(keys: tuple[str, ...]) -> None:
    assert parse_path(format_path(keys)) == keys


@given(st.text(st.sampled_from('ab."\\[]$ \n\u00e9'), max_size=12))
def test_any_text_is_a_path_or_an_error(text: str) -> None:
    try:
        keys = parse_path(text)
    except BadPath:
        return
    assert parse_path(format_path(keys)) == keys
