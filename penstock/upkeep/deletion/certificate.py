"""The certificate of a deletion: which rows were removed where, and which copies still have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from penstock.files.checked_document import read_document
from penstock.files.errors import DamagedFile
from penstock.landing.mirror_lag import mirrored_deletion
from penstock.landing.requests.deletions import FOREIGN, RETENTION, DeletionRecord
from penstock.landing.table_paths import TYPED_MARK, Layout
from penstock.landing.typed.typed_delta import typed_names
from penstock.upkeep.deletion.returned_rows import returns_of_deletion

REMOVED, WAITING, RETAINED, ROWS_DELETED, UNKNOWN = "removed", "waiting", "retained", "rows_deleted", "unknown"
"""States of a copy.

REMOVED: no file has the rows. WAITING: rows or replaced files are still to be removed. RETAINED: the copy does not
follow the deletion. ROWS_DELETED: no query of a database returns the rows, but its own files may still have their
bytes, until it overwrites them. UNKNOWN: no record says it, for example of an earlier version of Penstock.
"""


def certify(layout: Layout, number: int) -> dict[str, Any]:
    """Return the certificate of a deletion as a JSON document, with the present state of all copies.

    Raises StopIteration if the deletion is not done, DamagedFile.
    """
    record = DeletionRecord(layout).certificate(number)
    files = _files_state(layout, record)
    copies: dict[str, Any] = {"replaced_files": files}
    if record["why"] == FOREIGN and typed_names(layout):
        copies["typed_tables"] = RETAINED
    if (mirrored := mirrored_deletion(layout)) is not None:
        # Earlier snapshots have the rows as long as the replaced files exist.
        copies["iceberg"] = files if mirrored >= number else WAITING
    copies["exports"] = {
        path.stem: _export_state(layout, path.stem, number, record["why"])
        for path in sorted(layout.exports.glob("*.json"))
    }
    record["returned"] = returns_of_deletion(layout, number, record["offsets"])
    return {**record, "certified_at": datetime.now(UTC).isoformat(), "copies": copies}


def _files_state(layout: Layout, record: Mapping[str, Any]) -> str:
    landed: Sequence[str] | None = record["replaced_files"]
    typed: Mapping[str, Sequence[str]] | None = record["typed_replaced_files"]
    files = [layout.landed / name for name in landed or ()]
    files += [layout.table(table) / name for table, names in (typed or {}).items() for name in names]
    if any(file.exists() for file in files):
        return WAITING
    return UNKNOWN if landed is None or typed is None else REMOVED


def _export_state(layout: Layout, name: str, number: int, why: str) -> str:
    try:
        state = read_document(layout.exports / f"{name}.json")
        through, follows, source, applied = (state[key] for key in ("deletion", "retention", "source", "applied"))
        skipped, unknown, erased = applied["skipped"], int(applied["unknown"]), int(applied["erased"])
        if number in skipped or (why == FOREIGN and str(source).startswith(TYPED_MARK)):
            return RETAINED
        if number > int(through):
            return WAITING if follows or why != RETENTION else RETAINED
        if why == RETENTION and number <= unknown:
            return UNKNOWN if follows else RETAINED
        if state["database"]:
            return ROWS_DELETED
        return REMOVED if number <= erased else WAITING
    except (DamagedFile, FileNotFoundError, KeyError, TypeError, ValueError):
        return UNKNOWN
