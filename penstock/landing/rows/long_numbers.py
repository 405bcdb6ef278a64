"""Long numbers in JSON texts, that a double does not hold: found, and marked so that DuckDB keeps their digits.

Workaround: DuckDB (2.0) reads a number with a point as a double, which has 15 exact digits, or fewer below 1e-307, and
whole numbers of more than 64 bits, too. Before it parses a text, long numbers become strings that begin with ``_MARK``.
Invariant: a text without a long number, or with a string that could be taken for a marked number, is not changed.
Limit: long numbers in a text with the mark in front of a digit are rounded, and do not fit a decimal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.landing.rows.engine import Bytes, Places, compute, pc, rows_with, sql_literal

_MARK = "\ue000"
"""A private character, which hardly any text has."""
_LONG = "[0-9.]{17}"
"""A number of more than 15 digits with a point, or of more than 16, contains this."""
_SMALL = "[0-9.][eE]-[0-9]{3}"
"""A number that may be below the range in which a double has all of its digits contains this."""
_SHIFTED = "[0-9]{16}[eE]"
"""A number of 16 digits in front of an exponent contains this: its double may be written with 15."""
_TOKENS = r""""(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|[^"0-9-]+"""
_LONG_NUMBER = f"-?(?:{_LONG}[0-9.]*(?:[eE][+-]?[0-9]+)?|[0-9.]*{_SMALL}[0-9]*|{_SHIFTED}[+-]?[0-9]+)"
"""A number whose digits before the exponent are long, or that may be too small; the text is valid JSON."""
_MARKED_TOKEN = f"CASE WHEN regexp_full_match(token, '{_LONG_NUMBER}') THEN '\"{_MARK}' || token || '\"' ELSE token END"
_LIKE_MARKED = rf"(?i)({_MARK}|\\ue000)([-.0-9]|\\u00(2[de]|3[0-9]))"
"""The mark in front of a digit, a minus or a point, also with escapes."""
_MARKED_TEXT = (
    f"CASE WHEN json_valid(data) AND NOT regexp_matches(data, '{_LIKE_MARKED}') THEN array_to_string("
    f"list_transform(regexp_extract_all(data, {sql_literal(_TOKENS)}), lambda token: {_MARKED_TOKEN}), '') END"
)
MARKED = f"CASE WHEN regexp_matches(data, '{_LONG}|{_SMALL}|{_SHIFTED}') THEN {_MARKED_TEXT} END"
"""SQL of the JSON text ``data`` with marked numbers; null if it has none."""
NUMBERS_AS_STRINGS = (
    f"array_to_string(list_transform(regexp_extract_all(data, {sql_literal(_TOKENS)}), "
    "lambda token: CASE WHEN regexp_matches(token, '^-?[0-9]') THEN '\"' || token || '\"' ELSE token END), '')"
)
"""SQL of the valid JSON text ``data`` with all numbers as strings with the same digits."""
AS_NUMBER, AS_STRING = r"\1", r'"\1"'
"""Replacements of a marked number: all its digits, or a string of them."""


def mark_long_numbers(data: pa.Array[Any]) -> pa.Array[Any]:
    """Return JSON texts with marked numbers; null for a text without a long number."""
    rows = np.flatnonzero(rows_with(data, _find_long_runs))
    marked: pa.Array[Any] = pa.nulls(len(data), pa.string())
    if len(rows):
        mask = np.zeros(len(data), bool)
        mask[rows] = True
        texts = compute({"marked": MARKED}, data=pc.take(data, pa.array(rows)))["marked"]
        marked = pc.replace_with_mask(marked, pa.array(mask), texts)
    return marked


def unmarked(text: str, replacement: str) -> str:
    """Return SQL of the text of a JSON value whose marked numbers are replaced."""
    return f"regexp_replace({text}::VARCHAR, '\"{_MARK}({_LONG_NUMBER})\"', {sql_literal(replacement)}, 'g')"


def _find_long_runs(text: Bytes) -> Places:
    """Find a byte of each run of 17 digits and points, and of each exponent of three digits, and a few others."""
    # Fast path: every second byte. From point to nine; the slash in between makes a few more texts be looked at again.
    is_digit = (text[::2] - np.uint8(ord("."))) < ord("9") - ord(".") + 1
    for distance in (1, 2, 4):
        # Of a run of 17 bytes, eight in a row are looked at.
        is_digit = is_digit[:-distance] & is_digit[distance:]
    minus = np.flatnonzero(text[:-3] == ord("-"))
    # A minus behind an e, in front of three digits.
    minus = minus[(text[minus - 1] | np.uint8(32)) == ord("e")]
    for distance in (1, 2, 3):
        minus = minus[(text[minus + distance] - np.uint8(ord("0"))) < 10]
    return np.concatenate([np.flatnonzero(is_digit) * 2, minus])
