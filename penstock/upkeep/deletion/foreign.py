"""Account for rows that other programs deleted from the table, as ``deleted.foreign``.

Each commit of another program is examined once. If rows disappeared, a deletion request with its version and engine is
written; it is executed in turn with all others (``removal``), so the ledger counts it once the rows are proved.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial

from penstock.errors import PenstockError
from penstock.files.checked_document import write_document
from penstock.landing.landing_lock import hold_upkeep_lock
from penstock.landing.offset_runs import Runs, joined
from penstock.landing.requests.deletions import FOREIGN, DeletionRecord, load_deletions, request_deletion
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.table_reader import ForeignCommit
from penstock.landing.table_paths import Layout
from penstock.proof.commit_faults import examine_changes, unreadable_commit
from penstock.proof.commit_notes import (
    AWAITS_DELETION,
    COMPLAINTS,
    HAS_BROUGHT_BACK,
    INSERTED,
    TYPED_COMPLAINTS,
    UNREADABLE,
    Complaint,
    awaits_deletion,
    has_brought_back,
    noted_complaints,
    typed_versions_seen,
    version_seen,
)
from penstock.proof.foreign_deletions import noted_filled_offsets
from penstock.upkeep.deletion.returned_rows import changed_files, delete_returned_rows, examine_typed_tables

MAX_COMPLAINTS = 100
"""Limit: the newest are kept, and reread at each look."""
MAX_FILLED_TOPICS, MAX_FILLED_RUNS = 100, 10_000
"""Limit: of topics, and of runs of each; a deletion at a further filled offset counts as that of a landed row."""
_LOGGER = logging.getLogger(__name__)


def note_foreign_changes(layout: Layout, *, retry: bool = True) -> int:
    """Request the accounting of rows that others deleted since the last call; return the number of such commits.

    ``retry``: also look again at earlier commits of which the files could not be read, and delete again what could not
    be deleted.

    One process at a time: the pipeline, or the holder of its lock.
    """
    table = DeltaTable(layout.landed)
    newest, examined = table.version(), version_seen(layout, table)
    # Without a stored position, that of the next call would be the newest version of a log without older commits.
    is_first = not layout.foreign.exists()
    typed, named = _examine_typed(layout, everything=retry)
    if newest <= examined and not (retry or named or is_first):
        return 0
    noted = noted_complaints(layout)
    unreadable = {complaint.version for complaint in noted if complaint.file == UNREADABLE}
    versions = [*(sorted(unreadable) if retry else ()), *range(examined + 1, newest + 1)]
    is_due = retry and awaits_deletion(layout)
    if not (versions or named or is_due or is_first):
        return 0
    # A request for an unreadable commit was carried out without rows: its rows are requested again.
    requested = {
        deletion.version
        for deletion in load_deletions(layout)
        if deletion.version not in unreadable or deletion.number > table.last_deletion()
    }
    changes = len(named)
    # What commits did that the log no longer has, only the whole table shows.
    is_gap = examined < newest and not table.commit_path(examined + 1).exists()
    complaints, brought_back, filled = noted, has_brought_back(layout) or is_gap, noted_filled_offsets(layout)
    for commit, rows, faults in examine_changes(layout, table, versions):
        filled = joined([filled, rows.filled]) if rows.filled else filled
        complaints = [complaint for complaint in complaints if complaint.version != commit.version] + faults
        # A commit whose files cannot be read may have brought rows back, too; inserted rows may be copies.
        brought_back |= any(fault.file in {"", UNREADABLE, INSERTED} for fault in faults)
        for fault in faults:
            if fault not in noted:
                _LOGGER.error("%s", fault.text)
        if commit.names or rows.runs:
            changes += 1
            if not rows.unreadable:
                _LOGGER.warning("%s", describe(layout, commit, rows.rows + rows.repeated))
        # Crash: killed between the request and the position, the commit is looked at again, and asked for already.
        if rows.rows and commit.version not in requested:
            request_deletion(layout, FOREIGN, (), commit)
    # Rows may also be back in other files of a commit that has a file which cannot be read.
    suspects = [fault for fault in complaints if fault.file in {"", UNREADABLE} and (is_due or fault not in noted)]
    # An earlier failure holds until the whole table is searched.
    has_failed = awaits_deletion(layout) and not is_due
    if is_due or suspects or is_gap:
        back = sorted({fault.version for fault in suspects})
        has_failed |= not _delete_returned(layout, table, back, is_due or is_gap)
    # Order: the requests and deletions first, see above.
    _write(layout, max(newest, examined), complaints, brought_back, typed, named, filled, has_failed)
    return changes


def _examine_typed(layout: Layout, *, everything: bool) -> tuple[dict[str, int], list[Complaint]]:
    seen = typed_versions_seen(layout)
    try:
        typed, named = examine_typed_tables(layout, seen, everything=everything)
    except (PenstockError, OSError) as error:
        _LOGGER.error("typed tables may have deleted rows again until they can be examined: %s", error)
        return seen, []
    for complaint in named:
        _LOGGER.error("%s", complaint.text)
    return typed, named


def _delete_returned(layout: Layout, table: DeltaTable, versions: Sequence[int], everywhere: bool) -> bool:
    """Delete rows again that commits of these versions brought back to ``landed``, and report whether none is left.

    ``everywhere``: other commits may have done so, too. The complaint about them holds until they are gone.
    """
    commits = [commit for version in versions if (commit := table.foreign_commit(version)) is not None]
    listed = table.active
    if commits and not everywhere:
        # Fast path: of three million rows in 300 files, only the files of the commits are read.
        listed = partial(changed_files, table, commits, table.active)
    try:
        with hold_upkeep_lock(layout):
            record = DeletionRecord(layout)
            back = delete_returned_rows(layout, table, record.readable_runs(by_penstock=True), listed, commits)
    except (PenstockError, OSError) as error:
        _LOGGER.error("%s: deleted rows that are back stay until a later attempt: %s", layout.landed, error)
        return False
    if back.rows:
        advice = "`penstock tables certificate` of their deletion names more"
        _LOGGER.warning(
            "%s: %d rows that had come back are deleted again: %s; %s", layout.landed, back.rows, back, advice
        )
    return True


def note_unreadable(layout: Layout, commit: ForeignCommit, error: str) -> None:
    """Note a commit of which the rows are lost until its files can be read again, after its deletion was requested."""
    complaints = [complaint for complaint in noted_complaints(layout) if complaint.version != commit.version]
    complaints.append(unreadable_commit(layout, commit, error))
    _LOGGER.error("%s", complaints[-1].text)
    _write(layout, version_seen(layout, DeltaTable(layout.landed)), complaints, has_brought_back(layout))


def _write(
    layout: Layout,
    version: int,
    complaints: Sequence[Complaint],
    brought_back: bool,
    typed: Mapping[str, int] | None = None,
    named: Sequence[Complaint] = (),
    filled: Mapping[str, Runs] | None = None,
    has_failed: bool | None = None,
) -> None:
    """Write what was looked at; ``typed``: versions of typed tables, None: as noted; ``named``: their complaints.

    ``filled``: see ``filled_offsets``; ``has_failed``: whether returned rows wait to be deleted; None: as noted.
    """
    parts = {COMPLAINTS: complaints, TYPED_COMPLAINTS: [*noted_complaints(layout, TYPED_COMPLAINTS), *named]}
    noted = {
        key: [[fault.version, fault.time_ms, fault.text, fault.file] for fault in part[-MAX_COMPLAINTS:]]
        for key, part in parts.items()
    }
    versions = typed_versions_seen(layout) if typed is None else dict(typed)
    runs = noted_filled_offsets(layout) if filled is None else filled
    pairs = {topic: part[-MAX_FILLED_RUNS:].tolist() for topic, part in [*runs.items()][:MAX_FILLED_TOPICS]}
    flags = {
        HAS_BROUGHT_BACK: brought_back,
        AWAITS_DELETION: awaits_deletion(layout) if has_failed is None else has_failed,
    }
    document = {"version": version, **noted, **flags, "typed": versions, "filled": pairs}
    write_document(layout.foreign, document)


def describe(layout: Layout, commit: ForeignCommit, deleted: int) -> str:
    """Describe the change of another program, for people."""
    changed = "changed rows, it does not say how many" if commit.updated is None else f"changed {commit.updated:,} rows"
    changed = "changed none, as it only added files" if not commit.removed else changed
    changed = changed if commit.names else "says that it changed none"
    return (
        f"{layout.landed}: version {commit.version} is {commit.operation} of {commit.engine}: "
        f"it deleted {deleted:,} rows and {changed}"
    )
