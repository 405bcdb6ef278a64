"""The rules of events again, payload by payload with Python's own parser: what the columns must agree with.

And payloads that are nearly events, to try both with.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from math import floor
from typing import Any

from hypothesis import strategies as st

from penstock.landing.event_rules import MAX_TIMESTAMP, MAX_TYPE_BYTES, MAX_UUID_BYTES, MIN_TIMESTAMP, Reason

MAX_DEPTH = 999


def first_of_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A hook of Python's parser for objects."""
    return dict(reversed(pairs))


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent of twenty digits
        return Decimal(float(text))


def depth(value: Any) -> int:
    """Return the number of nested lists and objects."""
    deepest, level = 0, [value]
    while level := [container for container in level if isinstance(container, list | dict)]:
        deepest += 1
        level = [
            inner for container in level for inner in (container.values() if isinstance(container, dict) else container)
        ]
    return deepest


def parse_fields(payload: bytes) -> dict[str, Any]:
    """Parse JSON with exact numbers; of a repeated key the first member counts.

    Raises ValueError, also for text that UTF-8 cannot encode.
    """
    text = payload.decode()
    json.dumps(json.loads(text, object_pairs_hook=list, parse_int=str), ensure_ascii=False).encode()
    fields = parsed_exactly(text)
    if depth(fields) > MAX_DEPTH:
        raise ValueError("too deep")
    assert isinstance(fields, dict)
    return fields


def parsed_exactly(text: str) -> Any:
    """JSON with numbers as Decimals."""
    return json.loads(
        text, object_pairs_hook=first_of_each, parse_constant=_refuse, parse_float=_number, parse_int=_number
    )


@contextmanager
def deep_recursion() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 10 * MAX_DEPTH)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def judge(payload: bytes) -> Reason | dict[str, Any]:
    """The reason, or the fields: ``type``, ``uuid``, ``host``, ``event_time`` (microseconds) and ``data``."""
    try:
        with deep_recursion():
            fields = parse_fields(payload)
    except ValueError:
        return Reason.BAD_JSON
    kind, uuid, millis = (fields.get(name) for name in ("type", "uuid", "timestamp"))
    if kind is None:
        return Reason.MISSING_TYPE
    if not _is_name(kind, MAX_TYPE_BYTES) or any(ord(letter) < 32 or ord(letter) == 127 for letter in kind):
        return Reason.BAD_TYPE
    if uuid is None:
        return Reason.MISSING_UUID
    if not _is_name(uuid, MAX_UUID_BYTES):
        return Reason.BAD_UUID
    if not isinstance(millis, Decimal) or not in_bounds(millis):
        return Reason.BAD_TIMESTAMP
    host = fields.get("host")
    return {
        "type": kind,
        "uuid": uuid,
        "host": host if isinstance(host, str) else None,
        "event_time": micros_of(millis),
        "data": fields.get("data"),
    }


def in_bounds(millis: Decimal) -> bool:
    """Rounded to the microsecond."""
    if not MIN_TIMESTAMP - 1 <= millis <= MAX_TIMESTAMP + 1:
        return False
    return MIN_TIMESTAMP * 1000 <= micros_of(millis) <= MAX_TIMESTAMP * 1000


def micros_of(millis: Decimal) -> int:
    """Rounded, halves away from zero."""
    if abs(millis) < Decimal("1e-30"):
        return 0
    micros = abs(Fraction(millis)) * 1000
    return floor(micros + Fraction(1, 2)) * (1 if millis > 0 else -1)


def _is_name(value: Any, most: int) -> bool:
    return isinstance(value, str) and 0 < len(value.encode()) <= most


WORDS = ["1e5", "{}", "[]", "null", "true", "NaN", "inf", "-Infinity", ",", '"type"', '"uuid"', '"timestamp"', '"data"']
WORDS += ['"a"', "\\ud800", "\\u0061", '"\\u0074ype"', "//", "/*", "1.5", "\\", "\x0b", "\ufeff"]
SCRAPS = st.sampled_from([*"{}[],:\"\\/'.-01é\U0001f600 \n\x00\x7f", *WORDS])
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@st.composite
def near_events(draw: st.DrawFn) -> bytes:
    """Events with some fields strange, and a piece of their text replaced."""
    fields: dict[str, Any] = {"type": "a", "uuid": "u", "timestamp": 1}
    names = st.sampled_from(["type", "uuid", "timestamp", "data", "host", "x"])
    fields.update(draw(st.dictionaries(names, VALUES, max_size=2)))
    text = json.dumps(fields, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    offset, length = draw(st.integers(1, len(text))), draw(st.integers(0, 3))
    piece = draw(st.lists(SCRAPS, max_size=2).map("".join).map(str.encode) | st.binary(max_size=2) | st.just(b""))
    return text[:offset] + piece + text[offset + length :]


def scraps() -> st.SearchStrategy[bytes]:
    """A brace, and words in disorder."""
    return st.lists(SCRAPS, max_size=9).map(lambda parts: b"{" + "".join(parts).encode())
