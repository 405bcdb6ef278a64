"""Processes as Linux shows them: state, use of processor and memory, and descendants; and a stopped process."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.process.kernel import descendants, has_stopped, stat_fields

POLL_INTERVAL_S = 0.001


def alive(pid: int) -> bool:
    """Report whether a process runs; a zombie does not."""
    try:
        return stat_fields(Path(f"/proc/{pid}"))[0] != "Z"
    except OSError:
        return False


def cpu(pid: int) -> float:
    """Return the CPU seconds of a process so far."""
    fields = stat_fields(Path(f"/proc/{pid}"))
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_of_all(pid: int) -> float:
    """Return the CPU seconds so far of a process and its running descendants."""
    return sum(cpu(process) for process in [pid, *descendants(pid)])


def anonymous(pid: int) -> int:
    """Return the bytes of a process that belong to no file; mapped files, such as the log buffer, are excluded.

    Shared memory counts in proportion, so that the sum over processes is their total.
    """
    return _smaps_total(pid, "Pss_Anon:")


def resident(pid: int) -> int:
    """Return the bytes of a process in memory, including mapped files; shared memory counts in proportion."""
    return _smaps_total(pid, "Pss:")


def memory_of_all(pid: int, kind: Callable[[int], int]) -> int:
    """Return the bytes, ``resident`` or ``anonymous``, of a process and its running descendants."""
    return sum(kind(process) for process in [pid, *descendants(pid)])


def _smaps_total(pid: int, name: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except ProcessLookupError:  # a zombie has no memory map
        return 0
    return 1024 * next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process (SIGSTOP) during the block. Raises ProcessLookupError if there is none.

    The block starts when all threads have stopped: the signal returns earlier, and on a busy machine threads continue.
    """
    os.kill(pid, signal.SIGSTOP)
    try:
        while not has_stopped(pid):
            time.sleep(POLL_INTERVAL_S)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
