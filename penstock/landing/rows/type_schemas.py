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
from penstock.landing.event_rules import Reason
from penstock.landing.rows.engine import Mask, as_mask, compute, json_pointer, pc

WHOLE, NUMBER, BOOLEAN, TEXT, LIST, OBJECT = "whole", "number", "boolean", "text", "list", "object"
_WORDS = {WHOLE: "whole number", "": "value"}
_CONTRACT = "contract."
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
    """A condition on the field at ``path`` of ``data``: what it needs, in words.

    ``reason``: why an event that does not meet it is in quarantine.
    """

    path: tuple[str, ...]
    needs: str
    reason: str = Reason.SCHEMA_NOT_MET


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

    def judge(self, data: pa.Array[Any]) -> list[tuple[FieldRule, Mask]]:
        conditions = [(FieldRule((), OBJECT), "json_type(data) = 'OBJECT'")]
        for field in self.fields:
            needs = field.cast.lower() or _WORDS.get(field.kind, field.kind)
            conditions.append((FieldRule((field.name,), needs), field.fits))
        met = {f"met{n}": f"coalesce({condition}, false)" for n, (_, condition) in enumerate(conditions)}
        masks = compute(met, data=data).values()
        return [(rule, as_mask(mask)) for (rule, _), mask in zip(conditions, masks, strict=True)]


def contract_reason(table: str, column: str, rule: str) -> str:
    """Return the reason of events that violate a rule of a column (``contract.order.amount.min``)."""
    return f"{_CONTRACT}{table}.{column}.{rule}"


def parse_contract_reason(reason: str) -> tuple[str, str, str]:
    """Return table, column and rule of a reason of ``contract_reason``. Raises ValueError for another text."""
    table, column, rule = reason.removeprefix(_CONTRACT).split(".")
    return table, column, rule


def is_of_contract(reason: str) -> bool:
    """Report whether a reason is of a column's contract."""
    return reason.startswith(_CONTRACT)


class Schema(Protocol):
    """Conditions on the ``data`` of the events of a type."""

    @property
    def type(self) -> str: ...

    def judge(self, data: pa.Array[Any]) -> list[tuple[FieldRule, Mask]]:
        """Return each rule with a mask of the JSON texts that meet it."""


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


def find_violations(types: pa.Array[Any], data: pa.Array[Any], schemas: Sequence[Schema]) -> dict[str, Mask]:
    """Return masks, by reason, of the rows whose data (JSON text or null) violates a schema of their type."""
    violations: dict[str, Mask] = {}
    # One query per type: its conditions name the fields of that type only.
    for schema in schemas:
        is_of_type = as_mask(pc.equal(types, pa.scalar(schema.type)))
        if is_of_type.any():
            met_by_reason: dict[str, list[Mask]] = {}
            for rule, met in schema.judge(data.filter(pa.array(is_of_type))):
                met_by_reason.setdefault(rule.reason, []).append(met)
            for reason, masks in met_by_reason.items():
                mask = violations.setdefault(reason, np.zeros(len(types), bool))
                mask[is_of_type] |= ~np.logical_and.reduce(masks)
    return violations


def meets_schema(data: pa.Array[Any], schema: Schema) -> Mask:
    """Return a mask of the JSON texts that meet all rules of a schema."""
    met: Mask = np.logical_and.reduce([mask for _, mask in schema.judge(data)])
    return met


def first_misfit(event_type: str, data: str, schemas: Sequence[Schema], reason: str = "") -> FieldRule | None:
    """Return the first rule that the ``data`` (JSON text) of an event violates; None if it meets all.

    ``reason``: only rules with this reason; "" for all.
    """
    for schema in schemas:
        if schema.type == event_type:
            for rule, met in schema.judge(pa.array([data], pa.string())):
                if not met[0] and reason in ("", rule.reason):
                    return rule
    return None
