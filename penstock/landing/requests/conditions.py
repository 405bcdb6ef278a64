"""Which rows: conditions on a few columns, all of which have to hold, as people write them in SQL."""

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
OF_FOLDER = ("kind", "date")
OF_ROW = ("uuid", "host", "type", "topic")
_TEXT = r"'(?:[^']|'')*'"
_ONE = re.compile(
    rf"\s*(?P<column>[a-z]+)\s*(?:(?P<sign>=|<)\s*(?P<text>{_TEXT})"
    rf"|(?P<is_in>in)\s*\(\s*(?P<texts>{_TEXT}(?:\s*,\s*{_TEXT})*)\s*\))\s*",
    re.IGNORECASE,
)
_AND = re.compile(r"and\b", re.IGNORECASE)


class BadCondition(PenstockError, ValueError):
    """It cannot be understood; the text says why."""


@dataclass(frozen=True, slots=True)
class Condition:
    """``column``: of OF_FOLDER or OF_ROW; ``sign``: IN, NOT_IN, or (of the date alone) BEFORE."""

    column: str
    sign: str
    values: tuple[str, ...]

    def of_text(self, value: str) -> bool:
        """Whether it holds for a value of a folder."""
        if self.sign == BEFORE:
            return value < self.values[0]
        return (value in self.values) == (self.sign == IN)

    def of_column(self, column: pa.ChunkedArray[Any]) -> Mask:
        """For which values of a column it holds."""
        found: Mask = pc.is_in(column, value_set=pa.array(self.values, pa.string())).to_numpy().astype(bool)
        return found if self.sign == IN else ~found


def parse(text: str) -> list[Condition]:
    """Of ``host = 'a' and type in ('b', 'c') and date < '2026-01-01'``. Raises BadCondition."""
    found, at = [], 0
    while True:
        one = _ONE.match(text, at)
        if one is None:
            raise BadCondition(f"at {text[at : at + 20]!r}: a condition is like host = 'web-1', or type in ('a', 'b')")
        found.append(_condition(one))
        at = one.end()
        if at == len(text):
            return found
        more = _AND.match(text, at)
        if more is None:
            raise BadCondition(f"at {text[at : at + 20]!r}: conditions are joined by `and` alone")
        at = more.end()


def _condition(one: re.Match[str]) -> Condition:
    column = one["column"].lower()
    if column not in (*OF_FOLDER, *OF_ROW):
        raise BadCondition(f"there is no condition on {column!r}: known are {', '.join((*OF_ROW, *OF_FOLDER))}")
    values = tuple(text[1:-1].replace("''", "'") for text in re.findall(_TEXT, one["texts"] or one["text"]))
    sign = BEFORE if one["sign"] == "<" else IN
    if sign == BEFORE and column != "date":
        raise BadCondition("`<` is for the date alone")
    return Condition(column, sign, tuple(map(_day, values)) if column == "date" else values)


def _day(text: str) -> str:
    """As the folders are named. Raises BadCondition."""
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise BadCondition(f"{text!r} is no date: 2026-01-31 is one") from None


def rows_of(table: TablePath, name: TableFile, conditions: Sequence[Condition]) -> Mask:
    """Which rows of a file all conditions hold for. Raises DamagedFile, OSError."""
    of_folder = [one for one in conditions if one.column in OF_FOLDER]
    of_row = [one for one in conditions if one.column in OF_ROW]
    if not all(one.of_text(partition_value(name, one.column)) for one in of_folder):
        return np.zeros(0, bool)
    try:
        with open_rows(table, name) as file:
            found: Mask = np.ones(file.rows, bool)
            columns = file.read(sorted({one.column for one in of_row})) if of_row else None
    except pa.ArrowInvalid as error:
        raise DamagedFile(f"{table / name}: {str(error).partition(chr(10))[0]}") from None
    for one in of_row:
        assert columns is not None
        found &= one.of_column(columns[one.column])
    return found
