"""Results for people and programs: table cells, JSON, CSV, Parquet."""

from __future__ import annotations

import datetime as dt
import io
import json
import math
import re
from typing import Any

import pyarrow as pa

from penstock.process.terminal import visible
from penstock.sql.query import BadQuery, Query

MAX_CELL_CHARS = 60
"""Limit for the characters of a value in a table."""
_QUOTED = re.compile(r'[",\r\n]|^\s|\s$')
"""Texts that need quotes in CSV; around blanks because some readers trim fields."""
SLOW_AFTER_S = 1.0
"""Time after which an answer states how long it took, and why."""


def rows_of(rows: pa.Table) -> list[dict[str, Any]]:
    """Return the rows as Python values, maps as dictionaries. Raises BadQuery for a value that Python cannot
    represent.
    """
    try:
        # Old files may have an annotation name twice: the last value wins.
        return rows.to_pylist(maps_as_pydicts="lossy")
    except (OverflowError, ValueError, TypeError) as error:
        raise BadQuery(f"a value of the answer cannot be represented ({error}): cast it to VARCHAR") from None


def cell(value: Any) -> str:
    """Return a value for a table: short, and without control characters."""
    text = value if isinstance(value, str) else value_text(value)
    return visible(text if len(text) <= MAX_CELL_CHARS else f"{text[: MAX_CELL_CHARS - 1]}…")


def is_number(kind: pa.DataType) -> bool:
    """Return whether the values of a column are aligned right."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def json_text(rows: pa.Table) -> str:
    """Return a JSON array of objects. Bytes, times and decimals become text, NaN and infinity null. Raises BadQuery."""
    # JSON has no NaN and no infinity.
    plain = [{name: _number(value) for name, value in row.items()} for row in rows_of(rows)]
    try:
        return json.dumps(plain, default=value_text, allow_nan=False)
    except (ValueError, TypeError) as error:
        raise BadQuery(f"JSON cannot represent a value of the answer ({error}): cast it to VARCHAR") from None


def csv_text(rows: pa.Table) -> str:
    """Return CSV with a header. Nested values are JSON; an empty text is ``""``, and a null nothing."""
    null = '""' if rows.num_columns == 1 else ""  # readers skip empty lines
    lines = [rows.column_names, *(row.values() for row in rows_of(rows))]
    return "".join(",".join(null if value is None else _csv_field(value) for value in line) + "\n" for line in lines)


def _csv_field(value: Any) -> str:
    text = value_text(value)
    quoted = '"' + text.replace('"', '""') + '"'
    return quoted if not text or _QUOTED.search(text) else text


def parquet_bytes(rows: pa.Table) -> bytes:
    """Return a Parquet file. Raises BadQuery for a type that Parquet lacks."""
    from pyarrow import parquet  # slow to import, and rarely used

    file = io.BytesIO()
    try:
        parquet.write_table(rows, file)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise BadQuery(f"Parquet cannot represent a value of the answer ({error}): cast it to VARCHAR") from None
    return file.getvalue()


def scope(query: Query) -> str:
    """Return, as text, the table's batch and the newer messages of the log that were read; empty if none."""
    if query.batch is None:
        return ""
    newer = f", and {query.newer:,} newer messages of the log" if query.newer else ""
    return f"the table through batch {query.batch:,}{newer}" if query.batch >= 0 else f"no table yet{newer}"


def slowness(query: Query) -> str:
    """Return how long the answer took, over how much data, and what helps; empty if it was fast."""
    if query.took <= SLOW_AFTER_S:
        return ""
    size = sum(file.size for file in query.files)
    noun = "file" if len(query.files) == 1 else "files"
    table = f"{len(query.files):,} {noun}, {size / 1e6:,.0f} MB"
    return f"that took {query.took:.1f} s" + (f" ({table}); a condition on date leaves files out" if size else "")


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def value_text(value: Any) -> str:
    """Return a value as readable text: bytes as UTF-8, nested values as JSON, null as an empty text."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, dt.datetime):
        return value.isoformat(" ")
    if isinstance(value, list | dict):
        return json.dumps(value, default=value_text)
    return str(value)
