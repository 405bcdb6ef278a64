"""Fields of records and the columns of a table that hold them: ``order_id=$.id``, ``customer=key``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.errors import PenstockError

HEADER = "header:"
_JSON_PATH = re.compile(r"""\$(\.[A-Za-z_][\w-]*|\."[^"']+"|\[\d+\])+""")


class BadField(PenstockError, ValueError):
    """The text names no field of a record, or the table has no such column."""


@dataclass(frozen=True, slots=True)
class FieldPair:
    """A column, and the field that it must hold: ``key``, ``value``, ``timestamp``, ``header:NAME`` or a JSON path."""

    column: str
    field: str

    def __str__(self) -> str:
        return f"{self.column}={self.field}"

    @property
    def header(self) -> str:
        """The name of the header; empty for other fields."""
        return self.field.removeprefix(HEADER) if self.field.startswith(HEADER) else ""


def parse_pair(text: str, default: str = "") -> FieldPair:
    """Parse ``COLUMN`` or ``COLUMN=FIELD``; the field is ``default``, or the JSON field named like the column.

    Raises BadField.
    """
    column, _, field = text.partition("=")
    field = field or default or "".join(f'."{name}"' for name in column.split("."))
    field = f"${field}" if field.startswith(".") else field
    is_plain = field in ("key", "value", "timestamp") or (field.startswith(HEADER) and field != HEADER)
    if not column or not (is_plain or _JSON_PATH.fullmatch(field)):
        raise BadField(
            f"{text!r} is not COLUMN=FIELD, where FIELD is key, value, timestamp, header:NAME or a path like $.order.id"
        )
    return FieldPair(column, field)
