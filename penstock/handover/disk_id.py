"""The id of a data directory: it tells an instance from others with its name, and from itself on a new disk."""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from pathlib import Path

from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile, UnknownFormat
from penstock.files.file_system import OS, make_folder, remove_dead_drafts, set_aside

DISK_FILE = "disk.json"
"""File in the folder with the id of this data directory; a new disk has none."""
_LOGGER = logging.getLogger(__name__)


def load_disk_id(folder: Path) -> str:
    """Return the id of this data directory; a new one gets an id. Raises OSError and UnknownFormat."""
    path = folder / DISK_FILE
    make_folder(folder)
    remove_dead_drafts(folder)
    with contextlib.suppress(FileNotFoundError):
        try:
            return str(read_document(path)["disk"])
        except (DamagedFile, KeyError) as error:
            set_aside(path, OS)
            _LOGGER.error("the id of this data directory is lost, so entries that wait seem lost: %s", error)
    draft = folder / f"disk.{os.getpid()}.tmp"
    write_document(draft, {"disk": uuid.uuid4().hex})
    # Another relay of this host may begin at the same time: the first one names the disk.
    with contextlib.suppress(FileExistsError):
        os.link(draft, path)
    OS.remove(draft)
    OS.sync_directory(folder)
    return str(read_document(path)["disk"])


class OwnDisk:
    """The id of this data directory for a process that runs for long, such as the log daemon.

    A relay that finds the file damaged replaces it, and the entries that it sends have the new id from then on.
    """

    def __init__(self, folder: Path) -> None:
        """Load or make the id; without it, ``id`` is "" with a warning."""
        self._path, self._id = folder / DISK_FILE, ""
        try:
            self._id = load_disk_id(folder)
        except (OSError, UnknownFormat) as error:
            # Only entries of relays need it: the log must also start on a full disk, so that they can be read.
            _LOGGER.warning("relayed entries are refused: the id of this data directory is missing: %s", error)
        self._version = self._stat()

    @property
    def id(self) -> str:
        """The id in the file, or the last one while the file is absent or cannot be read."""
        version = self._stat()
        if version != self._version:
            with contextlib.suppress(OSError, DamagedFile, UnknownFormat, KeyError):
                self._id, self._version = str(read_document(self._path)["disk"]), version
        return self._id

    def _stat(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns


def hop_of(disk: str, topic: str) -> str:
    """Return the hop of relayed entries that were in ``topic`` of the instance with the id ``disk``."""
    return f"{disk}/{topic}"
