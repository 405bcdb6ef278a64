"""Where the tables and what belongs to them lie. Everything that begins with ``_`` is invisible to table readers."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from urllib.parse import unquote

from penstock.config.tables_url import TablesUrl
from penstock.landing.event_rules import MessageKind
from penstock.landing.storage.object_path import ObjectPath, TablePath

TYPED_MARK = "events_"
"""What the names of typed tables begin with."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The folders and files below the folder of the tables; ``at``: where the tables themselves are, if not there."""

    tables: Path
    store: ObjectPath | None = None

    @property
    def landed(self) -> TablePath:
        """The table: Parquet files in folders kind=/date=."""
        return self.table("landed")

    def table(self, name: str) -> TablePath:
        """The folder of a table."""
        return (self.store or self.tables) / name

    def typed(self, name: str) -> TablePath:
        """A typed table: its folder has the name that it has for readers (``events_click``)."""
        return self.table(f"{TYPED_MARK}{name}")

    @property
    def typed_since(self) -> Path:
        """From where on each typed table is written."""
        return self.tables / "_checkpoints" / "typed.json"

    @property
    def keys(self) -> Path:
        """The keys of the events that landed lately."""
        return self.tables / "_checkpoints" / "landed.keys"

    @property
    def checkpoint(self) -> Path:
        """The landing query's checkpoint: offsets and commits."""
        return self.tables / "_checkpoints" / "landed"

    @property
    def journal(self) -> Path:
        """One line for each committed batch of late: Spark forgets old ones, a rebuild needs them all."""
        return self.tables / "_checkpoints" / "landed.commits.jsonl"

    @property
    def proofs(self) -> Path:
        """One line for each batch of late that was proved."""
        return self.tables / "_checkpoints" / "landed.proofs.jsonl"

    @property
    def history(self) -> Path:
        """What is kept of batches whose lines were taken out of these two: a file a day."""
        return self.tables / "_checkpoints" / "history"

    @property
    def rolled(self) -> Path:
        """The sum of those."""
        return self.tables / "_checkpoints" / "landed.sum.json"

    @property
    def format(self) -> Path:
        """The version of the table; it is there once the table is begun."""
        return self.tables / "_checkpoints" / "landed.format.json"

    @property
    def promoted(self) -> Path:
        """Where the rows of topics that were promoted are in Kafka."""
        return self.tables / "_checkpoints" / "promoted"

    @property
    def foreign(self) -> Path:
        """Up to which version of the table commits of other programs were accounted for."""
        return self.tables / "_checkpoints" / "landed.foreign.json"

    @property
    def watermarks(self) -> Path:
        """How far the tables are complete, as the ledger said last."""
        return self.tables / "_checkpoints" / "watermarks.json"

    @property
    def clock(self) -> Path:
        """The time when the pipeline last believed its clock."""
        return self.tables / "_checkpoints" / "landed.clock"

    @property
    def type_schemas(self) -> Path:
        """The schemas of event types as the pipeline read them: only Spark can."""
        return self.tables / "_checkpoints" / "landed.schemas.json"

    @property
    def lock(self) -> Path:
        """Held by the one process that lands."""
        return self.tables / "_checkpoints" / "landed.lock"

    @property
    def upkeep_lock(self) -> Path:
        """Held by whoever replaces files of the table by others."""
        return self.tables / "_checkpoints" / "landed.upkeep.lock"

    @property
    def hold(self) -> Path:
        """While this file is there the query takes nothing new: so it comes to rest between two batches."""
        return self.tables / "_checkpoints" / "landed.hold"

    @property
    def scratch(self) -> Path:
        """What the running JVM keeps for itself; emptied at every start."""
        return self.tables / "_checkpoints" / "scratch"

    @property
    def refills(self) -> Path:
        """Requests to land offsets out of turn."""
        return self.tables / "_checkpoints" / "refills"

    @property
    def deletions(self) -> Path:
        """What was to be taken out of the table, and what was."""
        return self.tables / "_checkpoints" / "deletions"

    @classmethod
    def for_tables(cls, tables: Path | str | TablesUrl) -> Layout:
        """For a folder of tables, made absolute: Spark writes absolute paths into its lists. Or for their URL."""
        if isinstance(tables, TablesUrl):
            state = Path(os.path.abspath(tables.state))
            return cls(state, ObjectPath(tables.url, tables.options, state))
        return cls(Path(os.path.abspath(tables)))

    @classmethod
    def around(cls, table: TablePath) -> Layout:
        """Of the folder of a table that somebody may write."""
        if isinstance(table, ObjectPath):
            return cls(table.state or Path(), replace(table, name=""))
        return cls(table.parent)


def partition_value(name: str | Path, column: str) -> str:
    """The value that a file's folder has for a column of PARTITION BY; "" where it has none."""
    for part in str(name).split("/"):
        if part.startswith(f"{column}="):
            return unquote(part.partition("=")[2])
    return ""


def kind_and_day(name: str) -> tuple[MessageKind, date]:
    """Kind and day of the rows of a file of the table, by its folders; a typed table has events alone."""
    return MessageKind(partition_value(name, "kind") or MessageKind.EVENT), date.fromisoformat(
        partition_value(name, "date")
    )
