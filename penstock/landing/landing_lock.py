"""Locks of a folder of tables: of the one process that lands into it, and of others that have to be alone."""

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
"""Seconds to wait for another pipeline's end; a killed one's JVM needs a few."""
POLL_INTERVAL_S = 0.2


class PipelineRunning(PenstockError, RuntimeError):
    """Another pipeline lands into these tables."""


def acquire_landing_lock(layout: Layout, stop: threading.Event, patience: float = LOCK_WAIT_S) -> int:
    """The open lock file of the landing, locked; to be kept open. Raises PipelineRunning after ``patience`` seconds."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return _locked(layout.lock, wait=False)
        except BlockingIOError:
            if time.monotonic() >= deadline or stop.wait(POLL_INTERVAL_S):
                raise PipelineRunning(f"another pipeline lands into {layout.tables} (it holds {layout.lock})") from None


@contextmanager
def hold_upkeep_lock(layout: Layout) -> Iterator[None]:
    """Nobody else merges files or takes rows out meanwhile: who does is waited for.

    delta-rs does not mind if files are replaced that another one has replaced since.
    """
    handle = _locked(layout.upkeep_lock, wait=True)
    try:
        yield
    finally:
        os.close(handle)


@contextmanager
def hold_lock(path: Path, refusal: PenstockError) -> Iterator[None]:
    """Nobody else has this file locked meanwhile; raises ``refusal`` at once where somebody has."""
    try:
        handle = _locked(path, wait=False)
    except BlockingIOError:
        raise refusal from None
    try:
        yield
    finally:
        os.close(handle)


def is_running(layout: Layout) -> bool:
    """Whether somebody holds the landing's lock."""
    try:
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


def _locked(path: Path, wait: bool) -> int:
    """The open file, locked. Raises BlockingIOError where somebody else has it and is not to be waited for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o640)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(handle)
        raise
    return handle
