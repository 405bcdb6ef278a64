"""Account for rows that other programs deleted from the table, as ``deleted.foreign``.

Each commit of another program is examined once. If rows disappeared, a deletion request with its version and engine is
written; it is executed in turn with all others (``removal``), so the ledger counts it once the rows are proved.
"""

from __future__ import annotations

import logging

from penstock.files.checked_document import write_document
from penstock.landing.requests.deletions import FOREIGN, load_deletions, request_deletion
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.table_reader import ForeignCommit
from penstock.landing.table_paths import Layout
from penstock.proof.foreign_deletions import examine_changes, has_brought_back, noted_complaints, version_seen

MAX_COMPLAINTS = 100
"""Limit: the newest are kept, and reread at each look."""
_LOGGER = logging.getLogger(__name__)


def note_foreign_changes(layout: Layout) -> int:
    """Request the accounting of rows that others deleted since the last call; return the number of such commits.

    One process at a time: the pipeline, or the holder of its lock.
    """
    table = DeltaTable(layout.landed)
    newest, examined = table.version(), version_seen(layout, table)
    if newest <= examined:
        return 0
    requested = {deletion.version for deletion in load_deletions(layout)}
    changes = 0
    complaints, brought_back = noted_complaints(layout), has_brought_back(layout)
    for commit, rows, faults in examine_changes(layout, table, examined, newest):
        complaints += faults
        brought_back |= any(not fault.file for fault in faults)
        for fault in faults:
            _LOGGER.error("%s", fault.text)
        if commit.names or rows.runs:
            changes += 1
            _LOGGER.warning("%s", describe(layout, commit, rows.rows + rows.repeated))
        # Crash: killed between the request and the position, the commit is looked at again, and asked for already.
        if rows.rows and commit.version not in requested:
            request_deletion(layout, FOREIGN, (), commit)
    # Order: the requests first, see above.
    noted = [[fault.version, fault.time_ms, fault.text, fault.file] for fault in complaints[-MAX_COMPLAINTS:]]
    write_document(layout.foreign, {"version": newest, "complaints": noted, "has_brought_back": brought_back})
    return changes


def describe(layout: Layout, commit: ForeignCommit, deleted: int) -> str:
    """Describe the change of another program, for people."""
    changed = "changed rows, it does not say how many" if commit.updated is None else f"changed {commit.updated:,} rows"
    changed = changed if commit.names else "says that it changed none"
    return (
        f"{layout.landed}: version {commit.version} is {commit.operation} of {commit.engine}: "
        f"it deleted {deleted:,} rows and {changed}"
    )
