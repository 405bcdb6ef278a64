"""JSON that was found somewhere, and may be anything."""

from __future__ import annotations

import json
import math
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """The value in a text. Raises ValueError and nothing else: also where it is nested too deeply, or has a number
    that is none (NaN, 1e999), which no arithmetic behind it is ready for.
    """
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number")
    return number


def parse_object(text: str | bytes) -> dict[str, Any]:
    """The object in a text. Raises ValueError."""
    value = parse_json(text)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value
