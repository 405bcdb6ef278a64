"""Bugs of the landing that were mended in the past, or would be likely, put back one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.landing.journal import CommitInProgress
from penstock.landing.requests.deletions import DeletionRecord
from penstock.landing.typed.typed_delta import TypedDelta
from penstock.landing.writing import batch_commit
from penstock.proof.proofs_table import ProofsTable
from penstock.spark.query import landing_query
from penstock.spark.query.proof_worker import ProofWorker
from penstock.upkeep.deletion import foreign, removal
from penstock.upkeep.deletion.returned_rows import ReturnedRows
from penstock.upkeep.repair import checkpoint_repair

Bug = Callable[[pytest.MonkeyPatch], None]


def keep_returned_rows(patch: pytest.MonkeyPatch) -> None:
    """Keep deleted rows that another program brings back."""
    patch.setattr(foreign, "delete_returned_rows", lambda *arguments, **options: ReturnedRows())


def count_returned_rows_again(patch: pytest.MonkeyPatch) -> None:
    """Count rows that were brought back and are deleted by another request as deleted twice."""
    patch.setattr(removal, "may_hold_deleted_rows", lambda layout, table: False)


def keep_restored_proofs(patch: pytest.MonkeyPatch) -> None:
    """Append to a table of proofs whose rows another program took away."""
    patch.setattr(ProofsTable, "examine_changed_rows", lambda self, application: [])


def enter_commit_in_progress(patch: pytest.MonkeyPatch) -> None:
    """Enter a batch in the journal that a crash may still revert."""
    patch.setattr(CommitInProgress, "holds_back", lambda self, batch: False)


def forget_missing_batch(patch: pytest.MonkeyPatch) -> None:
    """Go on after the batch that is done and not in the table."""
    for module in (checkpoint_repair, landing_query):
        patch.setattr(module, "repeat_missing_batch", lambda layout, table: [])


def delete_unproved_rows(patch: pytest.MonkeyPatch) -> None:
    """Delete rows of batches that are not proved yet."""
    patch.setattr(ProofWorker, "settled", True)


def forget_deleted_keys(patch: pytest.MonkeyPatch) -> None:
    """Land a duplicate of a deleted event."""
    patch.setattr(DeletionRecord, "keys", lambda self: ())


def forget_other_tasks(patch: pytest.MonkeyPatch) -> None:
    """Land an event once for each task that has it."""

    def decided_by_tasks(seen: Any, dropped: Any, *_: Any) -> Any:
        return dropped

    patch.setattr(batch_commit, "find_late_duplicates", decided_by_tasks)


def keep_typed_rows_of_first_attempt(patch: pytest.MonkeyPatch) -> None:
    """Add the rows of a repeated batch to the ones of its first attempt in a typed table."""
    patch.setattr(TypedDelta, "_files_of_batch", lambda self, batch: [])


BUGS: dict[Bug, int] = {
    keep_returned_rows: 0,
    count_returned_rows_again: 0,
    keep_restored_proofs: 0,
    enter_commit_in_progress: 0,
    forget_missing_batch: 0,
    delete_unproved_rows: 0,
    forget_deleted_keys: 0,
    forget_other_tasks: 0,
    keep_typed_rows_of_first_attempt: 0,
}
"""A seed that notices each bug."""
