"""Events in words, from their JSON form; shared by console and terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.counts import Counts
from penstock.files.disk_space import NO_SPACE_TEXT
from penstock.ledger.posts import CANNOT_START, EventPost
from penstock.ledger.receipt import full_part
from penstock.ledger.receipt_words import reasons

Event = Mapping[str, Any]
MINUTE, DAY = 60, 86_400


def merged(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Return the events, newest first; what was lost during an event is a part of it."""
    parts: dict[str, Counts] = {}
    ids = {event["id"] for event in events}
    for event in events:
        if event["during"] in ids:
            parts.setdefault(event["during"], Counts()).absorb(event["lost"])
    top_level = [dict(event) for event in events if event["during"] not in ids]
    for event in top_level:
        if lost_during := parts.get(event["id"]):
            event["lost"] = Counts(event["lost"])
            event["lost"].absorb(lost_during)
    return sorted((event | {"text": in_words(event)} for event in top_level), key=lambda event: -int(event["at"]))


def in_words(event: Event) -> str:
    """Return the description of an event, without its time."""
    return _WORDS[event["kind"]](event) if event["kind"] in _WORDS else f"{event['what']} {event['cause']}".strip()


def event_line(event: Event) -> str:
    """Return time and text: ``01:15:12 receiver events-udp was killed by SIGKILL, back after 0.4 s``."""
    return f"{moment(event['at'])} {event['text']}"


def unwritten_text(balance: Mapping[str, Any]) -> str:
    """Return when and why the log cannot be written or could not, from a balance; empty if it always could."""
    if not (unwritten := balance.get("unwritten")):
        return ""
    since, full = moment(unwritten["since"]), unwritten["full"]
    if not unwritten["until"]:
        return f"the log cannot be written since {since} because the {full} is full"
    return f"the log could not be written from {since} to {moment(unwritten['until'])} because the {full} was full"


def not_started(events: Sequence[EventPost]) -> list[dict[str, Any]]:
    """Return the processes that cannot start now, from all events in their order.

    Each has ``process``, ``since`` and ``text``.
    """
    # An earlier supervisor that was killed has left its events open. Order: by storage, because the clock may be set
    # back after a start.
    start = max((number for number, event in enumerate(events) if event.kind == "start"), default=0)
    return [
        {"process": event.what, "since": event.at, "text": f"{event.what} {event.cause} (since {moment(event.at)})"}
        for event in events[start:]
        if event.kind == "restart" and not event.until
        if event.cause.startswith(CANNOT_START)
    ]


def moment(millis: int, now: float | None = None) -> str:
    """Return the local time of day, with the date if it is not today."""
    then, today = time.localtime(millis / 1000), time.localtime(now)
    return time.strftime("%H:%M:%S" if then[:3] == today[:3] else "%Y-%m-%d %H:%M:%S", then)


def _restart(event: Event) -> str:
    loss_text = f", {reasons(event['lost'])} in that time" if event["lost"] else ""
    if event["cause"].startswith(CANNOT_START):
        verb = f"could not start for {duration_text(event)}" if event["until"] else CANNOT_START
        return f"{event['what']} {verb}{event['cause'].removeprefix(CANNOT_START)}{loss_text}"
    return_text = f"back after {duration_text(event)}" if event["until"] else "not back yet"
    return f"{event['what']} {event['cause']}, {return_text}{loss_text}"


def _stopped(event: Event) -> str:
    # A forwarder is also silent while its handler hangs in a delivery.
    word = "silent" if event["what"].startswith("forwarder ") else "stopped"
    if not event["until"]:
        return f"{event['what']} is {word}"
    seconds = (event["until"] - event["at"]) / 1000
    # Tenths also above 10 s: a stopped receiver loses messages as soon as the kernel's buffer is full.
    pause_text = f"{seconds:.1f} s" if seconds < 2 * MINUTE else duration_text(event)
    loss_text = f"{reasons(event['lost'])} while " if event["lost"] else ""
    return f"{loss_text}{event['what']} was {word} for {pause_text}"


def _loss(event: Event) -> str:
    origin = event["place"]
    duration = f" within {duration_text(event)}" if event["until"] - event["at"] >= 1000 else ""
    cause = f" ({event['cause']})" if event["cause"] else ""
    return f"{origin}: {reasons(event['lost'])}{duration}{cause}"


def _retention(event: Event) -> str:
    return f"retention dropped {event['what']}"


def _disk(event: Event) -> str:
    full, cause = full_part(event), event["cause"]
    lost = sum(event["lost"].values())
    messages = f"{lost:,} message{'' if lost == 1 else 's'} lost"
    loss_text = f"; {messages} because the log could not be written" if lost else ""
    if event["until"]:
        return f"the {full} was full for {duration_text(event)}{loss_text}"
    return f"the {full} is full{'' if cause in ('', NO_SPACE_TEXT) else f': {cause}'}{loss_text}"


def _landing(event: Event) -> str:
    if event["until"]:
        return f"the pipeline failed for {duration_text(event)}: {event['cause']}"
    return f"the pipeline fails, and messages wait: {event['cause']}"


def _clock(event: Event) -> str:
    return f"{event['cause']}; believed again after {duration_text(event)}" if event["until"] else str(event["cause"])


def _start(event: Event) -> str:
    return f"penstock started{': ' if event['cause'] else ''}{event['cause']}"


def _stop(_: Event) -> str:
    return "penstock stopped"


def _cause(event: Event) -> str:
    return str(event["cause"])


_WORDS: dict[str, Callable[[Event], str]] = {
    "restart": _restart,
    "stopped": _stopped,
    "loss": _loss,
    "retention": _retention,
    "disk": _disk,
    "landing": _landing,
    "clock": _clock,
    "start": _start,
    "stop": _stop,
    "reload": _cause,
    "foreign": _cause,
}


def duration_text(event: Event) -> str:
    """Return how long an event lasted: ``0.4 s``, ``12 s``, ``3 min``, ``2 h``."""
    # Old events may have negative durations: a clock was set back while they lasted.
    seconds = max(event["until"] - event["at"], 0) / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit, word in ((DAY, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {word}"
    return f"{seconds:.0f} s"
