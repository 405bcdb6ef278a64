"""Which features of Delta a table may have for Penstock to write it.

delta-rs commits to tables with features whose rules it does not keep, such as column mapping: so the rule is here, and
it is checked before each commit, as another program may turn a feature on at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import deltalake

from penstock.errors import PenstockError

TOLERATED = (
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "deletionVectors",
    "generatedColumns",
    "invariants",
    "timestampNtz",
)
"""Features that a table's protocol may list; those that put conditions on rows must not be in use."""
APPEND_ONLY = "delta.appendOnly"
_MAPPING = "delta.columnMapping.mode"
_CONSTRAINT = "delta.constraints."
_IN_FIELDS = {
    "delta.generationExpression": "generatedColumns",
    "delta.identity.start": "identityColumns",
    "delta.invariants": "invariants",
}


class FeatureNotWritten(PenstockError, RuntimeError):
    """The table has a feature of Delta whose rules Penstock does not keep; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Features:
    """What a version of a table asks of those who write it."""

    listed: tuple[str, ...]
    properties: Mapping[str, str]
    fields: Sequence[Any]

    @classmethod
    def read(cls, table: deltalake.DeltaTable) -> Features:
        """Return those of a table as it was read last."""
        protocol = table.protocol()
        listed = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
        return cls(tuple(sorted(listed)), table.metadata().configuration, table.schema().fields)

    def not_written(self) -> Iterator[tuple[str, str]]:
        """Yield what Penstock does not write, each with the statement of Spark that takes it away."""
        for name in self.listed:
            if name not in TOLERATED:
                yield name, f"DROP FEATURE {name}"
        if self.properties.get(_MAPPING, "none") != "none":
            yield "columnMapping", "DROP FEATURE columnMapping"
        for name in self.properties:
            if name.startswith(_CONSTRAINT):
                yield (
                    f"the constraint {name.removeprefix(_CONSTRAINT)}",
                    (f"DROP CONSTRAINT {name.removeprefix(_CONSTRAINT)}"),
                )
        for field in self.fields:
            for key in {*field.metadata} & {*_IN_FIELDS}:
                yield f"{_IN_FIELDS[key]} (column {field.name})", f"DROP COLUMN {field.name}"
            if not field.nullable:
                yield f"NOT NULL (column {field.name})", f"ALTER COLUMN {field.name} DROP NOT NULL"

    def check(self, folder: object, *, deletes: bool = False) -> None:
        """Raise FeatureNotWritten where the table must not be written; ``deletes``: rows are to be deleted."""
        refused = list(self.not_written())
        if deletes and self.properties.get(APPEND_ONLY) == "true":
            refused.append((APPEND_ONLY, f"UNSET TBLPROPERTIES ('{APPEND_ONLY}')"))
        if refused:
            names = ", ".join(name for name, _ in refused)
            statements = "; ".join(f"ALTER TABLE delta.`{folder}` {statement}" for _, statement in refused)
            raise FeatureNotWritten(
                f"{folder} has {names}, which Penstock does not write: nothing lands until it is gone, and the log "
                f"keeps what waits. In Spark: {statements}"
            )
