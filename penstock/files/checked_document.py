"""Small JSON documents with a checksum and a format version, replaced as a whole."""

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
    """Return the content of a file: eight hexadecimal digits (CRC32C of the rest), then the JSON object."""
    text = json.dumps({"format": FORMAT, **document}, separators=(",", ":")).encode()
    return b"%08x" % crc32c(text) + text


def decode(data: bytes, path: Path, newest: int = FORMAT) -> dict[str, Any] | None:
    """Return the object of a file's content, of a format up to ``newest``; None when damaged.

    Raises UnknownFormat, which names ``path``.
    """
    if data[:8] != b"%08x" % crc32c(data[8:]):
        return None
    document = _parse(data[8:])
    if document is None or (version := document.get("format")) is None:
        return None
    if version not in range(FORMAT, newest + 1):
        raise UnknownFormat(f"{path.name} has format {version}, this version of Penstock reads {newest}")
    return document


def write_document(path: Path, document: Mapping[str, Any], fs: FileSystem = OS) -> None:
    """Replace the file by ``document``, durably and atomically. Raises OSError."""
    replace_durably(fs, path, encode(document))


def read_document(path: Path, fs: FileSystem = OS, newest: int = FORMAT) -> dict[str, Any]:
    """Return the object of a file, of a format up to ``newest``; a document of a later one than FORMAT has it as
    ``format``.

    Raises FileNotFoundError and other OSErrors, and DamagedFile and UnknownFormat, which name the file.
    """
    document = decode(fs.read(path), path, newest)
    if document is None:
        raise DamagedFile(f"{path} is damaged")
    return document


def _parse(data: bytes) -> dict[str, Any] | None:
    try:
        return parse_object(data)
    except ValueError:
        return None
