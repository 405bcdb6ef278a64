"""The state of a topic besides its rows: changed settings (in two copies), and whether it is deleted."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.files.file_system import FileSystem, replace_durably
from penstock.log.documents import decode, encode
from penstock.log.errors import InvalidSetting, UnknownFormat
from penstock.log.settings import validate_settings
from penstock.log.store.gaps import COPY_NAME, FILE_NAME

SETTINGS = ("settings.json", "settings.copy.json")
_LOGGER = logging.getLogger(__name__)
DELETED = "DELETED"
"""Marks a deleted topic; its gaps stay in the folder, so that no offset is used twice."""


def load_or_clear(fs: FileSystem, directory: Path) -> dict[str, Any] | None:
    """Return the readable changed settings of a topic; None for a deleted topic.

    The remains of a deleted topic are removed. Raises OSError.
    """
    names = fs.names(directory)
    if DELETED in names:
        clear(fs, directory)
        return None
    if not set(SETTINGS).isdisjoint(names):
        with contextlib.suppress(UnknownFormat):  # opening the topic will report it
            return read_changes(fs, directory)
    return {}


def read_changes(fs: FileSystem, directory: Path) -> dict[str, Any]:
    """Return the changed settings of a topic; a damaged or missing copy is rewritten.

    Raises UnknownFormat for another version, or if no copy is readable: without them the topic would be open to
    all users, or would drop rows that must be kept.
    """
    copies: list[bytes] = []
    for name in SETTINGS:
        with contextlib.suppress(FileNotFoundError):  # never changed, or deleted during the call
            copies.append(fs.read(directory / name))
    for content in copies:
        with contextlib.suppress(KeyError, TypeError, AttributeError, InvalidSetting):
            if (document := decode(content, directory / SETTINGS[0])) is not None:
                changes = validate_settings(document["settings"])
                if copies != [content] * len(SETTINGS):
                    _rewrite_copies(fs, directory, content)
                return changes
    if copies:
        raise UnknownFormat(f"{SETTINGS[0]} cannot be read: write the topic's settings again, or remove the file")
    return {}


def _rewrite_copies(fs: FileSystem, directory: Path, content: bytes) -> None:
    """Rewrite both copies before the good one is damaged too; on a full disk the next reading does it."""
    _LOGGER.warning("%s: a copy was damaged or missing and is rewritten", directory / SETTINGS[0])
    with contextlib.suppress(OSError):
        for name in reversed(SETTINGS):
            replace_durably(fs, directory / name, content)


def write_changes(fs: FileSystem, directory: Path, changes: Mapping[str, Any]) -> None:
    """Store the changed settings. Raises OSError."""
    settings = {key: list(value) if isinstance(value, tuple) else value for key, value in changes.items()}
    for name in reversed(SETTINGS):
        # Order: the copy before the file that is read first. Crash: in between the old settings stay in force, and the
        # copies are made equal by the next reading.
        replace_durably(fs, directory / name, encode({"settings": settings}))


def is_deleted(directory: Path) -> bool:
    """Report whether the topic of this folder is deleted."""
    return (directory / DELETED).exists()


def mark_deleted(fs: FileSystem, directory: Path) -> None:
    """Mark the topic as deleted, durably. Raises OSError."""
    replace_durably(fs, directory / DELETED, b"")


def revive(fs: FileSystem, directory: Path) -> None:
    """Remove the mark of a deletion, durably. Raises OSError."""
    fs.remove(directory / DELETED)
    fs.sync_directory(directory)


def clear(fs: FileSystem, directory: Path) -> None:
    """Remove all files of a deleted topic except its gaps. Raises OSError."""
    folders = {directory}
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.name not in (FILE_NAME, COPY_NAME, DELETED):
            fs.remove(path)
            folders.add(path.parent)
    for folder in sorted(folders):
        fs.sync_directory(folder)
