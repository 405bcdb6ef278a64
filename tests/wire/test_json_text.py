"""JSON text kept as sent; bad documents are separated from good ones."""

from __future__ import annotations

import json
import time
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.json_text import (
    MAX_DEPTH,
    Foreign,
    Members,
    NotJson,
    Scanner,
    count_values,
    exact,
    is_json,
    is_unchanged,
    readable,
    text_of_exact,
    without_blanks,
)
from tests.wire.sample_requests import EXACT

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(VALUES, max_size=5), st.sampled_from(["", " ", "\n", "\r\n\t"]))
def test_documents_one_behind_the_other_are_found(values: list[Any], between: str) -> None:
    texts = [json.dumps(value) for value in values if not isinstance(value, list)]
    text = (between or " ").join(texts)
    spans = list(Scanner(text).documents())
    assert [text[span.begin : span.end] for span in spans] == texts
    assert not any(span.error for span in spans)


@given(st.lists(VALUES, max_size=5))
def test_elements_and_members_are_found(values: list[Any]) -> None:
    text = json.dumps(values, indent=1)
    spans = list(Scanner(text).elements(0))
    assert [json.loads(text[span.begin : span.end]) for span in spans] == values
    named = json.dumps({str(number): value for number, value in enumerate(values)}, indent=1)
    members = [(name, json.loads(named[span.begin : span.end])) for name, span in Scanner(named).members(0)]
    assert members == [(str(number), value) for number, value in enumerate(values)]


@given(VALUES)
def test_exactly_parsed_json_is_written_unchanged(value: Any) -> None:
    text = json.dumps([value], ensure_ascii=False)
    assert text_of_exact(exact(text.encode())) == without_blanks(text)


@pytest.mark.parametrize("text", EXACT)
def test_texts_that_a_parser_would_change_are_json_and_told_apart(text: str) -> None:
    assert is_json(text.encode())
    assert is_json(f" {text} ".encode())
    try:
        unchanged = is_unchanged(text.encode(), orjson.loads(text))
    except ValueError:
        unchanged = False
    assert not unchanged


@pytest.mark.parametrize("text", [b"", b" ", b"NaN", b"[Infinity]", b"1.", b"01", b"\xff", b"[1", b"1 2", b'"\n"'])
def test_text_that_is_no_json_is_refused(text: bytes) -> None:
    assert not is_json(text)


@given(st.lists(st.lists(VALUES, max_size=3), max_size=4))
def test_concatenated_arrays_yield_their_elements(lists: list[list[Any]]) -> None:
    text = "\n".join(json.dumps(each, indent=1) for each in lists)
    spans = [json.loads(text[span.begin : span.end]) for span in Scanner(text).documents()]
    assert spans == [value for each in lists for value in each]


def test_a_list_on_several_lines_with_a_bad_element_is_read_once() -> None:
    text = '[\n{"a":1},\n{"a":NaN},\n{"a":2}\n]\n{"a":3} x'
    spans = list(Scanner(text).documents())
    assert [None if span.error else text[span.begin : span.end] for span in spans] == [
        '{"a":1}',
        None,
        '{"a":2}',
        '{"a":3}',
        None,
    ]


def test_depth_is_bounded() -> None:
    assert is_json(b"[" * MAX_DEPTH + b"1.10" + b"]" * MAX_DEPTH)
    assert not is_json(b"[" * 5000 + b"1.10" + b"]" * 5000)
    deep = exact(b'{"a":' + b"[" * 5000 + b"]" * 5000 + b',"b":1.10}')
    assert deep.get("b") == "1.10"
    with pytest.raises(NotJson, match="nested deeper"):
        text_of_exact(deep.get("a"))


def test_members_keep_repeated_names_and_foreign_values() -> None:
    document = exact(b'{"a":1,"a":[NaN],"b":null,"c":[NaN],"c":null}')
    assert isinstance(document, Members)
    assert document.get("x", "c") == [Foreign("NaN")]
    assert [name for name, _ in document] == ["a", "a", "b", "c", "c"]
    with pytest.raises(NotJson, match="x or a occurs more than once"):
        document.get("x", "a")


def test_halves_of_surrogate_pairs_become_one_character_each() -> None:
    assert readable("a\ud83d\udca9") == "a\ufffd\ufffd"
    assert readable("a\U0001f4a9é") == "a\U0001f4a9é"


PIECES = ['{"a":[', '{"a":"\n', '{"a" 1}\n', "{{\n", "[{", '{"a":[1,1,1,1,\n', "x[]", "x[]" + " " * 100]


@pytest.mark.parametrize("piece", PIECES)
def test_bad_documents_take_linear_time(piece: str) -> None:
    def seconds(count: int) -> float:
        text, began = piece * count, time.process_time()
        assert all(span.error for span in Scanner(text).documents())
        return time.process_time() - began

    seconds(100)
    few, many = max(seconds(4_000), 0.005), seconds(32_000)
    assert many < 40 * few


@given(st.lists(VALUES, max_size=5), st.integers(1, 9))
def test_counted_values_are_the_brackets_and_commas_outside_of_strings(documents: list[Any], slice_bytes: int) -> None:
    def count(value: Any) -> int:
        parts = list(value.values()) if isinstance(value, dict) else value
        return 1 + max(len(parts) - 1, 0) + sum(map(count, parts)) if isinstance(value, dict | list) else 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.wire.json_text._SLICE_BYTES", slice_bytes)
        assert count_values(json.dumps(documents).encode()) == count(documents)


@given(st.binary())
def test_values_of_any_bytes_are_counted(data: bytes) -> None:
    assert 0 <= count_values(data) <= len(data)
