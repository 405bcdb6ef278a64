"""The certificate of a deletion: which rows were removed where, and which copies still have them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from penstock.files.checked_document import read_document
from penstock.files.errors import DamagedFile
from penstock.landing.mirror_lag import mirrored_through
from penstock.landing.requests.deletions import RETENTION, DeletionRecord
from penstock.landing.table_paths import Layout

REMOVED, WAITING, RETAINED = "removed", "waiting", "retained"
"""States of a copy. RETAINED: an export that does not follow retention."""


def certify(layout: Layout, number: int) -> dict[str, Any]:
    """Return the certificate of a deletion as a JSON document, with the present state of all copies.

    Raises StopIteration if the deletion is not done, DamagedFile.
    """
    record = DeletionRecord(layout).certificate(number)
    copies: dict[str, Any] = {"replaced_files": _files_state(layout, record["replaced_files"])}
    if (through_s := mirrored_through(layout)) is not None:
        done_s = datetime.fromisoformat(record["done_at"] or "9999-12-31T00:00:00+00:00").timestamp()
        # Later snapshots have no deleted row; earlier ones expire, and their files are ``replaced_files``.
        copies["iceberg"] = REMOVED if through_s > done_s else WAITING
    copies["exports"] = {
        path.stem: _export_state(layout, path.stem, number, record["why"])
        for path in sorted(layout.exports.glob("*.json"))
    }
    return {**record, "certified_at": datetime.now(UTC).isoformat(), "copies": copies}


def _files_state(layout: Layout, names: list[str]) -> str:
    return WAITING if any((layout.landed / name).exists() for name in names) else REMOVED


def _export_state(layout: Layout, name: str, number: int, why: str) -> str:
    try:
        state = read_document(layout.exports / f"{name}.json")
    except (DamagedFile, FileNotFoundError):
        return WAITING
    if why == RETENTION and state.get("retention") is False:
        return RETAINED
    through = state.get("deletion")
    return REMOVED if isinstance(through, int) and through >= number else WAITING
