"""A client of the log: append, read, follow.

>>> with Log("127.0.0.1:8845") as log:
...     log.append("events", [b"one", b"two"], annotations={"userid": "5"})
...     for entry in log.follow("events", "earliest"):
...         print(entry.offset, entry.payload)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Literal, TypeVar

import grpc
from google.protobuf.any_pb2 import Any as ProtobufAny
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from penstock.server import slogd_pb2 as pb
from penstock.server.slogd_pb2_grpc import StructuredLogStub

MAX_MESSAGE = 64 << 20
"""Bytes of a request or an answer, as the server has it."""
TIMEOUT = 30.0

Payload = bytes | str | Message | None
"""A text is sent as UTF-8, a protobuf message as an Any of its type (an Any as it is)."""
Start = int | datetime | Literal["earliest", "latest"]
"""An offset, a time (the first entry at or after it), or one of the ends."""
T = TypeVar("T")


class LogError(Exception):
    """A call failed; the text is the server's. Where nothing more exact is known, this itself is raised."""


class Refused(LogError):
    """The request can never succeed: bad name, message too large, not allowed."""


class NoSuchTopic(LogError):
    """The topic does not exist."""


class Exhausted(LogError):
    """The server is out of disk or topics: nothing of the request was stored; may succeed later."""


class Unavailable(LogError):
    """The server is not there, is stopping or did not answer in time. What was being appended may be stored or not."""


_ERRORS = {
    grpc.StatusCode.INVALID_ARGUMENT: Refused,
    grpc.StatusCode.PERMISSION_DENIED: Refused,
    grpc.StatusCode.NOT_FOUND: NoSuchTopic,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Exhausted,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: Unavailable,
    grpc.StatusCode.CANCELLED: Unavailable,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a topic. ``payload`` is None where it was sent without; ``type_url`` is set for an Any."""

    offset: int
    timestamp: datetime
    payload: bytes | None
    type_url: str | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    key: bytes | None = None


class Log:
    """The topics of a log daemon at ``rpc_address`` (``host:port``). Usable from several threads."""

    def __init__(self, rpc_address: str, *, timeout: float = TIMEOUT) -> None:
        sizes = [(f"grpc.max_{way}_message_length", MAX_MESSAGE) for way in ("receive", "send")]
        self._channel = grpc.insecure_channel(rpc_address, options=sizes)
        self._stub = StructuredLogStub(self._channel)
        self._timeout = timeout

    def append(
        self, topic: str, payloads: Iterable[Payload], annotations: Mapping[str, str] | None = None
    ) -> Sequence[int]:
        """Append one entry for each payload, all or none, and return their offsets once they are synced.

        ``annotations`` go with each of them. Raises Refused, Exhausted, Unavailable.
        """
        if isinstance(payloads, (bytes, str)):
            raise TypeError("payloads must be several: [payload]")
        logs = [_entry(payload, annotations) for payload in payloads]
        request = pb.AppendRequest(topic=topic, logs=logs)
        return list(_called(partial(self._stub.AppendLogs, request, timeout=self._timeout)).offsets)

    def read(self, topic: str, offset: Start = "earliest", max_messages: int = 1000) -> list[Entry]:
        """Up to ``max_messages`` entries from ``offset`` on; with ``"latest"`` the last ones.

        Fewer only at the end of the topic. Raises NoSuchTopic, Refused, Unavailable.
        """
        entries: list[Entry] = []
        start = offset
        while len(entries) < max_messages:
            request = _request(topic, start, max_messages - len(entries))
            page = _called(partial(self._stub.GetLogs, request, timeout=self._timeout)).logs
            if not page:
                break
            entries += map(_received, page)
            start = entries[-1].offset + 1
        return entries

    def follow(self, topic: str, offset: Start = "latest") -> Iterator[Entry]:
        """Entries from ``offset`` on, then those that are appended, without end; close the iterator to leave.

        Raises NoSuchTopic, Refused, Unavailable (go on with the offset after the last one received).
        """
        call = self._stub.StreamLogs(_request(topic, offset, 0))
        try:
            yield from (_received(entry) for page in _pages(call) for entry in page.logs)
        finally:
            call.cancel()  # type: ignore[no-untyped-call]

    def topics(self) -> list[str]:
        """The names of all topics, sorted. Raises Unavailable."""
        answer = _called(partial(self._stub.ListTopics, pb.ListTopicsRequest(), timeout=self._timeout))
        return sorted(topic.name for topic in answer.topic)

    def close(self) -> None:
        """Close the connection; calls under way end with Unavailable."""
        self._channel.close()

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _called(call: Callable[[], T]) -> T:
    try:
        return call()
    except grpc.RpcError as error:
        raise _typed(error) from None


def _pages(call: Iterable[pb.GetLogsResponse]) -> Iterator[pb.GetLogsResponse]:
    try:
        yield from call
    except grpc.RpcError as error:
        raise _typed(error) from None


def _typed(error: grpc.RpcError) -> LogError:
    if not isinstance(error, grpc.Call):
        return LogError(str(error))
    return _ERRORS.get(error.code(), LogError)(error.details() or error.code().name)


def _entry(payload: Payload, annotations: Mapping[str, str] | None) -> pb.LogEntry:
    entry = pb.LogEntry(annotations=annotations)
    if isinstance(payload, ProtobufAny):
        entry.protobuf.CopyFrom(payload)
    elif isinstance(payload, Message):
        entry.protobuf.Pack(payload)
    elif payload is not None:
        entry.raw_bytes = payload.encode() if isinstance(payload, str) else bytes(payload)
    return entry


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _received(entry: pb.LogEntry) -> Entry:
    stamp = entry.timestamp
    kind = entry.WhichOneof("entry")
    payload = entry.protobuf.value if kind == "protobuf" else entry.raw_bytes if kind else None
    return Entry(
        offset=entry.offset,
        timestamp=_EPOCH + timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000),
        payload=payload,
        type_url=entry.protobuf.type_url if kind == "protobuf" else None,
        annotations=dict(entry.annotations),
        key=entry.key if entry.HasField("key") else None,
    )


_POSITIONS = {"earliest": pb.GetLogsRequest.EARLIEST, "latest": pb.GetLogsRequest.LATEST}


def _request(topic: str, start: Start, max_messages: int) -> pb.GetLogsRequest:
    request = pb.GetLogsRequest(topic=topic, max_messages=max_messages)
    if isinstance(start, datetime):
        micros = (start.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
        request.timestamp.CopyFrom(Timestamp(seconds=micros // 10**6, nanos=micros % 10**6 * 1000))
    elif isinstance(start, int):
        request.offset = start
    elif start in _POSITIONS:
        request.position = _POSITIONS[start]
    else:
        raise ValueError(f"{start!r} is neither an offset, a time, earliest nor latest")
    return request
