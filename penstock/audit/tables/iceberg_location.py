"""Load an Iceberg table from a catalog, a metadata file or a local folder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any, TypeVar, cast
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog import load_catalog
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import StaticTable, Table

from penstock.audit.tables.address import ICEBERG_METADATA, iceberg_metadata
from penstock.audit.tables.history import MAX_STORED_FILES
from penstock.audit.tables.parquet_folder import names_below
from penstock.audit.tables.table import TableUnreadable, translate_errors

PYICEBERG_ERRORS = (Exception,)
"""Workaround: PyIceberg's errors have no base class, and a damaged metadata file or manifest raises errors of any type.
"""
_METADATA_NUMBER = re.compile(r"v?(\d+)")
PathType = TypeVar("PathType", bound=PurePath)


def load_table(address: str, options: Mapping[str, str]) -> Table:
    """Load the current metadata; ``options``: PyIceberg's properties. Raises TableUnreadable and PyIceberg's errors."""
    if address.startswith("iceberg://"):
        parts = urlsplit(address)
        # Properties of the catalog that are not options come from PyIceberg's configuration file and environment.
        return load_catalog(unquote(parts.netloc), **options).load_table(unquote(parts.path.strip("/")))
    if not address.endswith(ICEBERG_METADATA):
        address = str(_newest_metadata(address))
    return cast("Table", StaticTable.from_metadata(address, dict(options)))


def load_newest(address: str, options: Mapping[str, str], audited: Table) -> Table:
    """Load the newest metadata of a table, also if a metadata file was named that others follow.

    Raises TableUnreadable.
    """
    with translate_errors(address, *PYICEBERG_ERRORS):
        newest = load_table(address, options)
        if not address.endswith(ICEBERG_METADATA):
            return newest
        folder, _, name = newest.metadata_location.rpartition("/")
        system, root = folder_of(newest.io, folder)
        latest = _latest(PurePath(path) for path in names_below(system, root, ICEBERG_METADATA, MAX_STORED_FILES))
        # Two writers may have written the same number, a lost attempt and a commit: only a catalog knows which.
        if len(latest) == 1 and latest[0].name != name:
            newest = StaticTable.from_metadata(f"{folder}/{latest[0]}", dict(options))
        if len(latest) != 1 or newest.metadata.table_uuid != audited.metadata.table_uuid:
            raise TableUnreadable(f"the newest metadata file in {folder} is not certain; name the catalog")
        return newest


def folder_of(io: FileIO, location: str) -> tuple[Any, str]:
    """Return the file system of a location, and its path there. Raises TableUnreadable."""
    if not isinstance(io, PyArrowFileIO):
        raise TableUnreadable(f"{location} cannot be listed with {type(io).__name__}; set py-io-impl to PyArrow's")
    scheme, host, root = io.parse_location(location, io.properties)
    return io.fs_by_scheme(scheme, host), root


def _newest_metadata(address: str) -> Path:
    """Return the newest metadata file of a local folder. Raises TableUnreadable."""
    newest = _latest(iceberg_metadata(address))
    if len(newest) != 1:
        # Two writers commit the same number; the catalog knows which of them won.
        raise TableUnreadable(
            f"{address} has {len(newest)} newest metadata files; name the catalog, iceberg://CATALOG/NAMESPACE.TABLE, "
            "or the metadata file"
        )
    return newest[0]


def _latest(paths: Iterable[PathType]) -> list[PathType]:
    """Return the metadata files with the highest number."""
    numbered: dict[int, list[PathType]] = {}
    for path in paths:
        if match := _METADATA_NUMBER.match(path.name):
            numbered.setdefault(int(match[1]), []).append(path)
    return numbered[max(numbered)] if numbered else []
