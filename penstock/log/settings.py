"""Settings of a topic, and the limits that no setting can exceed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from penstock.log.errors import InvalidSetting

Durability = Literal["received", "written", "synced"]
RetentionPolicy = Literal["expire", "keep"]
Compression = Literal["none", "zstd"]
TimestampType = Literal["append", "create"]

MAX_BATCH_BYTES = 512 << 20
"""Largest body of one append: well below the 2 GiB that 32-bit Arrow offsets can address."""
MERGE_BYTES = 8 << 20
MERGE_ROWS = 65_536
"""Largest merged batch: larger ones gain nothing, and a reader of few rows must load all of it."""
COMMIT_BYTES = 32 << 20
"""Largest commit (but at least one append); bounds its memory and the latency of the next one."""
MAX_NAME_BYTES = 200
"""Longest name of a topic or cursor, which is ASCII: file names derived from it stay below 255 bytes."""
ANYBODY = "*"
_CHOICES = {
    "durability": get_args(Durability),
    "retention_policy": get_args(RetentionPolicy),
    "compression": get_args(Compression),
    "timestamp_type": get_args(TimestampType),
}
_SIZES = ("message_size_limit", "segment_size_limit", "retain_bytes")
_TIMES = ("rotate_after", "stale_after")
_NAMES = ("readers", "writers")


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Settings of one topic: sizes in bytes, times in seconds.

    ``durability``: what a resolved append promises: ``written`` (in the file: survives the process) or
    ``synced`` (on the disk: survives the machine). ``received`` is promised before the log; here it is ``written``.
    ``retain_bytes``: 0 means no limit. ``retention_policy``: ``keep`` never expires what a cursor has not passed.
    ``compression``: of sealed segments. ``timestamp_type``: the time of a record for Kafka clients; ``create`` is the
    producer's, stored as an annotation. ``readers`` and ``writers``: names of tokens, ``*`` is anybody.
    """

    message_size_limit: int = 16 << 20
    segment_size_limit: int = 16 << 20
    rotate_after: float = 6 * 3600.0
    stale_after: float = 7 * 86400.0
    retain_bytes: int = 0
    retention_policy: RetentionPolicy = "expire"
    durability: Durability = "synced"
    compression: Compression = "none"
    timestamp_type: TimestampType = "append"
    readers: tuple[str, ...] = (ANYBODY,)
    writers: tuple[str, ...] = (ANYBODY,)

    @classmethod
    def from_config(cls, config: Any) -> TopicSettings:
        """Return the settings from the attributes of ``config`` (a ``TopicConfig``); other attributes are ignored."""
        return cls(**{field.name: getattr(config, field.name) for field in fields(cls)})

    def changed(self, changes: Mapping[str, object]) -> TopicSettings:
        """Return these settings with some replaced. Raises InvalidSetting with the key."""
        return replace(self, **validate_settings(changes))

    def document(self) -> dict[str, Any]:
        """Return a JSON-ready document."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def validate_settings(changes: Mapping[str, object]) -> dict[str, Any]:
    """Return ``changes`` with each value converted to its key's type. Raises InvalidSetting with the key."""
    return {key: _validate(key, value) for key, value in changes.items()}


def _validate(key: str, value: Any) -> Any:
    if key in _CHOICES:
        return _validate_choice(key, value)
    if key in _NAMES:
        return _validate_names(key, value)
    if key not in _SIZES + _TIMES:
        raise InvalidSetting(f"{key}: no such setting; the settings are {', '.join(_KEYS)}")
    whole = key in _SIZES
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not 0 <= value < 1 << 62:
        raise InvalidSetting(f"{key}: {value!r} is not {'a number of bytes' if whole else 'a number of seconds'}")
    return value if whole else float(value)


def _validate_choice(key: str, value: Any) -> str:
    if value not in _CHOICES[key]:
        raise InvalidSetting(f"{key}: {value!r} is not one of {', '.join(_CHOICES[key])}")
    return str(value)


def _validate_names(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) and name for name in value):
        raise InvalidSetting(f"{key}: {value!r} is not a list of names")
    return tuple(value)


_KEYS = tuple(field.name for field in fields(TopicSettings))
