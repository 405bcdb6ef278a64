"""The calls of the log's API without any I/O: the bytes of a request, and the decoding of its answer."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

import grpc
import pyarrow as pa
from google.protobuf.any_pb2 import Any as ProtobufAny
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp

from penstock.client.log import types
from penstock.client.log.types import ClientError, Entry, Page, Payload, Start
from penstock.counts import Origin
from penstock.slogd import slogd_pb2 as pb
from penstock.slogd.columns.decode import parse_logs
from penstock.slogd.columns.encode import append_request

T = TypeVar("T")
PAGE = 1000
"""Default limit of entries per answer."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_POSITIONS = {"earliest": pb.GetLogsRequest.EARLIEST, "latest": pb.GetLogsRequest.LATEST}

_ERRORS: Mapping[grpc.StatusCode, type[ClientError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: types.Refused,
    grpc.StatusCode.PERMISSION_DENIED: types.NotAllowed,
    grpc.StatusCode.UNAUTHENTICATED: types.NotAllowed,
    grpc.StatusCode.ALREADY_EXISTS: types.TopicExists,
    grpc.StatusCode.NOT_FOUND: types.NoSuchTopic,
    grpc.StatusCode.FAILED_PRECONDITION: types.OutOfSequence,
    grpc.StatusCode.ABORTED: types.TransactionTimedOut,
    grpc.StatusCode.RESOURCE_EXHAUSTED: types.Exhausted,
    grpc.StatusCode.DATA_LOSS: types.Damaged,
    grpc.StatusCode.UNAVAILABLE: types.Unavailable,
    # In doubt like a broken connection: the server may have stored the request.
    grpc.StatusCode.DEADLINE_EXCEEDED: types.Unavailable,
    grpc.StatusCode.CANCELLED: types.Unavailable,
}

_OVERSIZE = re.compile(r"larger than max \((\d+) vs\. (\d+)\)")
"""gRPC's own text for a request or an answer above the limit of a connection, from either side."""
_STORING = ("AppendLogs", "Commit")
"""Methods that the log deduplicates by the producer's number."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A call: the name of the RPC, the request's bytes, the decoder of its answer, and the error for NOT_FOUND."""

    method: str
    request: bytes
    decode: Callable[[bytes], T]
    not_found: type[ClientError] = types.NoSuchTopic
    again: bool = True
    """Whether the call may be repeated without storing or deleting anything twice."""
    timeout: float | None = None
    """Time-out in seconds of a call that reads whole topics; None for the client's own."""

    def answered(self, response: bytes) -> T:
        """Decode an answer. Raises ClientError if it is not valid."""
        with understood(self.method):
            return self.decode(response)


@contextlib.contextmanager
def understood(method: str) -> Iterator[None]:
    """Turn a decoding error in an answer to ``method`` into a ClientError."""
    try:
        yield
    except (DecodeError, ValueError, OverflowError) as error:
        # ValueError includes pyarrow's ArrowInvalid.
        raise ClientError(f"this is not a log daemon, or a later one: {method} is answered with {error}") from None


def failure(code: grpc.StatusCode, details: str, address: str, call: Call[Any] | None = None) -> ClientError:
    """Return the error for the status of a failed call; ``address`` is the server's."""
    if code is grpc.StatusCode.UNAVAILABLE and not details.startswith("The server"):
        return types.Unavailable(f"no log daemon answers at {address}{_tls(details)}")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return types.Unavailable(f"the log daemon at {address} did not answer in time")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return types.Unsupported(f"the log daemon at {address} does not know this call")
    if call is not None and call.method in _STORING and _is_stored_already(code, details):
        return types.StoredAlready(details)
    kind = call.not_found if call is not None and code is grpc.StatusCode.NOT_FOUND else _ERRORS.get(code, ClientError)
    if sizes := _OVERSIZE.search(details):
        message_bytes, limit_bytes = sizes.groups()
        # gRPC's words for an answer that this client refuses; a daemon refuses what it received.
        is_answer = details.startswith("CLIENT: Received")
        text = f"{message_bytes} bytes are more than the {limit_bytes} bytes that one call may have"
        return kind(f"{text}: {'ask for fewer entries' if is_answer else 'send fewer or smaller messages'} at a time")
    return kind(details or code.name)


def _is_stored_already(code: grpc.StatusCode, details: str) -> bool:
    # Workaround: earlier daemons answer FAILED_PRECONDITION, as for a number that is not the next; the text differs.
    is_named = code is grpc.StatusCode.FAILED_PRECONDITION and "is stored already" in details
    return is_named or code is grpc.StatusCode.ALREADY_EXISTS


def _tls(details: str) -> str:
    plain = details.lower()
    hint = "handshake" in plain or "ssl" in plain or "certificate" in plain
    return " (TLS: does the daemon speak it, and does the certificate hold for this address and time?)" if hint else ""


def append(topic: str, entries: Iterable[pb.LogEntry], producer: tuple[str, int] = ("", 0)) -> Call[list[int]]:
    """Append the entries of one request; the answer is their offsets. ``producer``: id and sequence number."""
    request = pb.AppendRequest(topic=topic, logs=entries, producer_id=producer[0], sequence=producer[1])
    # Without a producer the server cannot recognise a repeated append, so it is not retried.
    return Call("AppendLogs", request.SerializeToString(), _offsets, again=bool(producer[0]))


def append_batch(
    topic: str,
    body: pa.RecordBatch,
    producer: tuple[str, int],
    origin: Origin | None = None,
    encode: Callable[..., bytes] = append_request,
) -> Call[list[int]]:
    """Append the rows of a BODY batch; the answer is their offsets. ``origin``: of relayed rows.

    ``encode`` makes the request: ``append_request`` or ``columns_request``.
    """
    relayed = {} if origin is None else {"origin": _encode_origin(origin)}
    request = encode(topic, body, producer_id=producer[0], sequence=producer[1], **relayed)
    return Call("AppendLogs", request, _offsets)


def _encode_origin(origin: Origin) -> pb.Origin:
    return pb.Origin(
        source=origin.source,
        bucket=origin.bucket,
        first=origin.first,
        last=origin.last,
        codec=origin.codec,
        hops=origin.hops,
    )


def stage(transaction: str, topic: str, entries: Iterable[pb.LogEntry], producer: tuple[str, int]) -> Call[None]:
    """Stage entries in a transaction."""
    request = pb.AppendRequest(
        topic=topic, logs=entries, transaction_id=transaction, producer_id=producer[0], sequence=producer[1]
    )
    # Not retried by itself: the transaction repeats all its appends in a new one.
    return Call("AppendLogs", request.SerializeToString(), decode_empty, types.NoSuchTransaction, again=False)


def stage_batch(transaction: str, topic: str, body: pa.RecordBatch, producer: tuple[str, int]) -> Call[None]:
    """Stage the rows of a BODY batch in a transaction."""
    request = append_request(topic, body, transaction_id=transaction, producer_id=producer[0], sequence=producer[1])
    return Call("AppendLogs", request, decode_empty, types.NoSuchTransaction, again=False)


def _offsets(response: bytes) -> list[int]:
    return list(pb.AppendResponse.FromString(response).offsets)


def decode_relayed(response: bytes) -> tuple[list[int], bool]:
    """Decode the answer to relayed entries: their offsets, and whether the server expects the number behind them."""
    answer = pb.AppendResponse.FromString(response)
    return list(answer.offsets), answer.stored_now


def decode_empty(_: bytes) -> None:
    """Decode an empty answer."""


def begin(timeout: float | None) -> Call[str]:
    """Begin a transaction; the answer is its id. The time-out of the transaction aborts it if its id is lost."""
    request = pb.BeginRequest()
    if timeout is not None:
        request.timeout.CopyFrom(Duration(seconds=int(timeout), nanos=round(timeout % 1 * 10**9) % 10**9))
    return Call(
        "Begin", request.SerializeToString(), lambda response: pb.BeginResponse.FromString(response).transaction_id
    )


def commit(transaction: str) -> Call[dict[str, list[int]]]:
    """Commit a transaction; the answer is the offsets by topic."""

    def decode(response: bytes) -> dict[str, list[int]]:
        return {topic.topic: list(topic.offsets) for topic in pb.CommitResponse.FromString(response).topic}

    request = pb.CommitRequest(transaction_id=transaction)
    return Call("Commit", request.SerializeToString(), decode, types.NoSuchTransaction)


def abort(transaction: str) -> Call[None]:
    """Abort a transaction."""
    request = pb.AbortRequest(transaction_id=transaction)
    return Call("Abort", request.SerializeToString(), decode_empty, types.NoSuchTransaction)


def logs_request(topic: str, start: Start, max_messages: int = 0, filter: str | None = None) -> bytes:
    """Encode a request of GetLogs or StreamLogs. Raises ValueError for an invalid start."""
    request = pb.GetLogsRequest(topic=topic, max_messages=max_messages, filter=filter or "")
    if isinstance(start, datetime):
        micros = (start.astimezone(UTC) - _EPOCH) // _MICROSECOND
        request.timestamp.CopyFrom(Timestamp(seconds=micros // 10**6, nanos=micros % 10**6 * 1000))
    elif isinstance(start, types.AtCursor):
        request.cursor = start.name
    elif isinstance(start, int):
        request.offset = start
    elif start in _POSITIONS:
        request.position = _POSITIONS[start]
    else:
        raise ValueError(f"{start!r} is neither an offset, a time, earliest nor latest")
    return request.SerializeToString()


def get(topic: str, start: Start, max_messages: int, filter: str | None) -> Call[Page | None]:
    """Read one page; the answer is None at the end of the topic."""
    return Call("GetLogs", logs_request(topic, start, max_messages, filter), lambda response: page(response, start))


def page(response: bytes, start: Start) -> Page | None:
    """Decode a page; return None if it is empty and leads no further than ``start``."""
    message = pb.GetLogsResponse.FromString(response)
    next_offset = message.next_offset or (message.logs[-1].offset + 1 if message.logs else 0)
    if not message.logs and next_offset in (0, start):
        return None
    return Page([_entry(entry) for entry in message.logs], next_offset)


def get_batch(
    topic: str, start: Start, max_messages: int, filter: str | None
) -> Call[tuple[pa.RecordBatch, int] | None]:
    """Read one page as a SCHEMA batch and the next offset; the answer is None at the end of the topic."""

    def decode(response: bytes) -> tuple[pa.RecordBatch, int] | None:
        batch, next_offset = parse_logs(response)
        next_offset = next_offset or (batch.column("offset")[-1].as_py() + 1 if batch.num_rows else 0)
        return None if not batch.num_rows and next_offset in (0, start) else (batch, next_offset)

    return Call("GetLogs", logs_request(topic, start, max_messages, filter), decode)


def _entry(entry: pb.LogEntry) -> Entry:
    kind = entry.WhichOneof("entry")
    return Entry(
        offset=entry.offset,
        timestamp=moment(entry.timestamp),
        payload=entry.protobuf.value if kind == "protobuf" else entry.raw_bytes if kind else None,
        type_url=entry.protobuf.type_url if kind == "protobuf" else None,
        annotations=dict(entry.annotations),
        key=entry.key if entry.HasField("key") else None,
    )


def moment(stamp: Timestamp) -> datetime:
    """Convert a protobuf timestamp, truncated to the microsecond."""
    return _EPOCH + timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)


def log_entry(payload: Payload, annotations: Mapping[str, str] | None = None, key: bytes | None = None) -> pb.LogEntry:
    """Return an entry to append. Raises TypeError for a payload of another type."""
    entry = pb.LogEntry(annotations=annotations, key=key)
    if isinstance(payload, ProtobufAny):
        entry.protobuf.CopyFrom(payload)
    elif isinstance(payload, Message):
        entry.protobuf.Pack(payload)
    elif payload is not None:
        if not isinstance(payload, (bytes, bytearray, memoryview, str)):
            raise TypeError(f"a payload is bytes, a text, a protobuf message or None, not {type(payload).__name__}")
        entry.raw_bytes = payload.encode() if isinstance(payload, str) else bytes(payload)
    return entry


def log_entries(payloads: Iterable[Payload], annotations: Mapping[str, str] | None) -> list[pb.LogEntry]:
    """Return an entry for each payload. Raises TypeError for a single payload."""
    if isinstance(payloads, (bytes, str)):
        raise TypeError("payloads must be several: [payload]")
    return [log_entry(payload, annotations) for payload in payloads]


def names() -> Call[list[str]]:
    """List the names of all topics, sorted."""

    def decode(response: bytes) -> list[str]:
        return sorted(topic.name for topic in pb.ListTopicsResponse.FromString(response).topic)

    return Call("ListTopics", b"", decode)
