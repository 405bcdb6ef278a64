"""The landed table of a folder: whether it was begun, and by a version that this one understands."""

from __future__ import annotations

from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile, UnknownFormat
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table_paths import Layout

VERSION = 1
"""Of the table's columns and of the files around it."""


def table_of(layout: Layout) -> DeltaTable:
    """Return the table of the layout, to be read. Raises DamagedFile, UnknownFormat."""
    has_landed_table(layout)
    return DeltaTable(layout.landed)


def begin_table(layout: Layout) -> DeltaTable:
    """Return the table of the layout, to be written; begin it if it is not. Raises DamagedFile, UnknownFormat."""
    if not has_landed_table(layout):
        layout.format.parent.mkdir(parents=True, exist_ok=True)
        write_document(layout.format, {"version": VERSION})
    table = DeltaTable(layout.landed)
    table.begin()
    return table


def has_landed_table(layout: Layout) -> bool:
    """Return whether the pipeline has begun the table. Raises DamagedFile, UnknownFormat."""
    try:
        version = read_document(layout.format).get("version")
    except FileNotFoundError:
        return False
    if not isinstance(version, int):
        raise DamagedFile(f"{layout.format} is damaged: it does not say what version the table has")
    if version != VERSION:
        raise UnknownFormat(f"{layout.format} has version {version}, and this Penstock reads version {VERSION}")
    return True
