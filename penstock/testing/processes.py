"""Processes as Linux shows them: whether one runs, what it uses, those it started; and one that stands still."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

LOOK_EVERY = 0.001


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return _stat(Path(f"/proc/{pid}"))[0] != "Z"
    except OSError:
        return False


def cpu(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = _stat(Path(f"/proc/{pid}"))
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_of_all(pid: int) -> float:
    """CPU seconds so far of a process and those that it started and that still run."""
    return sum(cpu(one) for one in [pid, *descendants(pid)])


def anonymous(pid: int) -> int:
    """Bytes of a process that are no file's: what it maps of files, the log buffer above all, is left out.

    What several processes share counts as a part in each, so that the sum is what they take together.
    """
    return _rolled_up(pid, "Pss_Anon:")


def resident(pid: int) -> int:
    """Bytes of a process that are in memory, with what it maps of files; shared ones as for ``anonymous``."""
    return _rolled_up(pid, "Pss:")


def memory_of_all(pid: int, kind: Callable[[int], int]) -> int:
    """Bytes, ``resident`` or ``anonymous``, of a process and those that it started and that still run."""
    return sum(kind(one) for one in [pid, *descendants(pid)])


def _rolled_up(pid: int, name: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except ProcessLookupError:  # it has ended, and was not waited for
        return 0
    return 1024 * next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)


def descendants(pid: int) -> list[int]:
    """The processes that a process started, from any of its threads, and those that they did."""
    children: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                children += [int(child) for child in (thread / "children").read_text().split()]
    return children + [below for child in children for below in descendants(child)]


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Meanwhile a process is stopped (SIGSTOP). Raises ProcessLookupError where there is none.

    The signal returns before it has worked: where other processes want the processor too, threads run on for a while.
    """
    os.kill(pid, signal.SIGSTOP)
    try:
        while not _stands_still(pid):
            time.sleep(LOOK_EVERY)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _stands_still(pid: int) -> bool:
    """Whether all threads are stopped, or have ended."""
    with contextlib.suppress(OSError):
        return all(_has_stopped(thread) for thread in Path(f"/proc/{pid}/task").iterdir())
    return True


def _has_stopped(thread: Path) -> bool:
    with contextlib.suppress(OSError):
        return _stat(thread)[0] in "TtZX"
    return True


def _stat(folder: Path) -> list[str]:
    """Fields of a process's or thread's ``stat`` from the state on."""
    return (folder / "stat").read_text().rpartition(")")[2].split()
