"""Rows that other programs deleted from the table: found in its log, and accounted for as ``deleted.foreign``.

Each commit of another program is looked at once. Where rows disappeared, a deletion is asked for that has its version
and engine; it is carried out in turn with all others (``removal``), so the balance has it once the rows are proved.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile
from penstock.landing.deletion.deletions import FOREIGN, Deletion, all_deletions, ask
from penstock.landing.deletion.removal import Removal
from penstock.landing.table.delta_table import DeltaTable, ForeignCommit
from penstock.landing.table_paths import Layout

_LOGGER = logging.getLogger(__name__)


def note_foreign_changes(layout: Layout) -> int:
    """Ask for the accounting of rows that others deleted since the last look; return how many commits changed rows.

    One process at a time: the pipeline, or who holds its lock.
    """
    table = DeltaTable(layout.landed)
    newest, seen = table.version(), _seen(layout, table)
    if newest <= seen:
        return 0
    asked = {one.version for one in all_deletions(layout)}
    changes = 0
    for commit, removal in _changes(layout, table, seen, newest):
        changes += 1
        _LOGGER.warning("%s", describe(layout, commit, removal.rows))
        # Crash: killed between the request and the position, the commit is looked at again, and asked for already.
        if removal.rows and commit.version not in asked:
            ask(layout, FOREIGN, (), commit)
    write_document(layout.foreign, {"version": newest})
    return changes


def unaccounted_removals(layout: Layout) -> list[Removal]:
    """Return what others deleted since the pipeline looked last, or is not accounted for yet."""
    table = DeltaTable(layout.landed)
    if not table.is_begun:
        return []
    done = table.deleted()
    accounted = {one.version for one in all_deletions(layout) if one.number <= done}
    waiting = [one.version for one in all_deletions(layout) if one.number > done and one.version is not None]
    newest, seen = table.version(), _seen(layout, table)
    first = min([seen, *(version - 1 for version in waiting)])
    found = [removal for _, removal in _changes(layout, table, first, newest)]
    return [removal for removal in found if removal.rows and removal.deletion.version not in accounted]


def describe(layout: Layout, commit: ForeignCommit, deleted: int) -> str:
    """Return what another program did, for people."""
    changed = "rows, it does not say how many" if commit.updated is None else f"{commit.updated:,} rows"
    return (
        f"{layout.landed}: version {commit.version} is {commit.operation} of {commit.engine}: "
        f"it deleted {deleted:,} rows and changed {changed}"
    )


def _changes(layout: Layout, table: DeltaTable, after: int, newest: int) -> Iterator[tuple[ForeignCommit, Removal]]:
    for version in range(after + 1, newest + 1):
        if (commit := table.foreign_commit(version)) is not None:
            deletion = Deletion(0, FOREIGN, (), version, commit.engine, commit.operation)
            removal = Removal(layout, deletion, 0, 0)
            try:
                removal.take_foreign(table, commit)
            except DamagedFile as error:
                _LOGGER.warning("what version %d deleted cannot be said: %s", version, error)
            yield commit, removal


def _seen(layout: Layout, table: DeltaTable) -> int:
    """Return the version up to which commits were looked at; before the first look, all that the log still has."""
    try:
        return int(read_document(layout.foreign)["version"])
    except FileNotFoundError:
        return table.first_version()
    except (DamagedFile, KeyError, TypeError, ValueError):
        _LOGGER.warning("%s is damaged: the log of the table is looked through again", layout.foreign)
        return table.first_version()
