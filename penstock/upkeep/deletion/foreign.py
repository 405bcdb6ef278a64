"""Rows that other programs deleted from the table: found in its log, and accounted for as ``deleted.foreign``.

Each commit of another program is looked at once. Where rows disappeared, a deletion is asked for that has its version
and engine; it is carried out in turn with all others (``removal``), so the balance has it once the rows are proved.
"""

from __future__ import annotations

import logging

from penstock.files.checked_document import write_document
from penstock.landing.requests.deletions import FOREIGN, load_deletions, request_deletion
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.table_reader import ForeignCommit
from penstock.landing.table_paths import Layout
from penstock.proof.foreign_deletions import foreign_changes, version_seen

_LOGGER = logging.getLogger(__name__)


def note_foreign_changes(layout: Layout) -> int:
    """Ask for the accounting of rows that others deleted since the last look; return how many commits changed rows.

    One process at a time: the pipeline, or who holds its lock.
    """
    table = DeltaTable(layout.landed)
    newest, seen = table.version(), version_seen(layout, table)
    if newest <= seen:
        return 0
    asked = {one.version for one in load_deletions(layout)}
    changes = 0
    for commit, rows in foreign_changes(layout, table, seen, newest):
        changes += 1
        _LOGGER.warning("%s", describe(layout, commit, rows.rows))
        # Crash: killed between the request and the position, the commit is looked at again, and asked for already.
        if rows.rows and commit.version not in asked:
            request_deletion(layout, FOREIGN, (), commit)
    write_document(layout.foreign, {"version": newest})
    return changes


def describe(layout: Layout, commit: ForeignCommit, deleted: int) -> str:
    """Return what another program did, for people."""
    changed = "rows, it does not say how many" if commit.updated is None else f"{commit.updated:,} rows"
    return (
        f"{layout.landed}: version {commit.version} is {commit.operation} of {commit.engine}: "
        f"it deleted {deleted:,} rows and changed {changed}"
    )
