"""The ledger's last watermarks, stored with the tables for readers that do not ask the daemon."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile
from penstock.landing.table_paths import Layout
from penstock.landing.table_schema import MICROS

_TYPES: dict[str, pa.DataType] = {
    "table": pa.string(),
    "topic": pa.string(),
    "until": MICROS,
    "landed": pa.int64(),
    "share": pa.float64(),
}
WATERMARKS = pa.schema(_TYPES)
"""Columns of the view ``watermarks``: the table is complete for what a topic received before ``until``. ``landed``:
number of its rows. ``share``: the part (0 to 1) of the received messages that these rows are."""
_LOGGER = logging.getLogger(__name__)


def keep_watermarks(layout: Layout, marks: Sequence[Mapping[str, Any]]) -> None:
    """Store the watermarks that the ledger reported."""
    write_document(layout.watermarks, {"marks": list(marks)})


def kept_watermarks(layout: Layout) -> list[tuple[str, str, datetime, int, float]]:
    """Return the rows of the view ``watermarks``; none before the pipeline has asked the ledger once."""
    try:
        return [
            (mark["table"], mark["topic"], datetime.fromtimestamp(mark["until"], UTC), mark["landed"], mark["share"])
            for mark in read_document(layout.watermarks)["marks"]
        ]
    except FileNotFoundError:
        return []
    except (DamagedFile, KeyError, TypeError, ValueError):
        _LOGGER.warning("%s cannot be read: the running pipeline writes it again", layout.watermarks)
        return []
