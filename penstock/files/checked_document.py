"""Small files: a JSON object with a format version, and a checksum before it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crc32c import crc32c

from penstock.files.errors import UnknownFormat

FORMAT = 1


def encode(document: Mapping[str, Any]) -> bytes:
    """The file's bytes."""
    text = json.dumps({"format": FORMAT, **document}, separators=(",", ":")).encode()
    return b"%08x" % crc32c(text) + text


def decode(data: bytes, path: Path) -> dict[str, Any] | None:
    """The object of the file's bytes; None when they are damaged. Raises UnknownFormat, naming ``path``."""
    if data[:8] != b"%08x" % crc32c(data[8:]):
        return None
    try:
        document = json.loads(data[8:])
        version = document.get("format", FORMAT)
    except (ValueError, AttributeError):
        return None
    if version != FORMAT:
        raise UnknownFormat(f"{path.name} has format {version}, this Penstock knows {FORMAT}")
    return dict(document)
