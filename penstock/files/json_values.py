"""Strict parsing of JSON from outside: every failure is a ValueError."""

from __future__ import annotations

import json
import math
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises ValueError and nothing else, also for deep nesting and for numbers that are not finite (``NaN``, ``1e999``):
    no arithmetic downstream is prepared for them.
    """
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    # Limit: the parser recurses once per nesting level, so Python's recursion limit bounds the depth.
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number


def parse_object(text: str | bytes) -> dict[str, Any]:
    """Return the object of a JSON text. Raises ValueError for anything else."""
    value = parse_json(text)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value
