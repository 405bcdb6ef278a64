"""Small files: a JSON object with a format version, and a checksum before it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crc32c import crc32c

from penstock.files.errors import DamagedFile, UnknownFormat
from penstock.files.file_system import OS, FileSystem, replace_durably
from penstock.files.json_values import parse_object

FORMAT = 1


def encode(document: Mapping[str, Any]) -> bytes:
    """The file's bytes."""
    text = json.dumps({"format": FORMAT, **document}, separators=(",", ":")).encode()
    return b"%08x" % crc32c(text) + text


def decode(data: bytes, path: Path) -> dict[str, Any] | None:
    """The object of the file's bytes; None when they are damaged. Raises UnknownFormat, naming ``path``."""
    if data[:8] != b"%08x" % crc32c(data[8:]):
        return None
    document = _object(data[8:])
    if document is None:
        return None
    version = document.get("format", FORMAT)
    if version != FORMAT:
        raise UnknownFormat(f"{path.name} has format {version}, this Penstock knows {FORMAT}")
    return document


def write_document(path: Path, document: Mapping[str, Any], fs: FileSystem = OS) -> None:
    """Make the file hold ``document``, durably and atomically. Raises OSError."""
    replace_durably(fs, path, encode(document))


def read_document(path: Path, fs: FileSystem = OS) -> dict[str, Any]:
    """The object of a file, also of one from before 0.2, which has no checksum and begins with ``{``.

    Raises FileNotFoundError and other OSErrors; DamagedFile and UnknownFormat, which name the file.
    """
    data = fs.read(path)
    document = _object(data) if data.startswith(b"{") else decode(data, path)
    if document is None:
        raise DamagedFile(f"{path} is damaged")
    return document


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        return parse_object(data)
    except ValueError:
        return None
