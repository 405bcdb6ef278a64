"""Schemas of event types: the fields that an event's ``data`` must have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile
from penstock.landing.rows.engine import as_mask, compute, json_pointer, pc

WHOLE, NUMBER, BOOLEAN, TEXT, LIST, OBJECT = "whole", "number", "boolean", "text", "list", "object"
_WORDS = {WHOLE: "whole number", "": "value"}
_JSON_TYPES = {
    WHOLE: ("BIGINT", "UBIGINT"),
    NUMBER: ("BIGINT", "UBIGINT", "DOUBLE"),
    BOOLEAN: ("BOOLEAN",),
    TEXT: ("VARCHAR",),
    LIST: ("ARRAY",),
    OBJECT: ("OBJECT",),
}


@dataclass(frozen=True, slots=True)
class FieldRule:
    """An SQL condition on the field at ``path`` of ``data``, and the type that it needs, in words."""

    path: tuple[str, ...]
    needs: str
    condition: str


@dataclass(frozen=True, slots=True)
class Field:
    """A field of ``data``.

    ``kind`` is whole, number, boolean, text, list, object, or a type to which DuckDB can cast the value. ``cast`` is a
    further type that the value must fit, such as INTEGER.
    """

    name: str
    kind: str
    cast: str = ""
    required: bool = False

    @property
    def fits(self) -> str:
        """Return an SQL condition on the column ``data``."""
        path = json_pointer(self.name)
        kind = f"json_type(data, {path})"
        absent = f"({kind} IS NULL OR {kind} = 'NULL')"
        allowed = ", ".join(f"'{json_type}'" for json_type in _JSON_TYPES.get(self.kind, ()))
        rules = [f"{kind} IN ({allowed})"] if allowed else []
        if self.cast:
            rules.append(f"try_cast(json_extract_string(data, {path}) AS {self.cast}) IS NOT NULL")
        fits = " AND ".join(rules) or "true"
        return f"(NOT {absent} AND {fits})" if self.required else f"({absent} OR ({fits}))"


@dataclass(frozen=True, slots=True)
class TypeSchema:
    """The data of the events of one type: a JSON object with these fields and any others.

    A field may be missing or null unless it is required.
    """

    type: str
    fields: tuple[Field, ...]

    def evaluate(self, expressions: Mapping[str, str], data: pa.Array[Any]) -> dict[str, pa.Array[Any]]:
        return compute(dict(expressions), data=data)

    @property
    def rules(self) -> list[FieldRule]:
        fields = (FieldRule((f.name,), f.cast.lower() or _WORDS.get(f.kind, f.kind), f.fits) for f in self.fields)
        return [FieldRule((), OBJECT, "json_type(data) = 'OBJECT'"), *fields]


class Schema(Protocol):
    """Conditions on the ``data`` of the events of a type."""

    @property
    def type(self) -> str: ...

    @property
    def rules(self) -> list[FieldRule]:
        """Return a rule for each field; ``evaluate`` takes their SQL conditions."""

    def evaluate(self, expressions: Mapping[str, str], data: pa.Array[Any]) -> dict[str, pa.Array[Any]]:
        """Return the values of SQL expressions on JSON texts, the column ``data``."""


class SchemasUnknown(PenstockError, ValueError):
    """The configured schemas of event types differ from the ones that the pipeline ran with."""


def save_schemas(path: Path, configured: Mapping[str, str], schemas: Sequence[TypeSchema]) -> None:
    """Store the schemas for readers without Spark, with the ``configured`` texts that they were made from."""
    write_document(path, {"written": dict(configured), "schemas": [asdict(schema) for schema in schemas]})


def load_schemas(path: Path, configured: Mapping[str, str]) -> tuple[TypeSchema, ...]:
    """Load stored schemas. Raises SchemasUnknown if they are damaged or of another configuration."""
    if not configured:
        return ()
    try:
        document = read_document(path)
        if document["written"] == dict(configured):
            return tuple(_schema(schema) for schema in document["schemas"])
    except (FileNotFoundError, DamagedFile, KeyError, TypeError):
        pass
    raise SchemasUnknown("pipeline.schemas differs from the last run of the pipeline: run it once")


def _schema(document: Mapping[str, Any]) -> TypeSchema:
    fields = (Field(str(f["name"]), str(f["kind"]), str(f["cast"]), bool(f["required"])) for f in document["fields"])
    return TypeSchema(str(document["type"]), tuple(fields))


def violates_schema(
    types: pa.Array[Any], data: pa.Array[Any], schemas: Sequence[Schema]
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return a mask of the rows whose data (JSON text or null) violates the schema of their type."""
    is_violated = np.zeros(len(types), bool)
    # One query per type: its conditions name the fields of that type only.
    for schema in schemas:
        is_of_type = as_mask(pc.equal(types, pa.scalar(schema.type)))
        if is_of_type.any():
            fits = {"fits": f"coalesce({condition_of(schema)}, false)"}
            columns = schema.evaluate(fits, data.filter(pa.array(is_of_type)))
            is_violated[is_of_type] = ~as_mask(columns["fits"])
    return is_violated


def condition_of(schema: Schema) -> str:
    """Return an SQL condition that holds for data that meet all rules of a schema."""
    return " AND ".join(rule.condition for rule in schema.rules)


def first_misfit(event_type: str, data: str, schemas: Sequence[Schema]) -> FieldRule | None:
    """Return the first rule that the ``data`` (JSON text) of an event violates; None if it meets all."""
    for schema in schemas:
        if schema.type == event_type:
            fits = {f"fit{n}": f"coalesce({rule.condition}, false)" for n, rule in enumerate(schema.rules)}
            columns = schema.evaluate(fits, pa.array([data], pa.string()))
            for rule, column in zip(schema.rules, columns.values(), strict=True):
                if not column[0].as_py():
                    return rule
    return None
