"""Schemas of event types: whether an event's ``data`` has what its type promises."""

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
_JSON_TYPES = {
    WHOLE: ("BIGINT", "UBIGINT"),
    NUMBER: ("BIGINT", "UBIGINT", "DOUBLE"),
    BOOLEAN: ("BOOLEAN",),
    TEXT: ("VARCHAR",),
    LIST: ("ARRAY",),
    OBJECT: ("OBJECT",),
}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of ``data``. ``kind``: whole, number, boolean, text, list or object; else a type that DuckDB can cast its
    value to. ``cast``: besides, a type that it must fit into, such as INTEGER.
    """

    name: str
    kind: str
    cast: str = ""
    required: bool = False

    @property
    def fits(self) -> str:
        """A condition of SQL on the column ``data``."""
        path = json_pointer(self.name)
        kind = f"json_type(data, {path})"
        absent = f"({kind} IS NULL OR {kind} = 'NULL')"
        allowed = ", ".join(f"'{one}'" for one in _JSON_TYPES.get(self.kind, ()))
        rules = [f"{kind} IN ({allowed})"] if allowed else []
        if self.cast:
            rules.append(f"try_cast(json_extract_string(data, {path}) AS {self.cast}) IS NOT NULL")
        fits = " AND ".join(rules) or "true"
        return f"(NOT {absent} AND {fits})" if self.required else f"({absent} OR ({fits}))"


@dataclass(frozen=True, slots=True)
class TypeSchema:
    """What the data of the events of one type has to be: a JSON object with these fields, and any others.

    A field may be missing or null unless it is required.
    """

    type: str
    fields: tuple[Field, ...]

    @property
    def inputs(self) -> dict[str, str]:
        return {}

    @property
    def condition(self) -> str:
        return " AND ".join(["json_type(data) = 'OBJECT'", *(one.fits for one in self.fields)])


class Schema(Protocol):
    """Whether the ``data`` of the events of a type is as it has to be."""

    @property
    def type(self) -> str: ...

    @property
    def inputs(self) -> dict[str, str]:
        """Expressions of SQL that are computed first, once."""

    @property
    def condition(self) -> str:
        """Of SQL, on the column ``data``, and ``inputs``."""


class SchemasUnknown(PenstockError, ValueError):
    """The schemas of event types are not those that the pipeline ran with."""


def keep_schemas(path: Path, written: Mapping[str, str], schemas: Sequence[TypeSchema]) -> None:
    """Keep the schemas for those who have no Spark, with what is ``written`` in the configuration."""
    write_document(path, {"written": dict(written), "schemas": [asdict(one) for one in schemas]})


def kept_schemas(path: Path, written: Mapping[str, str]) -> tuple[TypeSchema, ...]:
    """The schemas that were kept. Raises SchemasUnknown where those were of another configuration, or are damaged."""
    if not written:
        return ()
    try:
        told = read_document(path)
        if told["written"] == dict(written):
            return tuple(_schema(one) for one in told["schemas"])
    except (FileNotFoundError, DamagedFile, KeyError, TypeError):
        pass
    raise SchemasUnknown("pipeline.schemas is not what the pipeline ran with last: let it run once")


def _schema(told: Mapping[str, Any]) -> TypeSchema:
    fields = (Field(str(f["name"]), str(f["kind"]), str(f["cast"]), bool(f["required"])) for f in told["fields"])
    return TypeSchema(str(told["type"]), tuple(fields))


def not_met(
    types: pa.Array[Any], data: pa.Array[Any], schemas: Sequence[Schema]
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """For each row whether its data (JSON text or null) is not what the schema of its type says."""
    found = np.zeros(len(types), bool)
    for schema in schemas:
        mine = as_mask(pc.equal(types, pa.scalar(schema.type)))
        if mine.any():
            fits = {"fits": f"coalesce({schema.condition}, false)"}
            answer = compute(fits, schema.inputs, data=data.filter(pa.array(mine)))
            found[mine] = ~as_mask(answer["fits"])
    return found
