"""A child process by fork, which shares the code and data that its parent has loaded, or one known by its id alone."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Collection, Sequence
from typing import IO, Any, NoReturn

from setproctitle import setproctitle, setthreadtitle

from penstock.process.process_end import exit_status, flush_output

POLL_INTERVAL_S = 0.005
EXIT_SOFTWARE = 70
"""EX_SOFTWARE of sysexits.h: the child failed before its ``main``."""


def terminate(process: subprocess.Popen[bytes] | OwnChild) -> None:
    """Ask a process to end, also one that is stopped (SIGSTOP): it receives no SIGTERM until it continues.

    It then reads what waits for it. systemd continues the processes of a service in the same way.
    """
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)


class OwnChild:
    """A child of this process by its id; a program that replaced another one (exec) has the children of that one."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, or the signal as a negative number; None while the process runs."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                # SIGCHLD is ignored here (inherited from the parent), so the kernel discarded the status.
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            time.sleep(POLL_INTERVAL_S)
        return status

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process if it runs."""
        if self.poll() is None:  # once it was waited for, the pid may belong to another process
            os.kill(self.pid, number)


class Forked(OwnChild):
    """A child that runs ``main`` of ``module`` as ``python -m module *arguments`` would, its task on standard input.

    ``descriptors`` are inherited, all others are closed in the child; output goes to ``output`` if there is one. ``ps``
    lists it as ``module: title``. Only the main thread may create one, while no other Python thread runs. Raises
    OSError.

    A child that ``waits`` loads its module, then runs ``main`` after ``release``, or ends with its parent.

    For Penstock's own code: the child skips the interpreter's end, which would flush files that are still open.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        task: dict[str, Any],
        descriptors: Collection[int],
        output: IO[bytes] | None,
        title: str,
        *,
        waits: bool = False,
    ) -> None:
        flush_output()
        self._gate: socket.socket | None = None
        child_gate: socket.socket | None = None
        if waits:
            self._gate, child_gate = socket.socketpair()
        stdin = _task_file(task)
        # Order: blocked before the fork, so that no handler of the parent runs in the child before they are removed.
        signal_mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            with warnings.catch_warnings():
                # Python warns of threads; the only one is native and Arrow's, which restarts it after a fork.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if not pid:
                _run_child(module, arguments, (stdin, output), set(descriptors), title, signal_mask, child_gate)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, signal_mask)
            os.close(stdin)
            if child_gate:
                child_gate.close()
        super().__init__(pid)

    def wait_until_loaded(self, timeout_s: float) -> None:
        """Wait until a child that ``waits`` has loaded its module, or has ended, at most ``timeout_s``."""
        assert self._gate
        self._gate.settimeout(max(timeout_s, 0.001))
        with contextlib.suppress(OSError):
            self._gate.recv(1)

    def release(self) -> bool:
        """Let a child that ``waits`` run; return whether it is still there."""
        assert self._gate
        with self._gate, contextlib.suppress(OSError):
            self._gate.send(b"1")
            return self.poll() is None
        return False


def short_name(module: str) -> str:
    """Return the kernel's name of a process that was forked for ``module``, limited to 15 bytes."""
    return module.removeprefix("penstock.")[:15]


def _load_main(module: str, gate: socket.socket | None) -> Callable[[], None]:
    """Return ``main`` of a module, once the parent lets it run."""
    main: Callable[[], None] = importlib.import_module(module).main
    if gate:
        with gate:
            gate.send(b"1")
            if not gate.recv(1):  # the parent has ended
                sys.exit()
    return main


def _task_file(task: dict[str, Any]) -> int:
    file = os.memfd_create("penstock-task")
    with os.fdopen(os.dup(file), "wb") as writing:
        writing.write(json.dumps(task).encode())
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _run_child(
    module: str,
    arguments: Sequence[str],
    streams: tuple[int, IO[bytes] | None],
    inherited: set[int],
    title: str,
    mask: Collection[int],
    gate: socket.socket | None,
) -> NoReturn:
    """Run the child, and never return into the parent's code."""
    status = EXIT_SOFTWARE
    try:
        _detach_from_parent(streams, inherited | ({gate.fileno()} if gate else set()))
        setproctitle(f"{module}: {title}")
        # Order: after the title, which replaces the short name where it has room. It identifies holders of locks.
        setthreadtitle(short_name(module))
        sys.argv = [module, *arguments]
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        status = _run_main(module, gate)
    except BaseException:  # noqa: BLE001 - the last frame of this process
        traceback.print_exc()
    finally:
        # Skips the interpreter's end: native threads do not survive it, see process_end.
        os._exit(status)


def _detach_from_parent(streams: tuple[int, IO[bytes] | None], inherited: set[int]) -> None:
    """Drop the parent's signal handlers, files and exit functions."""
    # Workaround: CPython 3.11 to 3.13 have no public way to drop exit functions or to wait for threads
    # (`threading._shutdown`).
    atexit._clear()
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            # Ctrl-C in a terminal reaches the parent too, which stops its children.
            signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else signal.SIG_DFL)
    stdin, output = streams
    os.dup2(stdin, 0)
    if output is not None:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor not in inherited:
            with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed already
                os.close(descriptor)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - open until the process ends


def _run_main(module: str, gate: socket.socket | None) -> int:
    """Run ``main`` to its end, including the steps of a normal Python exit."""
    status = exit_status(lambda: _load_main(module, gate)())
    # Order as in CPython: threads first, because exit functions may stop what threads still use.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    flush_output()
    return status
