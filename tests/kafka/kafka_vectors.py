"""Recordings of the Java library's classes, and functions that read them."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

from penstock.kafka.errors import InvalidChunk, LargeMessageError, MessageDropped, NoCommittedOffset, OffsetNotTracked

VECTORS = Path(__file__).parent / "vectors"
TP = ("topic", 0)
Key = tuple[str, int]


def recorded(name: str) -> bytes:
    """Return a recorded file."""
    return lzma.decompress((VECTORS / f"{name}.xz").read_bytes())


KAFKA: dict[str, Any] = json.loads(recorded("li_kafka.json"))
NAMES: dict[type[Exception], str] = {
    OffsetNotTracked: "OffsetNotTrackedException",
    InvalidChunk: "InvalidSegmentException",
    MessageDropped: "LargeMessageDroppedException",
    NoCommittedOffset: "NoOffsetForPartitionException",
}


def named(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Return arguments of pytest.mark.parametrize: the cases with their names as ids."""
    return {"argvalues": cases, "ids": [str(case.get("name", index)) for index, case in enumerate(cases)]}


def partition(text: str) -> Key:
    """Parse ``topic-0``."""
    topic, _, number = text.rpartition("-")
    return topic, int(number)


def unhex(text: str | None) -> bytes | None:
    """Return bytes, or None."""
    return None if text is None else bytes.fromhex(text)


def tohex(data: Any) -> str | None:
    """Return hexadecimal text, or None."""
    return None if data is None else bytes(data).hex()


def headers_of(recorded_headers: list[list[str]] | None) -> list[tuple[str, Any]] | None:
    """Return headers in the form of clients."""
    return None if recorded_headers is None else [(name, unhex(value)) for name, value in recorded_headers]


def headers_as_recorded(headers: Iterable[tuple[str, Any]] | None) -> list[list[Any]]:
    """Return headers in the form of the recordings."""
    return [[name, tohex(value)] for name, value in headers or ()]


def uid(number: int) -> UUID:
    """Return an id in the form of the recordings."""
    high = 0x0123456789ABCDEF * (number + 1) % (1 << 64)
    low = 0xFEDCBA9876543210 ^ (0x9E3779B97F4A7C15 * number % (1 << 64))
    return UUID(int=high << 64 | low)


def outcome(action: Callable[[], Any]) -> Any:
    """Return the result of an action, or the name of the Java library's exception."""
    try:
        return action()
    except LargeMessageError as error:
        return {"exception": NAMES[type(error)]}


def plain(recorded_result: Any) -> Any:
    """Return a recorded result; an exception is reduced to its short name, because its text has no fixed form."""
    if isinstance(recorded_result, dict) and "exception" in recorded_result:
        return {"exception": recorded_result["exception"].rpartition(".")[2]}
    return recorded_result


class Record:
    """A record that a consumer polled, with the methods of ``confluent_kafka.Message``."""

    def __init__(
        self,
        offset: int,
        value: bytes | None,
        headers: list[tuple[str, Any]] | None = None,
        key: bytes | None = None,
        of: Key = TP,
        timestamp: int = 0,
    ) -> None:
        self._of, self._offset, self._value, self._headers, self._key = of, offset, value, headers, key
        self._timestamp = timestamp

    def topic(self) -> str:
        return self._of[0]

    def partition(self) -> int:
        return self._of[1]

    def offset(self) -> int:
        return self._offset

    def key(self) -> Any:
        return self._key

    def value(self) -> Any:
        return self._value

    def headers(self) -> Any:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return 1, self._timestamp

    def set_key(self, key: Any) -> None:
        self._key = key

    def set_value(self, value: Any) -> None:
        self._value = value

    def set_headers(self, headers: Any) -> None:
        self._headers = headers

    def copy(self) -> Record:
        return Record(self._offset, self._value, self._headers and list(self._headers), self._key, self._of)
