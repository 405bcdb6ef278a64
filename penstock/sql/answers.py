"""An answer for people and for other programs: cells of a table, JSON, CSV."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import math
from typing import Any

import pyarrow as pa

from penstock.process.terminal import visible
from penstock.sql.query import BadQuery, Query

CELL = 60
"""Characters of a value that are shown."""
SOON = 1.0
"""Seconds. An answer that took longer says so, and why."""


def rows_of(rows: pa.Table) -> list[dict[str, Any]]:
    """As Python's values; a map is a dictionary. Raises BadQuery for a value that Python has not."""
    try:
        return rows.to_pylist(maps_as_pydicts="lossy")
    except (OverflowError, ValueError, TypeError) as error:
        raise BadQuery(f"a value of the answer cannot be shown ({error}): cast it to VARCHAR") from None


def cell(value: Any) -> str:
    """A value in a table: short, and without control characters."""
    text = value if isinstance(value, str) else _text(value)
    return visible(text if len(text) <= CELL else f"{text[: CELL - 1]}…")


def is_number(kind: pa.DataType) -> bool:
    """Whether a column's values are set right."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def json_text(rows: pa.Table) -> str:
    """An array of objects; bytes, times and decimals are texts, and what is no number is null. Raises BadQuery."""
    plain = [{name: _number(value) for name, value in row.items()} for row in rows_of(rows)]
    try:
        return json.dumps(plain, default=_text, allow_nan=False)
    except (ValueError, TypeError) as error:
        raise BadQuery(f"a value of the answer is none of JSON ({error}): cast it to VARCHAR") from None


def csv_text(rows: pa.Table) -> str:
    """With a line of heads; what is nested is JSON, and null is nothing."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(rows.column_names)
    for row in rows_of(rows):
        out.writerow([value if isinstance(value, int | float) else _text(value) for value in row.values()])
    return text.getvalue()


def scope(query: Query) -> str:
    """What was asked: how far the table went, and how much of the log was newer; "" where neither was needed."""
    if query.batch is None:
        return ""
    newer = f", and {query.newer:,} newer messages of the log" if query.newer else ""
    return f"the table through batch {query.batch:,}{newer}" if query.batch >= 0 else f"no table yet{newer}"


def slowness(query: Query) -> str:
    """How long the answer took, of how much, and what helps; "" where it came soon."""
    if query.took <= SOON:
        return ""
    size = sum(file.size for file in query.files)
    table = f"{len(query.files):,} files, {size / 1e6:,.0f} MB"
    return f"that took {query.took:.1f} s" + (f" ({table}); a condition on date leaves files out" if size else "")


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _text(value: Any) -> str:
    """A value that JSON does not have."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, dt.datetime):
        return value.isoformat(" ")
    if isinstance(value, list | dict):
        return json.dumps(value, default=_text)
    return str(value)
