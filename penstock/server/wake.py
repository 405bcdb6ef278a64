"""What wakes those who wait until something is stored."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Collection

from penstock.log import StoredBatch


class Wake:
    """Wakes a stream from the log's threads; one call to the loop however many batches are stored meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop, topics: Collection[str]) -> None:
        self._loop, self.topics = loop, topics
        self._event = asyncio.Event()
        self.clear, self.set = self._event.clear, self._event.set

    async def wait_until(self, due: float) -> None:
        """Return when something was stored, or at the loop's time ``due``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(due if due < math.inf else None):
                await self._event.wait()

    def on_stored(self, _: StoredBatch | None = None) -> None:
        """Called by the log after each synced commit; never blocks."""
        if not self._event.is_set():
            with contextlib.suppress(RuntimeError):  # the loop has just been closed
                self._loop.call_soon_threadsafe(self._event.set)
