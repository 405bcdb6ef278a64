"""Delta features that a table may have if Penstock writes it.

delta-rs commits to tables with features whose rules it does not keep, such as column mapping. Therefore the rule is
here, and it is checked before each commit, because another program may enable a feature at any time.
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
"""Features that a table's protocol may list; features with conditions on rows must not be in use."""
_NEVER_DROPPED = ("allowColumnDefaults", "checkpointProtection", "variantType")
"""Features for which Spark (Delta 4.4) has no DROP FEATURE, or one that waits for a day."""
_DOWNGRADE = "SET spark.databricks.delta.restore.protocolDowngradeAllowed = true"
APPEND_ONLY = "delta.appendOnly"
_CHANGE_FEED = "delta.enableChangeDataFeed"
_MAPPING = "delta.columnMapping.mode"
_CONSTRAINT = "delta.constraints."
_IN_FIELDS = {
    "delta.generationExpression": "generatedColumns",
    "delta.identity.start": "identityColumns",
    "delta.invariants": "invariants",
}


class FeatureNotWritten(PenstockError, RuntimeError):
    """A Delta feature of the table whose rules Penstock does not keep; the text names the remedy."""


@dataclass(frozen=True, slots=True)
class Features:
    """The features, properties and fields of one version of a table."""

    listed: tuple[str, ...]
    properties: Mapping[str, str]
    fields: Sequence[Any]

    @classmethod
    def read(cls, table: deltalake.DeltaTable) -> Features:
        """Return the features of an opened table."""
        protocol = table.protocol()
        listed = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
        return cls(tuple(sorted(listed)), table.metadata().configuration, table.schema().fields)

    @property
    def has_change_feed(self) -> bool:
        """Whether readers get changes as Delta's change data feed."""
        return self.properties.get(_CHANGE_FEED, "").lower() == "true"

    def not_written(self) -> Iterator[tuple[str, str]]:
        """Yield each feature that Penstock does not write, with the Spark statement that removes it."""
        for name in self.listed:
            if name not in TOLERATED and name not in _NEVER_DROPPED:
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
            # A protocol may list a feature that no column uses: only the fields show its use.
            for key in {*field.metadata} & {*_IN_FIELDS}:
                yield f"{_IN_FIELDS[key]} (column {field.name})", f"DROP COLUMN {field.name}"
            if not field.nullable:
                yield f"NOT NULL (column {field.name})", f"ALTER COLUMN {field.name} DROP NOT NULL"

    def check(self, folder: object, *, deletes: bool = False) -> None:
        """Raise FeatureNotWritten if the table must not be written; ``deletes``: the commit deletes rows."""
        if added := [name for name in self.listed if name in _NEVER_DROPPED]:
            restore = f"{_DOWNGRADE}; RESTORE TABLE delta.`{folder}` TO VERSION AS OF the version before it"
            raise FeatureNotWritten(_refusal(folder, added, restore))
        problems = list(self.not_written())
        if not problems and deletes and self.properties.get(APPEND_ONLY) == "true":
            raise FeatureNotWritten(
                f"{folder} has {APPEND_ONLY}: rows land and files are merged, but no row can be deleted or replaced "
                f"until it is removed. In Spark: ALTER TABLE delta.`{folder}` UNSET TBLPROPERTIES ('{APPEND_ONLY}')"
            )
        if problems:
            statements = "; ".join(f"ALTER TABLE delta.`{folder}` {statement}" for _, statement in problems)
            raise FeatureNotWritten(_refusal(folder, [name for name, _ in problems], statements))


def _refusal(folder: object, names: Sequence[str], statements: str) -> str:
    return (
        f"{folder} has {', '.join(names)}, which Penstock does not write: nothing lands until it is removed, and "
        f"messages stay in the log. In Spark: {statements}"
    )
