"""The messages of a topic that a page shows: the newest, a page from an offset or time, or the matches of a search.

Invariant: a later request of the user wins. Each request has a number, and a response to an older one is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Protocol
from urllib.parse import quote

from penstock.console.components.message_fields import meets, text_to_search
from penstock.console.components.search_input import search_parameters

PAGE_ENTRIES = 50
HISTOGRAM_INTERVAL, HISTOGRAM_INTERVALS = timedelta(minutes=2), 30
"""Limit: one request per interval."""


class RequestsJson(Protocol):
    """Source of the daemon's JSON responses."""

    async def get(self, path: str, **parameters: object) -> Any: ...


class TopicReading:
    """A page of a topic; ``changed`` is called whenever there is something new to show.

    ``entries`` are ordered by offset. The page covers [begin, end), the topic [start, stop). Used on the event loop
    only.
    """

    def __init__(self, daemon: RequestsJson, topic: str, changed: Callable[[], None], query: str = "") -> None:
        self._daemon, self._path, self._changed = daemon, f"/topic/{quote(topic, safe='')}/search", changed
        self.query = query
        self.conditions: dict[str, str] = {}
        """Values of JSON fields by path that each shown message has."""
        self.entries: list[dict[str, Any]] = []
        self.begin = self.end = self.start = self.stop = 0
        self.searching = False
        self._request_number = 0

    @property
    def is_search(self) -> bool:
        """Report whether the page shows matches only."""
        return bool(self.query or self.conditions)

    @property
    def searched(self) -> int:
        """Return the number of offsets that the page covers."""
        return self.end - self.begin

    async def newest(self) -> None:
        """Show the newest messages. Raises DaemonUnavailable, like all requests here."""
        await self._read({})

    async def older(self) -> None:
        """Show the previous page."""
        await self._read({"before": str(self.begin)})

    async def newer(self) -> None:
        """Show the next page."""
        await self._read({"offset": str(self.end)})

    async def read_from(self, target: dict[str, str]) -> None:
        """Show the messages from an offset or a time on."""
        await self._read(target)

    def stop_searching(self) -> None:
        """Stop the search and keep its matches so far."""
        self._request_number += 1
        self.searching = False
        self._changed()

    async def follow(self) -> None:
        """Show messages that arrived since the last request."""
        number = self._request_number
        if self.searching:
            return
        # Without a query the newest page is read again, so that the list always ends at the newest message.
        page = await self._page({"offset": str(self.end)} if self.is_search else {}, PAGE_ENTRIES)
        if number != self._request_number:
            return
        entries = self._matches(page)
        if self.is_search:
            entries = [*self.entries, *entries][-PAGE_ENTRIES:]
        else:
            self.begin = int(page["begin"])
        self._set_topic_range(page)
        self.end = int(page["end"])
        if entries != self.entries:
            self.entries = entries
            self._changed()

    async def _read(self, start_at: dict[str, str]) -> None:
        """Read until the page is full or an end of the topic is reached; a later call ends this one."""
        self._request_number += 1
        number, back = self._request_number, not start_at.keys() & {"offset", "timestamp"}
        self.entries, first = [], True
        self.searching = self.is_search
        try:
            while number == self._request_number:
                page = await self._page(start_at, PAGE_ENTRIES - len(self.entries))
                if number != self._request_number:
                    return
                self._add(page, back, first)
                # A search stops after a second of scanning in the daemon and continues in the next request.
                if len(self.entries) >= PAGE_ENTRIES or (self.begin <= self.start if back else self.end >= self.stop):
                    return
                start_at, first = {"before": str(self.begin)} if back else {"offset": str(self.end)}, False
                self._changed()
        finally:
            # Only the newest request may clear the state; an older one was replaced.
            if number == self._request_number:
                self.searching = False
                self._changed()

    def _add(self, page: dict[str, Any], back: bool, first: bool) -> None:
        self._set_topic_range(page)
        if first or back:
            self.begin = int(page["begin"])
        if first or not back:
            self.end = int(page["end"])
        entries = self._matches(page)
        self.entries = [*entries, *self.entries] if back else [*self.entries, *entries]

    def _set_topic_range(self, page: dict[str, Any]) -> None:
        self.start, self.stop = int(page["start"]), int(page["stop"])

    async def _page(self, start_at: dict[str, str], limit: int) -> dict[str, Any]:
        parameters = {**self._search_parameters(), **start_at, "max_messages": limit}
        page: dict[str, Any] = await self._daemon.get(self._path, **parameters)
        return page

    def _search_parameters(self) -> dict[str, str]:
        parameters = search_parameters(self.query)
        # The daemon does not read JSON: it selects messages that contain the value, and ``_matches`` compares fields.
        text = "" if "text" in parameters else text_to_search(self.conditions)
        return {**parameters, "text": text} if text else parameters

    def _matches(self, page: dict[str, Any]) -> list[dict[str, Any]]:
        entries = [{"offset": "0", **entry} for entry in page.get("logs", [])]
        return [entry for entry in entries if meets(entry, self.conditions)]

    async def count_by_time(self, now: datetime) -> list[tuple[datetime, int]]:
        """Return the start of each interval of the last hour, and how many messages were appended in it."""
        starts = [now - HISTOGRAM_INTERVAL * number for number in range(HISTOGRAM_INTERVALS, 0, -1)]
        # Offsets are consecutive, so the offset at each time is enough: nothing is counted.
        pages = await asyncio.gather(
            *(
                self._daemon.get(self._path, timestamp=start.isoformat().replace("+00:00", "Z"), max_messages=1)
                for start in starts
            )
        )
        begins = [*(int(page["begin"]) for page in pages), int(pages[-1]["stop"])]
        return [(start, max(0, end - begin)) for start, begin, end in zip(starts, begins, begins[1:], strict=False)]
