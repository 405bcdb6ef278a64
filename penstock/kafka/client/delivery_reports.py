"""Delivery reports of a message's segments, told to its sender as one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from penstock.kafka.errors import SendFailed

OnDelivery = Callable[[SendFailed | None, Any], None]


class ChunkReports:
    """To be called with (error, message) of each of ``count`` segments, in any order, from any thread.

    After the last one it calls ``tell`` once: with None and the last segment's message, or with SendFailed of the first
    error and the last message there was.
    """

    def __init__(self, count: int, tell: OnDelivery) -> None:
        self._count, self._tell = count, tell
        self._told = self._sent = 0
        self._error: Any = None
        self._message: Any = None
        self._lock = threading.Lock()

    def __call__(self, error: Any, message: Any) -> None:
        """One segment's report."""
        self._add(1, error, message)

    def give_up(self, chunks: int, error: Any) -> None:
        """``segments`` segments are not even tried."""
        self._add(chunks, error, self._message)

    def _add(self, chunks: int, error: Any, message: Any) -> None:
        with self._lock:
            self._told += chunks
            self._message = message
            if error is None:
                self._sent += chunks
            elif self._error is None:
                self._error = error
            whole = self._told == self._count
        if whole:
            failed = SendFailed(self._sent, self._count, self._error) if self._error is not None else None
            self._tell(failed, self._message)
