"""The id of a data directory: it tells an instance from others with its name, and from itself on a new disk."""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from pathlib import Path

from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile
from penstock.files.file_system import OS, make_folder, set_aside

DISK_FILE = "disk.json"
"""File in the folder with the id of this data directory; a new disk has none."""
_LOGGER = logging.getLogger(__name__)


def load_disk_id(folder: Path) -> str:
    """Return the id of this data directory; a new one gets an id. Raises OSError and UnknownFormat."""
    path = folder / DISK_FILE
    make_folder(folder)
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


def hop_of(disk: str, topic: str) -> str:
    """Return the hop of relayed entries that were in ``topic`` of the instance with the id ``disk``."""
    return f"{disk}/{topic}"
