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

from penstock.config.json_path import BadPath, parse_path
from penstock.errors import PenstockError
from penstock.files.errors import DamagedFile
from penstock.landing.rows.engine import compute, json_pointer
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.table_file import Mask, RowReader, TableFile, open_rows
from penstock.landing.table_paths import partition_value

IN, NOT_IN, BEFORE = "in", "not in", "<"
FOLDER_COLUMNS = ("kind", "date")
ROW_COLUMNS = ("uuid", "host", "type", "topic")
DATA_PREFIX = "data."
_TEXT = r"'(?:[^']|'')*'"
_QUOTED_KEY = r'"(?:[^"\\]|\\.)*"'
_CONDITION = re.compile(
    rf"\s*(?P<column>[a-z]+(?:\.(?:[A-Za-z0-9_-]+|{_QUOTED_KEY}))*)\s*(?:(?P<sign>=|<)\s*(?P<text>{_TEXT})"
    rf"|(?P<is_in>in)\s*\(\s*(?P<texts>{_TEXT}(?:\s*,\s*{_TEXT})*)\s*\))\s*",
    re.IGNORECASE,
)
_AND = re.compile(r"and\b", re.IGNORECASE)


class BadCondition(PenstockError, ValueError):
    """A condition that cannot be parsed; the text names the reason."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one column of FOLDER_COLUMNS or ROW_COLUMNS, or on a field of ``data`` (``data.user.id``), a path
    as in ``config.json_path``.

    BEFORE applies to ``date`` only.
    """

    column: str
    sign: str
    values: tuple[str, ...]

    @property
    def is_field(self) -> bool:
        """Whether it is on a field of ``data``."""
        return self.column.startswith(DATA_PREFIX)

    @property
    def file_column(self) -> str:
        """The column of a file that it needs."""
        return "data" if self.is_field else self.column

    def holds_for_folder(self, folder_value: str) -> bool:
        """Return whether it holds for all rows of a folder with this value."""
        if self.sign == BEFORE:
            return folder_value < self.values[0]
        return (folder_value in self.values) == (self.sign == IN)

    def holds_for_rows(self, column: pa.ChunkedArray[Any]) -> Mask:
        """Return a mask of the values of a column for which it holds."""
        if self.is_field:
            return self._holds_for_field(column)
        is_listed: Mask = pc.is_in(column, value_set=pa.array(self.values, pa.string())).to_numpy().astype(bool)
        return is_listed if self.sign == IN else ~is_listed

    def _holds_for_field(self, data: pa.ChunkedArray[Any]) -> Mask:
        """Return a mask of JSON texts whose field is one of the values, as text; a number counts as written."""
        # Fast path: a text without the value and without escapes cannot have it, so few texts are parsed.
        may_match: Any = pc.match_substring(data, "\\")
        for value in self.values:
            may_match = pc.or_(may_match, pc.match_substring(data, value))
        indices = np.flatnonzero(pc.fill_null(may_match, False).to_numpy())
        mask: Mask = np.zeros(len(data), bool)
        if len(indices):
            texts: Any = data.take(pa.array(indices, pa.int64())).combine_chunks()
            pointer = json_pointer(*parse_path(self.column)[1:])
            field = f"CASE WHEN json_valid(data) THEN json_extract_string(data, {pointer}) END"
            fields = compute({"field": field}, data=texts)["field"]
            listed: Any = pc.is_in(fields, value_set=pa.array(self.values, pa.string()))
            mask[indices] = listed.to_numpy(zero_copy_only=False)
        return mask


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
    name = match["column"]
    first, dot, path = name.partition(".")
    column = f"{first.lower()}{dot}{path}"
    if column not in (*FOLDER_COLUMNS, *ROW_COLUMNS) and not column.startswith(DATA_PREFIX):
        columns = ", ".join((*ROW_COLUMNS, *FOLDER_COLUMNS))
        raise BadCondition(f"no condition on {column!r}: use one of {columns}, or a field such as data.user.id")
    if path:
        try:
            parse_path(column)
        except BadPath as error:
            raise BadCondition(str(error)) from None
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
    row_conditions = [condition for condition in conditions if condition.column not in FOLDER_COLUMNS]
    # Fast path: the folder's name decides without reading the file.
    if not all(condition.holds_for_folder(partition_value(name, condition.column)) for condition in folder_conditions):
        return np.zeros(0, bool)
    try:
        with open_rows(table, name) as file:
            if not row_conditions:
                return np.ones(file.rows, bool)
            return _matching_rows_of_groups(file, row_conditions)
    except pa.ArrowInvalid as error:
        raise DamagedFile(f"{table / name}: {str(error).partition(chr(10))[0]}") from None


def _matching_rows_of_groups(file: RowReader, conditions: Sequence[Condition]) -> Mask:
    """Return a mask of all rows of a file, reading only the row groups that may match."""
    numbers = {*file.groups()}
    for condition in conditions:
        if condition.sign == IN and not condition.is_field:
            numbers &= {*file.groups(condition.column, condition.values)}
    is_match: Mask = np.zeros(file.rows, bool)
    columns, spans = sorted({condition.file_column for condition in conditions}), file.group_spans()
    for number in sorted(numbers):
        rows = file.read_group(number, columns)
        of_group: Mask = np.ones(rows.num_rows, bool)
        for condition in conditions:
            of_group &= condition.holds_for_rows(rows[condition.file_column])
        is_match[slice(*spans[number])] = of_group
    return is_match
