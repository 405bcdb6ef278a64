"""The JSON text of an event's ``data``, as it was sent but for blanks between values.

DuckDB writes what it has parsed anew: ``1.10`` becomes ``1.1``, digits beyond a double's go, escapes are resolved. So
its text is taken where it cannot have changed anything: it stands at the payload's end letter by letter; or it has
neither a point nor an exponent in its numbers, and the payload no backslash; or only spaces are missing. What is left
is cut out of its payload, one by one. (Of a whole number, minus zero is zero.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.landing.rows.engine import Bytes, Mask, Places, as_mask, compute, pc, rows_with
from penstock.landing.rows.json_places import inner, scan, skip
from penstock.wire.json_text import deep_recursion, without_blanks

_ALONE = r"""NOT regexp_matches({0}, '(?s)"data".*"data"') AND NOT contains({0}, '\u00')"""
"""It has one key of that name, however it is spelled: the event's own."""
_LAST = """suffix({0}, '"data":' || {1} || '}}')"""
_INSIDE = """contains({0}, '"data":' || {1} || ',')"""
_STANDS_THERE = f"CASE WHEN {_LAST} THEN {_ALONE} WHEN {_INSIDE} THEN {_ALONE} ELSE false END"
_WITHOUT_SPACES = {"text": "replace(payload, ' ', '')", "value": "replace(data, ' ', '')"}
_KEY = re.compile(r'"data"[ \t\n\r]*:[ \t\n\r]*')
_SPELLED = re.compile(r"\\u00(?:6[14]|74)")
"""An escaped letter of that key."""


def stands_last(data: str) -> str:
    """A condition of SQL: DuckDB's text ``data`` (an expression) is how the payload ``text`` ends."""
    return f"CASE WHEN {_LAST.format('text', data)} THEN {_ALONE.format('text')} ELSE false END"


def as_sent(texts: pa.Array[Any], data: pa.Array[Any], stands: pa.Array[Any]) -> pa.Array[Any]:
    """``data`` of payloads that are JSON objects, as it was sent. ``stands``: of which rows ``stands_last`` holds."""
    rows = np.flatnonzero(~(as_mask(stands) | as_mask(pc.is_null(data))))
    for same in (_nothing_rewritten, _only_spaces_missing):
        if len(rows):
            some = pa.array(rows)
            rows = rows[~same(pc.take(texts, some), pc.take(data, some))]
    left: list[Any] = pc.take(texts, pa.array(rows)).to_pylist()
    return _replaced(data, rows, _cut_out(left))


def _replaced(data: pa.Array[Any], rows: Any, found: list[str]) -> pa.Array[Any]:
    if not found:
        return data
    mask = np.zeros(len(data), bool)
    mask[rows] = True
    replaced: pa.Array[Any] = pc.replace_with_mask(data, pa.array(mask), pa.array(found, pa.string()))
    return replaced


def _nothing_rewritten(texts: pa.Array[Any], data: pa.Array[Any]) -> Mask:
    return ~(rows_with(texts, _backslashes) | rows_with(data, _points_and_exponents))


def _backslashes(text: Bytes) -> Places:
    return np.flatnonzero(text == ord("\\"))


def _points_and_exponents(text: Bytes) -> Places:
    """Behind a digit."""
    after_digit = np.zeros(len(text), bool)
    np.less(text[:-1] - np.uint8(ord("0")), 10, out=after_digit[1:])
    return np.flatnonzero(after_digit & ((text == ord(".")) | ((text | np.uint8(32)) == ord("e"))))


def _only_spaces_missing(texts: pa.Array[Any], data: pa.Array[Any]) -> Mask:
    answer = compute({"same": _STANDS_THERE.format("text", "value")}, _WITHOUT_SPACES, payload=texts, data=data)
    return as_mask(answer["same"])


def _cut_out(texts: Sequence[str]) -> list[str]:
    with deep_recursion():
        found = [_only(text) or member(text, "data") for text in texts]
    return [without_blanks(one) for one in found]


def _only(text: str) -> str:
    """The event's own, where no other key has that name, however it is spelled; else nothing."""
    key = _KEY.search(text)
    if key is None or text.count('"data"') > 1 or _SPELLED.search(text):
        return ""
    return text[key.end() : scan(text, key.end())[1]]


def member(text: str, key: str) -> str:
    """The text of a member of a JSON object; of several of one name the first. Raises KeyError."""
    for name, at in inner(text, skip(text, 0)):
        if name == key:
            return text[at : scan(text, at)[1]]
    raise KeyError(key)
