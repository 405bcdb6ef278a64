"""The way from a supervisor to its successor: the same process with its program loaded again (exec).

What a successor inherits: the lock of the data directory, the listeners' sockets, and running children. The kernel
ties children to the thread that started them, and that thread stays, so receivers go on receiving while the successor
loads. Crash: a successor that fails ends its children with it, like any supervisor that dies; a rehearsal in a process
of its own finds the usual reasons before.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

from penstock.config import ConfigError
from penstock.process.forked import OwnChild

VARIABLE = "PENSTOCK_SUCCESSION"
"""Environment variable with what a successor inherits, as JSON; ``REHEARSAL`` in a rehearsal."""
REHEARSAL = "rehearsal"
REHEARSAL_TIMEOUT_S = 120.0
POLL_INTERVAL_S = 0.05
REQUESTS = (signal.SIGHUP, signal.SIGUSR2)
"""Signals that are delivered to the successor if they arrive while it loads."""


@dataclass(frozen=True, slots=True)
class Program:
    """A command that runs this process's program again. ``task``: its standard input, if it reads one."""

    command: Sequence[str]
    task: Mapping[str, Any] | None = None

    @classmethod
    def of_command_line(cls) -> Program:
        """Return this process's own command line."""
        # The first word may be relative to PATH, which would select another Python.
        return cls([sys.executable, *sys.orig_argv[1:]])

    @classmethod
    def of_child(cls, module: str, task: Mapping[str, Any]) -> Program:
        """Return the command of a child that runs ``main`` of ``module``; its argument is its parent's process id."""
        return cls([sys.executable, "-m", module, str(os.getppid())], task)

    def rehearse(self, tick: Callable[[], None]) -> None:
        """Run the program in a process of its own until it has checked everything, calling ``tick``.

        Raises ConfigError with the reason if it refuses.
        """
        # A child tests whether its argument is its parent; the parent of the rehearsal is this process.
        command = [*self.command[:-1], str(os.getpid())] if self.task is not None else self.command
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, VARIABLE: REHEARSAL},
            text=True,
        ) as process:
            errors, deadline = "", time.monotonic() + REHEARSAL_TIMEOUT_S
            text = json.dumps(self.task) if self.task is not None else ""
            while True:
                try:
                    _, errors = process.communicate(text, POLL_INTERVAL_S)
                    break
                except subprocess.TimeoutExpired:
                    text = ""  # communicate has sent it already
                    tick()
                    if time.monotonic() > deadline:
                        process.kill()
        if process.returncode:
            reason = errors.strip() or f"its rehearsal ended with status {process.returncode}"
            raise ConfigError(reason.removeprefix("penstock: "))

    def replace_process(self, inheritance: Inheritance) -> NoReturn:
        """Become the successor. Raises OSError, and then nothing has changed."""
        for descriptor in (inheritance.lock, *inheritance.sockets.values()):
            if descriptor >= 0:
                os.set_inheritable(descriptor, True)
        sys.stdout.flush()
        sys.stderr.flush()
        # Order: blocked until the successor has handlers; a signal without a handler would end it.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, REQUESTS)
        try:
            if self.task is not None:
                file = os.memfd_create("penstock-task", 0)
                os.write(file, json.dumps(self.task).encode())
                os.lseek(file, 0, os.SEEK_SET)
                os.dup2(file, 0)
            environment = {**os.environ, VARIABLE: json.dumps(asdict(inheritance))}
            os.execve(self.command[0], list(self.command), environment)  # noqa: S606 - this process's own command
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@dataclass(frozen=True, slots=True)
class Inheritance:
    """Inheritance of a successor: descriptors of the lock (-1: none) and of sockets by listener, children by name.

    ``buffer``: settings of the log buffers that the children use. ``began``: monotonic time of the request, in
    nanoseconds. ``may_hang_up``: a closing terminal ends the process.
    """

    pids: Mapping[str, int]
    began: int
    may_hang_up: bool
    lock: int = -1
    sockets: Mapping[str, int] = field(default_factory=dict)
    buffer: Mapping[str, Any] = field(default_factory=dict)

    def end_children(self, names: Sequence[str], shutdown_time_s: float) -> None:
        """End children by name, and kill children that run on after ``shutdown_time_s``."""
        children = [OwnChild(self.pids[name]) for name in names]
        deadline = time.monotonic() + shutdown_time_s
        for child in children:
            child.terminate()
        for child in children:
            try:
                child.wait(max(deadline - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def is_rehearsal() -> bool:
    """Report whether this process only checks whether it could start."""
    return os.environ.get(VARIABLE) == REHEARSAL


def take_inheritance() -> Inheritance | None:
    """Return the inheritance of this process, once; None if it has no predecessor."""
    if is_rehearsal() or (text := os.environ.pop(VARIABLE, "")) == "":
        return None
    inheritance = Inheritance(**json.loads(text))
    for descriptor in (inheritance.lock, *inheritance.sockets.values()):
        if descriptor >= 0:
            os.set_inheritable(descriptor, False)
    return inheritance


def accept_requests() -> None:
    """Let pending and later requests by signal through, once this process has handlers for them."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, REQUESTS)
