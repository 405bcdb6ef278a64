"""Rows that other programs deleted, found in the log of the Delta table and counted as ``deleted.foreign``.

A commit may also repeat rows, or bring deleted ones back: see ``commit_faults``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from penstock.files.checked_document import read_document
from penstock.files.errors import DamagedFile
from penstock.landing.offset_runs import NO_RUNS, Runs, as_runs, difference, intersection, joined
from penstock.landing.requests.deletions import FOREIGN, Deletion, DeletionRecord, load_deletions
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.table_file import Mask, TableFile, count_rows, is_missing_or_damaged
from penstock.landing.table.table_reader import RESTORES, ForeignCommit, TableReader
from penstock.landing.table_paths import Layout
from penstock.proof.commit_notes import (
    unreadable_versions,
    version_seen,
)
from penstock.proof.deleted_rows import (
    DeletedRows,
    have_offsets,
    landed_offsets,
    offsets_by_topic,
    offsets_of_rows,
    rows_within,
)
from penstock.proof.evidence import read_rows

_LOGGER = logging.getLogger(__name__)


def unaccounted_deletions(layout: Layout) -> list[DeletedRows]:
    """Return the deletions by other programs since the pipeline's last look, and earlier ones not yet accounted for."""
    table = DeltaTable(layout.landed)
    if not table.exists:
        return []
    last_done = table.last_deletion()
    deletions = load_deletions(layout)
    accounted = {deletion.version for deletion in deletions if deletion.number <= last_done}
    # Crash: a deletion that was recorded but not carried out is read again: only the table's log knows its rows.
    waiting = {
        deletion.version for deletion in deletions if deletion.number > last_done and deletion.version is not None
    }
    unseen = {*range(version_seen(layout, table) + 1, table.version() + 1)}
    versions = sorted((waiting | unseen) - accounted | unreadable_versions(layout))
    changes = foreign_changes(layout, table, versions, DeletionRecord(layout).readable_runs)
    return [deleted for _, deleted in changes if deleted.rows]


def deleted_offsets(layout: Layout) -> dict[str, Runs]:
    """Return the offsets of all deleted rows by topic, also of other programs' deletions that are not executed yet."""
    return joined([DeletionRecord(layout).runs(), *(rows.offsets() for rows in unaccounted_deletions(layout))])


def foreign_changes(
    layout: Layout, table: DeltaTable, versions: Iterable[int], load_counted: Callable[[], Mapping[str, Runs]]
) -> Iterator[tuple[ForeignCommit, DeletedRows]]:
    """Yield the commits of other programs among ascending versions, each with the rows it deleted.

    ``load_counted`` returns the offsets that deletions have counted, by topic.
    """
    counted: Mapping[str, Runs] | None = None
    filled = noted_filled_offsets(layout)
    for version in versions:
        if (commit := table.foreign_commit(version)) is not None:
            # Fast path: most looks find commits of our own only.
            counted = load_counted() if counted is None else counted
            deletion = Deletion(0, FOREIGN, (), version, commit.engine, commit.operation)
            try:
                masks = list(foreign_masks(layout, table, commit))
                # Fast path: the journal, of a thousand lines and all stretches, is read only if rows disappeared.
                landed = landed_offsets(layout, table, version) if masks else None
                deleted = DeletedRows(deletion, counted, None if landed is None else without(landed, filled))
                for file, mask in masks:
                    deleted.add(read_rows(layout.landed, [file], strict=True).filter(pa.array(mask)))
            except DamagedFile as error:
                deleted = DeletedRows(deletion, counted, unreadable=str(error))
            # Limit: joining a million runs takes 46 ms, and most commits delete no row.
            if deleted.runs:
                counted = joined([counted, deleted.offsets()])
            deleted.filled = _filled_offsets(layout, table, commit, counted)
            filled = joined([filled, deleted.filled])
            yield commit, deleted


def _filled_offsets(
    layout: Layout, table: DeltaTable, commit: ForeignCommit, counted: Mapping[str, Runs]
) -> dict[str, Runs]:
    """Return the offsets, by topic, that Penstock had committed without a row, and for which a commit inserted one.

    They are of duplicates, gaps and lost rows. ``counted``: offsets of deleted rows, which are none of them.
    """
    # A RESTORE may bring back rows that landed, and that disappeared unseen.
    if not commit.names or not commit.added or commit.operation in RESTORES:
        return {}
    try:
        before, after = changed_files(table, commit)
        rewritten = joined([offsets_by_topic(layout, before), counted])
        added = [file for file in after if file in commit.added]
        filled = without(offsets_by_topic(layout, added), rewritten)
        # Fast path: an UPDATE inserts no row. The journal is read only for other commits.
        landed = landed_offsets(layout, table, commit.version) if filled else None
        if landed is None:
            return {}
        filled = {topic: intersection(runs, landed.get(topic, NO_RUNS)) for topic, runs in filled.items()}
        filled = {topic: runs for topic, runs in filled.items() if len(runs)}
        if filled:
            bounds = min(runs[0, 0] for runs in filled.values()), max(runs[-1, 1] for runs in filled.values()) - 1
            # An offset that had a row is that of a copy. Limit: one file at a time.
            for file in table.active_within({"offset": bounds}, commit.version - 1):
                filled = without(filled, offsets_by_topic(layout, [file]))
    except DamagedFile as error:
        _LOGGER.warning("whether version %d fills offsets without a row cannot be said: %s", commit.version, error)
        return {}
    return filled


def without(runs: Mapping[str, Runs], removed: Mapping[str, Runs]) -> dict[str, Runs]:
    """Return runs by topic without the removed ones."""
    remaining = {topic: difference(part, removed.get(topic, NO_RUNS)) for topic, part in runs.items()}
    return {topic: part for topic, part in remaining.items() if len(part)}


def filled_offsets(layout: Layout, table: DeltaTable) -> dict[str, Runs]:
    """Return the offsets that had no row until another program inserted one, also those not noted yet."""
    versions = range(version_seen(layout, table) + 1, table.version() + 1)
    changes = foreign_changes(layout, table, versions, DeletionRecord(layout).readable_runs)
    return joined([noted_filled_offsets(layout), *(deleted.filled for _, deleted in changes)])


def noted_filled_offsets(layout: Layout) -> dict[str, Runs]:
    """Return the offsets without a row of their own that other programs have filled, as noted."""
    try:
        filled = read_document(layout.foreign)["filled"]
        return {str(topic): as_runs([(int(begin), int(end)) for begin, end in runs]) for topic, runs in filled.items()}
    except (FileNotFoundError, DamagedFile, KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return {}


def foreign_masks(layout: Layout, table: DeltaTable, commit: ForeignCommit) -> Iterator[tuple[TableFile, Mask]]:
    """Yield the files that a commit removed or rewrote, each with a mask of its rows that no file holds after it.

    Raises DamagedFile, also if a file is missing: without it, rows that are still there would count as deleted.
    """
    before, after = changed_files(table, commit)
    # Fast path: an OPTIMIZE says that it changes no row. Rows are read only if their number says otherwise.
    if not commit.names and sum_rows(layout, before) == sum_rows(layout, after):
        return
    remaining = offsets_by_topic(layout, after, strict=True)
    masks, removed_by_file = list[tuple[TableFile, Mask]](), list[dict[str, Runs]]()
    for file in before:
        rows = read_rows(layout.landed, [file], strict=True)
        mask = have_offsets(rows) & ~rows_within(rows, remaining)
        if mask.any():
            masks.append((file, mask))
            removed_by_file.append(offsets_of_rows(rows.filter(pa.array(mask))))
    folders = {folder_of(file) for file, _ in masks}
    if masks and (copies := _copies_of(layout, table, commit, joined(removed_by_file), folders)):
        masks = [
            (file, mask & ~rows_within(read_rows(layout.landed, [file], strict=True), copies)) for file, mask in masks
        ]
    yield from ((file, mask) for file, mask in masks if mask.any())


def folder_of(file: TableFile) -> str:
    """Return the folder of a file, of one kind and day."""
    return file.rpartition("/")[0]


def _copies_of(
    layout: Layout, table: TableReader, commit: ForeignCommit, removed: Mapping[str, Runs], folders: Collection[str]
) -> dict[str, Runs]:
    """Return the removed offsets, by topic, of which files that the commit left unchanged have a copy.

    An earlier commit repeated these rows, and this one undoes it. A copy is in the same folder: its kind and day are.
    """
    bounds = min(runs[0, 0] for runs in removed.values()), max(runs[-1, 1] for runs in removed.values()) - 1
    copies = []
    for file in table.active_within({"offset": bounds}, commit.version):
        if file not in commit.added | commit.removed and folder_of(file) in folders:
            for topic, runs in offsets_by_topic(layout, [file], strict=True).items():
                if len(common := intersection(runs, removed.get(topic, NO_RUNS))):
                    copies.append({topic: common})
    return joined(copies)


def remaining_copies(layout: Layout, table: TableReader, masks: Sequence[tuple[TableFile, Mask]]) -> dict[str, Runs]:
    """Return the offsets of masked rows, by topic, of which the table has another row that is not masked."""
    deleted = {file.identity: mask for file, mask in masks}
    removed = joined(offsets_of_rows(read_rows(layout.landed, [file]).filter(pa.array(mask))) for file, mask in masks)
    if not removed:
        return {}
    bounds = min(runs[0, 0] for runs in removed.values()), max(runs[-1, 1] for runs in removed.values()) - 1
    folders = {folder_of(file) for file, _ in masks}
    copies = []
    # Limit: a copy is in the same folder, and only files with such offsets are read.
    for file in table.active_within({"offset": bounds}):
        if folder_of(file) in folders:
            rows = read_rows(layout.landed, [file])
            if (mask := deleted.get(file.identity)) is not None:
                rows = rows.filter(pa.array(~mask))
            copies.append({t: intersection(runs, removed.get(t, NO_RUNS)) for t, runs in offsets_of_rows(rows).items()})
    return joined(copies)


def changed_files(table: TableReader, commit: ForeignCommit) -> tuple[list[TableFile], list[TableFile]]:
    """Return the files of a commit that the table had before it, and after it."""
    names = commit.added | commit.removed
    before, after = ([f for f in table.active_at(commit.version - age) if f in names] for age in (1, 0))
    return before, after


def sum_rows(layout: Layout, files: Sequence[TableFile]) -> int:
    """Return the number of rows by the table's log; of files without statistics by their footers."""
    total = 0
    for file in files:
        try:
            deleted = 0 if file.live is None else int((~file.live).sum())
            total += file.written_rows - deleted if file.written_rows else count_rows(layout.landed, file)
        except (pa.ArrowInvalid, OSError) as error:
            if not is_missing_or_damaged(error):
                raise
            raise DamagedFile(f"{layout.landed / file}: {error}") from None
    return total
