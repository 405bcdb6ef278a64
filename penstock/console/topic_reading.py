"""Which messages of a topic a page shows: the newest as they come, others by place, or those that are searched for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import quote

from penstock.console.asked import parameters_of

PAGE = 50
"""Messages."""


class Asks(Protocol):
    """What gives the answers of the daemon."""

    async def get(self, path: str, **parameters: object) -> Any: ...


class TopicReading:
    """A page of a topic. ``changed`` is called whenever there is something new to show.

    ``entries`` are in the order of their offsets; [begin, end) was looked at, the topic has [start, stop).
    """

    def __init__(self, daemon: Asks, topic: str, changed: Callable[[], None], wanted: str = "") -> None:
        self._daemon, self._path, self._changed = daemon, f"/topic/{quote(topic, safe='')}/search", changed
        self.wanted = wanted
        self.entries: list[dict[str, Any]] = []
        self.begin = self.end = self.start = self.stop = 0
        self.searching = False
        self._turn = 0

    @property
    def searched(self) -> int:
        """Offsets that were looked at for this page."""
        return self.end - self.begin

    async def newest(self) -> None:
        """Show the newest messages. Raises Away, as all of these."""
        await self._look({})

    async def older(self) -> None:
        """Show those before."""
        await self._look({"before": str(self.begin)})

    async def newer(self) -> None:
        """Show those after."""
        await self._look({"offset": str(self.end)})

    async def go_to(self, place: dict[str, str]) -> None:
        """Show those from an offset or a time on."""
        await self._look(place)

    def stop_searching(self) -> None:
        """Leave it at what was found."""
        self._turn += 1
        self.searching = False
        self._changed()

    async def follow(self) -> None:
        """Show what has come since."""
        turn = self._turn
        if self.searching:
            return
        page = await self._page({"offset": str(self.end)} if self.wanted else {}, PAGE)
        if turn != self._turn:
            return
        found = _entries(page)
        if self.wanted:
            found = [*self.entries, *found][-PAGE:]
        else:
            self.begin = int(page["begin"])
        self._place(page)
        self.end = int(page["end"])
        if found != self.entries:
            self.entries = found
            self._changed()

    async def _look(self, at: dict[str, str]) -> None:
        """Ask until the page is full or the topic's end is reached; a later look ends this one."""
        self._turn += 1
        turn, back = self._turn, not at.keys() & {"offset", "timestamp"}
        self.entries, first = [], True
        self.searching = bool(self.wanted)
        try:
            while turn == self._turn:
                page = await self._page(at, PAGE - len(self.entries))
                if turn != self._turn:
                    return
                self._add(page, back, first)
                if len(self.entries) >= PAGE or (self.begin <= self.start if back else self.end >= self.stop):
                    return
                at, first = {"before": str(self.begin)} if back else {"offset": str(self.end)}, False
                self._changed()
        finally:
            if turn == self._turn:
                self.searching = False
                self._changed()

    def _add(self, page: dict[str, Any], back: bool, first: bool) -> None:
        self._place(page)
        if first or back:
            self.begin = int(page["begin"])
        if first or not back:
            self.end = int(page["end"])
        found = _entries(page)
        self.entries = [*found, *self.entries] if back else [*self.entries, *found]

    def _place(self, page: dict[str, Any]) -> None:
        self.start, self.stop = int(page["start"]), int(page["stop"])

    async def _page(self, at: dict[str, str], most: int) -> dict[str, Any]:
        asked = {**parameters_of(self.wanted), **at, "max_messages": most}
        page: dict[str, Any] = await self._daemon.get(self._path, **asked)
        return page


def _entries(page: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"offset": "0", **entry} for entry in page.get("logs", [])]
