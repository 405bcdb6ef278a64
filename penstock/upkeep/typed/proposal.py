"""Propose a configuration of a typed table from landed events."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from penstock.config.keys.typed import OWN_COLUMNS
from penstock.upkeep.typed.found_fields import FoundField

MAX_COLUMNS = 200
"""Limit: the most frequent fields become columns, the others stay in ``rest``."""


def propose(event_type: str, fields: Sequence[FoundField], rows: int) -> str:
    """Return lines of TOML. ``rows`` is the number of events read."""
    name = table_name(event_type)
    header = f"# proposed from {rows:,} events that landed\n[pipeline.typed.{name}]\n"
    type_line = "" if name == event_type else f"type = {_quote(event_type)}\n"
    return f"{header}{type_line}\n[pipeline.typed.{name}.columns]\n{''.join(_column_lines(fields, rows))}"


def table_name(event_type: str) -> str:
    """Return a valid name of a table."""
    name = re.sub(r"[^a-z0-9_]", "_", event_type.lower())[:64]
    return name if name[:1].isalpha() else f"t_{name}"[:64]


def column_names(fields: Iterable[str]) -> Iterator[str]:
    """Yield a valid, distinct column name for each field."""
    used = {*OWN_COLUMNS}
    for field in fields:
        name = re.sub(r"[^A-Za-z0-9_]", "_", field)[:120]
        name = name if re.match(r"[A-Za-z]", name) and name.lower() not in OWN_COLUMNS else f"data_{name}"
        # Column names are case-insensitive in Spark, so that `a` and `A` need different ones.
        numbered = (name if number == 1 else f"{name}_{number}" for number in range(1, len(used) + 2))
        name = next(candidate for candidate in numbered if candidate.lower() not in used)
        used.add(name.lower())
        yield name


def _column_lines(fields: Sequence[FoundField], rows: int) -> Iterator[str]:
    columns = [column for column in fields if column.proposed][:MAX_COLUMNS]
    for name, column in zip(column_names(field.path[-1] for field in columns), columns, strict=True):
        field = "" if name == column.name else f", field = {_quote(column.name)}"
        definition = f'{{ type = "{column.proposed}"{field} }}' if field else f'"{column.proposed}"'
        yield f"{name} = {definition}  # in {share(column.present, rows)}\n"
    if omitted := len(fields) - len(columns):
        yield f"# {omitted:,} more fields have only null, or are in fewer events: they are in rest\n"


def share(count: int, rows: int) -> str:
    """Describe the share of events in words."""
    return "every event" if count == rows else f"{100 * count / rows:.3g} % of the events"


def _quote(text: str) -> str:
    """Quote a text for TOML; characters that could control a terminal are escaped."""
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in json.dumps(text, ensure_ascii=False))
