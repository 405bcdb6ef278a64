"""Parse what a user types into a search box: a time, an annotation filter, an offset, or plain text."""

from __future__ import annotations

import re
from datetime import UTC, datetime

TIME_PATTERN = re.compile(r"(\d{4}-\d{2}-\d{2}[T ])?\d{2}:\d{2}(:\d{2}(\.\d+)?)?Z?")
_FILTER = re.compile(r"(\s|\(|NOT\b)*[kv]:", re.IGNORECASE)
OFFSET_PATTERN = re.compile(r"\d{1,18}")
"""At most 18 digits: every match fits a signed 64-bit offset."""


def parse_time(text: str) -> datetime | None:
    """Return the UTC time in ``text``, of today if it has no date; None if it is not a time."""
    if not TIME_PATTERN.fullmatch(text):
        return None
    dated = text if "-" in text else f"{datetime.now(UTC).date()} {text}"
    try:
        return datetime.fromisoformat(dated.removesuffix("Z")).replace(tzinfo=UTC)
    except ValueError:
        return None


def search_parameters(query: str) -> dict[str, str]:
    """Return the daemon's search parameters: a filter if ``query`` begins with ``k:``, ``v:``, ``NOT`` or a
    bracket, else a text.
    """
    if not query.strip():
        return {}
    return {"filter": query} if _FILTER.match(query) else {"text": query}


def parse_target(text: str) -> dict[str, str] | None:
    """Return the request parameters of an offset or a time; None if ``text`` is neither."""
    text = text.strip().replace(",", "")
    if OFFSET_PATTERN.fullmatch(text):
        return {"offset": text}
    moment = parse_time(text)
    return {"timestamp": moment.isoformat().replace("+00:00", "Z")} if moment else None
