"""Faults inside a process: failing system calls and a wall clock that jumps, switched by a small file.

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
CHECK_INTERVAL_S = 0.05
"""Interval between two checks of the file."""


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of a process: ``full`` fails writes, ``failing`` fails syncs, ``clock`` shifts the clock by
    seconds.
    """

    full: bool = False
    failing: bool = False
    clock: float = 0.0

    def write(self, path: Path) -> None:
        """Put these faults into force in the processes that watch ``path``; they never read a partial file."""
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(asdict(self)))
        draft.replace(path)


class Watched:
    """The faults in force, read again when their file changes; they affect files below ``folder`` only."""

    def __init__(self, path: Path, folder: Path) -> None:
        self._path, self._folder = path, f"{folder}/"
        self._next_check_s, self._stamp = 0.0, -1
        self._now = Faults()

    def now(self) -> Faults:
        """Return the faults in force."""
        if (moment := time.monotonic()) >= self._next_check_s:
            self._next_check_s = moment + CHECK_INTERVAL_S
            self._read()
        return self._now

    def _read(self) -> None:
        try:
            stamp = os.stat(self._path).st_mtime_ns
            # The time of change is cheaper than the content: a process may sync thousands of times a second.
            if stamp != self._stamp:
                self._now = Faults(**json.loads(self._path.read_text()))
                self._stamp = stamp
        except OSError:
            # A missing file switches all faults off.
            self._now = Faults()

    def hits(self, file: int) -> bool:
        """Report whether an open file is below ``folder``."""
        return os.readlink(f"/proc/self/fd/{file}").startswith(self._folder)


def install(path: Path) -> None:
    """Apply the faults in the file ``path`` to this process; they affect the data directory next to the file."""
    watched = Watched(path, path.parent / "data")
    for name in WRITES:
        setattr(os, name, _failing(getattr(os, name), watched, "full", errno.ENOSPC))
    for name in SYNCS:
        setattr(os, name, _failing(getattr(os, name), watched, "failing", errno.EIO))
    # Time-outs use `time.monotonic`, which stays correct: only the wall clock jumps.
    seconds, nanoseconds = time.time, time.time_ns
    time.time = lambda: seconds() + watched.now().clock
    time.time_ns = lambda: nanoseconds() + int(watched.now().clock * 1e9)


def _failing(call: Callable[..., Any], watched: Watched, fault: str, code: int) -> Callable[..., Any]:
    def wrapped(file: int, *arguments: Any) -> Any:
        # Order: the switch first; resolving the descriptor's path is a system call of its own.
        if getattr(watched.now(), fault) and watched.hits(file):
            raise OSError(code, os.strerror(code))
        return call(file, *arguments)

    return wrapped
