"""Pages that several streams ask for at once: who follows the end of a topic stands where others stand.

A page is read and made into an answer once, for the first who asks, and kept for a while for those who come after.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

from penstock.log import Topic

MOST_PAGES, MOST_BYTES = 16, 1 << 20
"""So many are kept, and none that is larger: what one reader alone catches up with is not worth it."""
T = TypeVar("T")
Found = tuple[int, T | None]
"""The offset at which the next page begins, and the answer, where there is one."""
Read = Callable[[], Awaitable[Found[T]]]
Place = tuple[Topic, int, int, Hashable]
"""Topic, offset, entries of a page at most, and how an answer is made."""


class SharedPages:
    """Lives on one event loop."""

    def __init__(self) -> None:
        self._pages: OrderedDict[Place, asyncio.Future[Found[Any]]] = OrderedDict()

    async def page(self, place: Place, read: Read[T]) -> Found[T]:
        """What ``read`` gives, now or a moment ago. It may be less than there is by now; the next page has the rest.

        Raises what ``read`` raises.
        """
        known = self._pages.get(place)
        if known is not None:
            found: Found[T] = await asyncio.shield(known)
            if found[1] is not None:
                return found
            # It was read before what has woken this stream was stored.
        mine = self._pages[place] = asyncio.ensure_future(read())
        mine.add_done_callback(lambda done: self._settle(place, done))
        return await asyncio.shield(mine)

    def _settle(self, place: Place, done: asyncio.Future[Found[Any]]) -> None:
        """Keep a page that others may ask for."""
        answer = None if done.cancelled() or done.exception() else done.result()[1]
        is_kept = answer is not None and len(answer) <= MOST_BYTES
        if not is_kept and self._pages.get(place) is done:
            del self._pages[place]
        while len(self._pages) > MOST_PAGES:
            self._pages.popitem(last=False)
