"""Syncs of a table's files that a library wrote, also on a disk that has failed to sync them once.

Invariant: no commit stands on one that a power cut can take. After a failed sync Linux counts the pages as written, so
another sync would write nothing: the content is written again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from penstock.files.file_system import sync_written

CHUNK_BYTES = 1 << 20
_UNSYNCED: set[Path] = set()
"""Files whose sync failed in this process. Lock: each call of a set's method is atomic."""


def sync_files(paths: Iterable[Path]) -> None:
    """Sync files and their directory entries; an error is remembered for ``write_unsynced``. Raises OSError."""
    files = [*paths]
    try:
        sync_written(files)
    except OSError:
        _UNSYNCED.update(files)
        raise


def write_unsynced(folder: Path) -> None:
    """Write the files below a folder again whose sync failed. Raises OSError."""
    for path in [path for path in _UNSYNCED.copy() if path.is_relative_to(folder)]:
        write_again(path)
        _UNSYNCED.discard(path)


def write_again(path: Path) -> None:
    """Write a file's content over itself and sync it; its time stays. A missing file is ignored. Raises OSError.

    Crash: old and new bytes are the same, so readers and a power cut find the content at any moment.
    """
    with suppress(FileNotFoundError):
        times = path.stat()
        # Delta reads the time of a commit from its file.
        keep_time = partial(os.utime, path, ns=(times.st_atime_ns, times.st_mtime_ns))
        # A commit of another program may belong to another user, who alone may set its time: it is only synced.
        with suppress(PermissionError):
            keep_time()
            with path.open("r+b", buffering=0) as file:
                position = 0
                while chunk := os.pread(file.fileno(), CHUNK_BYTES, position):
                    position += os.pwrite(file.fileno(), chunk, position)
        sync_written([path])
        with suppress(PermissionError):
            keep_time()
