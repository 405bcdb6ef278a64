"""Bugs of the landing that were mended in the past, or would be likely, put back one by one."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.landing.journal import read_journal
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.table_reader import TableReader
from penstock.landing.table_paths import Layout
from penstock.landing.writing import batch_commit
from penstock.proof import commit_faults, deleted_rows, foreign_deletions
from penstock.proof.posts.ledger_client import LedgerClient
from penstock.proof.prover import Prover
from penstock.spark.query import landing_query
from penstock.spark.query.proof_worker import ProofWorker
from penstock.upkeep.deletion import foreign, removal
from penstock.upkeep.deletion.returned_rows import ReturnedRows
from penstock.upkeep.repair import checkpoint_repair
from tests.testing.simulation.simulation_checks import Bug


def keep_returned_rows(patch: pytest.MonkeyPatch) -> None:
    """Keep deleted rows that another program brings back."""
    patch.setattr(foreign, "delete_returned_rows", lambda *arguments, **options: ReturnedRows())


def forget_survivors_that_expired(patch: pytest.MonkeyPatch) -> None:
    """Leave duplicates unaccounted whose deleted first row has expired from the log."""
    patch.setattr(Prover, "_lacks_survivors", lambda self, proof: False)


def trust_posts_to_a_lost_ledger(patch: pytest.MonkeyPatch) -> None:
    """Post to a ledger that was lost in between only what is new."""
    post = LedgerClient.post
    patch.setattr(LedgerClient, "post", lambda self, proof, end=0, after=0: post(self, proof, end))
    patch.setattr(ProofWorker, "_check_posted", lambda self, ledger: None)


def forget_missing_batch(patch: pytest.MonkeyPatch) -> None:
    """Go on after a batch that Spark has recorded as done, and that is not in the table."""
    for module in (checkpoint_repair, landing_query):
        patch.setattr(module, "repeat_missing_batch", lambda layout, table: [])


def forget_other_tasks(patch: pytest.MonkeyPatch) -> None:
    """Land an event once for each task that has it."""

    def decide_by_tasks(seen: Any, dropped: Any, *_: Any) -> Any:
        return dropped

    patch.setattr(batch_commit, "find_late_duplicates", decide_by_tasks)


def read_last_line_as_last_batch(patch: pytest.MonkeyPatch) -> None:
    """Leave rows uncounted that another program deletes between batches of one line of the journal."""
    landed_offsets = deleted_rows.landed_offsets

    def landed_behind_last_line(layout: Layout, table: TableReader, before_version: int | None = None) -> Any:
        log_since, newest = TableReader.log_since, max((commit.batch for commit in read_journal(layout)), default=-1)
        with patch.context() as inner:
            inner.setattr(TableReader, "log_since", lambda self, batch: log_since(self, newest))
            return landed_offsets(layout, table, before_version)

    for module in (foreign_deletions, commit_faults, removal):
        patch.setattr(module, "landed_offsets", landed_behind_last_line)


def commit_again_after_a_lost_answer(patch: pytest.MonkeyPatch) -> None:
    """Commit a batch again whose commit has succeeded, and whose answer was lost."""
    patch.setattr(DeltaTable, "_is_committed", lambda self, batch: False)


def count_returned_rows_again(patch: pytest.MonkeyPatch) -> None:
    """Count rows twice that another program brings back, and that are deleted again."""
    patch.setattr(removal, "may_hold_deleted_rows", lambda layout, table: False)


BUGS: dict[Bug, int] = {
    read_last_line_as_last_batch: 5002,
    commit_again_after_a_lost_answer: 69,
    count_returned_rows_again: 7,
    keep_returned_rows: 30,
    forget_survivors_that_expired: 20,
    trust_posts_to_a_lost_ledger: 10,
    forget_missing_batch: 5,
    forget_other_tasks: 1,
}
"""A seed that notices each bug."""
