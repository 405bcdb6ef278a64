"""A progress line for work that takes longer than two seconds."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from rich.status import Status

from penstock.cli.common import errors

DELAY_S = 2.0
"""Time before the line appears: quick work shows nothing."""
UPDATE_INTERVAL_S = 0.2
PLAIN_INTERVAL_S = 10.0
"""Interval of the lines of a file or a journal."""


class Progress:
    """A line with ``activity``, its progress and its seconds on standard error, if that is a terminal.

    With ``has_plain_lines`` a file or a journal gets lines, too. A thread prints; ``update`` may be called from any
    thread.

    >>> with Progress("checking") as progress:
    ...     progress.update("events, 3 of 12")
    """

    def __init__(self, activity: str, *, is_shown: bool = True, has_plain_lines: bool = False) -> None:
        self._activity, self._detail = activity, ""
        self._status = Status(activity, console=errors)
        self._is_shown = is_shown and (errors.is_terminal or has_plain_lines)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show, name="progress", daemon=True)
        self._began_s = 0.0

    def update(self, detail: str) -> None:
        """Set the progress. Cheap enough to call for every batch."""
        self._detail = detail

    def _show(self) -> None:
        if self._ended.wait(DELAY_S):
            return
        if errors.is_terminal:
            self._status.start()
        while True:
            detail = f": {self._detail}" if self._detail else ""
            text = f"{self._activity}{detail} ({time.monotonic() - self._began_s:.0f} s)"
            if errors.is_terminal:
                self._status.update(text)
            else:
                errors.print(text, soft_wrap=True, markup=False)
            if self._ended.wait(UPDATE_INTERVAL_S if errors.is_terminal else PLAIN_INTERVAL_S):
                return

    def __enter__(self) -> Progress:
        self._began_s = time.monotonic()
        if self._is_shown:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._is_shown:
            # Order: the thread may be starting the line, which would otherwise stay after the stop.
            self._thread.join()
        self._status.stop()
