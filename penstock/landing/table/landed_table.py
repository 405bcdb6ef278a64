"""The table ``landed`` of a layout, and the version of its format.

Invariant: a table of another version is neither read nor written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile, UnknownFormat
from penstock.landing.table_paths import Layout

if TYPE_CHECKING:
    from penstock.landing.table.delta_table import DeltaTable

VERSION = 1
"""Version of the table's columns and of the files next to it."""


def table_of(layout: Layout) -> DeltaTable:
    """Return the table, for reading. Raises DamagedFile, UnknownFormat."""
    has_landed_table(layout)
    return _delta_table(layout)


def begin_table(layout: Layout) -> DeltaTable:
    """Return the table, for writing; create it if it is missing. Raises DamagedFile, UnknownFormat."""
    # Order: the version before the table, so that no table is without a version after a crash.
    if not has_landed_table(layout):
        layout.format.parent.mkdir(parents=True, exist_ok=True)
        write_document(layout.format, {"version": VERSION})
    table = _delta_table(layout)
    table.begin()
    return table


def _delta_table(layout: Layout) -> DeltaTable:
    # Imports delta-rs, which readers of journals and proofs do without.
    from penstock.landing.table.delta_table import DeltaTable

    return DeltaTable(layout.landed)


def has_landed_table(layout: Layout) -> bool:
    """Report whether the pipeline has created the table. Raises DamagedFile, UnknownFormat."""
    try:
        version = read_document(layout.format).get("version")
    except FileNotFoundError:
        return False
    if not isinstance(version, int):
        raise DamagedFile(f"{layout.format} is damaged: it does not contain the version of the table")
    if version != VERSION:
        raise UnknownFormat(f"{layout.format} has version {version}, and this Penstock reads version {VERSION}")
    return True
