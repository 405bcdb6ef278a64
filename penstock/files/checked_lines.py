"""Journals: files that grow at their end, one JSON object a line, each line with a checksum and a format version.

A line is eight hexadecimal digits, the CRC32C of what follows; the object, ``"v"`` first; and a line end. Lines that
begin with ``{`` are those of versions before 0.2, which had no checksum. A damaged line costs that line, a damaged end
is cut by the file's owner; both are told with the file's name.
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
_BEGIN = re.compile(rb"[0-9a-f]{8}(?=\{\"v\":)")
"""Where a line begins: this stands nowhere else, as a quote within a text is escaped."""
_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes [begin, end) of a file are no line any more; ``cut``: they are its end, and go.

    ``torn``: not even their line end is there, as of a line that a crash kept from being written.
    """

    path: Path
    begin: int
    end: int
    cut: bool = False
    torn: bool = False

    def __str__(self) -> str:
        what = "its damaged end is cut off, from" if self.cut else "a line is damaged and passed over:"
        return f"{self.path}: {what} byte {self.begin} to {self.end}"


Report = Callable[[Damage], None]


def report(damage: Damage) -> None:
    """Tells of a damage."""
    _LOGGER.warning("%s", damage)


Older = Callable[[bytes], dict[str, Any] | None]


def unchecked(text: bytes) -> dict[str, Any] | None:
    """The object of a line without a checksum; None where it is damaged."""
    with contextlib.suppress(ValueError):
        document = parse_object(text)
        return None if "v" in document else document
    return None


def encode_line(document: Mapping[str, Any]) -> bytes:
    """A JSON object as a line; it may have no entry ``v``."""
    text = compact_json({"v": VERSION, **document})
    return b"%08x%s\n" % (crc32c(text), text)


def append_lines(path: Path, documents: Iterable[Mapping[str, Any]], fs: FileSystem = OS) -> None:
    """Append JSON objects to a journal, made where there is none; they are on the disk when this returns.

    Raises OSError, and then the file is as before.
    """
    text = b"".join(map(encode_line, documents))
    file = fs.open(path, create=True)
    try:
        size = fs.size(path)
        text = text if _ends_a_line(path, size) else b"\n" + text
        try:
            file.write([text], size)
            file.sync()
            if not size:
                fs.sync_directory(path.parent)
        except OSError:
            _take_back(file, size, len(text))
            raise
    finally:
        file.close()


def _ends_a_line(path: Path, size: int) -> bool:
    """Whether the next line may begin at ``size``: behind one torn by a crash it gets a line end before it."""
    if not size:
        return True
    with open(path, "rb") as file:
        file.seek(size - 1)
        return file.read(1) == b"\n"


def _take_back(file: File, size: int, length: int) -> None:
    """What could not be synced is not to come to light after a crash either: it is cut off, or at least no line."""
    try:
        file.truncate(size)
    except OSError:
        with contextlib.suppress(OSError):
            file.write([bytes(length)], size)
    with contextlib.suppress(OSError):
        file.sync()


def read_lines(
    path: Path,
    of: Callable[[dict[str, Any]], T],
    *,
    repair: bool = False,
    damaged: Report = report,
    older: Older = unchecked,
    fs: FileSystem = OS,
) -> Iterator[T]:
    """The objects of a journal, each as ``of`` makes it of the JSON; none where there is no file.

    ``damaged`` hears of each line that is passed over, and with ``repair``, which is for the file's owner, of an end
    that was cut. ``older`` reads lines that begin with ``{``. What ``of`` raises as KeyError, TypeError, ValueError or
    AttributeError is such a line too. Raises OSError and UnknownFormat.
    """
    for _, found in read_lines_from(path, of, repair=repair, damaged=damaged, older=older, fs=fs):
        yield found


def read_lines_from(
    path: Path,
    of: Callable[[dict[str, Any]], T],
    position: int = 0,
    *,
    repair: bool = False,
    damaged: Report = report,
    older: Older = unchecked,
    fs: FileSystem = OS,
) -> Iterator[tuple[int, T]]:
    """The same from a byte position on, each with the position after it: to go on there later."""
    good, waiting, torn = position, list[Damage](), False
    for begin, line in _lines_of(path, position):
        position = begin + len(line)
        documents = list(_documents(line, path, older))
        if documents:
            good = position
            for damage in waiting:
                damaged(damage)
            waiting.clear()
        elif not (torn := not line.endswith(b"\n")) or repair:  # else it may be about to be written
            waiting.append(Damage(path, begin, position))
        for document in documents:
            made = _made(of, document)
            if made is None:
                damaged(Damage(path, begin, position))
            else:
                yield position, made[0]
    if waiting and repair:
        damaged(Damage(path, good, position, cut=True, torn=torn and len(waiting) == 1))
        _cut(fs, path, good)
        return
    for damage in waiting:
        damaged(damage)


def _lines_of(path: Path, position: int) -> Iterator[tuple[int, bytes]]:
    """The lines of a file from a byte position on, each with where it begins."""
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        file.seek(position)
        for line in file:
            yield position, line
            position += len(line)


def _made(of: Callable[[dict[str, Any]], T], document: dict[str, Any]) -> tuple[T] | None:
    try:
        return (of(document),)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _documents(line: bytes, path: Path, older: Older) -> Iterator[dict[str, Any]]:
    """The object of a line; those of several where the line end between them is damaged."""
    document = _document(line, path, older)
    if document is not None:
        yield document
        return
    for begin, end in pairwise([*(found.start() for found in _BEGIN.finditer(line)), len(line)]):
        if (document := _document(line[begin : end - 1] + b"\n", path, older)) is not None:
            yield document


def _document(line: bytes, path: Path, older: Older) -> dict[str, Any] | None:
    """The object of a whole line; None where that is damaged. Raises UnknownFormat."""
    if not line.endswith(b"\n"):
        return None
    if line.startswith(b"{"):
        return older(line[:-1])
    text = line[_DIGITS:-1]
    if line[:_DIGITS] != b"%08x" % crc32c(text):
        return None
    try:
        document = parse_object(text)
        version = document.pop("v")
    except (ValueError, KeyError):
        return None
    if version != VERSION:
        raise UnknownFormat(f"{path} has lines of format {version}, this Penstock knows {VERSION}")
    return document


def _cut(fs: FileSystem, path: Path, length: int) -> None:
    file = fs.open(path)
    try:
        file.truncate(length)
        file.sync()
    finally:
        file.close()
