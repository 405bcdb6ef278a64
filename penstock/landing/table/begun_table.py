"""Which form the table of a folder has: it is chosen once, and kept."""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile
from penstock.landing.table.delta_table import DELTA_LOG, DeltaTable
from penstock.landing.table.parquet_folder import ParquetFolder
from penstock.landing.table.table_files import Table
from penstock.landing.table_paths import Layout

DELTA = "delta"
PARQUET = "parquet"
VERSION = 2


class FormatDiffers(PenstockError, ValueError):
    """The table was begun with another ``format``, or by an earlier Penstock."""


def table_of(layout: Layout) -> Table:
    """The table that there is, to be read; one that says nothing of itself is Delta where it has a log of Delta."""
    at_url_or_delta = layout.at is not None or (layout.tables / "landed" / DELTA_LOG).is_dir()
    return _table(layout, begun_as(layout) or (DELTA if at_url_or_delta else PARQUET))


def begin_table(layout: Layout, form: str) -> Table:
    """The table in this form, begun if it is not. Raises FormatDiffers, DamagedFile."""
    begun = begun_as(layout)
    if begun is None:
        layout.format.parent.mkdir(parents=True, exist_ok=True)
        write_document(layout.format, {"form": form, "version": VERSION})
    elif begun != form:
        raise FormatDiffers(f"{layout.landed} has format = {begun}: keep it, or choose another folder of tables")
    table = _table(layout, form)
    table.begin()
    return table


def begun_as(layout: Layout) -> str | None:
    """The format that the table was begun with; None where it was not begun. Raises DamagedFile, FormatDiffers."""
    try:
        told = read_document(layout.format)
    except FileNotFoundError:
        return None
    if told.get("version") != VERSION:
        raise FormatDiffers(f"{layout.tables} is of an earlier version: `penstock tables upgrade` carries it over")
    if told.get("form") not in (DELTA, PARQUET):
        raise DamagedFile(f"{layout.format} is damaged: it does not say what form the table has")
    return str(told["form"])


def is_old(layout: Layout) -> bool:
    """Whether the table is of an earlier version. Raises DamagedFile."""
    try:
        return read_document(layout.format).get("version") != VERSION
    except FileNotFoundError:
        return False


def _table(layout: Layout, form: str) -> Table:
    if form == DELTA:
        return DeltaTable(layout.landed)
    return ParquetFolder(layout.tables / "landed", layout.listed, layout.aside)
