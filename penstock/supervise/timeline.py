"""Events of the supervisor for the ledger's timeline, held in memory until the log daemon has stored them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from penstock.files.file_system import SYSTEM_CLOCK, Clock
from penstock.supervise.daemon_channel import MAX_EVENTS

MAX_WAITING_EVENTS = 1_000
"""Limit for the events in memory; the oldest are dropped first."""
MAX_TEXT_LENGTH = 1_000
"""Limit for the characters of a text: the ledger refuses more than 1,024 (``LONGEST_NAME``)."""
RESEND_AFTER_S = 5.0
"""Time after which unanswered events are sent again: the daemon may have failed to store them, as on a full disk."""
Event = dict[str, Any]
_NUMBERS = re.compile(r"[\d,]+")


class EventTransport(Protocol):
    """Transport of events to the ledger: the supervisor's ``Channel``, or the ledger's HTTP API."""

    def send_events(self, events: Sequence[Mapping[str, Any]]) -> int:
        """Send events; return a number that is answered once they are stored, 0 to retry later."""

    def poll_answers(self) -> int:
        """Return the number up to which all messages are answered."""


class Timeline:
    """Events by id, each in its newest version. Owned by the supervisor's thread.

    The wall clock dates an event; the monotonic clock measures its duration.
    """

    def __init__(self, transport: EventTransport, clock: Clock = SYSTEM_CLOCK) -> None:
        self._transport, self._clock = transport, clock
        self._waiting: dict[str, Event] = {}
        self._open: dict[str, Event] = {}
        self._death_times_s: dict[str, float] = {}
        self._sent: dict[str, int] = {}
        self._number, self._last_sent_s, self._daemon_pid = 0, 0.0, 0

    @property
    def is_delivered(self) -> bool:
        """Whether the ledger has stored all events."""
        return not self._waiting

    def record(self, kind: str, cause: str = "") -> None:
        """Record an event without duration."""
        event = self._event(kind, "", cause)
        self._enqueue(event | {"until": event["at"]})

    def record_death(self, process: str, cause: str, source: str = "") -> None:
        """Record that a process has ended. A death for another cause before its return updates the same event."""
        open_event = self._open.get(process)
        # Each version takes space in the log, also on a disk whose free bytes are all that changes in the cause.
        if open_event and _NUMBERS.sub("", open_event["cause"]) == _NUMBERS.sub("", _shorten(cause)):
            return
        event = open_event or self._event("restart", process, cause, source)
        if open_event:
            event = open_event | {"version": open_event["version"] + 1, "cause": _shorten(cause)}
        else:
            self._death_times_s[process] = self._clock.monotonic()
        self._open[process] = event
        self._enqueue(event)

    @property
    def missing_processes(self) -> list[str]:
        """Processes that died and have not returned."""
        return list(self._open)

    def is_stored(self, process: str) -> bool:
        """Report whether the death of a missing process is stored by the ledger, or dropped at the limit."""
        return self._open[process]["id"] not in self._waiting

    def record_return(self, process: str) -> None:
        """Record that a process is running again."""
        event, away_s = self._open.pop(process), self._clock.monotonic() - self._death_times_s.pop(process)
        self._enqueue(event | {"version": event["version"] + 1, "until": event["at"] + round(away_s * 1000)})

    def deliver(self, daemon_pid: int | None) -> None:
        """Send waiting events to the daemon, if it runs; forget events that it has answered."""
        answered = self._transport.poll_answers()
        for event_id in [event_id for event_id, number in self._sent.items() if number <= answered]:
            del self._sent[event_id], self._waiting[event_id]
        # A new daemon may not have read what its predecessor received. Sending twice is harmless: events have ids and
        # versions.
        if daemon_pid != self._daemon_pid or self._clock.monotonic() - self._last_sent_s > RESEND_AFTER_S:
            self._daemon_pid = daemon_pid or 0
            self._sent.clear()
        new = [event for event_id, event in self._waiting.items() if event_id not in self._sent][:MAX_EVENTS]
        if daemon_pid and new and (number := self._transport.send_events(new)):
            self._last_sent_s = self._clock.monotonic()
            self._sent |= {event["id"]: number for event in new}

    def _event(self, kind: str, process: str, cause: str, source: str = "") -> Event:
        self._number += 1
        started_ms = self._clock.micros() // 1000
        event = {
            "tier": "event",
            "id": f"supervisor {started_ms}.{self._number}",
            "version": 0,
            "kind": kind,
            "at": started_ms,
        }
        return event | {"what": process, "cause": _shorten(cause), "place": source}

    def _enqueue(self, event: Event) -> None:
        self._waiting[event["id"]] = event
        # The new version replaces the waiting one, and must be sent even if the old one is in flight.
        self._sent.pop(event["id"], None)
        if len(self._waiting) > MAX_WAITING_EVENTS:
            oldest = next(iter(self._waiting))
            self._waiting.pop(oldest)
            self._sent.pop(oldest, None)


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_TEXT_LENGTH else f"{text[:MAX_TEXT_LENGTH]}..."
