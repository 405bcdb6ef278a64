"""Events in words, from their documents: the same ones on the page and in the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.counts import Counts
from penstock.ledger.receipt_words import reasons

Event = Mapping[str, Any]
DAY = 86_400


def merged(events: Sequence[Event]) -> list[dict[str, Any]]:
    """The events, newest first, what was lost during another one as a part of it."""
    parts: dict[str, Counts] = {}
    known = {event["id"] for event in events}
    for event in events:
        if event["during"] in known:
            parts.setdefault(event["during"], Counts()).absorb(event["lost"])
    own = [dict(event) for event in events if event["during"] not in known]
    for event in own:
        if more := parts.get(event["id"]):
            event["lost"] = Counts(event["lost"])
            event["lost"].absorb(more)
    return sorted((event | {"text": in_words(event)} for event in own), key=lambda event: -int(event["at"]))


def in_words(event: Event) -> str:
    """What happened, without its time."""
    return _WORDS[event["kind"]](event) if event["kind"] in _WORDS else f"{event['what']} {event['cause']}".strip()


def told(event: Event) -> str:
    """When and what: ``01:15:12 receiver events-udp was killed by SIGKILL, back after 0.4 s``."""
    return f"{moment(event['at'])} {event['text']}"


def moment(millis: int, now: float | None = None) -> str:
    """The local time of day, with the date where it is not of today."""
    then, today = time.localtime(millis / 1000), time.localtime(now)
    return time.strftime("%H:%M:%S" if then[:3] == today[:3] else "%Y-%m-%d %H:%M:%S", then)


def _restart(event: Event) -> str:
    back = f"back after {lasted(event)}" if event["until"] else "not back yet"
    gone = f", {reasons(event['lost'])} meanwhile" if event["lost"] else ""
    return f"{event['what']} {event['cause']}, {back}{gone}"


def _loss(event: Event) -> str:
    place = event["place"]
    within = f" within {lasted(event)}" if event["until"] - event["at"] >= 1000 else ""
    cause = f" ({event['cause']})" if event["cause"] else ""
    return f"{place}: {reasons(event['lost'])}{within}{cause}"


def _retention(event: Event) -> str:
    return f"retention dropped what was old: {event['what']}"


def _disk(event: Event) -> str:
    return f"the disk was full for {lasted(event)}" if event["until"] else f"the disk is full: {event['cause']}"


def _clock(event: Event) -> str:
    return f"{event['cause']}; believed again after {lasted(event)}" if event["until"] else str(event["cause"])


def _start(event: Event) -> str:
    return f"penstock started{': ' if event['cause'] else ''}{event['cause']}"


def _stop(_: Event) -> str:
    return "penstock stopped"


def _reload(event: Event) -> str:
    return str(event["cause"])


_WORDS: dict[str, Callable[[Event], str]] = {
    "restart": _restart,
    "loss": _loss,
    "retention": _retention,
    "disk": _disk,
    "clock": _clock,
    "start": _start,
    "stop": _stop,
    "reload": _reload,
}


def lasted(event: Event) -> str:
    """Return how long an event lasted: ``0.4 s``, ``12 s``, ``3 min``, ``2 h``."""
    # Events of before may be dated by a clock that was set back while they lasted.
    seconds = max(event["until"] - event["at"], 0) / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit, word in ((DAY, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {word}"
    return f"{seconds:.0f} s"
