"""What is kept with a topic beside its rows: its own settings (in two copies), and whether it was deleted."""

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
"""The file that says so; the topic's gaps stay beside it, so that no offset is given again."""


def load_or_clear(fs: FileSystem, directory: Path) -> dict[str, Any] | None:
    """The settings that were changed for a topic, as far as they can be read; None where it was deleted.

    Then what is left of it is removed. Raises OSError.
    """
    names = fs.names(directory)
    if DELETED in names:
        clear(fs, directory)
        return None
    if not set(SETTINGS).isdisjoint(names):
        with contextlib.suppress(UnknownFormat):  # it cannot be opened
            return read_changes(fs, directory)
    return {}


def read_changes(fs: FileSystem, directory: Path) -> dict[str, Any]:
    """The settings that were changed for this topic; a copy that is damaged or missing is written anew.

    Raises UnknownFormat for those of another version, and when no copy can be read: to go on without would open the
    topic to everybody, or drop what was to be kept.
    """
    found: list[bytes] = []
    for name in SETTINGS:
        with contextlib.suppress(FileNotFoundError):  # never changed, or deleted just now
            found.append(fs.read(directory / name))
    for data in found:
        with contextlib.suppress(KeyError, TypeError, AttributeError, InvalidSetting):
            if (document := decode(data, directory / SETTINGS[0])) is not None:
                changes = validate_settings(document["settings"])
                if found != [data] * len(SETTINGS):
                    _mend(fs, directory, data)
                return changes
    if found:
        raise UnknownFormat(f"{SETTINGS[0]} cannot be read: write the topic's settings anew, or remove the file")
    return {}


def _mend(fs: FileSystem, directory: Path, data: bytes) -> None:
    """Both copies are ``data``, before the good one is damaged too; on a full disk another time."""
    _LOGGER.warning("%s: a copy of its settings was damaged or missing and is written anew", directory)
    with contextlib.suppress(OSError):
        for name in reversed(SETTINGS):
            replace_durably(fs, directory / name, data)


def write_changes(fs: FileSystem, directory: Path, changes: Mapping[str, Any]) -> None:
    """Keep the changed settings. Raises OSError."""
    settings = {key: list(value) if isinstance(value, tuple) else value for key, value in changes.items()}
    for name in reversed(SETTINGS):
        replace_durably(fs, directory / name, encode({"settings": settings}))


def is_deleted(directory: Path) -> bool:
    """Whether the topic of this folder was deleted."""
    return (directory / DELETED).exists()


def mark_deleted(fs: FileSystem, directory: Path) -> None:
    """From now on there is no such topic. Raises OSError."""
    replace_durably(fs, directory / DELETED, b"")


def revive(fs: FileSystem, directory: Path) -> None:
    """From now on there is such a topic again. Raises OSError."""
    fs.remove(directory / DELETED)
    fs.sync_directory(directory)


def clear(fs: FileSystem, directory: Path) -> None:
    """Remove everything of a deleted topic but its gaps. Raises OSError."""
    folders = {directory}
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.name not in (FILE_NAME, COPY_NAME, DELETED):
            fs.remove(path)
            folders.add(path.parent)
    for folder in sorted(folders):
        fs.sync_directory(folder)
