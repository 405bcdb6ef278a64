"""Sizes, times and topics as commands show them."""

from __future__ import annotations

import math
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.client import Topic

SIZES = ("message_size_limit", "segment_size_limit", "retain_bytes")
"""Settings of a topic that are bytes."""


def document(one: Topic) -> dict[str, Any]:
    """A topic as JSON."""
    found = asdict(one)
    times = {name: stamp(found[name]) for name in ("oldest", "newest")}
    return found | times | {"entries": one.end - one.start}


def stamp(time: datetime | None) -> str | None:
    """ISO 8601 in UTC."""
    return None if time is None else time.isoformat(timespec="microseconds").replace("+00:00", "Z")


def size(count: int) -> str:
    """Bytes for people."""
    if count < 1024:
        return f"{count} B"
    power = min(int(math.log(count, 1024)), 4)
    return f"{count / 1024**power:.1f} {('KiB', 'MiB', 'GiB', 'TiB')[power - 1]}"


def age(time: datetime | None) -> str:
    """How long ago."""
    return "" if time is None else f"{span((datetime.now(UTC) - time).total_seconds())} ago"


def span(seconds: float) -> str:
    """Seconds for people."""
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"
