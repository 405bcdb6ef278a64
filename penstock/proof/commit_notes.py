"""Notes of the pipeline about commits of other programs: up to which version it looked, and what is wrong with them.

Invariant: a note that is missing or damaged is read as unknown, so that the commits are looked at again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from penstock.files.checked_document import read_document
from penstock.files.errors import DamagedFile
from penstock.landing.table.table_reader import TableReader
from penstock.landing.table_paths import Layout

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


def unreadable_versions(layout: Layout) -> set[int]:
    """Return the commits that were looked at, and of which the deleted rows are not known yet."""
    return {complaint.version for complaint in noted_complaints(layout) if complaint.file == UNREADABLE}


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
