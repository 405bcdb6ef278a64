"""What somebody typed: a time, a filter on annotations, or a text."""

from __future__ import annotations

import re
from datetime import UTC, datetime

TIME = re.compile(r"(\d{4}-\d{2}-\d{2}[T ])?\d{2}:\d{2}(:\d{2}(\.\d+)?)?Z?")
_FILTER = re.compile(r"(\s|\(|NOT\b)*[kv]:", re.IGNORECASE)
HERE = re.compile(r"\d{1,18}")


def time_of(text: str) -> datetime | None:
    """A time of UTC, today where there is no date; None for what is none."""
    if not TIME.fullmatch(text):
        return None
    dated = text if "-" in text else f"{datetime.now(UTC).date()} {text}"
    try:
        return datetime.fromisoformat(dated.removesuffix("Z")).replace(tzinfo=UTC)
    except ValueError:
        return None


def parameters_of(wanted: str) -> dict[str, str]:
    """How a topic is asked for ``wanted``: as a filter where it begins as one (``k:`` or ``v:``), else as a text."""
    if not wanted.strip():
        return {}
    return {"filter": wanted} if _FILTER.match(wanted) else {"text": wanted}


def place_of(text: str) -> dict[str, str] | None:
    """Where a topic is gone to: an offset or a time; None for what is neither."""
    text = text.strip().replace(",", "")
    if HERE.fullmatch(text):
        return {"offset": text}
    moment = time_of(text)
    return {"timestamp": moment.isoformat().replace("+00:00", "Z")} if moment else None
