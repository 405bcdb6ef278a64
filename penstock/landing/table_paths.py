"""Paths of the tables and of the pipeline's state. Names that begin with ``_`` are invisible to readers of tables."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from urllib.parse import unquote

from penstock.config.syntax.tables_url import TablesUrl
from penstock.landing.event_rules import MessageKind
from penstock.landing.storage.object_path import ObjectPath, TablePath

TYPED_MARK = "events_"
"""Prefix of the names of typed tables."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The folders and files below the folder of the tables; ``store``: the tables themselves, if they are elsewhere."""

    tables: Path
    store: ObjectPath | None = None

    @property
    def landed(self) -> TablePath:
        """The table ``landed``: Parquet files in folders kind=/date=."""
        return self.table("landed")

    def table(self, name: str) -> TablePath:
        """Return the folder of a table."""
        return (self.store or self.tables) / name

    def typed(self, name: str) -> TablePath:
        """Return the folder of a typed table, named as readers name the table (``events_click``)."""
        return self.table(f"{TYPED_MARK}{name}")

    @property
    def proof_table(self) -> TablePath:
        """The table ``proofs``: ranges, counts and sums of proved rows, for SQL without Penstock."""
        return self.table("proofs")

    @property
    def typed_since(self) -> Path:
        """The batch after which each typed table is written."""
        return self.tables / "_checkpoints" / "typed.json"

    def typed_refill(self, name: str) -> Path:
        """Return the path of the files that a refill of a typed table has written."""
        return self.tables / "_checkpoints" / f"typed.refill.{name}.json"

    @property
    def keys(self) -> Path:
        """The keys of events that landed within the window."""
        return self.tables / "_checkpoints" / "landed.keys"

    @property
    def checkpoint(self) -> Path:
        """The landing query's Spark checkpoint: offsets and commits."""
        return self.tables / "_checkpoints" / "landed"

    @property
    def journal(self) -> Path:
        """A line for each recent batch: Spark forgets old batches, and a rebuild needs all of them."""
        return self.tables / "_checkpoints" / "landed.commits.jsonl"

    @property
    def sent_back(self) -> Path:
        """A line for each batch of messages that were sent back from quarantine; absent until the first one."""
        return self.tables / "_checkpoints" / "quarantine.replayed.jsonl"

    @property
    def proofs(self) -> Path:
        """A line for each recent batch that was proved."""
        return self.tables / "_checkpoints" / "landed.proofs.jsonl"

    @property
    def history(self) -> Path:
        """Older batches of journal and proofs, rolled up: a file for each day."""
        return self.tables / "_checkpoints" / "history"

    @property
    def rolled(self) -> Path:
        """The sum of the rolled-up batches."""
        return self.tables / "_checkpoints" / "landed.sum.json"

    @property
    def format(self) -> Path:
        """The format version of the table; written before the table is created."""
        return self.tables / "_checkpoints" / "landed.format.json"

    @property
    def promoted(self) -> Path:
        """Positions in Kafka of the rows of promoted topics."""
        return self.tables / "_checkpoints" / "promoted"

    @property
    def foreign(self) -> Path:
        """The table version up to which other programs' commits are accounted for."""
        return self.tables / "_checkpoints" / "landed.foreign.json"

    @property
    def returned(self) -> Path:
        """The deleted rows that other programs brought back, and that were deleted again."""
        return self.tables / "_checkpoints" / "landed.returned.json"

    @property
    def continuity(self) -> Path:
        """Times of landed rows, or ids of Kafka's topics: they show that offsets of a topic begin again."""
        return self.tables / "_checkpoints" / "landed.continuity.json"

    @property
    def mirrored(self) -> Path:
        """The time up to which Iceberg tables are up to date; missing if there are none."""
        return self.tables / "_checkpoints" / "iceberg.json"

    @property
    def exports(self) -> Path:
        """The state of exports, a file for each."""
        return self.tables / "_checkpoints" / "exports"

    @property
    def contracts(self) -> Path:
        """Violations of contracts of typed tables by rule, for metrics."""
        return self.tables / "_checkpoints" / "contracts.json"

    @property
    def failure(self) -> Path:
        """The page of the failure for which nothing lands (``handover.landing_failure``)."""
        return self.tables / "_checkpoints" / "landed.failure"

    @property
    def watermarks(self) -> Path:
        """Watermarks of the tables, as the ledger last reported them."""
        return self.tables / "_checkpoints" / "watermarks.json"

    @property
    def pipeline(self) -> Path:
        """The id of the pipeline that lands from Kafka into these tables."""
        return self.tables / "_checkpoints" / "pipeline.json"

    @property
    def clock(self) -> Path:
        """The last time at which the pipeline's clock was plausible."""
        return self.tables / "_checkpoints" / "landed.clock"

    @property
    def type_schemas(self) -> Path:
        """Schemas of event types as the pipeline read them: only Spark can read them from their source."""
        return self.tables / "_checkpoints" / "landed.schemas.json"

    @property
    def lock(self) -> Path:
        """The lock of the one process that lands."""
        return self.tables / "_checkpoints" / "landed.lock"

    @property
    def upkeep_lock(self) -> Path:
        """The lock under which files of the tables are replaced."""
        return self.tables / "_checkpoints" / "landed.upkeep.lock"

    @property
    def proofs_lock(self) -> Path:
        """The lock under which the table ``proofs`` is written."""
        return self.tables / "_checkpoints" / "proofs.lock"

    @property
    def hold(self) -> Path:
        """A file that pauses the query between two batches, as long as it exists."""
        return self.tables / "_checkpoints" / "landed.hold"

    @property
    def scratch(self) -> Path:
        """Temporary files of the running JVM; emptied at every start."""
        return self.tables / "_checkpoints" / "scratch"

    @property
    def backfills(self) -> Path:
        """Requests to land offsets out of turn. Files call them refills, as earlier versions did."""
        return self.tables / "_checkpoints" / "refills"

    @property
    def damaged(self) -> Path:
        """Damaged files of the tables, and what became of them."""
        return self.tables / "_checkpoints" / "damaged.jsonl"

    @property
    def deletions(self) -> Path:
        """Requested deletions, and what they deleted."""
        return self.tables / "_checkpoints" / "deletions"

    @classmethod
    def for_tables(cls, tables: Path | str | TablesUrl) -> Layout:
        """Return the layout of a folder of tables, or of their URL."""
        if isinstance(tables, TablesUrl):
            state = Path(os.path.abspath(tables.state))
            return cls(state, ObjectPath(tables.url, tables.options, state))
        # Absolute, because Spark writes absolute paths into its lists of files.
        return cls(Path(os.path.abspath(tables)))

    @classmethod
    def around(cls, table: TablePath) -> Layout:
        """Return the layout that contains the folder of a table, for writing."""
        if isinstance(table, ObjectPath):
            return cls(table.state or Path(), replace(table, name=""))
        return cls(table.parent)


def partition_value(name: str | Path, column: str) -> str:
    """Return the value of a partition column, from the folders in a file's name; "" if they do not have it."""
    for part in str(name).split("/"):
        if part.startswith(f"{column}="):
            return unquote(part.partition("=")[2])
    return ""


def kind_and_day(name: str) -> tuple[MessageKind, date]:
    """Return kind and day of the rows of a file, from its folders; a typed table has only events."""
    return MessageKind(partition_value(name, "kind") or MessageKind.EVENT), date.fromisoformat(
        partition_value(name, "date")
    )
