"""The JSON text of an event's ``data``, verbatim except for blanks between values; and spans in JSON texts.

DuckDB rewrites what it has parsed: ``1.10`` becomes ``1.1``, digits beyond a double are lost, escapes are resolved.
Invariant: DuckDB's text is used only if it cannot differ from the payload: if it is the payload's end byte for byte;
or if its numbers have no point or exponent and the payload no backslash; or if only spaces were removed. All other
texts are cut out of their payloads, one by one. (Of an integer, minus zero becomes zero.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.landing.rows.engine import Bytes, Mask, Places, as_mask, compute, pc, rows_with
from penstock.landing.rows.strict_json import NUMBERS_AS_TEXTS
from penstock.wire.json_text import deep_recursion, without_blanks

_HAS_ONE_DATA_KEY = r"""NOT regexp_matches({0}, '(?s)"data".*"data"') AND NOT contains({0}, '\u00')"""
"""The payload has exactly one key ``data`` in any spelling: the event's own."""
_ENDS_WITH_DATA = """suffix({0}, '"data":' || {1} || '}}')"""
_CONTAINS_DATA = """contains({0}, '"data":' || {1} || ',')"""
_IS_IN_PAYLOAD = (
    f"CASE WHEN {_ENDS_WITH_DATA} THEN {_HAS_ONE_DATA_KEY} "
    f"WHEN {_CONTAINS_DATA} THEN {_HAS_ONE_DATA_KEY} ELSE false END"
)
_WITHOUT_SPACES = {"text": "replace(payload, ' ', '')", "value": "replace(data, ' ', '')"}
_KEY = re.compile(r'"data"[ \t\n\r]*:[ \t\n\r]*')
_ESCAPED_KEY_LETTER = re.compile(r"\\u00(?:6[14]|74)")
"""An escaped letter of the key ``data``."""
_BLANKS = re.compile(r"[ \t\n\r]*")
scan_value = json.JSONDecoder(**NUMBERS_AS_TEXTS).raw_decode
"""Parse the value at a position; return it and its end."""


def ends_with_data(data: str) -> str:
    """Return an SQL condition: the payload ``text`` ends with DuckDB's text ``data`` (an expression)."""
    return f"CASE WHEN {_ENDS_WITH_DATA.format('text', data)} THEN {_HAS_ONE_DATA_KEY.format('text')} ELSE false END"


def as_sent(texts: pa.Array[Any], data: pa.Array[Any], at_end: pa.Array[Any]) -> pa.Array[Any]:
    """Return ``data`` of payloads that are JSON objects, as sent. ``at_end`` is ``ends_with_data`` by row."""
    rows = np.flatnonzero(~(as_mask(at_end) | as_mask(pc.is_null(data))))
    # Fast path: whole columns are compared, cheapest test first; only the rows left over are parsed one by one.
    for is_unchanged in (_is_not_rewritten, _lacks_only_spaces):
        if len(rows):
            indices = pa.array(rows)
            rows = rows[~is_unchanged(pc.take(texts, indices), pc.take(data, indices))]
    remaining: list[Any] = pc.take(texts, pa.array(rows)).to_pylist()
    return _replace_rows(data, rows, _cut_out_data(remaining))


def _replace_rows(data: pa.Array[Any], rows: Any, texts: list[str]) -> pa.Array[Any]:
    if not texts:
        return data
    mask = np.zeros(len(data), bool)
    mask[rows] = True
    replaced: pa.Array[Any] = pc.replace_with_mask(data, pa.array(mask), pa.array(texts, pa.string()))
    return replaced


def _is_not_rewritten(texts: pa.Array[Any], data: pa.Array[Any]) -> Mask:
    return ~(rows_with(texts, _find_backslashes) | rows_with(data, _find_points_and_exponents))


def _find_backslashes(text: Bytes) -> Places:
    return np.flatnonzero(text == ord("\\"))


def _find_points_and_exponents(text: Bytes) -> Places:
    """Find points and exponents after a digit."""
    after_digit = np.zeros(len(text), bool)
    np.less(text[:-1] - np.uint8(ord("0")), 10, out=after_digit[1:])
    return np.flatnonzero(after_digit & ((text == ord(".")) | ((text | np.uint8(32)) == ord("e"))))


def _lacks_only_spaces(texts: pa.Array[Any], data: pa.Array[Any]) -> Mask:
    columns = compute({"same": _IS_IN_PAYLOAD.format("text", "value")}, _WITHOUT_SPACES, payload=texts, data=data)
    return as_mask(columns["same"])


def _cut_out_data(texts: Sequence[str]) -> list[str]:
    with deep_recursion():
        members = [_single_data_member(text) or find_member(text, "data") for text in texts]
    return [without_blanks(member_text) for member_text in members]


def _single_data_member(text: str) -> str:
    """Return the member ``data`` if no other key in any spelling has that name, else an empty text."""
    key = _KEY.search(text)
    if key is None or text.count('"data"') > 1 or _ESCAPED_KEY_LETTER.search(text):
        return ""
    return text[key.end() : scan_value(text, key.end())[1]]


def find_member(text: str, key: str) -> str:
    """Return the text of a member of a JSON object; the first of several with one name. Raises KeyError."""
    for name, start in inner_values(text, skip_blanks(text, 0)):
        if name == key:
            return text[start : scan_value(text, start)[1]]
    raise KeyError(key)


def inner_values(text: str, begin: int) -> Iterator[tuple[str | None, int]]:
    """Yield key and start of each value in an object, or None and start in a list; nothing for other values."""
    if text[begin] not in "{[":
        return
    position = skip_blanks(text, begin + 1)
    while text[position] not in "}]":
        key = None
        if text[begin] == "{":
            key, position = scan_value(text, position)
            position = skip_blanks(text, skip_blanks(text, position) + 1)
        yield key, position
        position = skip_blanks(text, scan_value(text, position)[1])
        position = skip_blanks(text, position + 1) if text[position] == "," else position


def skip_blanks(text: str, position: int) -> int:
    """Return the position after blanks."""
    blanks = _BLANKS.match(text, position)
    assert blanks is not None
    return blanks.end()
