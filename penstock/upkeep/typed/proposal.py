"""A configuration for the events of a type that landed, as one writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from penstock.config.keys.typed import OWN_COLUMNS
from penstock.upkeep.typed.found_fields import FoundField

MOST_COLUMNS = 200
"""The fields that most events have; the others stay in ``rest``."""


def proposal(of_type: str, fields: Sequence[FoundField], rows: int) -> str:
    """Lines of TOML. ``rows``: how many events were looked at."""
    name = table_name(of_type)
    head = f"# proposed from {rows:,} events that landed\n[pipeline.typed.{name}]\n"
    named = "" if name == of_type else f"type = {_text(of_type)}\n"
    return f"{head}{named}\n[pipeline.typed.{name}.columns]\n{''.join(_columns(fields, rows))}"


def table_name(of_type: str) -> str:
    """One that a table can have."""
    name = re.sub(r"[^a-z0-9_]", "_", of_type.lower())[:64]
    return name if name[:1].isalpha() else f"t_{name}"[:64]


def column_names(fields: Iterable[str]) -> Iterator[str]:
    """For each field one that a column can have, and that no other has."""
    taken = {*OWN_COLUMNS}
    for field in fields:
        name = re.sub(r"[^A-Za-z0-9_]", "_", field)[:120]
        name = name if re.match(r"[A-Za-z]", name) and name.lower() not in OWN_COLUMNS else f"data_{name}"
        numbered = (name if number == 1 else f"{name}_{number}" for number in range(1, len(taken) + 2))
        name = next(one for one in numbered if one.lower() not in taken)
        taken.add(name.lower())
        yield name


def _columns(fields: Sequence[FoundField], rows: int) -> Iterator[str]:
    kept = [one for one in fields if one.proposed][:MOST_COLUMNS]
    for name, one in zip(column_names(field.name for field in kept), kept, strict=True):
        field = "" if name == one.name else f", field = {_text(one.name)}"
        said = f'{{ type = "{one.proposed}"{field} }}' if field else f'"{one.proposed}"'
        yield f"{name} = {said}  # in {share(one.present, rows)}\n"
    if left := len(fields) - len(kept):
        yield f"# {left:,} more fields have only null, or are in fewer events: they are in rest\n"


def share(some: int, rows: int) -> str:
    """How many that is, in words."""
    return "every event" if some == rows else f"{100 * some / rows:.3g} % of the events"


def _text(text: str) -> str:
    """With escapes for all that does something to a terminal."""
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in json.dumps(text, ensure_ascii=False))
