"""Rows that other programs deleted from the table, found in its log: the count ``deleted.foreign``."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.files.checked_document import read_document
from penstock.files.errors import DamagedFile
from penstock.landing.offset_runs import NO_RUNS, is_inside
from penstock.landing.requests.deletions import FOREIGN, Deletion, load_deletions
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.table_file import Mask, TableFile
from penstock.landing.table.table_reader import ForeignCommit
from penstock.landing.table_paths import Layout
from penstock.proof.deleted_rows import DeletedRows, offsets_by_topic
from penstock.proof.evidence import is_of_topic, read_rows

_LOGGER = logging.getLogger(__name__)


def unaccounted_deletions(layout: Layout) -> list[DeletedRows]:
    """Return the deletions by other programs since the pipeline's last look, and earlier ones not yet accounted for."""
    table = DeltaTable(layout.landed)
    if not table.exists:
        return []
    last_done = table.last_deletion()
    deletions = load_deletions(layout)
    accounted = {deletion.version for deletion in deletions if deletion.number <= last_done}
    waiting = [d.version for d in deletions if d.number > last_done and d.version is not None]
    newest, seen = table.version(), version_seen(layout, table)
    # Crash: a deletion that is entered but not done yet is looked at again, to know the rows that it has accounted
    # for.
    first = min([seen, *(version - 1 for version in waiting)])
    changes = [rows for _, rows in foreign_changes(layout, table, first, newest)]
    return [rows for rows in changes if rows.rows and rows.deletion.version not in accounted]


def foreign_changes(
    layout: Layout, table: DeltaTable, after: int, newest: int
) -> Iterator[tuple[ForeignCommit, DeletedRows]]:
    """Yield each commit of another program after a version, with the rows that it deleted."""
    for version in range(after + 1, newest + 1):
        if (commit := table.foreign_commit(version)) is not None:
            rows = DeletedRows(Deletion(0, FOREIGN, (), version, commit.engine, commit.operation))
            try:
                for file, mask in foreign_masks(layout, table, commit):
                    rows.add(read_rows(layout.landed, [file]).filter(pa.array(mask)))
            except DamagedFile as error:
                _LOGGER.warning("what version %d deleted cannot be said: %s", version, error)
            yield commit, rows


def foreign_masks(layout: Layout, table: DeltaTable, commit: ForeignCommit) -> Iterator[tuple[TableFile, Mask]]:
    """Yield files from before a commit, with the rows that are in none of the files after it."""
    after = [file for file in table.active_at(commit.version) if file in commit.names]
    remaining = offsets_by_topic(layout, after)
    for file in table.active_at(commit.version - 1):
        if file in commit.names:
            rows = read_rows(layout.landed, [file])
            mask: Mask = np.zeros(rows.num_rows, bool)
            for topic in map(str, pc.unique(rows["topic"].cast(pa.string())).to_pylist()):
                of_topic = is_of_topic(rows, topic).to_numpy().astype(bool)
                mask |= of_topic & ~is_inside(rows["offset"].to_numpy(), remaining.get(topic, NO_RUNS))
            if mask.any():
                yield file, mask


def version_seen(layout: Layout, table: DeltaTable) -> int:
    """Return the version up to which commits were looked at; before the first look, all that the log still has."""
    try:
        return int(read_document(layout.foreign)["version"])
    except FileNotFoundError:
        return table.first_version()
    except (DamagedFile, KeyError, TypeError, ValueError):
        _LOGGER.warning("%s is damaged: the log of the table is looked through again", layout.foreign)
        return table.first_version()
