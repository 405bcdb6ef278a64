"""What makes an event: the rules, and their strict check in Python.

``penstock.spark.query.message_kinds`` applies the same rules as Spark columns to all rows; the check here judges the
few that are read again as proof. The limits are those of Spark's parser, so that both agree on every payload.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn


class MessageKind(StrEnum):
    """What becomes of a row in the table."""

    EVENT = "event"
    SYSLOG = "syslog"
    MESSAGE = "message"
    QUARANTINE = "quarantine"


class Reason(StrEnum):
    """Why a payload that begins with ``{`` is not an event; the first that holds is taken."""

    BAD_JSON = "bad_json"
    MISSING_TYPE = "missing_type"
    BAD_TYPE = "bad_type"
    MISSING_UUID = "missing_uuid"
    BAD_UUID = "bad_uuid"
    BAD_TIMESTAMP = "bad_timestamp"
    TYPE_NOT_ALLOWED = "type_not_allowed"
    TOO_MANY_TYPES = "too_many_types"
    SCHEMA_NOT_MET = "schema_not_met"


MAX_TYPE_BYTES = 80
"""A type names a folder: escaped by Spark it may grow threefold, and a file name has 255 bytes at most."""
MAX_UUID_BYTES = 256
"""Every uuid is kept in memory for the duplicate window."""
MIN_TIMESTAMP = -62_135_596_800_000
MAX_TIMESTAMP = 253_402_300_799_999
"""Years 1 to 9999 in milliseconds: what Spark, pandas and Parquet can all hold."""
UNSAFE_IN_TYPE = r"[\x00-\x1f\x7f]|^__HIVE_DEFAULT_PARTITION__$"
"""Control characters, and the word that Spark writes for null."""

MAX_DEPTH = 999
"""Spark's parser takes 1,000 levels, and one is needed to tell that the text ended."""
MAX_NUMBER = 1000
MAX_NAME = 50_000
"""Longest number and longest key that Spark's parser takes, in characters."""
_LEVELS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Event:
    """A valid event's identity."""

    type: str
    uuid: str


@dataclass(frozen=True, slots=True)
class _Number:
    text: str


class _NotStrict(ValueError):
    """JSON that Python would take and Spark does not."""


def is_safe_type(name: str) -> bool:
    """Whether a type can name a folder."""
    return 0 < len(name.encode("utf-8", "replace")) <= MAX_TYPE_BYTES and not re.search(UNSAFE_IN_TYPE, name)


def judge(payload: bytes, event_types: Sequence[str] = ()) -> Event | Reason:
    """The event in a payload that begins with ``{``, or why it is none. Whether there is room for its type is not
    asked: that was decided when it was read.
    """
    try:
        fields = _parse(payload.decode())
    except ValueError:
        return Reason.BAD_JSON
    return _reason(fields, event_types) or Event(fields["type"], fields["uuid"])


def _reason(fields: dict[str, Any], event_types: Sequence[str]) -> Reason | None:
    kind, uuid, timestamp = (fields.get(name) for name in ("type", "uuid", "timestamp"))
    if kind is None:
        return Reason.MISSING_TYPE
    if not isinstance(kind, str) or not is_safe_type(kind):
        return Reason.BAD_TYPE
    if uuid is None:
        return Reason.MISSING_UUID
    if not isinstance(uuid, str) or not 0 < len(uuid.encode()) <= MAX_UUID_BYTES:
        return Reason.BAD_UUID
    if not isinstance(timestamp, _Number) or not MIN_TIMESTAMP <= float(timestamp.text) <= MAX_TIMESTAMP:
        return Reason.BAD_TIMESTAMP
    return Reason.TYPE_NOT_ALLOWED if event_types and kind not in event_types else None


def _parse(text: str) -> dict[str, Any]:
    """A JSON object to its last character, with every key once. Raises ValueError."""
    try:
        found = json.loads(text, **_HOOKS)
    except RecursionError:
        found = _parse_deep(text)
    if not isinstance(found, dict):
        raise _NotStrict("not an object")
    return found


def _parse_deep(text: str) -> Any:
    if _depth(text) > MAX_DEPTH:
        raise _NotStrict("nested too deeply")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 4 * MAX_DEPTH)
    try:
        return json.loads(text, **_HOOKS)
    finally:
        sys.setrecursionlimit(limit)


def _depth(text: str) -> int:
    level = deepest = 0
    for token in _LEVELS.finditer(text):
        level += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        deepest = max(deepest, level)
    return deepest


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise _NotStrict("a key stands there twice")
    for name, value in pairs:
        if len(name) > MAX_NAME:
            raise _NotStrict("a key is too long")
        name.encode()  # a lone surrogate is a UnicodeEncodeError, which is a ValueError
        _check(value)
    return fields


def _check(value: Any) -> None:
    """Strings inside lists are not seen by the hooks; objects inside were checked already."""
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, list):
        for item in value:
            _check(item)


def _number(text: str) -> _Number:
    if len(text) > MAX_NUMBER:
        raise _NotStrict("a number is too long")
    return _Number(text)


def _refuse(name: str) -> NoReturn:
    raise _NotStrict(f"{name} is not JSON")


_HOOKS: dict[str, Any] = {
    "object_pairs_hook": _object,
    "parse_int": _number,
    "parse_float": _number,
    "parse_constant": _refuse,
}
