"""Texts that DuckDB would take for JSON, and other engines would not."""

from __future__ import annotations

import re
import sys
import threading

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.landing.rows import strict_json
from penstock.landing.rows.engine import compute
from penstock.landing.rows.strict_json import MAX_DEPTH, is_strict, loads, not_strict
from tests.landing.rows.plain_judge import Reason, judge

LAX = [
    '{"a":NaN}',
    '{"a":[nan ,1]}',
    '{"a":[1,-inf]}',
    '{"a":{"b":-Infinity\n}}',
    '{"a":[1, ]}',
    '{"a":1\n,\t}',
    '{"a":[[1],]}',
]
STRICT = [
    '{"a":"NaN"}',
    '{"a":",]"}',
    '{"a":": nan}"}',
    '{"inf":1}',
    '{"a":[1,2],"b":{}}',
    '{"a":"[nan,"}',
    '{"a":"\\"[nan,"}',
]


def find_refused(texts: list[str | None]) -> list[bool]:
    flags: list[bool] = not_strict(pa.array(texts, pa.string())).tolist()
    return flags


def test_only_lax_json_is_refused() -> None:
    assert find_refused([*LAX, *STRICT, None]) == [True] * len(LAX) + [False] * (len(STRICT) + 1)


@pytest.mark.parametrize("text", LAX)
def test_duckdb_accepts_lax_json(text: str) -> None:
    assert compute({"valid": "json_valid(text)"}, text=pa.array([text]))["valid"].to_pylist() == [True]


PIECES = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    '"a"',
    "1",
    "NaN",
    "-inf",
    "nan\f",
    "information",
    "in",
    "INFINITY",
    " ",
    "\n",
    "\\",
    '"',
    "null",
    "1.",
    "\x00",
]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=14).map("".join), max_size=30), st.integers(1, 50))
def test_text_that_passes_both_checks_is_json(tails: list[str], at_once: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strict_json, "_PIECE", at_once)
        check_against_judge(tails)


def check_against_judge(tails: list[str]) -> None:
    texts = pa.array(["{" + tail for tail in tails], pa.string())
    valid = compute({"valid": "json_valid(text)"}, text=texts)["valid"].to_pylist() if tails else []
    for text, is_valid, lax in zip(texts.to_pylist(), valid, find_refused(texts.to_pylist()), strict=True):
        assert (is_valid and not lax) == (judge(str(text).encode()) != Reason.BAD_JSON), text


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_nesting_limit_equals_limit_of_parsers(opening: str, closing: str) -> None:
    def nested(depth: int) -> str:
        return opening * depth + "1" + closing * depth

    assert find_refused([nested(MAX_DEPTH), nested(MAX_DEPTH + 1), nested(10 * MAX_DEPTH)]) == [False, True, True]


def test_brackets_in_strings_are_no_nesting() -> None:
    assert (
        find_refused(['["' + "[{" * 5000 + '"]', '["' + '\\"[' * 5000 + '"]', "[" * 3 + '"]"' + "]" * 3]) == [False] * 3
    )


def test_deep_texts_do_not_change_recursion_limit() -> None:
    limit, answers = sys.getrecursionlimit(), []
    text = "[" * MAX_DEPTH + "1.50" + "]" * MAX_DEPTH
    thread = threading.Thread(target=lambda: answers.extend([is_strict(text), loads(text)]))
    thread.start()
    thread.join()
    assert answers[0] is True
    inner = answers[1]
    while isinstance(inner, list):
        inner = inner[0]
    assert inner == "1.50", "numbers are texts"
    assert sys.getrecursionlimit() == limit


def test_only_deep_texts_among_long_ones_are_refused() -> None:
    wide = "[" + ",".join(["[1]"] * (MAX_DEPTH + 1)) + "]"
    brackets_in_string = '"' + "[" * (2 * MAX_DEPTH) + '"'
    deep = "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)
    long = '"' + "x" * (3 * MAX_DEPTH) + '"'
    column = pa.array([deep, None, wide, "[]", brackets_in_string, deep, long, deep], pa.string())
    assert not_strict(column[1:7]).tolist() == [False, False, False, False, True, False]


@given(
    st.lists(
        st.lists(st.sampled_from(["[", "]", "{", "}", '"', "\\", "Y", "\x7f", "é"]), max_size=40).map("".join),
        min_size=1,
    )
)
def test_levels_of_many_texts_equal_those_of_the_plain_reader(texts: list[str]) -> None:
    # A text with an open string is not JSON, and may have any depth.
    closed = [text for text in texts if not re.sub(r'"(?:[^"\\]|\\.)*"|\\.', "", text).count('"')]
    without_escapes_outside = [text for text in closed if "\\" not in re.sub(r'"(?:[^"\\]|\\.)*"', "", text)]
    levels = strict_json._deepest_levels(pa.array(["[[]]", *without_escapes_outside, ""], pa.string()))
    assert levels.tolist() == [2, *map(plain_depth, without_escapes_outside), 0]


def plain_depth(text: str) -> int:
    level = deepest = 0
    is_in_string = is_escaped = False
    for character in text:
        if is_in_string:
            is_in_string, is_escaped = character != '"' or is_escaped, character == "\\" and not is_escaped
        elif character == '"':
            is_in_string = True
        elif character in "[]{}":
            level += 1 if character in "[{" else -1
            deepest = max(deepest, level)
    return deepest
