"""Since which batch each typed table is written."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile
from penstock.landing.table_paths import TYPED_MARK, Layout

BEFORE_FIRST_BATCH = -1
"""Since before the first batch."""
_LOGGER = logging.getLogger(__name__)


def read_starts(layout: Layout) -> Mapping[str, int]:
    """By the names of the tables that were written lately, after which batch that began; of none where that is damaged:
    then ``fill`` finds what they do not have.
    """
    try:
        return {str(name): int(batch) for name, batch in read_document(layout.typed_since)["since"].items()}
    except FileNotFoundError:
        return {}
    except (DamagedFile, KeyError, TypeError, ValueError, AttributeError):
        _LOGGER.warning("%s is damaged", layout.typed_since)
        return {}


def write_starts(layout: Layout, told: Mapping[str, int]) -> None:
    """Durably; under the lock of upkeep."""
    layout.typed_since.parent.mkdir(parents=True, exist_ok=True)
    write_document(layout.typed_since, {"since": dict(told)})


def describe_start(name: str, batch: int) -> str:
    """From where on a table has what landed, in words."""
    return f"{TYPED_MARK}{name} has what landed after batch {batch}"
