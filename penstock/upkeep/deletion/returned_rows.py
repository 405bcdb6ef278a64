"""Delete rows again that another program brought back into ``landed`` or a typed table.

Invariant: a row that was deleted on request or by retention stays deleted. A RESTORE, an INSERT of an earlier version
or a CLONE shows it until the next look at the table's log, and is named. Rows that other programs had deleted stay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile
from penstock.landing.landing_lock import hold_upkeep_lock
from penstock.landing.offset_runs import NO_RUNS, Runs, count_offsets, intersection, joined
from penstock.landing.requests.deletions import DeletionRecord
from penstock.landing.row_sums import with_partitions
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_file import Mask, TableFile, is_missing_or_damaged, open_rows
from penstock.landing.table.table_reader import RESTORES, ForeignCommit, TableReader
from penstock.landing.table_paths import Layout
from penstock.landing.typed.typed_delta import TypedDelta, typed_names
from penstock.landing.writing.written_file import copy_rows
from penstock.proof.commit_notes import Complaint
from penstock.proof.deleted_rows import mask_of_topics, offsets_of_rows, rows_within
from penstock.proof.foreign_deletions import changed_files as files_before_and_after
from penstock.upkeep.compaction.compaction import removed_on_failure
from penstock.upkeep.deletion.typed_removal import prepare_files

MAX_NAMED, MAX_RETURNS = 1_000, 50
"""Limit: rows of a return that are named, and returns of which they are; both stay small in the certificates."""
FEW_NAMES = 3
"""Names in a line of the log."""
_LOGGER = logging.getLogger(__name__)
NO_MASK: Mask = np.zeros(0, bool)
T = TypeVar("T")
_WAITING = set[str]()
"""Typed tables with a file that could not be read. Each look at them reads their changed files: only the full one."""


@dataclass(slots=True)
class ReturnedRows:
    """Rows that came back and are deleted again; ``named``: topic, offset and uuid of the first MAX_NAMED of them."""

    rows: int = 0
    named: list[tuple[str, int, str | None]] = field(default_factory=list)
    runs: dict[str, Runs] = field(default_factory=dict)

    def add(self, rows: pa.Table) -> None:
        """Add rows with the columns topic (with its partition), offset and uuid."""
        self.rows += rows.num_rows
        self.named += [
            (str(row["topic"]), int(row["offset"]), row["uuid"])
            for row in rows.slice(0, MAX_NAMED - len(self.named)).to_pylist()
        ]
        self.runs = joined([self.runs, offsets_of_rows(rows)])

    def __str__(self) -> str:
        names = ", ".join(uuid or f"{topic} offset {offset}" for topic, offset, uuid in self.named[:FEW_NAMES])
        return f"{names}, ..." if self.rows > FEW_NAMES else names


def foreign_commits_since(table: TableReader, first: int, *, everything: bool) -> tuple[int, list[ForeignCommit]]:
    """Return the newest version of a table, and the commits of other programs from version ``first`` on.

    ``everything``: also behind versions that the log no longer has.
    """
    if everything and not (first and _has_version(table, first)):
        # A table that was created again, or put back from a copy, has begun at lower versions.
        first = max(first if first <= table.version() + 1 else 0, table.first_version())
    commits, version = list[ForeignCommit](), first
    # Fast path: looking for the next commit costs less than to let delta-rs read the log.
    while _has_version(table, version):
        if (commit := table.foreign_commit(version)) is not None:
            commits.append(commit)
        version += 1
    return version - 1, commits


def _has_version(table: TableReader, version: int) -> bool:
    return table.commit_path(version).exists()


def examine_typed_tables(
    layout: Layout, seen: Mapping[str, int], *, everything: bool
) -> tuple[dict[str, int], list[Complaint]]:
    """Delete rows again that came back into typed tables; return the versions seen, and what other programs did.

    ``seen``: the versions of an earlier call, by table. ``everything``: also tables at a URL. Takes the lock of upkeep
    if there is something to delete. Raises VectorNotApplicable, TableChanged, FeatureNotWritten, DamagedFile.
    """
    versions, complaints = dict(seen), list[Complaint]()
    runs: Mapping[str, Runs] | None = None
    for name in typed_names(layout):
        reader = TableReader(layout.table(name))
        if not everything and (not isinstance(reader.folder, Path) or str(reader.folder) in _WAITING):
            # Limit: each look is a request to the store.
            continue
        _WAITING.discard(str(reader.folder))
        versions[name], commits = foreign_commits_since(reader, seen.get(name, -1) + 1, everything=everything)
        # An OPTIMIZE says that it changes no row.
        if commits := [commit for commit in commits if commit.names]:
            runs = DeletionRecord(layout).readable_runs(by_penstock=True) if runs is None else runs
            table = TypedDelta(layout.table(name))
            listed = partial(table.through, table_of(layout).newest())
            if not everything:
                # Fast path: the full look, every ten minutes, reads all files, also of a table that was put back.
                listed = partial(changed_files, table, commits, listed)
            # Fast path: without such commits, nothing waits for a merge or a refill that runs for long.
            with hold_upkeep_lock(layout):
                try:
                    back = delete_returned_rows(layout, table, runs, listed, commits)
                except DamagedFile as error:
                    # The commits are looked at again until the files are put back, or the scrub has replaced them.
                    versions[name] = seen.get(name, -1)
                    _WAITING.add(str(reader.folder))
                    if everything:
                        _LOGGER.error("deleted rows may be back in a file that cannot be read: %s", error)
                    continue
            for commit in commits:
                inserted = not commit.removed or _inserts_rows(table, commit)
                if back.rows or commit.operation in RESTORES or inserted:
                    complaints.append(_name_commit(table, commit, back, inserted=inserted))
    return versions, complaints


def changed_files(
    table: TableReader, commits: Sequence[ForeignCommit], listed: Callable[[], Sequence[TableFile]]
) -> list[TableFile]:
    """Return the listed files that other programs' commits added, or that were added after the first of them.

    Only these may have rows that the commits brought back: Penstock may have merged them since.
    """
    files = listed()
    try:
        unchanged = {file.identity for file in table.active_at(commits[0].version - 1)} if commits[0].version else set()
    except DamagedFile:
        return [*files]
    # A file that was there before, was deleted since and is added again is named by the commit that added it.
    added = frozenset().union(*(commit.added for commit in commits))
    return [file for file in files if file in added or file.identity not in unchanged]


def _inserts_rows(table: TypedDelta, commit: ForeignCommit) -> bool:
    """Report whether a commit added rows that no rewritten file had, as a MERGE does; False if files cannot be read."""
    # Fast path: these read no file. A RESTORE is named anyway.
    if commit.operation in {"DELETE", "UPDATE", *RESTORES}:
        return False
    try:
        before, after = files_before_and_after(table, commit)
        # Limit: of the rewritten rows the offsets stay in memory, and of others one file at a time.
        runs = joined([offsets_of_rows(_read_names(table, file)) for file in before])
        return any(not rows_within(_read_names(table, file), runs).all() for file in after)
    except DamagedFile:
        return False
    except (pa.ArrowInvalid, OSError) as error:
        if not is_missing_or_damaged(error):
            raise
        return False


def _name_commit(table: TypedDelta, commit: ForeignCommit, back: ReturnedRows, *, inserted: bool) -> Complaint:
    head = f"{table.folder}: version {commit.version} is {commit.operation} of {commit.engine}"
    refill = f"`penstock tables refill {str(table.folder.name).removeprefix('events_')}`"
    missing = f": rows that it took away are back after {refill}" if commit.operation in RESTORES else ""
    if inserted:
        missing += f": it inserted rows, which stay until {refill}"
    returned = f"; {back.rows:,} deleted rows were there again, and are deleted again: {back}" if back.rows else ""
    return Complaint(commit.version, commit.at, f"{head}{missing}{returned}", str(table.folder.name))


def delete_returned_rows(
    layout: Layout,
    table: DeltaTable,
    runs: Mapping[str, Runs],
    listed: Callable[[], Sequence[TableFile]],
    commits: Sequence[ForeignCommit] = (),
) -> ReturnedRows:
    """Delete the rows of listed files that are within runs of deleted offsets, by topic; return and note them.

    ``commits`` may have brought them back. Requires the lock of upkeep. Raises VectorNotApplicable, TableChanged,
    FeatureNotWritten, DamagedFile.
    """
    back = ReturnedRows()
    if not runs:
        return back
    bounds = min(pairs[0, 0] for pairs in runs.values()), max(pairs[-1, 1] for pairs in runs.values()) - 1

    def candidates() -> list[TableFile]:
        within = {*table.active_within({"offset": bounds})}
        return [file for file in listed() if file in within]

    damaged = dict[str, str]()

    def unless_damaged(file: TableFile, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except (pa.ArrowInvalid, OSError) as error:
            if not is_missing_or_damaged(error):
                raise
            damaged[str(table.folder / file)] = str(error).partition("\n")[0]
            return None

    def mask_of(folder: TablePath, file: TableFile) -> Mask:
        mask = unless_damaged(file, lambda: mask_of_topics(folder, file, runs=runs))
        return NO_MASK if mask is None else mask

    prepare_files(table, candidates, mask_of)
    files = list[TableFile]()
    with removed_on_failure(table) as written:
        for file in candidates():
            mask = mask_of(table.folder, file)
            names = unless_damaged(file, partial(_read_names, table, file, mask)) if mask.any() else None
            if names is None:
                continue
            if not mask.all():
                copy = unless_damaged(file, partial(copy_rows, table.folder, file, ~mask, form=table.form))
                if copy is None:
                    continue
                written.append(copy)
            files.append(file)
            back.add(names)
        if files:
            # Order: the names first. Crash: before the commit, the same rows are found and noted again.
            _note(layout, table, commits, back)
            table.delete_rows(files, written)
    if damaged:
        # Order: last. What can be read is deleted; the rest waits until the files can be read or are replaced.
        raise DamagedFile("; ".join(f"{name}: {reason}" for name, reason in damaged.items()))
    return back


def _read_names(table: DeltaTable, file: TableFile, mask: Mask | None = None) -> pa.Table:
    with open_rows(table.folder, file, ("topic",)) as opened:
        rows = opened.read(["topic", "partition", "offset", "uuid"])
    rows = rows if mask is None else rows.filter(pa.array(mask))
    topics = with_partitions(rows["topic"], rows["partition"])
    return pa.table({"topic": topics, "offset": rows["offset"], "uuid": rows["uuid"]})


def _note(layout: Layout, table: DeltaTable, commits: Sequence[ForeignCommit], back: ReturnedRows) -> None:
    """Note rows that are about to be deleted again, for the certificates of the deletions that had deleted them."""
    deletions = {
        str(deletion.number): count
        for deletion, runs in DeletionRecord(layout).readable_deletions(by_penstock=True)
        if (count := sum(count_offsets(intersection(back.runs.get(t, NO_RUNS), part)) for t, part in runs.items()))
    }
    entry = {
        "table": str(table.folder.name),
        "commits": [
            {"version": commit.version, "operation": commit.operation, "engine": commit.engine} for commit in commits
        ],
        "rows": back.rows,
        "deletions": deletions,
        "named": [*map(list, back.named)],
        "deleted_again_at": datetime.now(UTC).isoformat(),
    }
    key = ("table", "commits", "rows")
    others = [other for other in _noted_returns(layout) if any(other.get(name) != entry[name] for name in key)]
    write_document(layout.returned, {"returns": [*others, entry][-MAX_RETURNS:]})


def _noted_returns(layout: Layout) -> list[dict[str, Any]]:
    try:
        return [dict(entry) for entry in read_document(layout.returned)["returns"]]
    except (FileNotFoundError, DamagedFile, KeyError, TypeError, ValueError):
        return []


def returns_of_deletion(
    layout: Layout, number: int, runs: Mapping[str, Sequence[Sequence[int]]]
) -> list[dict[str, Any]]:
    """Return when rows of a deletion came back and were deleted again, with the commits, and the first rows by name.

    ``runs``: the deleted offsets, by topic.
    """
    return [
        {
            **{name: entry.get(name) for name in ("table", "commits", "deleted_again_at")},
            "rows": entry["deletions"][str(number)],
            "named": [
                {"topic": topic, "offset": offset, "uuid": uuid}
                for topic, offset, uuid in entry["named"]
                if any(begin <= offset < end for begin, end in runs.get(topic, ()))
            ],
        }
        for entry in _noted_returns(layout)
        if str(number) in entry.get("deletions", {})
    ]
