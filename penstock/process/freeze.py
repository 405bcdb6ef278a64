"""Stops all processes that have files open below some folders, so that a copy of the files shows one moment.

Crash: a guard, a process of its own, lets the processes continue when this process dies or takes too long.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.errors import PenstockError
from penstock.process.kernel import PROCESSES, descendants, has_stopped, open_files

POLL_INTERVAL_S = 0.001
GUARD = """
import os, select, signal, sys
sys.stdout.write("ready"); sys.stdout.flush()
select.select([0], [], [], float(sys.argv[1]))
for pid in map(int, sys.argv[2:]):
    try:
        os.kill(pid, signal.SIGCONT)
    except OSError:
        pass
"""
"""Program of the guard: waits for the end of its standard input, which ends with this process, or for its time."""


class FreezeTooLong(PenstockError, TimeoutError):
    """The processes continued before the block ended."""


@contextlib.contextmanager
def freeze_users(folders: Sequence[Path], limit_s: float) -> Iterator[list[int]]:
    """Stop all processes with files open in ``folders``, and their children, during the block; yield their ids.

    Raises FreezeTooLong if the block takes more than ``limit_s``, and PermissionError for processes of other users.
    """
    pids = _users_of(folders)
    guard = subprocess.Popen(
        [sys.executable, "-c", GUARD, str(limit_s), *map(str, pids)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert guard.stdin
    assert guard.stdout
    began = time.monotonic()
    try:
        # Order: no process is stopped before the guard runs.
        guard.stdout.read(5)
        began = time.monotonic()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        # The signal returns earlier than the threads stop.
        while not all(has_stopped(pid) for pid in pids) and time.monotonic() - began < limit_s:
            time.sleep(POLL_INTERVAL_S)
        yield pids
        took_s = time.monotonic() - began
    finally:
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)
        guard.stdin.close()
        guard.wait()
        guard.stdout.close()
    if took_s >= limit_s:
        raise FreezeTooLong(
            f"copying what had changed took {took_s:.1f} s; the processes continued after {limit_s:g} s"
        )


def _users_of(folders: Sequence[Path]) -> list[int]:
    """Return the processes with files open in ``folders``, and their descendants, parents first."""
    prefixes = tuple(f"{folder.resolve()}/" for folder in folders)
    users = {pid for pid, target in open_files() if target.startswith(prefixes)} | _mapping_users(prefixes)
    return sorted((users | {below for pid in users for below in descendants(pid)}) - {os.getpid()})


def _mapping_users(prefixes: tuple[str, ...]) -> set[int]:
    """Return the processes that have mapped files; a mapped file may be closed."""
    users = set()
    for process in PROCESSES.iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and any(
                line.partition("/")[1] and f"/{line.partition('/')[2]}".startswith(prefixes)
                for line in (process / "maps").read_text(errors="replace").splitlines()
            ):
                users.add(int(process.name))
    return users
