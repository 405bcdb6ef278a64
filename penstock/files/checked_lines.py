"""Append-only files of JSON objects, one per line, each with a checksum and a format version.

A line is eight hexadecimal digits (CRC32C of the rest), the object with ``"v"`` first, and a newline. A damaged line is
skipped, and the others are read; the owner of the file cuts a damaged end. Both cases are reported to ``damaged``.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from crc32c import crc32c

from penstock.compact_json import compact_json
from penstock.files.errors import UnknownFormat
from penstock.files.file_system import OS, File, FileSystem
from penstock.files.json_values import parse_object

VERSION = 1
_DIGITS = 8
_LINE_START = re.compile(rb"[0-9a-f]{8}(?=\{\"v\":)")
"""The start of a line. It occurs nowhere else, because JSON escapes a quote within a text."""
_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes [begin, end) of a file that are not a valid line; ``cut``: they were the end of the file and are removed.

    ``torn``: the newline is missing too, as after a crash during a write.
    """

    path: Path
    begin: int
    end: int
    cut: bool = False
    torn: bool = False

    def __str__(self) -> str:
        event = "damaged end removed" if self.cut else "damaged line skipped"
        return f"{self.path}: {event}, bytes {self.begin} to {self.end}"


Report = Callable[[Damage], None]


def log_damage(damage: Damage) -> None:
    """Log a damaged range."""
    _LOGGER.warning("%s", damage)


def encode_line(document: Mapping[str, Any]) -> bytes:
    """Return a JSON object as a line. The key ``v`` is reserved."""
    text = compact_json({"v": VERSION, **document})
    return b"%08x%s\n" % (crc32c(text), text)


def append_lines(path: Path, documents: Iterable[Mapping[str, Any]], fs: FileSystem = OS) -> None:
    """Append JSON objects to a file, which is created if missing; they are durable on return.

    Raises OSError, and then the content is as before.
    """
    text = b"".join(map(encode_line, documents))
    file = fs.open(path, create=True)
    try:
        size = fs.size(path)
        # Crash: a crash may have torn the last line; readers find the start of this line behind the torn bytes.
        try:
            # Order: data, then its sync, then the name of a new file. On an error before the sync nothing was
            # acknowledged.
            file.write([text], size)
            file.sync()
            if not size:
                fs.sync_directory(path.parent)
        except OSError:
            # A failed sync leaves the line readable; a reader must not see what the caller was told has failed.
            _undo_append(file, size, len(text))
            raise
    finally:
        file.close()


def _undo_append(file: File, size: int, length: int) -> None:
    try:
        file.truncate(size)
    except OSError:
        with contextlib.suppress(OSError):
            # A disk that refuses truncation may still overwrite: zeros are not a line.
            file.write([bytes(length)], size)
    with contextlib.suppress(OSError):
        file.sync()


def read_lines(
    path: Path,
    convert: Callable[[dict[str, Any]], T],
    *,
    repair: bool = False,
    damaged: Report = log_damage,
    fs: FileSystem = OS,
) -> Iterator[T]:
    """Yield the objects of a file, each converted by ``convert``; nothing when the file is missing.

    ``damaged`` is called for each damaged line and, with ``repair`` (for the owner of the file), for an end that was
    cut. KeyError, TypeError, ValueError and AttributeError from ``convert`` mark a line as damaged. Raises OSError and
    UnknownFormat.
    """
    for _, document in read_lines_from(path, convert, repair=repair, damaged=damaged, fs=fs):
        yield document


def read_lines_from(
    path: Path,
    convert: Callable[[dict[str, Any]], T],
    position: int = 0,
    *,
    repair: bool = False,
    damaged: Report = log_damage,
    fs: FileSystem = OS,
) -> Iterator[tuple[int, T]]:
    """Yield objects like ``read_lines`` from byte ``position`` on, each with the position after its line."""
    valid_end, pending_damage, torn = position, list[Damage](), False
    for begin, line in _numbered_lines(path, position):
        position = begin + len(line)
        documents = list(_intact_documents(line, path))
        if documents:
            valid_end = position
            for damage in pending_damage:
                damaged(damage)
            pending_damage.clear()
        # Without a newline another process may be writing the line right now, so only the owner judges it.
        elif not (torn := not line.endswith(b"\n")) or repair:
            pending_damage.append(Damage(path, begin, position))
        for document in documents:
            converted = _convert(convert, document)
            if converted is None:
                damaged(Damage(path, begin, position))
            else:
                yield position, converted[0]
    if pending_damage and repair:
        # Only an unbroken damaged end is cut: lines behind a damaged one are still good.
        damaged(Damage(path, valid_end, position, cut=True, torn=torn and len(pending_damage) == 1))
        _cut(fs, path, valid_end)
        return
    for damage in pending_damage:
        damaged(damage)


def _numbered_lines(path: Path, position: int) -> Iterator[tuple[int, bytes]]:
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        file.seek(position)
        for line in file:
            yield position, line
            position += len(line)


def _convert(convert: Callable[[dict[str, Any]], T], document: dict[str, Any]) -> tuple[T] | None:
    try:
        return (convert(document),)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _intact_documents(line: bytes, path: Path) -> Iterator[dict[str, Any]]:
    """Yield the object of a line; several objects when the newline between them is damaged, or torn off."""
    document = _document(line, path)
    if document is not None:
        yield document
        return
    for begin, end in pairwise([*(match.start() for match in _LINE_START.finditer(line)), len(line)]):
        if (document := _document(line[begin : end - 1] + b"\n", path)) is not None:
            yield document


def _document(line: bytes, path: Path) -> dict[str, Any] | None:
    """Return the object of a complete line; None when damaged. Raises UnknownFormat."""
    if not line.endswith(b"\n"):
        return None
    text = line[_DIGITS:-1]
    if line[:_DIGITS] != b"%08x" % crc32c(text):
        return None
    try:
        document = parse_object(text)
        version = document.pop("v")
    except (ValueError, KeyError):
        return None
    if version != VERSION:
        raise UnknownFormat(f"{path} has lines of format {version}, this version of Penstock reads {VERSION}")
    return document


def _cut(fs: FileSystem, path: Path, length: int) -> None:
    file = fs.open(path)
    try:
        file.truncate(length)
        file.sync()
    finally:
        file.close()
