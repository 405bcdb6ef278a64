"""Faults inside of a process: system calls that fail and a wall clock that jumps, switched by a small file.

``injected/sitecustomize.py`` installs them in every process whose environment names that file. Imports nothing but the
standard library: it runs before anything else.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

VARIABLE = "DRILL_FAULTS"
"""The environment variable that names the file; not PENSTOCK_..., which would be a setting."""
WRITES = ("pwrite", "pwritev", "posix_fallocate")
SYNCS = ("fsync", "fdatasync")
LOOK_EVERY = 0.05
"""Seconds after which the file is looked at again."""


@dataclass(frozen=True, slots=True)
class Faults:
    """What fails: writes with ``full`` disk, syncs with ``failing``, and by how many seconds the ``clock`` is off."""

    full: bool = False
    failing: bool = False
    clock: float = 0.0

    def encode(self) -> bytes:
        """The file's bytes; whoever writes them replaces the file, so that nobody reads half of it."""
        return json.dumps(asdict(self)).encode()


class Watched:
    """The faults in force, read again when the file has changed; files below ``folder`` alone are hit."""

    def __init__(self, path: Path, folder: Path) -> None:
        self._path, self._folder = path, f"{folder}/"
        self._look_at, self._stamp = 0.0, -1
        self._now = Faults()

    def now(self) -> Faults:
        """The faults in force."""
        if (moment := time.monotonic()) >= self._look_at:
            self._look_at = moment + LOOK_EVERY
            self._read()
        return self._now

    def _read(self) -> None:
        try:
            stamp = os.stat(self._path).st_mtime_ns
            if stamp != self._stamp:
                self._now = Faults(**json.loads(self._path.read_text()))
                self._stamp = stamp
        except OSError:
            self._now = Faults()

    def hits(self, file: int) -> bool:
        """Whether an open file is one of those that fail."""
        return os.readlink(f"/proc/self/fd/{file}").startswith(self._folder)


def install(path: Path) -> None:
    """Have this process obey the file; what it hits lies beside it, in the data directory."""
    watched = Watched(path, path.parent / "data")
    for name in WRITES:
        setattr(os, name, _failing(getattr(os, name), watched, "full", errno.ENOSPC))
    for name in SYNCS:
        setattr(os, name, _failing(getattr(os, name), watched, "failing", errno.EIO))
    seconds, nanoseconds = time.time, time.time_ns
    time.time = lambda: seconds() + watched.now().clock
    time.time_ns = lambda: nanoseconds() + int(watched.now().clock * 1e9)


def _failing(call: Callable[..., Any], watched: Watched, fault: str, code: int) -> Callable[..., Any]:
    def wrapped(file: int, *arguments: Any) -> Any:
        if getattr(watched.now(), fault) and watched.hits(file):
            raise OSError(code, os.strerror(code))
        return call(file, *arguments)

    return wrapped
