from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.slogd.json.go_json import first_value, quote_char

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(values, st.sampled_from(["", " rest", "\n{"]), st.sampled_from([None, 1]))
def test_the_first_value_is_read_whatever_follows(value: object, rest: str, indent: int | None) -> None:
    text = " " + json.dumps(value, indent=indent) + (rest or " ")
    if not isinstance(value, int | float) or isinstance(value, bool):
        assert first_value(text.encode()) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "EOF"),
        ("  ", "EOF"),
        ("not json", "invalid character 'o' in literal null (expecting 'u')"),
        ("tru", "unexpected EOF"),
        ('{"a":', "unexpected EOF"),
        ("[[", "unexpected EOF"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
        ('{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ("[1 2]", "invalid character '2' after array element"),
        ("{'a':1}", r"invalid character '\'' looking for beginning of object key string"),
        ('"\x01"', r"invalid character '\u0001' in string literal"),
        (r'"\x"', "invalid character 'x' in string escape code"),
        (r'"\u12g4"', r"invalid character 'g' in \u hexadecimal character escape"),
        ("[-a]", "invalid character 'a' in numeric literal"),
        ("[1.x]", "invalid character 'x' after decimal point in numeric literal"),
        ("[1ex]", "invalid character 'x' in exponent of numeric literal"),
        ("[NaN]", "invalid character 'N' looking for beginning of value"),
        ("é", "invalid character 'Ã' looking for beginning of value"),
    ],
)
def test_what_is_no_json_is_refused_in_gos_words(text: str, said: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - its whole text is looked at
        first_value(text.encode())
    assert str(raised.value) == said


@given(st.binary(max_size=40) | st.text(alphabet='{}[]",:1.eE-+tfnul\\ ', max_size=20).map(str.encode))
@example(b"[" * 100_000)
@example(b"1" * 10_000)
def test_any_bytes_are_a_value_or_refused(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        first_value(data)


def test_characters_are_shown_as_go_shows_them() -> None:
    assert [quote_char(char) for char in ("a", "'", '"', "\n")] == ["'a'", r"'\''", "'\"'", r"'\n'"]
