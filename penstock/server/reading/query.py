"""What GetLogs and StreamLogs ask for, from a protobuf request or from an HTTP query."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from google.protobuf.timestamp_pb2 import Timestamp

from penstock.log.read.filters import BadFilter, Filter
from penstock.slogd.errors import BadRequest
from penstock.slogd.json.values import parse_time
from penstock.slogd.slogd_pb2 import GetLogsRequest

DEFAULT_MESSAGES = 1000
"""Entries in an answer when the request does not say."""

CACHED_FILTERS = 256
"""Limit: compiled filters that are kept, of up to 16 KiB of text each."""
LAST_OFFSET = 2**63 - 1
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
"""The years 1 to 9999, which a protobuf Timestamp may hold."""


@dataclass(frozen=True, slots=True)
class Query:
    """Where to start: at ``offset``, ``micros`` (since the epoch) or a named ``cursor``, else at an end of the topic.

    ``filter_text`` says which entries are wanted; ``filter`` compiles it.
    """

    topic: str
    offset: int | None = None
    micros: int | None = None
    latest: bool = False
    max_messages: int = 0
    cursor: str | None = None
    filter_text: str = ""

    @classmethod
    def of(cls, request: GetLogsRequest) -> Query:
        """Raises BadRequest for a negative max_messages, an impossible timestamp, an unknown position."""
        if request.max_messages < 0:
            raise BadRequest("max_messages must not be negative")
        start = request.WhichOneof("start_at")
        if start == "position" and request.position not in GetLogsRequest.Position.values():
            raise BadRequest(f"Unknown position: {int(request.position)}")
        return cls(
            request.topic,
            offset=min(request.offset, LAST_OFFSET) if start == "offset" else None,
            micros=_micros(request.timestamp) if start == "timestamp" else None,
            latest=start == "position" and request.position == GetLogsRequest.LATEST,
            max_messages=request.max_messages,
            cursor=request.cursor if start == "cursor" else None,
            filter_text=request.filter.strip(),
        )

    @property
    def filter(self) -> Filter | None:
        """The filter; None where there is none. Raises BadRequest.

        Ask for it after the right to read was checked, and on a thread: to compile it may take 50 ms.
        """
        return parse_filter(self.filter_text)

    @property
    def page(self) -> int:
        """The most entries of one answer."""
        return self.max_messages or DEFAULT_MESSAGES


@functools.lru_cache(CACHED_FILTERS)
def parse_filter(text: str) -> Filter | None:
    """The filter; None where there is none. Raises BadRequest, which points at the place."""
    if not text.strip():
        return None
    try:
        return Filter.parse(text)
    except BadFilter as error:
        raise BadRequest(f"{error}\n{error.pointed}") from None


def _micros(timestamp: Timestamp) -> int:
    """Rounded up, so that no entry before the timestamp is answered."""
    seconds, nanos = timestamp.seconds, timestamp.nanos
    wrong = (
        "before 0001-01-01"
        if seconds < FIRST_SECOND
        else "after 10000-01-01"
        if seconds > LAST_SECOND
        else "nanos not in range [0, 1e9)"
        if not 0 <= nanos < 10**9
        else ""
    )
    if wrong:
        shown = f"&types.Timestamp{{Seconds: {seconds},\nNanos: {nanos},\n}}"
        raise BadRequest(f"Failed to create query: Bad timestamp: (timestamp: {shown}: {wrong})")
    return int(timestamp.seconds) * 1_000_000 - (-timestamp.nanos // 1000)


_INTEGER = re.compile("-?[0-9]{1,20}")
_Reader = Callable[[GetLogsRequest, str], None]


def parse_query(topic: str, parameters: Iterable[tuple[str, str]]) -> GetLogsRequest:
    """The request of an HTTP query. As in slogd's gateway: names in both spellings, the first value of
    a name counts, unknown names are ignored. Raises BadRequest.
    """
    request = GetLogsRequest(topic=topic)
    given = dict(reversed(list(parameters)))
    for name, value in given.items():
        if name in _STARTS:
            if request.WhichOneof("start_at") is not None:
                raise BadRequest("field already set for start_at oneof")
            _STARTS[name](request, value)
        elif name in ("max_messages", "maxMessages"):
            request.max_messages = _number(value, -(2**31), 2**31 - 1)
        elif name == "filter":
            request.filter = value
    return request


def _offset(request: GetLogsRequest, value: str) -> None:
    request.offset = _number(value, 0, 2**64 - 1)


def _timestamp(request: GetLogsRequest, value: str) -> None:
    try:
        request.timestamp.CopyFrom(parse_time(value))
    except ValueError as error:
        raise BadRequest(str(error)) from None


def _position(request: GetLogsRequest, value: str) -> None:
    if value not in _POSITIONS:
        raise BadRequest(f"{value} is not a valid proto.GetLogsRequest_Position")
    request.position = _POSITIONS[value]


def _seconds(request: GetLogsRequest, value: str) -> None:
    request.timestamp.seconds = _number(value, -(2**63), 2**63 - 1)


def _nanos(request: GetLogsRequest, value: str) -> None:
    request.timestamp.nanos = _number(value, -(2**31), 2**31 - 1)


def _cursor(request: GetLogsRequest, value: str) -> None:
    request.cursor = value


_Position = GetLogsRequest.Position
_POSITIONS = {
    text: position
    for position in (_Position.UNSPECIFIED, _Position.EARLIEST, _Position.LATEST)
    for text in (_Position.Name(position), str(position))
}
_STARTS: dict[str, _Reader] = {
    "offset": _offset,
    "timestamp": _timestamp,
    "timestamp.seconds": _seconds,
    "timestamp.nanos": _nanos,
    "position": _position,
    "cursor": _cursor,
}


def _number(value: str, low: int, high: int) -> int:
    if not _INTEGER.fullmatch(value) or not low <= int(value) <= high:
        raise BadRequest(f"Not a number from {low} to {high}: {value[:100]!r}")
    return int(value)
