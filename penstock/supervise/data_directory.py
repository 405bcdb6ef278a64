"""The data directory of a running instance: its folders, and the lock that keeps a second instance out."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from penstock.config import ConfigError, Settings
from penstock.errors import PenstockError
from penstock.files.file_system import remove_dead_drafts
from penstock.files.regular_files import check_data_directory
from penstock.supervise.endpoints import LOCK, endpoints


class AlreadyRunning(PenstockError, RuntimeError):
    """Another penstock uses this data directory."""


def make_folders(settings: Settings) -> None:
    """Create the folders that processes expect. Raises ConfigError if that fails."""
    try:
        settings.buffers.mkdir(parents=True, exist_ok=True)
        settings.topics.mkdir(parents=True, exist_ok=True)
        # Drafts of other files are removed when the file is written again.
        remove_dead_drafts(settings.buffers)
        remove_dead_drafts(settings.data_dir)
    except OSError as error:
        raise ConfigError(f"data_dir: {error.filename} cannot be created: {error.strerror}") from None


def already_running(data_dir: Path) -> str:
    """Return the error for a data directory that another instance uses."""
    pid = endpoints(data_dir).get("supervisor")
    process = f", process {pid}," if pid else ""
    return (
        f"data_dir: another penstock{process} uses {data_dir}; `penstock reload` applies a changed configuration to "
        "it, and another data_dir with other ports runs a second one"
    )


def lock_data_directory(data_dir: Path) -> int:
    """Return the descriptor that holds the lock. Raises AlreadyRunning if another instance holds it."""
    # Order: before a file is opened, as the open of a FIFO may wait forever.
    check_data_directory(data_dir)
    descriptor = os.open(data_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # The kernel releases the lock when the process dies, unlike a file with a process id.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise AlreadyRunning(already_running(data_dir)) from None
    return descriptor
