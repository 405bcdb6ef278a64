"""A line on the terminal for what takes longer than two seconds."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from rich.status import Status

from penstock.cli.common import errors

PATIENCE = 2.0
"""Seconds before anything is shown."""
EVERY = 0.2


class Progress:
    """Shows ``what`` is going on, and how far it is, on standard error where that is a terminal.

    >>> with Progress("checking") as progress:
    ...     progress.tell("events, 3 of 12")
    """

    def __init__(self, what: str, *, shown: bool = True) -> None:
        self._what = what
        self._status = Status(what, console=errors)
        self._timer = threading.Timer(PATIENCE, self._status.start)
        self._timer.daemon = True
        self._shown = shown and errors.is_terminal
        self._told = 0.0

    def tell(self, detail: str) -> None:
        """How far it is; cheap enough to be called for every batch."""
        now = time.monotonic()
        if self._shown and now - self._told > EVERY:
            self._told = now
            self._status.update(f"{self._what}: {detail}")

    def __enter__(self) -> Progress:
        if self._shown:
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._shown and self._timer.is_alive():
            self._timer.join()
        self._status.stop()
