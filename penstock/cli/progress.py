"""A progress line on the terminal for work that takes longer than two seconds."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from rich.status import Status

from penstock.cli.common import errors

DELAY_S = 2.0
"""Time before the line appears: quick work shows nothing."""
UPDATE_INTERVAL_S = 0.2


class Progress:
    """A line with ``activity`` and its progress on standard error, if that is a terminal.

    A timer thread shows it; ``update`` may be called from any thread.

    >>> with Progress("checking") as progress:
    ...     progress.update("events, 3 of 12")
    """

    def __init__(self, activity: str, *, is_shown: bool = True) -> None:
        self._activity = activity
        self._status = Status(activity, console=errors)
        self._timer = threading.Timer(DELAY_S, self._status.start)
        self._timer.daemon = True
        self._is_shown = is_shown and errors.is_terminal
        self._updated_at = 0.0

    def update(self, detail: str) -> None:
        """Set the progress. Cheap enough to call for every batch: the screen changes every UPDATE_INTERVAL_S."""
        now = time.monotonic()
        if self._is_shown and now - self._updated_at > UPDATE_INTERVAL_S:
            self._updated_at = now
            self._status.update(f"{self._activity}: {detail}")

    def __enter__(self) -> Progress:
        if self._is_shown:
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._is_shown and self._timer.is_alive():
            # Order: the timer may be starting the line, which would otherwise stay after the stop.
            self._timer.join()
        self._status.stop()
