"""Convert JSON texts of one field to the values of a column: whole columns in Arrow, and unusual texts in DuckDB.

Invariant: a value is the same on both ways. Arrow converts only texts that both read alike, such as plain numbers; all
others are left to the SQL of the type (``column_types``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.config.keys.typed import decimal_digits
from penstock.landing.rows.engine import Mask, as_mask, compute, pc
from penstock.landing.rows.json_events import json_strings, mask_invalid
from penstock.landing.table_schema import MICROS
from penstock.landing.typed.column_types import EXACT_DIGITS, column_type

Converted = tuple["pa.Array[Any]", Mask | None]
"""Values, and a mask of the texts that are left to DuckDB; None if there are none."""
Rows = np.ndarray[Any, Any]
"""Indices of rows, ascending."""
_PLAIN_WHOLE, _LONG_WHOLE = "^-?[0-9]{1,18}$", "^-?[0-9]{19,}$"
_NUMBER = "^-?[0-9]"
_CLOCK = r"T[0-2][0-9]:[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?(Z|[+-](0[0-9]|1[0-3]):[0-5][0-9])"
_DAY = "[12][0-9]{3}-[01][0-9]-[0-3][0-9]"


def convert(kind: str, texts: pa.Array[Any]) -> pa.Array[Any]:
    """Return the values of JSON texts (as DuckDB writes them) in a column of this type; null if one does not fit."""
    values, undecided = _converter(kind)(texts)
    if undecided is not None and undecided.any():
        rows = np.flatnonzero(undecided)
        values = replace_rows(values, rows, convert_in_sql(kind, "text::JSON", text=take_rows(texts, rows)))
    return values


def convert_in_sql(kind: str, field: str, *, marked: bool = False, **columns: pa.Array[Any]) -> pa.Array[Any]:
    """Return the values of the SQL ``field`` over columns; ``marked`` as in ``column_type``."""
    type_ = column_type(kind, marked=marked)
    values = compute({"value": type_.value.replace("{0}", "field")}, {"field": field}, **columns)["value"]
    return values if values.type.equals(type_.arrow) else values.cast(type_.arrow)


def take_rows(values: pa.Array[Any], rows: Rows) -> pa.Array[Any]:
    """Return the values of some rows, in ascending order; all are not copied."""
    indices: Any = pa.array(rows, pa.int64())
    taken: pa.Array[Any] = values if len(rows) == len(values) else pc.take(values, indices)
    return taken


def replace_rows(values: pa.Array[Any], rows: Rows, new: pa.Array[Any]) -> pa.Array[Any]:
    """Return values with others in some rows; for all types, also nested ones."""
    if len(rows) == len(values):
        return new
    indices = np.arange(len(values))
    indices[rows] = len(values) + np.arange(len(rows))
    replaced: pa.Array[Any] = pc.take(pa.concat_arrays([values, new]), pa.array(indices, pa.int64()))
    return replaced


@cache
def _converter(kind: str) -> Callable[[pa.Array[Any]], Converted]:
    plain: dict[str, Callable[[pa.Array[Any]], Converted]] = {
        "string": lambda texts: (json_strings(texts), None),
        "boolean": lambda texts: (mask_invalid(pc.is_in(texts, _BOOLEANS), pc.equal(texts, "true")), None),
        "int": lambda texts: _convert_whole_numbers(texts, 31),
        "bigint": lambda texts: _convert_whole_numbers(texts, 63),
        "double": _convert_doubles,
        "timestamp": lambda texts: _convert_quoted(texts, f'^"{_DAY}{_CLOCK}"$', MICROS),
        "date": lambda texts: _convert_quoted(texts, f'^"{_DAY}"$', pa.date32()),
        "json": lambda texts: (mask_invalid(pc.not_equal(texts, "null"), texts), None),
    }
    if kind in plain:
        return plain[kind]
    if digits := decimal_digits(kind):
        return lambda texts: _convert_decimals(texts, *digits)
    return lambda texts: (_nulls(len(texts), column_type(kind).arrow), as_mask(pc.starts_with(texts, "[")))


_BOOLEANS = pa.array(["true", "false"])


def _nulls(size: int, kind: Any) -> pa.Array[Any]:
    nulls: pa.Array[Any] = pa.nulls(size, kind)
    return nulls


def _convert_whole_numbers(texts: pa.Array[Any], bits: int) -> Converted:
    long: Mask | None = None
    try:
        # Fast path: every text is a whole number, the usual case. No other JSON text can be cast.
        numbers = texts.cast(pa.int64())
    except pa.ArrowInvalid:
        numbers = mask_invalid(pc.match_substring_regex(texts, _PLAIN_WHOLE), texts).cast(pa.int64())
        long = as_mask(pc.match_substring_regex(texts, _LONG_WHOLE))
    if bits == 63:
        return numbers, long
    low, high = pa.scalar(-(1 << bits), pa.int64()), pa.scalar((1 << bits) - 1, pa.int64())
    fits = pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))
    return mask_invalid(fits, numbers).cast(pa.int32()), None


def _convert_doubles(texts: pa.Array[Any]) -> Converted:
    try:
        numbers = texts.cast(pa.float64())
    except pa.ArrowInvalid:
        is_number = pc.match_substring_regex(texts, _NUMBER)
        try:
            numbers = mask_invalid(is_number, texts).cast(pa.float64())
        except pa.ArrowInvalid:
            return _nulls(len(texts), pa.float64()), as_mask(is_number)
    return numbers, ~as_mask(pc.fill_null(pc.is_finite(numbers), pa.scalar(True)))


def _convert_quoted(texts: pa.Array[Any], pattern: str, kind: pa.DataType) -> Converted:
    """Convert strings that match a pattern; other strings are left to DuckDB, and so are all if one is not a date."""
    is_plain = pc.match_substring_regex(texts, pattern)
    inner = pc.utf8_slice_codeunits(mask_invalid(is_plain, texts), 1, -1)
    is_string = as_mask(pc.starts_with(texts, '"'))
    try:
        return inner.cast(kind), is_string & ~as_mask(is_plain)
    except pa.ArrowInvalid:
        return _nulls(len(texts), kind), is_string


def _convert_decimals(texts: pa.Array[Any], precision: int, scale: int) -> Converted:
    kind = pa.decimal128(precision, scale)
    whole_digits = min(precision, EXACT_DIGITS) - scale
    is_other = as_mask(pc.match_substring_regex(texts, '^["0-9-]'))
    if whole_digits < 1:
        return _nulls(len(texts), kind), is_other
    number = f"-?(0|[1-9][0-9]{{0,{whole_digits - 1}}})" + (f"(\\.[0-9]{{1,{scale}}})?" if scale else "")
    is_plain = pc.match_substring_regex(texts, f'^({number}|"{number}")$')
    try:
        return pc.utf8_trim(mask_invalid(is_plain, texts), '"').cast(kind), is_other & ~as_mask(is_plain)
    except pa.ArrowInvalid:
        return _nulls(len(texts), kind), is_other
