"""Requests of a process to the Linux kernel: the boot id, the limit of open files, and death with its parent."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from penstock.process.reporting import is_reported_attempt

PROCESSES = Path("/proc")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MAPPED = "::ffff:"
_LOGGER = logging.getLogger(__name__)
PR_SET_PDEATHSIG = 1
"""An option of prctl(2), from linux/prctl.h."""


def boot_id() -> str:
    """Return an id that changes with each start of the machine; empty when the kernel has none."""
    return BOOT_ID.read_text().strip() if BOOT_ID.exists() else ""


def open_files() -> Iterator[tuple[int, str]]:
    """Yield process id and target of each open file of all processes that this user may see, as /proc/PID/fd has it."""
    for process in PROCESSES.iterdir():
        # Processes of other users, and processes and files that end in this moment, are left out.
        with contextlib.suppress(OSError):
            for descriptor in (process / "fd").iterdir() if process.name.isdigit() else ():
                with contextlib.suppress(OSError):
                    yield int(process.name), os.readlink(descriptor)


def stat_fields(folder: Path) -> list[str]:
    """Return the fields of a process's or thread's ``stat`` from the state on. Raises OSError."""
    # The name of a program may contain spaces and brackets, so the fields start after the last bracket.
    return (folder / "stat").read_text().rpartition(")")[2].split()


def descendants(pid: int) -> list[int]:
    """Return the children of all threads of a process, and their descendants."""
    children: list[int] = []
    with contextlib.suppress(OSError):
        # The kernel lists children per thread, and only those of the thread that forked them.
        for thread in (PROCESSES / str(pid) / "task").iterdir():
            with contextlib.suppress(OSError):
                children += [int(child) for child in (thread / "children").read_text().split()]
    return children + [below for child in children for below in descendants(child)]


def has_stopped(pid: int) -> bool:
    """Report whether all threads of a process have stopped or ended: SIGSTOP returns earlier."""
    with contextlib.suppress(OSError):
        return all(_is_stopped(thread) for thread in (PROCESSES / str(pid) / "task").iterdir())
    return True


def _is_stopped(thread: Path) -> bool:
    with contextlib.suppress(OSError):
        return stat_fields(thread)[0] in "TtZX"
    return True


def plain_address(address: str) -> str:
    """Return an address as its sender has it: a dual-stack socket reports 192.0.2.1 as ``::ffff:192.0.2.1``."""
    return address.removeprefix(_MAPPED) if "." in address else address


def raise_file_limit() -> int:
    """Raise the limit of open files to the hard limit, for this process and its children; return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # Sockets, eventfds and mapped files count too; the usual soft limit of 1,024 ends at a thousand connections.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def limit_connections(configured: int, allowed: int, key: str) -> int:
    """Return how many connections a server may take: ``configured``, or ``allowed`` by the limit of open files.

    A warning names the ``key`` of the configuration.
    """
    allowed = max(allowed, 1)
    if allowed < configured and is_reported_attempt():
        _LOGGER.warning("%s is %d, but RLIMIT_NOFILE allows only %d", key, configured, allowed)
    return min(configured, allowed)


def file_shortage(error: BaseException) -> str:
    """Return a text for clients if ``error`` says that no file descriptor is free; empty for other errors."""
    if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
        return ""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return f"no file descriptor is free: RLIMIT_NOFILE (ulimit -n, LimitNOFILE) is {limit}; try again"


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Block SIGINT in this thread; a program that is started in the block has it blocked from its first instruction.

    Ctrl-C in a terminal reaches all processes, and a Python that still loads its code would end with a traceback.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies; the parent's pid is the first command line argument.

    The process ignores SIGINT and SIGHUP from here on: its parent stops it.

    A successor continues from this process's files, so SIGKILL loses nothing.
    """
    # Ctrl-C in a terminal, and closing it, concern the parent: it decides about its children.
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    # Order: after the handler, which discards a pending signal; see `interrupts_held`.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "prctl"):
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # Order: the request before the test. A parent that died before the request sends no signal.
    if os.getppid() != int(sys.argv[1]):
        raise SystemExit("the process that started this one is gone")
