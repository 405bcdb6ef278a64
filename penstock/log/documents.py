"""Checked documents of the log, with the log's errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.files import checked_document
from penstock.files import errors as file_errors
from penstock.files.checked_document import encode
from penstock.log.errors import UnknownFormat

__all__ = ["decode", "encode"]


def decode(content: bytes, path: Path) -> dict[str, Any] | None:
    """Return the object in ``content``; None if it is damaged. Raises UnknownFormat with ``path``."""
    try:
        return checked_document.decode(content, path)
    except file_errors.UnknownFormat as error:
        raise UnknownFormat(str(error)) from None
