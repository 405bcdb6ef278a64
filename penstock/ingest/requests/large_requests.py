"""Thread that parses large requests, so that senders of small ones do not wait for them."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from penstock.errors import PenstockError
from penstock.wire.requests import Refused

INLINE_BYTES = 64 << 10
"""Limit: decompressed size of requests that the event loop parses itself: 20 ms for the smallest messages.

Passing a request to the thread costs about 0.1 ms.
"""
LEFT = "left"
"""Reason of a refusal: the client disconnected before its large request was parsed."""
SWITCH_INTERVAL_S = 0.0005
"""Longest wait of the event loop for the interpreter lock; it takes the lock about 15 times per small request."""
T = TypeVar("T")


class ClientLeft(PenstockError, ConnectionError):
    """The client of a request has disconnected before the request was parsed."""


class LargeRequests:
    """Thread that parses one request at a time, in order of arrival.

    Limit: one thread, so only one large request has its messages in memory next to its bytes.
    """

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None

    async def run(self, parse: Callable[[], T], disconnect: Coroutine[Any, Any, object]) -> T:
        """Return what ``parse`` returns, or raise what it raises.

        ``disconnect`` completes when the client disconnects. Raises ClientLeft if that happens before ``parse`` has
        begun: under overload, senders give up and repeat their requests, and the thread would parse only requests
        whose clients have left.
        """
        # Limit: the executor keeps a cancelled call until its turn, but not the request of a client that has left.
        waiting = [parse]
        parsing, leaving = self.submit(lambda: waiting.pop()()), asyncio.ensure_future(disconnect)
        parsed = asyncio.wrap_future(parsing)
        try:
            await asyncio.wait((parsed, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not parsed.done() and parsing.cancel():
                waiting.clear()
                raise ClientLeft("the client disconnected before its request was parsed")
            return await parsed
        finally:
            leaving.cancel()

    def submit(self, parse: Callable[[], T]) -> Future[T]:
        """Call ``parse`` on the thread, after all earlier requests."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "penstock-large-requests")
            sys.setswitchinterval(SWITCH_INTERVAL_S)
        return self._thread.submit(_parse_without_gc, parse)

    def close(self) -> None:
        """Stop the thread after its current request."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)


def _parse_without_gc(parse: Callable[[], T]) -> T:
    # The collector would traverse millions of values without cycles, and the event loop would wait for each pass.
    gc.disable()
    try:
        return parse()
    except Refused as refusal:
        # Limit: the traceback would keep the refused messages in memory while the next request is parsed.
        refusal.__context__ = None
        raise refusal.with_traceback(None) from None
    finally:
        gc.enable()
