"""The way from a supervisor to its successor: the same process with its program loaded again (exec).

What a successor inherits: the lock of the data directory, the listeners' sockets, and running children. The kernel
ties children to the thread that started them, and that thread stays, so receivers go on receiving while the successor
loads. Crash: a successor that fails ends its children with it, like any supervisor that dies; a rehearsal in a process
of its own finds the usual reasons before.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NoReturn

from penstock.config import ConfigError
from penstock.files.file_system import OS, replace_durably
from penstock.files.json_values import parse_object
from penstock.process.forked import OwnChild, terminate
from penstock.process.kernel import interrupts_held
from penstock.process.module_search import module_command
from penstock.supervise.installation import NEXT_STEP, Installation

VARIABLE = "PENSTOCK_SUCCESSION"
"""Environment variable with what a successor inherits, as JSON; ``REHEARSAL`` in a rehearsal."""
REHEARSAL = "rehearsal"
REHEARSAL_TIMEOUT_S = 120.0
INFORMATIVE = ("replaced", "serve_is_replaced")
"""Fields of an inheritance without which a successor of another version works."""
STEP = "restart-step"
"""Name of the file with the last step of a restart, in the data directory."""
TRACEBACK = "Traceback (most recent call last)"
POLL_INTERVAL_S = 0.05
REQUESTS = (signal.SIGHUP, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)
"""Signals that are delivered to the successor if they arrive while it loads."""
STOPPING = "penstock is being stopped"


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
        return cls(module_command(module, str(os.getppid())), task)

    def run_by(self, installation: Installation) -> Program:
        """Return this program as another installation runs it."""
        _, *words = self.command
        for index, word in enumerate(words):
            # The script that pip has installed: the other installation has one of the same name next to its Python.
            script = Path(installation.executable).with_name(Path(word).name)
            if word == sys.argv[0] and script.is_file():
                words[index] = str(script)
        return replace(self, command=[installation.executable, *words])

    def rehearse_succession(self, tick: Callable[[], None], expected: Installation | None) -> None:
        """Rehearse, and check that the program takes over what this process hands over.

        Raises ConfigError if it refuses, or is of another installation than ``expected``.
        """
        package, inherited = _read_report(self.rehearse(tick))
        if expected and package != expected.package:
            other = f"loads {package} here, as by PYTHONPATH" if package else "does not report what it loads"
            raise ConfigError(f"{self.command[0]} {other}, not {expected.package}: {NEXT_STEP}")
        if not inherited >= {entry.name for entry in fields(Inheritance)} - {*INFORMATIVE}:
            # Versions up to 0.2.0 end with an error, and all running processes with them.
            raise ConfigError(
                f"{self.command[0]} runs a version that cannot take over the running processes: {NEXT_STEP}"
            )

    def rehearse(self, tick: Callable[[], None]) -> str:
        """Run the program in a process of its own until it has checked everything, calling ``tick``.

        Returns its output. Raises ConfigError with the reason if it refuses, and the ConfigError of ``tick``.
        """
        # A child tests whether its argument is its parent; the parent of the rehearsal is this process.
        command = [*self.command[:-1], str(os.getpid())] if self.task is not None else self.command
        with interrupts_held():
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, VARIABLE: REHEARSAL},
                text=True,
            )
        with process:
            output, errors, deadline, is_late = "", "", time.monotonic() + REHEARSAL_TIMEOUT_S, False
            text = json.dumps(self.task) if self.task is not None else ""
            while True:
                try:
                    output, errors = process.communicate(text, POLL_INTERVAL_S)
                    break
                except subprocess.TimeoutExpired:
                    text = ""  # communicate has sent it already
                    try:
                        tick()
                    except ConfigError:
                        process.kill()
                        raise
                    if time.monotonic() > deadline:
                        is_late = True
                        process.kill()
        if is_late:
            raise ConfigError(f"{self.command[0]} has not finished its trial within {REHEARSAL_TIMEOUT_S:g} s")
        if process.returncode:
            reason = errors.strip() or f"its rehearsal ended with status {process.returncode}"
            if TRACEBACK in reason:  # a broken installation: of a traceback, only the last line has the reason
                reason = f"{self.command[0]} does not start: {reason.splitlines()[-1]}"
            raise ConfigError(reason.removeprefix("penstock: "))
        return output

    def replace_process(self, inheritance: Inheritance, is_stopping: Callable[[], bool]) -> NoReturn:
        """Become the successor. Raises OSError, or ConfigError if ``is_stopping``, and then nothing has changed."""
        for descriptor in (inheritance.lock, *inheritance.sockets.values()):
            if descriptor >= 0:
                os.set_inheritable(descriptor, True)
        sys.stdout.flush()
        sys.stderr.flush()
        # Order: blocked until the successor has handlers; a signal without a handler would end it.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, REQUESTS)
        try:
            # Order: after the block, so that the successor receives each request to stop that is not seen here.
            if is_stopping():
                raise ConfigError(STOPPING)
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
    nanoseconds. ``may_hang_up``: a closing terminal ends the process. ``replaced``: the predecessor's installation.
    ``serve_is_replaced``: the child ``serve`` of ``penstock up`` runs the new program already.
    """

    pids: Mapping[str, int]
    began: int
    may_hang_up: bool
    lock: int = -1
    sockets: Mapping[str, int] = field(default_factory=dict)
    buffer: Mapping[str, Any] = field(default_factory=dict)
    replaced: str = field(default_factory=lambda: Installation.current().text)
    serve_is_replaced: bool = False

    def end_children(self, names: Sequence[str], shutdown_time_s: float) -> None:
        """End children by name, and kill children that run on after ``shutdown_time_s``."""
        children = [OwnChild(self.pids[name]) for name in names]
        deadline = time.monotonic() + shutdown_time_s
        for child in children:
            terminate(child)
        for child in children:
            try:
                child.wait(max(deadline - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def unless_stopping(tick: Callable[[], None], is_stopping: Callable[[], bool]) -> Callable[[], None]:
    """Return ``tick`` for a rehearsal that ends with a ConfigError once ``is_stopping``."""

    def checked() -> None:
        tick()
        if is_stopping():
            raise ConfigError(STOPPING)

    return checked


def is_rehearsal() -> bool:
    """Report whether this process only checks whether it could start."""
    return os.environ.get(VARIABLE) == REHEARSAL


def report_rehearsal() -> None:
    """Report to the parent of a rehearsal that the program may start, its package, and what it can take over."""
    inherited = [entry.name for entry in fields(Inheritance)]
    print(json.dumps({"package": Installation.current().package, "inherits": inherited}))


def _read_report(output: str) -> tuple[str, set[str]]:
    """Return package and fields of ``report_rehearsal``, the last line of ``output``; empty without a report."""
    try:
        report = parse_object(output.splitlines()[-1].encode())
        return str(report["package"]), {*map(str, report["inherits"])}
    except (IndexError, KeyError, TypeError, ValueError):
        return "", set()


def report_step(data_dir: Path, text: str) -> None:
    """Write a step of a restart for the command that requested it."""
    with contextlib.suppress(OSError):  # a full disk: the outcome counts
        step = f"{time.monotonic_ns()} {text}"
        replace_durably(OS, data_dir / STEP, step.encode(), synced=False)  # of this run only


def read_step(data_dir: Path, since_ns: int) -> str:
    """Return the last step of a restart; empty if it is older than ``since_ns`` (monotonic) or unreadable."""
    try:
        moment, _, text = (data_dir / STEP).read_text(errors="replace").partition(" ")
        return text if int(moment) >= since_ns else ""
    except (OSError, ValueError):
        return ""


def take_inheritance() -> Inheritance | None:
    """Return the inheritance of this process, once; None if it has no predecessor."""
    if is_rehearsal() or (text := os.environ.pop(VARIABLE, "")) == "":
        return None
    # A predecessor of a later version may hand over more.
    names = {entry.name for entry in fields(Inheritance)}
    inheritance = Inheritance(**{name: value for name, value in json.loads(text).items() if name in names})
    for descriptor in (inheritance.lock, *inheritance.sockets.values()):
        if descriptor >= 0:
            os.set_inheritable(descriptor, False)
    return inheritance


def accept_requests() -> None:
    """Let pending and later requests by signal through, once this process has handlers for them."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, REQUESTS)
