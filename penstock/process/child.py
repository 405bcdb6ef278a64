"""Child processes that are started again when they die."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from penstock.process.forked import Forked

FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0
"""Seconds before a dead child is started again: doubled from death to death."""
STEADY = 10.0
"""A child that lived this long died of something new: the delay begins anew."""


class Child:
    """One process that is to be running: ``python -m module`` or forked, its task as JSON on standard input.

    ``descriptors`` are handed down; what it prints goes to the file ``output`` where given. ``forked``: it shares what
    this process has loaded; then only the main thread may run here.
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
        """How it ended the last time."""
        self._module, self._task, self._descriptors = module, task, list(descriptors)
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self._delay = FIRST_DELAY
        self._in_vain = 0
        self._born = self._again_at = 0.0

    @property
    def age(self) -> float:
        """Seconds since it was started; 0 while it is not running."""
        return time.monotonic() - self._born if self.pid else 0.0

    @property
    def pid(self) -> int | None:
        """Its process id; None while it is not running."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def replace_task(self, task: dict[str, Any], descriptors: Sequence[int]) -> None:
        """Start it with these from the next time on; the process that runs is left alone."""
        self._task, self._descriptors = task, list(descriptors)

    def start(self) -> None:
        """Start it. Call this from the main thread: the kernel ties it to the thread that starts it."""
        with contextlib.ExitStack() as stack:
            output = stack.enter_context(self._output.open("ab")) if self._output else None
            arguments = [str(os.getpid()), str(self._in_vain)]
            if self._forked:
                self._process = Forked(self._module, arguments, self._task, self._descriptors, output, self.name)
            else:
                self._process = self._executed(arguments, output)
        self._born = time.monotonic()

    def _executed(self, arguments: Sequence[str], output: IO[bytes] | None) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", self._module, *arguments],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            pass_fds=self._descriptors,
        )
        assert process.stdin
        with contextlib.suppress(BrokenPipeError):  # it died at once: `check` will see
            process.stdin.write(json.dumps(self._task).encode())
            process.stdin.close()
        return process

    def check(self) -> str | None:
        """Start it again when it has died, a little later each time; a line to show when it died just now."""
        if self._process is None:
            return self._start_again() if time.monotonic() >= self._again_at else None
        status = self._process.poll()
        if status is None:
            return None
        self._in_vain += 1
        if time.monotonic() - self._born > STEADY:
            self._delay, self._in_vain = FIRST_DELAY, 0
        self._process = None
        self._put_off()
        died = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        self.cause = f"was killed by {_signal(-status)}" if status < 0 else died
        return f"{self.name} {died}; it is started again"

    def _start_again(self) -> str | None:
        try:
            self.start()
        except OSError as error:  # no process, memory or disk to be had just now
            self._put_off()
            return f"{self.name} cannot be started: {error.strerror}; it is tried again"
        self.restarts += 1
        return None

    def _put_off(self) -> None:
        self._again_at = time.monotonic() + self._delay
        self._delay = min(2 * self._delay, LONGEST_DELAY)

    def stop(self) -> None:
        """Ask it to end."""
        if self.pid:
            assert self._process
            self._process.terminate()

    def wait(self, until: float) -> bool:
        """Wait for its end until monotonic time ``until``, then kill it; whether it ended by itself."""
        if self._process is None:
            return True
        try:
            self._process.wait(max(until - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return False
        return True


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
