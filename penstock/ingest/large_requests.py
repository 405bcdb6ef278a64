"""The thread that reads large requests, so that the senders of small ones do not wait for them."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from penstock.wire.requests import Refused

INLINE_BYTES = 64 << 10
"""Limit: requests up to this size, unpacked, are read on the event loop: 20 ms for the smallest messages there are.

To hand one over costs about 0.1 ms.
"""
SWITCH_INTERVAL_S = 0.0005
"""Time after which the event loop gets the interpreter's lock back. A small request takes the lock about 15 times."""
T = TypeVar("T")


class LargeRequests:
    """Reads one request at a time, in the order in which they came.

    Limit: one thread, so that only one large request at a time has its messages in memory beside its bytes.
    """

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None

    async def run(self, read: Callable[[], T]) -> T:
        """Return what ``read`` returns, or raise what it raises."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "penstock-large-requests")
            sys.setswitchinterval(SWITCH_INTERVAL_S)
        return await asyncio.get_running_loop().run_in_executor(self._thread, _read_without_gc, read)

    def close(self) -> None:
        """End the thread once it has read what it has begun."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)


def _read_without_gc(read: Callable[[], T]) -> T:
    # The collector would traverse millions of values that hold no cycles, and the event loop would wait for each pass.
    gc.disable()
    try:
        return read()
    except Refused as why:
        # Limit: the traceback would keep the refused messages in memory while the next request is read.
        why.__context__ = None
        raise why.with_traceback(None) from None
    finally:
        gc.enable()
