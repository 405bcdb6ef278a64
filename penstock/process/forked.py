"""A process by fork: it shares what its parent has loaded, where one that is started anew would load it again."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Collection, Sequence
from typing import IO, Any, NoReturn

from setproctitle import setproctitle, setthreadtitle

from penstock.process.process_end import exit_status, flush_output

LOOK_EVERY = 0.005
CRASHED = 70
"""The status of a child that could not even begin (EX_SOFTWARE of sysexits.h)."""


class Forked:
    """A child that runs ``main`` of ``module``, as ``python -m module *arguments`` would, its task on standard input.

    ``descriptors`` are handed down, all others are closed there; what it prints goes to ``output`` where given. It is
    listed as ``module: title``. Call this from the main thread, where no other one of Python's runs. Raises OSError.

    For Penstock's own code: it ends without the interpreter's end, which writes what open files still hold.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        task: dict[str, Any],
        descriptors: Collection[int],
        output: IO[bytes] | None,
        title: str,
    ) -> None:
        self.returncode: int | None = None
        flush_output()
        stdin = _written(task)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # its parent's handlers get none
        try:
            with warnings.catch_warnings():
                # Arrow has a thread of its own, which comes through it.
                warnings.simplefilter("ignore", DeprecationWarning)
                self.pid = os.fork()
            if not self.pid:
                _run(module, arguments, (stdin, output), set(descriptors), title, before)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(stdin)

    def poll(self) -> int | None:
        """How it has ended: its status, or the signal as a negative number; None while it runs."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # who started this process ignores SIGCHLD: nobody knows how it ended
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired."""
        until = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if until is not None and time.monotonic() >= until:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            time.sleep(LOOK_EVERY)
        return status

    def terminate(self) -> None:
        """Ask it to end."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.poll() is None:  # else its id may be another's by now
            os.kill(self.pid, number)


def short_name(module: str) -> str:
    """How the kernel calls a process that was forked for ``module``: it has 15 bytes for it."""
    return module.removeprefix("penstock.")[:15]


def _written(task: dict[str, Any]) -> int:
    file = os.memfd_create("penstock-task")
    with os.fdopen(os.dup(file), "wb") as writing:
        writing.write(json.dumps(task).encode())
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _run(
    module: str,
    arguments: Sequence[str],
    streams: tuple[int, IO[bytes] | None],
    kept: set[int],
    title: str,
    mask: Collection[int],
) -> NoReturn:
    """Be the child, and never come back to what the parent was doing."""
    status = CRASHED
    try:
        _forget_the_parent(streams, kept)
        setthreadtitle(short_name(module))  # there is always room for it
        setproctitle(f"{module}: {title}")
        sys.argv = [module, *arguments]
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        status = _status_of(module)
    except BaseException:  # noqa: BLE001 - there is nobody else to tell
        traceback.print_exc()
    finally:
        os._exit(status)


def _forget_the_parent(streams: tuple[int, IO[bytes] | None], kept: set[int]) -> None:
    """Its signals, files, and what it wants to do at its end."""
    atexit._clear()
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    stdin, output = streams
    os.dup2(stdin, 0)
    if output is not None:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor not in kept:
            with contextlib.suppress(OSError):  # the one by which they were listed is gone already
                os.close(descriptor)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - the process's own, to its end


def _status_of(module: str) -> int:
    """Run it to its end, with all that a Python process does then."""
    status = exit_status(lambda: importlib.import_module(module).main())
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as at the end of any process
    atexit._run_exitfuncs()
    flush_output()
    return status
