"""Random sequences of other programs' commits between our own batches, merges and deletions.

Each row is in the table once, or has one fate; the running balance, the rebuilt one and the proof in SQL agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.landing.offset_runs import NO_RUNS, offsets_of
from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import REQUESTED, DeletionRecord, request_deletion
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_file import TableFile, open_rows
from penstock.landing.table_paths import Layout
from penstock.proof.commit_faults import current_complaints
from penstock.proof.proofs_table import ProofAppender
from penstock.spark.query.proof_worker import ProofWorker
from penstock.upkeep.compaction.compaction import compact_table
from penstock.upkeep.maintenance import Maintenance, Upkeep
from tests.landing.table.foreign_writer import delete_by_vector, optimize_rows, restore
from tests.proof.proof_sql import differences
from tests.spark.spark_daemon import daemon
from tests.spark.spark_helpers import HandWritten, append, event, landed_event
from tests.upkeep.deletion.test_removal import believed, ledger_sums, rebuilt_sums, worker

WINDOW = 600_000_000
MESSAGES = 60
STEPS = 8


class SharedTable:
    """A table with two batches, to which Penstock and other programs write in a random order."""

    def __init__(self, folder: Path, random: Random, has_vectors: bool) -> None:
        self.table, self.random, self.end = HandWritten(Layout.for_tables(folder / "tables")), random, 0
        self.layout = self.table.layout
        self.folder = self.layout.tables / "landed"
        self.proofs: ProofWorker | None = None
        self.first_version = 1
        self.faulty_versions = set[int]()
        ours = [self.land, self.delete, self.merge_files, self.maintain, self.lose_rows]
        # Workaround: delta-rs 1.6 does not rewrite files that have a deletion vector.
        theirs = [self.delete_by_vector, self.take_vector_back]
        without_vectors = [self.foreign_delete, self.update, self.foreign_merge, self.optimize, self.z_order]
        without_vectors += [self.restore, self.overwrite, self.replace_where, self.vacuum, self.repeat_and_undo]
        self.actions = ours + (theirs if has_vectors else without_vectors)

    def land(self) -> None:
        begin, self.end = self.end, self.end + self.random.randint(2, 4)
        rows = [landed_event(n, f"u{n}", host=self.random.choice("xy")) for n in range(begin, self.end)]
        self.table.commit({"t": self.end}, rows)

    def maintain(self) -> None:
        Maintenance(self.layout, Upkeep(window=WINDOW), believed(self.layout)).step()
        assert self.proofs is not None
        assert self.proofs.step()

    def delete(self, uuids: Sequence[str] = ()) -> None:
        request_deletion(self.layout, REQUESTED, parse_conditions(self._condition(uuids or self._uuids())))

    def merge_files(self) -> None:
        compact_table(self.layout.landed)

    def foreign_delete(self) -> None:
        self._delta().delete(self._condition(self._uuids()))

    def update(self) -> None:
        self._delta().update(updates={"type": "'z'"}, predicate=self._condition(self._uuids()))

    def foreign_merge(self) -> None:
        merger = self._delta().merge(pa.table({"uuid": self._uuids()}), "t.uuid = s.uuid", "s", "t")
        merger.when_matched_delete().execute()

    def optimize(self) -> None:
        self._delta().optimize.compact()

    def z_order(self) -> None:
        self._delta().optimize.z_order(["uuid"])

    def restore(self) -> None:
        versions = {*range(self.first_version, self._delta().version())} - self.faulty_versions
        if versions:
            self._delta().restore(self.random.choice(sorted(versions)))

    def overwrite(self) -> None:
        deltalake.write_deltalake(str(self.folder), self._some_rows(), mode="overwrite")

    def replace_where(self) -> None:
        rows = self._some_rows()
        rows = rows.filter(pc.equal(rows["host"], pa.scalar("x")))
        deltalake.write_deltalake(str(self.folder), rows, mode="overwrite", predicate="host = 'x'")

    def vacuum(self) -> None:
        # Order: rows whose files are gone before the pipeline has looked at the commit are unaccounted.
        self.maintain()
        self._delta().vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        self.first_version = self._delta().version()

    def lose_rows(self) -> None:
        if plain := [file for file in self._files() if file.is_plain]:
            file = self.random.choice(plain)
            optimize_rows(self.folder, file, self._indices(file))

    def repeat_and_undo(self) -> None:
        version = self._delta().version()
        if files := self._files():
            file = self.random.choice(files)
            optimize_rows(self.folder, file, self._indices(file), is_removed=False)
            if self.random.random() < 0.5:
                self.maintain()
            self.faulty_versions |= {*range(version + 1, self._delta().version() + 1)}
            self._delta().restore(version)

    def delete_by_vector(self) -> None:
        if files := self._files():
            file = self.random.choice(files)
            deleted = set[int]() if file.live is None else {n for n, live in enumerate(file.live) if not live}
            delete_by_vector(self.folder, file, sorted({*deleted, *self._indices(file)}))

    def take_vector_back(self) -> None:
        if files := [file for file in self._files() if file.live is not None]:
            restore(self.folder, self.random.choice(files))

    def offsets(self) -> list[int]:
        """Return the offsets of all rows of the table, ascending."""
        return sorted(offset for file in table_of(self.layout).active() for offset in self._offsets_of(file))

    def deleted_offsets(self) -> set[int]:
        """Return the offsets that have the fate of a deletion."""
        return {*offsets_of(DeletionRecord(self.layout).runs().get("t", NO_RUNS)).tolist()}

    def _offsets_of(self, file: TableFile) -> list[int]:
        with open_rows(self.layout.landed, file) as rows:
            offsets: list[int] = rows.read(["offset"])["offset"].to_pylist()
        return offsets

    def _files(self) -> list[TableFile]:
        # Names are random, so that files are ordered by their rows: a seed means one sequence.
        return sorted((file for file in table_of(self.layout).active() if file.written_rows), key=self._offsets_of)

    def _indices(self, file: TableFile) -> list[int]:
        return sorted(self.random.sample(range(file.written_rows), self.random.randint(1, file.written_rows)))

    def _uuids(self) -> list[str]:
        return [f"u{n}" for n in self.random.sample(range(self.end), 2)]

    def _condition(self, uuids: Sequence[str]) -> str:
        return f"uuid in ({', '.join(repr(uuid) for uuid in uuids)})"

    def _some_rows(self) -> pa.Table:
        rows = pa.table(self._delta().to_pyarrow_table())
        offsets = sorted(rows["offset"].to_pylist())
        offsets = self.random.sample(offsets, self.random.randint(0, len(offsets)))
        return rows.filter(pc.is_in(rows["offset"], pa.array(offsets, pa.int64())))

    def _delta(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(str(self.folder))


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
@pytest.mark.parametrize("has_vectors", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_each_row_has_one_fate_after_any_sequence_of_foreign_commits(
    tmp_path: Path, topics: Path, seed: int, has_vectors: bool
) -> None:
    shared = SharedTable(tmp_path, Random(seed), has_vectors)
    append(topics, "t", [event(n) for n in range(MESSAGES)])
    with daemon(tmp_path) as running:
        shared.land()
        shared.land()
        shared.proofs = worker(topics, shared.table, running)
        shared.maintain()
        for _ in range(STEPS):
            shared.random.choice(shared.actions)()
        shared.maintain()
        shared.maintain()
        balance = ledger_sums(running)
        # Rows that a RESTORE brought back keep their fate, and are named until they are deleted again.
        if back := shared.deleted_offsets().intersection(shared.offsets()):
            assert current_complaints(shared.layout, is_exact=False)
            shared.delete([f"u{offset}" for offset in sorted(back)])
            shared.maintain()
        deleted = shared.deleted_offsets()
        assert shared.offsets() == sorted({*range(shared.end)} - deleted)
        assert ledger_sums(running) == rebuilt_sums(topics, shared.layout) == balance
        fates = balance[0]
        assert fates.get("landed.event", 0) == shared.end - len(deleted)
        assert sum(rows for name, rows in fates.items() if name.startswith("deleted.")) == len(deleted)
        assert current_complaints(shared.layout, is_exact=False) == []
        ProofAppender(shared.layout).step(now=True)
        assert has_vectors or differences(shared.layout) == []
