"""Age of the Iceberg tables over the files of the Delta tables, if there are any.

Invariant: a file that the Iceberg tables still have is not removed: replaced files stay while the tables are behind.
"""

from __future__ import annotations

import time
from typing import Any

from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile
from penstock.landing.table_paths import Layout

MAX_LAG_S = 3600.0
"""Limit: time that Iceberg tables may be behind before replaced files of the Delta tables are no longer removed. They
are removed hours after they were replaced, so until then no current snapshot has them.
"""


def store_mirrored(layout: Layout, time_s: float, deletion: int = 0) -> None:
    """Store the time up to which the Iceberg tables have all changes; 0: they are about to be created.

    ``deletion``: the last one whose rows no current snapshot has.
    """
    write_document(layout.mirrored, {"at": time_s, "deletion": deletion})


def mirrored_deletion(layout: Layout) -> int | None:
    """Return the last deletion whose rows no current Iceberg snapshot has; None without Iceberg. Raises DamagedFile."""
    if (document := _read_mirrored(layout)) is None:
        return None
    if not isinstance(deletion := document.get("deletion", 0), int):
        raise DamagedFile(f"{layout.mirrored} is damaged: it does not contain the number of a deletion")
    return deletion


def is_behind(layout: Layout) -> bool:
    """Report whether Iceberg tables may still have files that left the Delta tables long ago. Raises DamagedFile."""
    if (document := _read_mirrored(layout)) is None:
        return False
    if not isinstance(mirrored_at := document.get("at"), int | float):
        raise DamagedFile(f"{layout.mirrored} is damaged: it does not contain a time")
    # A clock that was set back says nothing: then files stay.
    return abs(time.time() - mirrored_at) > MAX_LAG_S


def _read_mirrored(layout: Layout) -> dict[str, Any] | None:
    try:
        return read_document(layout.mirrored)
    except FileNotFoundError:
        return None


def forget_mirror(layout: Layout) -> None:
    """Stop waiting for Iceberg tables, because none are configured."""
    layout.mirrored.unlink(missing_ok=True)
