"""What a protocol makes of a request: messages, how many of them are refused and why, and what the sender is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson
import pyarrow as pa

from penstock.counts import Counts, Name
from penstock.errors import PenstockError
from penstock.records import ANNOTATIONS, body

JSON = "application/json"
OVERSIZE, SYNTAX, KIND = "oversize", "syntax", "kind"
"""Why a message is refused: it is too large, it is not what its protocol takes, it asks for what no log can do."""
MESSAGES = "messages"
"""Why a request is refused: it has more messages than one request may have."""
MAX_MESSAGES = 250_000
"""Limit: messages of one request; the default of ``max_messages``. 128 bytes each fill the default ``max_body``."""
ROWS_PER_CONVERSION = 8192
"""Limit: messages that become Arrow at once, which holds the interpreter's lock: at most some 10 ms."""


GROWTH = 16
"""By how much a request may grow, as what it says once (of a resource, of a stream) stands with each message."""
LEAST_ROOM = 1 << 20
"""Bytes that also a small request may take."""
MAX_GROWN_BODIES = 4
"""Limit: no request grows beyond so many times the largest body."""


class Refused(PenstockError, ValueError):
    """A request that is refused as a whole; ``status`` is that of HTTP, ``reason`` the name of its count."""

    def __init__(self, status: int, reason: str, text: str) -> None:
        super().__init__(text)
        self.status, self.reason = status, reason

    @property
    def may_come_again(self) -> bool:
        """Whether the same request may be taken later."""
        return self.status in (429, 503)


@dataclass(frozen=True, slots=True)
class Request:
    """A request whose body is whole and unpacked; names of headers are in lower case.

    ``most``: bytes that a message and its annotations may have; ``largest``: bytes that the body may have unpacked;
    ``max_messages``: messages that it may have, refused ones included.
    """

    method: str
    path: str
    body: bytes = b""
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    most: int = 1 << 20
    largest: int = 32 << 20
    max_messages: int = MAX_MESSAGES

    @property
    def message_room(self) -> int:
        """Bytes that all messages with their annotations may have together."""
        return max(min(GROWTH * len(self.body), MAX_GROWN_BODIES * self.largest), LEAST_ROOM)

    @property
    def content_type(self) -> str:
        """Without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a sender is told."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Received:
    """The messages of a request (schema ``records.BODY``), how many were refused by reason, and the answer.

    The sender gets it once the log has the messages.
    """

    body: pa.RecordBatch
    refused: Mapping[str, int]
    answer: Answer

    @property
    def counts(self) -> Counts:
        """The message book of the request."""
        accepted = self.body.num_rows
        counts = Counts({f"{Name.REFUSED}{reason}": count for reason, count in self.refused.items() if count})
        counts.absorb({Name.SEEN: accepted + counts.total(), Name.ACCEPTED: accepted})
        return counts


class RequestProtocol(Protocol):
    """A protocol of requests. ``codec`` names it in the log."""

    codec: str

    def takes(self, method: str, path: str) -> bool:
        """Whether a request is for this protocol."""
        ...

    def receive(self, request: Request) -> Received | Answer:
        """What is in a request, or an answer that waits for nothing. Raises Refused."""
        ...

    def refusal(self, why: Refused, request: Request) -> Answer:
        """How this protocol's senders are told so."""
        ...


def is_open(protocol: RequestProtocol, method: str, path: str) -> bool:
    """Return whether a request needs no token: protocols may have ``is_open`` for what asks only whether they work."""
    asks = getattr(protocol, "is_open", None)
    return asks is not None and bool(asks(method, path))


class Messages:
    """Messages of one request that are read one after the other."""

    def __init__(self, request: Request) -> None:
        self._most, self._max_messages = request.most, request.max_messages
        self._room, self._seen = request.message_room, 0
        self._payloads: list[bytes] = []
        self._annotations: list[list[tuple[str, str]] | None] = []
        self.refused: Counts = Counts()

    def __len__(self) -> int:
        return len(self._payloads)

    def add(self, payload: bytes, annotations: Mapping[str, str] | None = None) -> str:
        """Returns why it is refused, "" where it is not. Raises Refused where the request has too many messages."""
        pairs = list(annotations.items()) if annotations else None
        size = len(payload) + sum(len(name.encode()) + len(text.encode()) for name, text in pairs or ())
        if size > min(self._most, self._room):
            return self.refuse(OVERSIZE)
        self._count_one()
        self._room -= size
        self._payloads.append(payload)
        self._annotations.append(pairs)
        return ""

    def refuse(self, reason: str) -> str:
        """One that is not taken. Returns ``reason``. Raises Refused where the request has too many messages."""
        self._count_one()
        self.refused[reason] += 1
        return reason

    def _count_one(self) -> None:
        self._seen += 1
        check_message_count(self._seen, self._max_messages)

    def received(self, answer: Answer) -> Received:
        """All of them."""
        annotations = _in_parts(self._annotations, ANNOTATIONS) if any(self._annotations) else None
        return Received(body(_in_parts(self._payloads, pa.binary()), annotations=annotations), self.refused, answer)


def _in_parts(rows: Sequence[Any], kind: pa.DataType) -> pa.Array[Any]:
    """Convert ``rows`` to Arrow in parts, between which other threads run."""
    starts = range(0, len(rows), ROWS_PER_CONVERSION)
    parts = [pa.array(rows[start : start + ROWS_PER_CONVERSION], kind) for start in starts]
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts or [pa.array([], kind)])


def check_message_count(count: int, max_messages: int) -> None:
    """Raises Refused where a request has more messages than one may have."""
    if count > max_messages:
        raise Refused(413, MESSAGES, f"a request may have {max_messages} messages (max_messages)")


def text_of(value: Any) -> str:
    """A value of JSON as an annotation: texts as they are, others as JSON."""
    return value if isinstance(value, str) else written(value).decode()


def payload_of(value: Any) -> bytes:
    """A value of JSON as a message: texts as they are, others as JSON."""
    return value.encode() if isinstance(value, str) else written(value)


def written(value: Any) -> bytes:
    """A value as JSON. Raises Refused where it is too deep, or has what JSON has not."""
    try:
        # Workaround: orjson 3 gives up none of its 1 KiB buffer (4 KiB of memory each): a copy has its own size.
        return b"%b" % orjson.dumps(value)
    except TypeError as error:
        raise Refused(400, SYNTAX, f"a value is not JSON's: {error}") from None


def parsed(data: bytes | str, what: str = "the body") -> Any:
    """``data`` as JSON. Raises Refused."""
    try:
        return orjson.loads(data)
    except ValueError as error:
        raise Refused(400, SYNTAX, f"{what} is not JSON: {error}") from None


def dumped(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """An answer in JSON."""
    return Answer(status, orjson.dumps(value), JSON, headers or {})


def find_protocol(protocols: Sequence[RequestProtocol], method: str, path: str) -> RequestProtocol | None:
    """The protocol that a request is for."""
    return next((protocol for protocol in protocols if protocol.takes(method, path)), None)
