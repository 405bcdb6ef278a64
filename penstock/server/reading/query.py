"""Queries of GetLogs and StreamLogs, from a protobuf request or from the parameters of an HTTP request."""

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
"""Entries of a page if the request names no number."""

CACHED_FILTERS = 256
"""Limit: compiled filters that are kept, of up to 16 KiB of text each."""
LAST_OFFSET = 2**63 - 1
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
"""The years 1 to 9999, which a protobuf Timestamp may hold."""


@dataclass(frozen=True, slots=True)
class Query:
    """A request for entries from a start on: ``offset``, ``micros`` (since the epoch), a named ``cursor``, or an
    end of the topic.

    ``filter_text`` selects entries; ``filter`` compiles it.
    """

    topic: str
    offset: int | None = None
    micros: int | None = None
    latest: bool = False
    max_messages: int = 0
    cursor: str | None = None
    filter_text: str = ""

    @classmethod
    def from_request(cls, request: GetLogsRequest) -> Query:
        """Read a protobuf request. Raises BadRequest for a negative max_messages, a bad timestamp, an unknown
        position.
        """
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
        """Return the compiled filter; None without one. Raises BadRequest.

        Call it after the right to read was checked, and on a thread: compiling may take 50 ms.
        """
        return parse_filter(self.filter_text)

    @property
    def page(self) -> int:
        """Return the maximum number of entries of a page."""
        return self.max_messages or DEFAULT_MESSAGES


@functools.lru_cache(CACHED_FILTERS)
def parse_filter(text: str) -> Filter | None:
    """Compile a filter; None for an empty text. Raises BadRequest, which points at the error."""
    if not text.strip():
        return None
    try:
        return Filter.parse(text)
    except BadFilter as error:
        raise BadRequest(f"{error}\n{error.pointed}") from None


def _micros(timestamp: Timestamp) -> int:
    """Return microseconds, rounded up, so that no entry before the timestamp is returned."""
    seconds, nanos = timestamp.seconds, timestamp.nanos
    problem = (
        "before 0001-01-01"
        if seconds < FIRST_SECOND
        else "after 10000-01-01"
        if seconds > LAST_SECOND
        else "nanos not in range [0, 1e9)"
        if not 0 <= nanos < 10**9
        else ""
    )
    if problem:
        # slogd's text, in which Go prints the timestamp: clients may compare it.
        timestamp_text = f"&types.Timestamp{{Seconds: {seconds},\nNanos: {nanos},\n}}"
        raise BadRequest(f"Failed to create query: Bad timestamp: (timestamp: {timestamp_text}: {problem})")
    return int(timestamp.seconds) * 1_000_000 - (-timestamp.nanos // 1000)


_INTEGER = re.compile("-?[0-9]{1,20}")
_Reader = Callable[[GetLogsRequest, str], None]


def parse_query(topic: str, parameters: Iterable[tuple[str, str]]) -> GetLogsRequest:
    """Return the request of an HTTP query. Raises BadRequest.

    As in slogd's gateway: names in both spellings, the first of several equal names counts, unknown names are ignored.
    """
    request = GetLogsRequest(topic=topic)
    # Reversed, so that the first of several equal names wins.
    first_values = dict(reversed(list(parameters)))
    for name, text in first_values.items():
        if name in _STARTS:
            if request.WhichOneof("start_at") is not None:
                raise BadRequest("field already set for start_at oneof")
            _STARTS[name](request, text)
        elif name in ("max_messages", "maxMessages"):
            request.max_messages = _number(text, -(2**31), 2**31 - 1)
        elif name == "filter":
            request.filter = text
    return request


def _offset(request: GetLogsRequest, text: str) -> None:
    request.offset = _number(text, 0, 2**64 - 1)


def _timestamp(request: GetLogsRequest, text: str) -> None:
    try:
        request.timestamp.CopyFrom(parse_time(text))
    except ValueError as error:
        raise BadRequest(str(error)) from None


def _position(request: GetLogsRequest, text: str) -> None:
    if text not in _POSITIONS:
        raise BadRequest(f"{text} is not a valid proto.GetLogsRequest_Position")
    request.position = _POSITIONS[text]


def _seconds(request: GetLogsRequest, text: str) -> None:
    request.timestamp.seconds = _number(text, -(2**63), 2**63 - 1)


def _nanos(request: GetLogsRequest, text: str) -> None:
    request.timestamp.nanos = _number(text, -(2**31), 2**31 - 1)


def _cursor(request: GetLogsRequest, text: str) -> None:
    request.cursor = text


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


def _number(text: str, low: int, high: int) -> int:
    if not _INTEGER.fullmatch(text) or not low <= int(text) <= high:
        raise BadRequest(f"Not a number from {low} to {high}: {text[:100]!r}")
    return int(text)
