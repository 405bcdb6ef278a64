"""Child processes that are restarted when they die."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from penstock.process.forked import Forked, OwnChild, terminate
from penstock.process.kernel import interrupts_held
from penstock.process.module_search import module_command
from penstock.process.reporting import FAILURE_FILE, MAX_FAILURE_BYTES, describe_error

FIRST_RESTART_DELAY_S, MAX_RESTART_DELAY_S = 0.1, 5.0
"""Delay of a restart, doubled with each death: a child that dies at once takes 1 % of a core and not all of it."""
STABLE_AFTER_S = 10.0
"""A child that lived this long died of a new cause: the delay starts from its minimum."""
OUT_OF_MEMORY_HINT = " (the kernel ends processes like this where memory is short; `penstock doctor` shows the limit)"


class Child:
    """A process that is kept running: ``python -m module`` or a fork, with its task as JSON on standard input.

    ``descriptors`` are inherited; output goes to the file ``output`` if there is one. A ``forked`` child shares the
    code that this process has loaded, which requires that only the main thread runs here. Owned by one thread.
    """

    def __init__(
        self,
        name: str,
        module: str,
        task: dict[str, Any],
        descriptors: Sequence[int] = (),
        output: Path | None = None,
        *,
        forked: bool = False,
    ) -> None:
        self.name = name
        self._output, self._forked = output, forked
        self.restarts = 0
        self.cause = ""
        """The end of the previous process, for reports."""
        self.start_failure = ""
        """The reason for which the previous process could not start; empty if it had started."""
        self._failure: int | None = None
        self._module, self._task, self._descriptors = module, task, list(descriptors)
        self._process: subprocess.Popen[bytes] | OwnChild | None = None
        self._prepared: Forked | None = None
        self._delay = FIRST_RESTART_DELAY_S
        self._failed_starts = 0
        self._started_at = self._restart_at = 0.0

    @property
    def age(self) -> float:
        """Seconds since the start; 0 while it is not running."""
        return time.monotonic() - self._started_at if self.pid else 0.0

    @property
    def pid(self) -> int | None:
        """The process id; None while it is not running."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def replace_task(self, task: dict[str, Any], descriptors: Sequence[int]) -> None:
        """Use this task and these descriptors from the next start on; the running process is not affected."""
        self._task, self._descriptors = task, list(descriptors)

    def adopt(self, pid: int) -> None:
        """Take over a running process that this program's predecessor (exec) has started for the same purpose."""
        self._process, self._started_at = OwnChild(pid), time.monotonic()

    def prepare(self, deadline: float) -> None:
        """Fork the next process while the current one runs, and wait until it has loaded its code, or ``deadline``.

        It does nothing until ``start``. Call it in the main thread.
        """
        self._prepared = self._fork(waits=True)
        self._prepared.wait_until_loaded(deadline - time.monotonic())

    def start(self) -> None:
        """Start the process. Call it in the main thread: the kernel ties the child to the thread that starts it."""
        prepared, self._prepared = self._prepared, None
        if self._failure is not None:
            os.ftruncate(self._failure, 0)
        if prepared and prepared.release():
            self._process = prepared
        else:
            self._process = self._fork() if self._forked else self._execute()
        self._started_at = time.monotonic()

    @property
    def _arguments(self) -> list[str]:
        return [str(os.getpid()), str(self._failed_starts), *map(str, self._failure_files)]

    @property
    def _failure_files(self) -> list[int]:
        """The descriptor of the file in which the process leaves the reason of a failed start.

        A file in memory has room also when every disk is full. Without a free descriptor there is none.
        """
        if self._failure is None:
            with contextlib.suppress(OSError):
                # A child has other files at 0 to 2, one of which is free here if this process began without it.
                first = os.memfd_create(FAILURE_FILE)
                self._failure = fcntl.fcntl(first, fcntl.F_DUPFD_CLOEXEC, 3)
                os.close(first)
                weakref.finalize(self, os.close, self._failure)
        return [] if self._failure is None else [self._failure]

    def _open_output(self) -> contextlib.AbstractContextManager[IO[bytes] | None]:
        return self._output.open("ab") if self._output else contextlib.nullcontext()

    def _fork(self, *, waits: bool = False) -> Forked:
        with self._open_output() as output:
            descriptors = [*self._descriptors, *self._failure_files]
            return Forked(self._module, self._arguments, self._task, descriptors, output, self.name, waits=waits)

    def _execute(self) -> subprocess.Popen[bytes]:
        with self._open_output() as output, interrupts_held():
            process = subprocess.Popen(
                module_command(self._module, *self._arguments),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=[*self._descriptors, *self._failure_files],
            )
        assert process.stdin
        with contextlib.suppress(BrokenPipeError):
            # Crash: a child that died already closes its end of the pipe; check() finds it dead and restarts it.
            process.stdin.write(json.dumps(self._task).encode())
            process.stdin.close()
        return process

    def check(self) -> str | None:
        """Restart the process if it died, with a growing delay; return a line to log if it died since the last call."""
        if self._process is None:
            return self._restart() if time.monotonic() >= self._restart_at else None
        status = self._process.poll()
        if status is None:
            return None
        if time.monotonic() - self._started_at > STABLE_AFTER_S:
            self._delay = FIRST_RESTART_DELAY_S
        self._process = None
        self._delay_restart()
        end = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        self.start_failure = self._read_failure()
        self._failed_starts = self._failed_starts + 1 if self.start_failure else 0
        self.cause = self.start_failure or (f"was killed by {_signal_name(-status)}" if status < 0 else end)
        hint = OUT_OF_MEMORY_HINT if status == -signal.SIGKILL else ""
        return f"{self.name} {end}; restarting it{hint}"

    def _read_failure(self) -> str:
        if self._failure is None:
            return ""
        return os.pread(self._failure, MAX_FAILURE_BYTES, 0).decode(errors="replace")

    def _restart(self) -> str | None:
        try:
            self.start()
        except OSError as error:
            self._delay_restart()
            # A lack of processes, memory or disk passes, so it is tried as long as this process runs.
            return f"{self.name} cannot be started: {describe_error(error)}; retrying"
        self.restarts += 1
        return None

    def _delay_restart(self) -> None:
        self._restart_at = time.monotonic() + self._delay
        self._delay = min(2 * self._delay, MAX_RESTART_DELAY_S)

    def stop(self) -> None:
        """Ask the process to end."""
        if self.pid:
            assert self._process
            terminate(self._process)

    def wait(self, deadline: float) -> bool:
        """Wait until the monotonic time ``deadline``, then kill it; report whether it ended by itself."""
        if self._process is None:
            return True
        try:
            self._process.wait(max(deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return False
        return True


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no names
        return f"signal {number}"
