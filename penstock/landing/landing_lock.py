"""Locks of a folder of tables: of the one process that lands, and of maintenance.

Invariant: one process lands into a folder of tables; one at a time replaces files. The kernel releases a lock when its
process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import PenstockError
from penstock.landing.table_paths import Layout

LOCK_WAIT_S = 60.0
"""Time to wait for another pipeline's end: the JVM of a killed one needs some seconds."""
POLL_INTERVAL_S = 0.2
LOCKS, MOUNTS = Path("/proc/locks"), Path("/proc/self/mountinfo")


class PipelineRunning(PenstockError, RuntimeError):
    """Another pipeline lands into these tables."""


def acquire_landing_lock(layout: Layout, stop: threading.Event, patience: float = LOCK_WAIT_S) -> int:
    """Return the open, locked lock file; keep it open. Raises PipelineRunning after ``patience`` seconds."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return _open_locked(layout.lock, wait=False)
        except BlockingIOError:
            if time.monotonic() >= deadline or stop.wait(POLL_INTERVAL_S):
                raise PipelineRunning(f"another pipeline lands into {layout.tables} (it holds {layout.lock})") from None


@contextmanager
def hold_upkeep_lock(layout: Layout) -> Iterator[None]:
    """Hold the lock under which files are replaced or rows removed; wait for it."""
    # Lock: delta-rs accepts the replacement of files that another process has replaced since.
    handle = _open_locked(layout.upkeep_lock, wait=True)
    try:
        yield
    finally:
        os.close(handle)


@contextmanager
def hold_proofs_lock(layout: Layout) -> Iterator[None]:
    """Hold the lock for the table of proofs, waiting for it: not that of upkeep, under which merges take minutes."""
    handle = _open_locked(layout.proofs_lock, wait=True)
    try:
        yield
    finally:
        os.close(handle)


@contextmanager
def hold_lock(path: Path, refusal: PenstockError) -> Iterator[None]:
    """Hold the lock on this file. Raises ``refusal`` at once if another process holds it."""
    try:
        handle = _open_locked(path, wait=False)
    except BlockingIOError:
        raise refusal from None
    try:
        yield
    finally:
        os.close(handle)


def is_running(layout: Layout) -> bool:
    """Report whether a process holds the landing's lock."""
    try:
        # Without O_CREAT: a question must not create files in a folder without a pipeline.
        handle = os.open(layout.lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(handle)


def landing_process(layout: Layout) -> int:
    """Return the id of the process that holds the landing's lock; 0 if there is none on this machine."""
    try:
        with open(layout.lock, "rb") as file:
            lock_id = _kernel_lock_id(file.fileno())
        locks = LOCKS.read_text()
    except OSError:
        return 0
    # A line is: number, FLOCK, ADVISORY, WRITE, process, device:inode, range.
    holders = (fields for line in locks.splitlines() if len(fields := line.split()) > 5 and fields[1] == "FLOCK")
    return next((int(fields[4]) for fields in holders if fields[5] == lock_id), 0)


def _kernel_lock_id(handle: int) -> str:
    """Return device and inode of an open file as LOCKS has them."""
    # Workaround: stat has another device for files of overlay and btrfs; the mount has that of the lock.
    fdinfo = Path(f"/proc/self/fdinfo/{handle}").read_text().splitlines()
    mount = next((line.split()[1] for line in fdinfo if line.startswith("mnt_id:")), "")
    mounts = (line.split() for line in MOUNTS.read_text().splitlines())
    major, _, minor = next((fields[2] for fields in mounts if fields[0] == mount), "0:0").partition(":")
    return f"{int(major):02x}:{int(minor):02x}:{os.fstat(handle).st_ino}"


def _open_locked(path: Path, wait: bool) -> int:
    """Return the open, locked file. Raises BlockingIOError if it is locked and ``wait`` is false."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o640)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(handle)
        raise
    return handle
