"""Combine the delivery reports of a message's chunks into one report for its sender."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from penstock.kafka.errors import SendFailed

OnDelivery = Callable[[SendFailed | None, Any], None]


class ChunkReports:
    """Delivery callback for each of ``count`` chunks, in any order, from any thread.

    After the last report it calls ``report`` once: with None and the last chunk's message, or with SendFailed of the
    first error and the last message.
    """

    def __init__(self, count: int, report: OnDelivery) -> None:
        self._count, self._report = count, report
        self._reported = self._sent = 0
        self._error: Any = None
        self._message: Any = None
        self._lock = threading.Lock()

    def __call__(self, error: Any, message: Any) -> None:
        """Take the report of one chunk."""
        self._add(1, error, message)

    def give_up(self, chunks: int, error: Any) -> None:
        """Report ``chunks`` chunks as not sent."""
        self._add(chunks, error, self._message)

    def _add(self, chunks: int, error: Any, message: Any) -> None:
        with self._lock:
            self._reported += chunks
            self._message = message
            if error is None:
                self._sent += chunks
            elif self._error is None:
                self._error = error
            is_complete = self._reported == self._count
        # Outside the lock: the sender's callback may produce, and block.
        if is_complete:
            failed = SendFailed(self._sent, self._count, self._error) if self._error is not None else None
            self._report(failed, self._message)
