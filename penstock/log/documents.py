"""The log's small files: checked documents whose errors are the log's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.files import checked_document
from penstock.files import errors as file_errors
from penstock.files.checked_document import encode
from penstock.log.errors import UnknownFormat

__all__ = ["decode", "encode"]


def decode(data: bytes, path: Path) -> dict[str, Any] | None:
    """The object of the file's bytes; None when they are damaged. Raises UnknownFormat, naming ``path``."""
    try:
        return checked_document.decode(data, path)
    except file_errors.UnknownFormat as error:
        raise UnknownFormat(str(error)) from None
