"""Conditions on a few columns, as in SQL, that select rows of the table. All conditions have to hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.files.errors import DamagedFile
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.table_file import Mask, TableFile, open_rows
from penstock.landing.table_paths import partition_value

IN, NOT_IN, BEFORE = "in", "not in", "<"
FOLDER_COLUMNS = ("kind", "date")
ROW_COLUMNS = ("uuid", "host", "type", "topic")
_TEXT = r"'(?:[^']|'')*'"
_CONDITION = re.compile(
    rf"\s*(?P<column>[a-z]+)\s*(?:(?P<sign>=|<)\s*(?P<text>{_TEXT})"
    rf"|(?P<is_in>in)\s*\(\s*(?P<texts>{_TEXT}(?:\s*,\s*{_TEXT})*)\s*\))\s*",
    re.IGNORECASE,
)
_AND = re.compile(r"and\b", re.IGNORECASE)


class BadCondition(PenstockError, ValueError):
    """A condition that cannot be parsed; the text names the reason."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one column of FOLDER_COLUMNS or ROW_COLUMNS. BEFORE applies to ``date`` only."""

    column: str
    sign: str
    values: tuple[str, ...]

    def holds_for_folder(self, folder_value: str) -> bool:
        """Return whether it holds for all rows of a folder with this value."""
        if self.sign == BEFORE:
            return folder_value < self.values[0]
        return (folder_value in self.values) == (self.sign == IN)

    def holds_for_rows(self, column: pa.ChunkedArray[Any]) -> Mask:
        """Return a mask of the values of a column for which it holds."""
        is_listed: Mask = pc.is_in(column, value_set=pa.array(self.values, pa.string())).to_numpy().astype(bool)
        return is_listed if self.sign == IN else ~is_listed


def parse_conditions(text: str) -> list[Condition]:
    """Parse ``host = 'a' and type in ('b', 'c') and date < '2026-01-01'``. Raises BadCondition."""
    conditions, offset = [], 0
    while True:
        match = _CONDITION.match(text, offset)
        if match is None:
            raise BadCondition(
                f"no condition at {text[offset : offset + 20]!r}: write host = 'web-1', or type in ('a', 'b')"
            )
        conditions.append(_build_condition(match))
        offset = match.end()
        if offset == len(text):
            return conditions
        conjunction = _AND.match(text, offset)
        if conjunction is None:
            raise BadCondition(f"no `and` at {text[offset : offset + 20]!r}: only `and` joins conditions")
        offset = conjunction.end()


def _build_condition(match: re.Match[str]) -> Condition:
    column = match["column"].lower()
    if column not in (*FOLDER_COLUMNS, *ROW_COLUMNS):
        raise BadCondition(f"no condition on {column!r}: use one of {', '.join((*ROW_COLUMNS, *FOLDER_COLUMNS))}")
    values = tuple(text[1:-1].replace("''", "'") for text in re.findall(_TEXT, match["texts"] or match["text"]))
    sign = BEFORE if match["sign"] == "<" else IN
    if sign == BEFORE and column != "date":
        raise BadCondition("`<` applies to date only")
    return Condition(column, sign, tuple(map(_parse_day, values)) if column == "date" else values)


def _parse_day(text: str) -> str:
    # Dates are compared as texts with the names of folders, so that 20260131 has to become 2026-01-31 first.
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise BadCondition(f"{text!r} is not a date: write 2026-01-31") from None


def matching_rows(table: TablePath, name: TableFile, conditions: Sequence[Condition]) -> Mask:
    """Return a mask of the rows of a file for which all conditions hold; empty if none can. Raises DamagedFile,
    OSError.
    """
    folder_conditions = [condition for condition in conditions if condition.column in FOLDER_COLUMNS]
    row_conditions = [condition for condition in conditions if condition.column in ROW_COLUMNS]
    # Fast path: the folder's name decides without reading the file.
    if not all(condition.holds_for_folder(partition_value(name, condition.column)) for condition in folder_conditions):
        return np.zeros(0, bool)
    try:
        with open_rows(table, name) as file:
            is_match: Mask = np.ones(file.rows, bool)
            columns = file.read(sorted({condition.column for condition in row_conditions})) if row_conditions else None
    except pa.ArrowInvalid as error:
        raise DamagedFile(f"{table / name}: {str(error).partition(chr(10))[0]}") from None
    for condition in row_conditions:
        assert columns is not None
        is_match &= condition.holds_for_rows(columns[condition.column])
    return is_match
