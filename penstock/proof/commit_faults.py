"""Faults of commits of other programs: repeated rows, deleted rows that are back, inserted rows and changed uuids.

Such a fault is not a fate of a message, so the balance names the commit instead (``Complaint``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.files.errors import DamagedFile
from penstock.landing.offset_runs import Runs, count_offsets, joined
from penstock.landing.requests.deletions import DeletionRecord, pending_deletions
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.table_file import TableFile
from penstock.landing.table.table_reader import ForeignCommit, TableReader
from penstock.landing.table_paths import Layout
from penstock.proof.commit_notes import (
    CHANGED,
    INSERTED,
    UNREADABLE,
    Complaint,
    noted_complaints,
    unreadable_versions,
    version_seen,
)
from penstock.proof.deleted_rows import (
    DeletedRows,
    have_offsets,
    landed_offsets,
    offsets_by_topic,
    rows_within,
    with_offsets,
)
from penstock.proof.evidence import read_rows
from penstock.proof.foreign_deletions import (
    changed_files,
    filled_offsets,
    folder_of,
    foreign_changes,
    sum_rows,
    without,
)


def examine_changes(
    layout: Layout, table: DeltaTable, versions: Iterable[int]
) -> Iterator[tuple[ForeignCommit, DeletedRows, list[Complaint]]]:
    """Yield other programs' commits among ascending versions, each with the rows that it deleted and its faults."""
    for commit, deleted in foreign_changes(layout, table, versions, partial(_known_deletions, layout, table)):
        if deleted.unreadable:
            yield commit, deleted, [unreadable_commit(layout, commit, deleted.unreadable)]
        else:
            yield commit, deleted, list(_find_complaints(layout, table, commit, deleted.counted))


def unreadable_commit(layout: Layout, commit: ForeignCommit, error: str) -> Complaint:
    """Return the complaint about a commit of which the files cannot be read."""
    head = f"{layout.landed}: version {commit.version}, {commit.operation} of {commit.engine},"
    text = f"{head} may have deleted rows, which count once its files can be read again: {error}"
    return Complaint(commit.version, commit.at, text, UNREADABLE)


def _known_deletions(layout: Layout, table: DeltaTable) -> dict[str, Runs]:
    """Return the offsets that deletions removed, also other programs' that are requested and not executed."""
    deleted_runs = DeletionRecord(layout).readable_runs()
    for deletion in pending_deletions(layout):
        if deletion.version is not None:
            for _, deleted in foreign_changes(layout, table, [deletion.version], dict):
                deleted_runs = joined([deleted_runs, deleted.offsets()])
    return deleted_runs


def _find_complaints(
    layout: Layout, table: TableReader, commit: ForeignCommit, deleted_runs: Mapping[str, Runs]
) -> Iterator[Complaint]:
    """Yield the faults of a commit: rows that are in the table twice, and deleted rows that are there again.

    Delta identifies a file by its path and its deletion vector: a removal without the vector removes nothing.
    ``deleted_runs`` are the offsets that were deleted before, by topic.
    """
    head = f"{layout.landed}: version {commit.version}, {commit.operation} of {commit.engine},"
    try:
        after = table.active_at(commit.version)
        added = [file for file in after if file in commit.added]
        kept = [file for file in after if file in commit.removed - commit.added]
        has_both = False
        for file in [*kept, *(file for file in added if file.copies > 1)]:
            # A file that was listed twice is still there after the removal of one entry, which undoes the fault.
            if twice := _count_twice(layout, file, added):
                has_both = True
                fault = f"removed or added {file} without its deletion vector: {twice:,} rows are in the table twice"
                yield Complaint(commit.version, commit.at, f"{head} {fault}", file)
        if not commit.names and not has_both:
            for file, twice in _repeated_by_optimize(layout, table, commit, after):
                yield Complaint(
                    commit.version, commit.at, f"{head} added {file}: {twice:,} rows are in the table twice", file
                )
        if commit.names and (back := _count_back(layout, table, commit, added, deleted_runs)):
            yield Complaint(
                commit.version,
                commit.at,
                f"{head} brought {back:,} deleted rows back: rows that Penstock had deleted are deleted again at once, "
                "and rows that another program had deleted by `penstock tables delete`",
            )
        if commit.names and not has_both and (rows := _count_inserted(layout, table, commit, deleted_runs)):
            text = f"{head} inserted {rows:,} rows that Penstock did not land: they are not in the balance"
            yield Complaint(commit.version, commit.at, text, INSERTED)
        if commit.names and commit.updated != 0 and (rows := _count_changed_uuids(layout, table, commit)):
            text = f"{head} changed the uuid of {rows:,} rows: the SQL of docs/proof-sql.md names their slices"
            yield Complaint(commit.version, commit.at, text, CHANGED)
    except DamagedFile as error:
        text = f"{head} may have repeated rows, which shows once its files can be read again: {error}"
        yield Complaint(commit.version, commit.at, text, UNREADABLE)


def _count_twice(layout: Layout, file: TableFile, other_files: Sequence[TableFile]) -> int:
    """Return the number of rows of a file that are in the table twice: by a second entry, or in one of the others."""
    rows = read_rows(layout.landed, [file])
    if file.copies > 1:
        return rows.num_rows
    return _count_repeated(rows, offsets_by_topic(layout, [other for other in other_files if other != file]))


def _count_repeated(rows: pa.Table, runs: Mapping[str, Runs]) -> int:
    """Return the number of rows that are within the runs, or follow the same row of their own file."""
    rows = with_offsets(rows)
    outside = rows.filter(pa.array(~rows_within(rows, runs)))
    return rows.num_rows - outside.group_by(["topic", "offset"]).aggregate([]).num_rows


def _repeated_by_optimize(
    layout: Layout, table: TableReader, commit: ForeignCommit, active: Sequence[TableFile]
) -> Iterator[tuple[TableFile, int]]:
    """Yield the files that an OPTIMIZE added with rows that another active file has, with the number of such rows."""
    before, after = changed_files(table, commit)
    # Fast path: as in ``foreign_masks``. Behind it the offsets of the whole table are read, once.
    if sum_rows(layout, after) > sum_rows(layout, before):
        runs = offsets_by_topic(layout, [file for file in active if file not in commit.added], strict=True)
        for file in (file for file in active if file in commit.added):
            if repeated := _count_repeated(read_rows(layout.landed, [file], strict=True), runs):
                yield file, repeated
            runs = joined([runs, offsets_by_topic(layout, [file])])


def _count_back(
    layout: Layout,
    table: TableReader,
    commit: ForeignCommit,
    added: Sequence[TableFile],
    deleted_runs: Mapping[str, Runs],
) -> int:
    """Return the number of rows of added files that a deletion had removed before the commit."""
    if not deleted_runs:
        return 0
    before = table.active_at(commit.version - 1)
    before_identities, added_identities = {file.identity for file in before}, {file.identity for file in added}
    parts = []
    # Limit: one file at a time, because a RESTORE may bring all files of a large table. Of deleted rows topic and
    # offset stay in memory.
    for file in added:
        if file.identity not in before_identities:
            rows = read_rows(layout.landed, [file]).select(["topic", "offset"])
            parts.append(rows.filter(pa.array(rows_within(rows, deleted_runs))))
    if not any(rows.num_rows for rows in parts):
        return 0
    bounds: list[Any] = [pc.min_max(rows["offset"]).as_py() for rows in parts if rows.num_rows]
    low, high = min(pair["min"] for pair in bounds), max(pair["max"] for pair in bounds)
    # Fast path: most of a large table has other offsets.
    near = {*table.active_within({"offset": (low, high)}, commit.version - 1)}
    earlier = offsets_by_topic(layout, [f for f in before if f in near and f.identity not in added_identities])
    return sum(int((~rows_within(rows, earlier)).sum()) for rows in parts)


def _count_inserted(layout: Layout, table: TableReader, commit: ForeignCommit, deleted_runs: Mapping[str, Runs]) -> int:
    """Return the number of added rows that no rewritten file had, without rows that were deleted before."""
    before, after = changed_files(table, commit)
    runs, remaining, inserted = offsets_by_topic(layout, before), 0, 0
    for file in before:
        remaining += read_rows(layout.landed, [file]).num_rows
    # Limit: one file at a time, because a RESTORE may bring all files of a large table.
    for file in after:
        rows = read_rows(layout.landed, [file])
        is_rewritten = ~have_offsets(rows) | rows_within(rows, runs)
        remaining -= int(is_rewritten.sum())
        inserted += int((~is_rewritten & ~rows_within(rows, deleted_runs)).sum())
    # Rows of rewritten files that are there several times now, and rows without topic or offset.
    return inserted + max(0, -remaining)


def _count_changed_uuids(layout: Layout, table: TableReader, commit: ForeignCommit) -> int:
    """Return the number of rows that have another uuid after a commit than before it."""
    before, after = changed_files(table, commit)
    changed = 0
    # Limit: one folder at a time, of a kind and a day.
    for folder in {folder_of(file) for file in before} & {folder_of(file) for file in after}:
        old, new = (_uuids_by_offset(layout, files, folder) for files in (before, after))
        pairs = old.join(new, ["topic", "offset"], join_type="inner", right_suffix="_after")
        uuids, after_uuids = (pairs[name].fill_null(pa.scalar("")) for name in ("uuid", "uuid_after"))
        changed += int(np.count_nonzero(np.asarray(pc.not_equal(uuids, after_uuids))))
    return changed


def _uuids_by_offset(layout: Layout, files: Sequence[TableFile], folder: str) -> pa.Table:
    rows = read_rows(layout.landed, [file for file in files if folder_of(file) == folder])
    return pa.table({"topic": rows["topic"].cast(pa.string()), "offset": rows["offset"], "uuid": rows["uuid"]})


def _holds_inserted_rows(layout: Layout, table: DeltaTable, files: Sequence[TableFile]) -> bool:
    """Report whether a row has no topic or offset, one at which no row of Penstock landed, or that of another row."""
    landed = landed_offsets(layout, table)
    if landed is None:
        return True
    landed = without(landed, filled_offsets(layout, table))
    parts = (read_rows(layout.landed, [file]) for file in files)
    return any(not rows_within(rows, landed).all() for rows in parts) or _has_repeated_rows(layout, files)


def current_complaints(layout: Layout, is_exact: bool) -> list[Complaint]:
    """Return the complaints that still hold about commits that were looked at, and about later ones.

    ``is_exact``: the balance shows no difference; then only a file that is still there twice, inserted rows, or files
    that cannot be read are worth a complaint. Raises DamagedFile.
    """
    table = DeltaTable(layout.landed)
    active = table.active() if table.exists else []
    if not active:
        return []
    complaints = noted_complaints(layout)
    unseen = {*range(version_seen(layout, table) + 1, table.version() + 1)}
    for commit, _, faults in examine_changes(layout, table, sorted(unseen | unreadable_versions(layout))):
        complaints = [complaint for complaint in complaints if complaint.version != commit.version] + faults
    if is_exact and all(file.copies == 1 for file in active):
        complaints = [complaint for complaint in complaints if complaint.file in {INSERTED, UNREADABLE}]
    # Each question is asked once, however many complaints there are: it reads many or all files.
    named = {complaint.file for complaint in complaints} - {CHANGED}
    holding = {str(file) for file in active if file in named and _count_twice(layout, file, active)}
    if "" in named and _has_rows_within(layout, active, DeletionRecord(layout).runs()):
        holding.add("")
    if INSERTED in named and _holds_inserted_rows(layout, table, active):
        holding.add(INSERTED)
    # A merge, also our own, moves repeated rows into another file: its cause is a commit whose file is gone.
    gone = named - {"", UNREADABLE, INSERTED, *map(str, active)}
    if gone and not holding - {INSERTED} and _has_repeated_rows(layout, active):
        holding |= gone
    return [complaint for complaint in complaints if complaint.file in {*holding, UNREADABLE}]


def _has_repeated_rows(layout: Layout, files: Sequence[TableFile]) -> bool:
    rows = sum(with_offsets(read_rows(layout.landed, [file])).num_rows for file in files)
    return rows > sum(map(count_offsets, offsets_by_topic(layout, files).values()))


def _has_rows_within(layout: Layout, files: Sequence[TableFile], runs: Mapping[str, Runs]) -> bool:
    return any(rows_within(read_rows(layout.landed, [file]), runs).any() for file in files)
