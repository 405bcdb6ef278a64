"""Rows that other programs deleted, found in the log of the Delta table and counted as ``deleted.foreign``.

A commit may also repeat rows, or bring deleted ones back: that is not a fate, so the balance names such a
commit instead (``Complaint``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.files.checked_document import read_document
from penstock.files.errors import DamagedFile
from penstock.landing.offset_runs import NO_RUNS, Runs, as_runs, count_offsets, difference, intersection, joined
from penstock.landing.requests.deletions import FOREIGN, Deletion, DeletionRecord, load_deletions, pending_deletions
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.table_file import Mask, TableFile, count_rows, is_missing_or_damaged
from penstock.landing.table.table_reader import RESTORES, ForeignCommit, TableReader
from penstock.landing.table_paths import Layout
from penstock.proof.deleted_rows import (
    DeletedRows,
    have_offsets,
    landed_offsets,
    offsets_by_topic,
    offsets_of_rows,
    rows_within,
    with_offsets,
)
from penstock.proof.evidence import read_rows

UNREADABLE = "?"
"""Mark of a complaint instead of its file: the deleted rows are unknown, because files of the commit cannot be read."""
INSERTED = "+"
"""Mark of a complaint instead of its file: another program inserted rows that Penstock did not land."""
CHANGED = "~"
"""Mark of a complaint instead of its file: another program changed the uuid of rows. It is for log and timeline."""
COMPLAINTS, TYPED_COMPLAINTS = "complaints", "typed_complaints"
"""Keys of the noted complaints about commits to ``landed``, and to typed tables."""
HAS_BROUGHT_BACK, AWAITS_DELETION = "has_brought_back", "awaits_deletion"
"""Keys of whether a commit brought deleted rows back, and whether rows that came back wait to be deleted again."""
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
        before, after = _changed_files(table, commit)
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
    before, after = _changed_files(table, commit)
    # Fast path: an OPTIMIZE says that it changes no row. Rows are read only if their number says otherwise.
    if not commit.names and _sum_rows(layout, before) == _sum_rows(layout, after):
        return
    remaining = offsets_by_topic(layout, after, strict=True)
    masks, removed_by_file = list[tuple[TableFile, Mask]](), list[dict[str, Runs]]()
    for file in before:
        rows = read_rows(layout.landed, [file], strict=True)
        mask = have_offsets(rows) & ~rows_within(rows, remaining)
        if mask.any():
            masks.append((file, mask))
            removed_by_file.append(offsets_of_rows(rows.filter(pa.array(mask))))
    folders = {_folder(file) for file, _ in masks}
    if masks and (copies := _copies_of(layout, table, commit, joined(removed_by_file), folders)):
        masks = [
            (file, mask & ~rows_within(read_rows(layout.landed, [file], strict=True), copies)) for file, mask in masks
        ]
    yield from ((file, mask) for file, mask in masks if mask.any())


def _folder(file: TableFile) -> str:
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
        if file not in commit.added | commit.removed and _folder(file) in folders:
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
    folders = {_folder(file) for file, _ in masks}
    copies = []
    # Limit: a copy is in the same folder, and only files with such offsets are read.
    for file in table.active_within({"offset": bounds}):
        if _folder(file) in folders:
            rows = read_rows(layout.landed, [file])
            if (mask := deleted.get(file.identity)) is not None:
                rows = rows.filter(pa.array(~mask))
            copies.append({t: intersection(runs, removed.get(t, NO_RUNS)) for t, runs in offsets_of_rows(rows).items()})
    return joined(copies)


def _changed_files(table: TableReader, commit: ForeignCommit) -> tuple[list[TableFile], list[TableFile]]:
    """Return the files of a commit that the table had before it, and after it."""
    names = commit.added | commit.removed
    before, after = ([f for f in table.active_at(commit.version - age) if f in names] for age in (1, 0))
    return before, after


def _sum_rows(layout: Layout, files: Sequence[TableFile]) -> int:
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


@dataclass(frozen=True, slots=True)
class Complaint:
    """A fault of another program's commit, for people; ``time_ms`` is in milliseconds since the epoch.

    ``file`` is a file with rows that are in the table twice; "" for deleted rows that are there again; or UNREADABLE,
    INSERTED, CHANGED.
    """

    version: int
    time_ms: int
    text: str
    file: str = ""


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


def unreadable_versions(layout: Layout) -> set[int]:
    """Return the commits that were looked at, and of which the deleted rows are not known yet."""
    return {complaint.version for complaint in noted_complaints(layout) if complaint.file == UNREADABLE}


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
        if commit.names and (back := _count_back(layout, added, table.active_at(commit.version - 1), deleted_runs)):
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
        _LOGGER.warning("whether version %d repeats rows cannot be said: %s", commit.version, error)


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
    before, after = _changed_files(table, commit)
    # Fast path: as in ``foreign_masks``. Behind it the offsets of the whole table are read, once.
    if _sum_rows(layout, after) > _sum_rows(layout, before):
        runs = offsets_by_topic(layout, [file for file in active if file not in commit.added])
        for file in (file for file in active if file in commit.added):
            if repeated := _count_repeated(read_rows(layout.landed, [file]), runs):
                yield file, repeated
            runs = joined([runs, offsets_by_topic(layout, [file])])


def _count_back(
    layout: Layout, added: Sequence[TableFile], before: Sequence[TableFile], deleted_runs: Mapping[str, Runs]
) -> int:
    """Return the number of rows of added files that a deletion had removed before the commit."""
    if not deleted_runs:
        return 0
    before_identities, added_identities = {file.identity for file in before}, {file.identity for file in added}
    changed = [file for file in added if file.identity not in before_identities]
    back = 0
    earlier: dict[str, Runs] | None = None
    # Limit: one file at a time, because a RESTORE may bring all files of a large table.
    for file in changed:
        rows = read_rows(layout.landed, [file])
        rows = rows.filter(pa.array(rows_within(rows, deleted_runs)))
        if rows.num_rows:
            if earlier is None:
                earlier = offsets_by_topic(layout, [file for file in before if file.identity not in added_identities])
            back += int((~rows_within(rows, earlier)).sum())
    return back


def _count_inserted(layout: Layout, table: TableReader, commit: ForeignCommit, deleted_runs: Mapping[str, Runs]) -> int:
    """Return the number of added rows that no rewritten file had, without rows that were deleted before."""
    before, after = _changed_files(table, commit)
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
    before, after = _changed_files(table, commit)
    changed = 0
    # Limit: one folder at a time, of a kind and a day.
    for folder in {_folder(file) for file in before} & {_folder(file) for file in after}:
        old, new = (_uuids_by_offset(layout, files, folder) for files in (before, after))
        pairs = old.join(new, ["topic", "offset"], join_type="inner", right_suffix="_after")
        uuids, after_uuids = (pairs[name].fill_null(pa.scalar("")) for name in ("uuid", "uuid_after"))
        changed += int(np.count_nonzero(np.asarray(pc.not_equal(uuids, after_uuids))))
    return changed


def _uuids_by_offset(layout: Layout, files: Sequence[TableFile], folder: str) -> pa.Table:
    rows = read_rows(layout.landed, [file for file in files if _folder(file) == folder])
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

    ``is_exact``: the balance shows no difference; then only a file that is still there twice, or inserted rows, are
    worth a complaint. Raises DamagedFile.
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
        complaints = [complaint for complaint in complaints if complaint.file == INSERTED]
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


def noted_complaints(layout: Layout, key: str = COMPLAINTS) -> list[Complaint]:
    """Return the complaints about commits that the pipeline has looked at, oldest first.

    ``key``: COMPLAINTS or TYPED_COMPLAINTS.
    """
    try:
        noted = read_document(layout.foreign)[key]
        return [Complaint(int(version), int(time_ms), str(text), str(file)) for version, time_ms, text, file in noted]
    except (FileNotFoundError, DamagedFile, KeyError, TypeError, ValueError):
        # The version is damaged, too, or of an earlier release: then all commits of the log are looked at again.
        return []


def typed_versions_seen(layout: Layout) -> dict[str, int]:
    """Return the version up to which commits to each typed table were looked at; {} if that is unknown."""
    try:
        return {str(name): int(version) for name, version in read_document(layout.foreign)["typed"].items()}
    except (FileNotFoundError, DamagedFile, KeyError, TypeError, ValueError, AttributeError):
        return {}


def may_hold_deleted_rows(layout: Layout, table: TableReader) -> bool:
    """Report whether a commit of another program may have brought deleted rows back: only then a row is deleted twice.

    Until the commits after the position are looked at, each of another program may be one.
    """
    # Fast path: the offsets of all deletions are read only for such tables.
    seen, newest = version_seen(layout, table), table.version()
    return has_brought_back(layout) or any(table.foreign_commit(v) is not None for v in range(seen + 1, newest + 1))


def may_hold_returned_rows(layout: Layout, table: TableReader) -> bool:
    """Report whether another program may have brought deleted rows back into ``landed`` or a typed table."""
    if table.folder == layout.landed:
        return may_hold_deleted_rows(layout, table)
    first = typed_versions_seen(layout).get(str(table.folder.name), -1) + 1
    return any(table.foreign_commit(version) is not None for version in range(first, table.version() + 1))


def has_brought_back(layout: Layout) -> bool:
    """Return whether a commit that was looked at had brought deleted rows back; True if that is unknown."""
    return _is_noted(layout, HAS_BROUGHT_BACK)


def awaits_deletion(layout: Layout) -> bool:
    """Return whether rows that came back to ``landed`` could not be deleted again yet; True if that is unknown."""
    return _is_noted(layout, AWAITS_DELETION)


def _is_noted(layout: Layout, key: str) -> bool:
    try:
        return bool(read_document(layout.foreign).get(key, False))
    except FileNotFoundError:
        return False
    except (DamagedFile, AttributeError):
        return True


def version_seen(layout: Layout, table: TableReader) -> int:
    """Return the version up to which commits were looked at; before the first look, all that the log still has."""
    try:
        return int(read_document(layout.foreign)["version"])
    except FileNotFoundError:
        return table.first_version()
    except (DamagedFile, KeyError, TypeError, ValueError):
        _LOGGER.warning("%s is damaged: the log of the table is looked through again", layout.foreign)
        return table.first_version()
