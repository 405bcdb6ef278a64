"""The change log: who changed what, when and from where, as JSON lines that several processes append to.

Invariant: lines are only ever appended. At its size limit the file is renamed, and the oldest renamed file goes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import getpass
import itertools
import json
import logging
import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.files.file_system import create_like
from penstock.files.json_values import parse_object

FILE_NAME, LOCK_NAME = "changes.jsonl", "changes.lock"
MAX_FILE_BYTES = 4 << 20
FIELDS = ("at", "who", "what", "from")
"""Fields that each line has."""
OLD_FILES = 4
"""Limit: with the newest file, 20 MiB, which are about 100,000 changes."""
MAX_FIELD_CHARS = 1_000
DEFAULT_LIMIT, MAX_LIMIT = 100, 10_000
_LOGGER = logging.getLogger(__name__)


class ChangeLog:
    """The change log of a data directory. Threads and processes share it; each call opens the file."""

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir

    def record(self, person: str, change: str, origin: str, **details: str) -> None:
        """Append a change that was made; a failure is logged, because the change can no longer be undone.

        ``origin``: the address or program that it came from. ``details`` are further fields of the line.
        """
        texts = {"who": person, "what": change, "from": origin, **details}
        # Limit: a name or note from outside must not fill the file.
        line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds")} | {
            name: text[:MAX_FIELD_CHARS] for name, text in texts.items()
        }
        try:
            self._append(json.dumps(line).encode() + b"\n")
        except OSError as error:
            _LOGGER.error("change log: cannot record %r of %r: %s", change, person, error)

    def _append(self, line: bytes) -> None:
        with open(_open_or_create(self._folder / LOCK_NAME), "r+b", buffering=0) as lock:
            # Lock: another process must not rename the file between the test of its size and the write.
            fcntl.flock(lock, fcntl.LOCK_EX)
            path = self._path(0)
            if path.exists() and path.stat().st_size + len(line) > MAX_FILE_BYTES:
                for number in range(OLD_FILES, 0, -1):
                    if (newer := self._path(number - 1)).exists():
                        newer.replace(self._path(number))
            with open(_open_or_create(path), "r+b", buffering=0) as file:
                # Crash: a line that was cut off ends here, so that only it is lost and not the next one too.
                size = file.seek(0, os.SEEK_END)
                is_cut = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
                text = b"\n" * is_cut + line
                # A full disk ends an unbuffered write early, without an error.
                if file.write(text) < len(text):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())

    def newest(self, limit: int = DEFAULT_LIMIT) -> list[dict[str, Any]]:
        """Return the newest changes, newest first. Raises OSError."""
        return list(itertools.islice(self._newest_first(), limit))

    def _newest_first(self) -> Iterator[dict[str, Any]]:
        for number in range(OLD_FILES + 1):
            try:
                lines = self._path(number).read_bytes().splitlines()
            except FileNotFoundError:
                continue
            for line in reversed(lines):
                try:
                    change = parse_object(line)
                except ValueError:  # cut off by a crash, or damaged
                    continue
                if all(isinstance(change.get(name), str) for name in FIELDS):
                    yield change

    def _path(self, number: int) -> Path:
        """Return the path of the newest file (0) or of an older one."""
        return self._folder / (f"{FILE_NAME}.{number}" if number else FILE_NAME)


def _open_or_create(path: Path) -> int:
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    with contextlib.suppress(FileExistsError):
        return create_like(path, path.parent, flags)
    return os.open(path, flags)


def local_user() -> tuple[str, str]:
    """Return the account that runs this command, and the machine as the origin of its changes."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # an account without a name, as in containers
        name = str(os.getuid())
    return name, f"command line on {socket.gethostname()}"


def record_command(data_dir: Path, change: str, **details: str) -> None:
    """Record a change that a command made; one on another machine than the data directory has no log to write."""
    person, origin = local_user()
    if data_dir.is_dir():
        ChangeLog(data_dir).record(person, change, origin, **details)
