"""A process that does everything that is done to tables, and what other programs do to them, until it is killed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import deltalake

# Loaded before the fork: the mirror and the exports import what they need late.
import psycopg  # noqa: F401
import pyiceberg.catalog.sql
from deltalake.exceptions import DeltaError

from penstock.landing.requests.conditions import IN, Condition
from penstock.landing.requests.deletions import REQUESTED, request_deletion
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.landed_table import begin_table
from penstock.landing.table_paths import Layout
from penstock.log import Log, TopicSettings
from penstock.proof import proofs_table
from penstock.proof.proofs_table import ProofAppender
from penstock.spark.query.landing_query import Landing
from penstock.spark.query.proof_worker import ProofWorker
from penstock.upkeep.compaction.compaction import compact_table, sweep_table
from penstock.upkeep.deletion.foreign import note_foreign_changes
from penstock.upkeep.deletion.removal import execute_deletions
from penstock.upkeep.export import clickhouse, delta_copy, duckdb_file, postgresql  # noqa: F401
from penstock.upkeep.export.target import TargetMoved
from penstock.upkeep.iceberg import mirrored_table  # noqa: F401
from penstock.upkeep.repair.checkpoint_repair import repair_checkpoint, sweep
from tests.spark.spark_helpers import HandWritten, landed_event
from tests.upkeep.export.exported import Exported, exported
from tests.upkeep.iceberg.mirror_life import mirror_of

TOPIC, BATCH_ROWS, WINDOW = "t", 10, 600_000_000
RESTORED_VERSIONS = 10
"""Limit: versions that another program goes back; older files may be gone."""
del pyiceberg


def uuid_of(offset: int) -> str:
    return f"u{offset}"


def exports_of(folder: Path, server: str) -> list[Exported]:
    """Return an export to each kind of target; of PostgreSQL only with the address of a server."""
    layout = Layout.for_tables(folder / "tables")
    kinds = ("duckdb", "delta", *(["postgresql"] if server else []))
    return [exported(kind, layout, folder, server, name=kind, source="landed") for kind in kinds]


class WholeLife:
    """A run of the pipeline over the tables of a folder, and other programs in between."""

    def __init__(self, folder: Path, server: str) -> None:
        self.layout = Layout.for_tables(folder / "tables")
        if not (folder / "topics").exists():
            log = Log(folder / "topics", TopicSettings())
            log.topic(TOPIC, create=True)
            log.close()
        self.table = HandWritten(self.layout, hashed=True)
        begin_table(self.layout)
        repair_checkpoint(self.layout)
        self.worker = ProofWorker(Landing(folder / "topics", self.layout.tables), None)
        self.worker.enter()
        sweep(self.layout)
        self.table.batch = begin_table(self.layout).newest()
        self.appender = ProofAppender(self.layout)
        self.exports = exports_of(folder, server)
        self.clickhouse = exported("clickhouse", self.layout, folder, name="clickhouse", source="landed")
        self.mirror = mirror_of(self.layout.tables)

    def land(self) -> None:
        first = (self.table.batch + 1) * BATCH_ROWS
        rows = [
            landed_event(offset, uuid_of(offset), host=f"web-{offset % 3}", data=f'{{"n":{offset}}}')
            for offset in range(first, first + BATCH_ROWS)
        ]
        self.table.end = {TOPIC: first}
        self.table.commit({TOPIC: first + BATCH_ROWS}, rows)
        self.worker.step()

    def request_deletion(self, chance: random.Random) -> None:
        request_deletion(self.layout, REQUESTED, [Condition("uuid", IN, tuple(self._some_uuids(chance)))])

    def _some_uuids(self, chance: random.Random) -> Sequence[str]:
        """Return uuids of recent rows, of which some may be deleted."""
        end = (self.table.batch + 1) * BATCH_ROWS
        return [uuid_of(chance.randrange(max(0, end - 5 * BATCH_ROWS), end)) for _ in range(3)]

    def settle(self) -> None:
        """Do what is due, as the maintenance does."""
        note_foreign_changes(self.layout)
        execute_deletions(self.layout, WINDOW)

    def sweep(self) -> None:
        # Order: the rows that another program deleted are looked for in the files that it replaced.
        self.settle()
        sweep_table(DeltaTable(self.layout.landed))
        DeltaTable(self.layout.landed).vacuum(0)

    def delete_as_another_program(self, chance: random.Random) -> None:
        deltalake.DeltaTable(str(self.layout.landed)).delete(f"uuid = '{self._some_uuids(chance)[0]}'")

    def optimize_as_another_program(self) -> None:
        deltalake.DeltaTable(str(self.layout.landed)).optimize.compact()

    def restore_as_another_program(self, chance: random.Random) -> None:
        """Go back to an earlier version, but not behind another program's change: its deleted rows would be back."""
        table = deltalake.DeltaTable(str(self.layout.landed))
        changes = [commit["version"] for commit in table.history() if commit["operation"] in ("DELETE", "RESTORE")]
        oldest = max([1, table.version() - RESTORED_VERSIONS, *changes])
        if oldest < table.version():
            # Files of the version may have been removed.
            with suppress(DeltaError):
                table.restore(chance.randrange(oldest, table.version()))

    def export(self) -> None:
        for export in self.exports:
            try:
                export.step()
            except TargetMoved:
                # PostgreSQL finished the transaction of a killed process after the position was read.
                export.step()

    def catch_up(self) -> None:
        """Bring everything up to date, as a pipeline does that ends."""
        self.settle()
        assert self.worker.stop(0)
        self.mirror.step()
        self.export()
        self.clickhouse.step()

    def live(self, chance: random.Random, *, with_clickhouse: bool) -> None:
        work: dict[Callable[[], object], int] = {
            self.land: 6,
            lambda: compact_table(self.layout.landed): 2,
            lambda: self.request_deletion(chance): 3,
            self.settle: 3,
            self.sweep: 1,
            lambda: self.appender.step(now=True): 2,
            self.mirror.step: 2,
            self.export: 2,
            lambda: self.delete_as_another_program(chance): 1,
            self.optimize_as_another_program: 1,
            lambda: self.restore_as_another_program(chance): 1,
            self.clickhouse.step: 20 * with_clickhouse,
        }
        self.land()
        while True:
            chance.choices([*work], [*work.values()])[0]()


def main(folder: str, server: str, seed: int, with_clickhouse: bool) -> None:
    """Live until the end of the process; with ClickHouse, which is loaded with its first export, mostly exporting."""
    proofs_table.ROLL_AT_FILES = 4
    WholeLife(Path(folder), server).live(random.Random(seed), with_clickhouse=with_clickhouse)
