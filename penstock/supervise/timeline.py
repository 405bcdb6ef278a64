"""What the supervisor tells the ledger of, as events: kept here until the log daemon has written them down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from penstock.files.file_system import SYSTEM_CLOCK, Clock
from penstock.supervise.daemon_channel import MOST_EVENTS

MOST_WAITING = 1_000
LONGEST_TEXT = 1_000
"""Characters: the ledger refuses longer names."""
AGAIN_AFTER = 5.0
"""Seconds after which events that the daemon has not answered for are sent again."""
Event = dict[str, Any]


class Way(Protocol):
    """How events get to the ledger: ``Channel``, or another one."""

    def send_events(self, events: Sequence[Mapping[str, Any]]) -> int:
        """Send them; the number that is answered for once they are kept, 0 where it has to be later."""

    def hear(self) -> int:
        """The number up to which all is kept."""


class Timeline:
    """Events by id, each in its newest version.

    The wall clock dates an event; the monotonic clock measures how long it lasts.
    """

    def __init__(self, channel: Way, clock: Clock = SYSTEM_CLOCK) -> None:
        self._channel, self._clock = channel, clock
        self._waiting: dict[str, Event] = {}
        self._open: dict[str, Event] = {}
        self._died_at: dict[str, float] = {}
        self._sent: dict[str, int] = {}
        self._number, self._since, self._to = 0, 0.0, 0

    @property
    def told(self) -> bool:
        """Whether all is written down."""
        return not self._waiting

    def happened(self, kind: str, cause: str = "") -> None:
        """Something that lasts no time."""
        event = self._event(kind, "", cause)
        self._tell(event | {"until": event["at"]})

    def died(self, process: str, cause: str, place: str = "") -> None:
        """A process has ended; again, where it had not come back since."""
        known = self._open.get(process)
        event = known or self._event("restart", process, cause, place)
        if known:
            event = known | {"version": known["version"] + 1, "cause": _short(cause)}
        else:
            self._died_at[process] = self._clock.monotonic()
        self._open[process] = event
        self._tell(event)

    @property
    def away(self) -> list[str]:
        """The processes that are not back yet."""
        return list(self._open)

    def knows(self, process: str) -> bool:
        """Whether the end of a process that is not back yet is written down."""
        return self._open[process]["id"] not in self._waiting

    def back(self, process: str) -> None:
        """A process is there again."""
        event, away_s = self._open.pop(process), self._clock.monotonic() - self._died_at.pop(process)
        self._tell(event | {"version": event["version"] + 1, "until": event["at"] + round(away_s * 1000)})

    def deliver(self, daemon: int | None) -> None:
        """Send what waits to the daemon with this process id; what it has answered for is done."""
        answered = self._channel.hear()
        for name in [name for name, number in self._sent.items() if number <= answered]:
            del self._sent[name], self._waiting[name]
        if daemon != self._to or self._clock.monotonic() - self._since > AGAIN_AFTER:
            self._to = daemon or 0
            self._sent.clear()
        new = [event for name, event in self._waiting.items() if name not in self._sent][:MOST_EVENTS]
        if daemon and new and (number := self._channel.send_events(new)):
            self._since = self._clock.monotonic()
            self._sent |= {event["id"]: number for event in new}

    def _event(self, kind: str, what: str, cause: str, place: str = "") -> Event:
        self._number += 1
        at = self._clock.micros() // 1000
        event = {"tier": "event", "id": f"supervisor {at}.{self._number}", "version": 0, "kind": kind, "at": at}
        return event | {"what": what, "cause": _short(cause), "place": place}

    def _tell(self, event: Event) -> None:
        self._waiting[event["id"]] = event
        self._sent.pop(event["id"], None)
        if len(self._waiting) > MOST_WAITING:
            oldest = next(iter(self._waiting))
            self._waiting.pop(oldest)
            self._sent.pop(oldest, None)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."
