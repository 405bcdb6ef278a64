"""Requests and answers of every request protocol, and the interface that a protocol implements.

Invariant: each message of a request is accepted, or counted by the reason of its refusal, and the answer tells its
sender. Start with ``RequestProtocol``; ``json_documents`` is the shortest one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import unquote

import orjson
import pyarrow as pa

from penstock.counts import Counts, Name
from penstock.errors import PenstockError
from penstock.records import ANNOTATIONS, Body, Rows, body
from penstock.wire.json_text import count_values, describe_error

JSON = "application/json"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
OVERSIZE, SYNTAX, KIND = "oversize", "syntax", "kind"
"""Reasons to refuse a message: too large, malformed, or an operation other than an append."""
MESSAGES = "messages"
"""Reason to refuse a request: it has more than ``max_messages`` messages, or containers of one kind."""
MAX_MESSAGES = 250_000
"""Limit: messages of one request; the default of ``max_messages``. 128 bytes each fill the default ``max_body``."""
MIN_VALUES, BYTES_PER_VALUE = 1 << 21, 16
"""Limit: values of JSON that is decoded at once: one for each BYTES_PER_VALUE of ``max_body``, and MIN_VALUES (its
default) in any case. As many hold the interpreter lock for up to 100 ms.
"""
SPLIT_BYTES = 256 << 10
"""Bytes that are split into lines at once."""
MAX_ROWS = 20
"""Messages of one request that stay rows: their columns would cost more."""
ROWS_PER_CONVERSION = 8192
"""Limit: messages per conversion to Arrow. A conversion holds the interpreter lock, here for about 10 ms at most."""
MAX_GROWTH_FACTOR = 16
"""Limit: growth of a request, because labels that it states once are repeated as annotations of each message."""
MIN_ROOM_BYTES = 1 << 20
"""Bytes that the messages of a small request may take in any case."""
MAX_GROWN_BODIES = 4
"""Limit: growth of a request in units of the largest body, so that large requests do not grow sixteenfold."""


class Refused(PenstockError, ValueError):
    """A request that is refused as a whole: ``status`` is HTTP's, ``reason`` names its count.

    ``retry_s`` is the time after which the sender should retry, if it may.
    """

    def __init__(self, status: int, reason: str, text: str, retry_s: int = 1) -> None:
        super().__init__(text)
        self.status, self.reason, self.retry_s = status, reason, retry_s

    @property
    def is_retryable(self) -> bool:
        """Whether the sender may retry the same request later."""
        return self.status in (429, 503)

    @property
    def retry_header(self) -> dict[str, str]:
        """Retry-After (RFC 9110, section 10.2.3) if the sender may retry; empty otherwise."""
        return {"retry-after": str(self.retry_s)} if self.is_retryable else {}


@dataclass(frozen=True, slots=True)
class Request:
    """A request whose body is complete and decompressed; names of headers are in lower case.

    ``path``: as ``decoded_path`` returns it; ``segment_text`` returns the text of one of its segments.
    ``max_message_bytes``: limit of a message with its annotations. ``max_body_bytes``: limit of the decompressed body.
    ``max_messages``: limit of the messages, refused ones included. ``query``: the last text of each parameter;
    ``ambiguous``: the parameters that have several different texts.
    """

    method: str
    path: str
    body: bytes = b""
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    max_message_bytes: int = 1 << 20
    max_body_bytes: int = 32 << 20
    max_messages: int = MAX_MESSAGES
    ambiguous: frozenset[str] = frozenset()

    @property
    def message_room(self) -> int:
        """Limit of the bytes of all messages with their annotations."""
        return max(min(MAX_GROWTH_FACTOR * len(self.body), MAX_GROWN_BODIES * self.max_body_bytes), MIN_ROOM_BYTES)

    @property
    def max_values(self) -> int:
        """Limit of the values of JSON that is decoded at once."""
        return max(MIN_VALUES, self.max_body_bytes // BYTES_PER_VALUE)

    @property
    def text(self) -> bytes:
        """Body without a byte order mark, for protocols of text: Windows' programs write one."""
        return self.body.removeprefix(BYTE_ORDER_MARK)

    @property
    def content_type(self) -> str:
        """Media type without its parameters, in lower case."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers and body of an HTTP answer."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Received:
    """Messages of a request (rows of ``records.BODY``), the number of refused messages by reason, and the answer.

    The answer is sent once the log has stored the messages.
    """

    body: Body
    refused: Mapping[str, int]
    answer: Answer

    @property
    def counts(self) -> Counts:
        """Counts of the request's messages."""
        accepted = self.body.num_rows
        counts = Counts({f"{Name.REFUSED}{reason}": count for reason, count in self.refused.items() if count})
        counts.absorb({Name.SEEN: accepted + counts.total(), Name.ACCEPTED: accepted})
        return counts


class RequestProtocol(Protocol):
    """Interface of a request protocol. ``codec`` is its name in the log. One instance serves all connections of a
    listener.
    """

    codec: str

    def takes(self, method: str, path: str) -> bool:
        """Return whether a request belongs to this protocol."""
        ...

    def receive(self, request: Request) -> Received | Answer:
        """Return the messages of a request, or an answer that needs no storage. Raises Refused."""
        ...

    def refusal(self, error: Refused, request: Request) -> Answer:
        """Encode a refusal in the form that this protocol's senders understand."""
        ...


def is_open(protocol: RequestProtocol, method: str, path: str) -> bool:
    """Return whether a request needs no token: optional method ``is_open`` of a protocol, for health checks."""
    needs_no_token = getattr(protocol, "is_open", None)
    return needs_no_token is not None and bool(needs_no_token(method, path))


class SharedAnnotations:
    """Annotations that several messages of a request repeat, and their bytes.

    Limit: they are measured once: a request may have as many messages as annotations of them all.
    """

    def __init__(self, annotations: Mapping[str, str]) -> None:
        self.pairs = list(annotations.items())
        self.size = annotations_size(annotations)


def decoded_path(raw: str) -> str:
    """Decode the percent encoding of a path, except for slashes and percent signs within its segments.

    Invariant: a slash of the result separates segments. Elasticsearch's clients send an index such as ``<a-{now/d}>``
    with ``%2F``, and it must not become two segments.
    """
    if "%" not in raw:
        return raw
    return "/".join(unquote(segment).replace("%", "%25").replace("/", "%2F") for segment in raw.split("/"))


def segment_text(segment: str) -> str:
    """Return the text of a segment of a ``decoded_path``."""
    return segment.replace("%2F", "/").replace("%25", "%")


def annotations_size(annotations: Mapping[str, str]) -> int:
    """Return the bytes of annotations."""
    return sum(len(name.encode()) + len(text.encode()) for name, text in annotations.items())


def join_repeated(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return annotations; the texts of a repeated name are joined by NUL, as in the tables."""
    texts: dict[str, list[str]] = {}
    for name, text in pairs:
        texts.setdefault(name, []).append(text)
    # Limit: joined once, because a name may be repeated a million times.
    return {name: "\0".join(of_name) for name, of_name in texts.items()}


class Messages:
    """Collector of the messages of one request, which its protocol adds one by one."""

    def __init__(self, request: Request) -> None:
        self._max_message_bytes, self._max_messages = request.max_message_bytes, request.max_messages
        self._room, self._seen, self._max_values = request.message_room, 0, request.max_values
        self._payloads: list[bytes] = []
        self._annotations: list[list[tuple[str, str]] | None] = []
        self.refused: Counts = Counts()
        self.oversize_text = ""

    def __len__(self) -> int:
        return len(self._payloads)

    def add(
        self, payload: bytes, annotations: Mapping[str, str] | None = None, shared: SharedAnnotations | None = None
    ) -> str:
        """Add a message; return the reason if it is refused, else "". Raises Refused above ``max_messages``.

        ``shared``: annotations that follow its own ones, with other names.
        """
        size = len(payload) + (annotations_size(annotations) if annotations else 0) + (shared.size if shared else 0)
        # Limit: the room of the whole request, not only of this message: labels that are stated once grow with each
        # message.
        if size > min(self._max_message_bytes, self._room):
            self.oversize_text = oversize_text(size, self._max_message_bytes)
            return self.refuse(OVERSIZE)
        self._count_message()
        self._room -= size
        pairs = [*(annotations.items() if annotations else ()), *(shared.pairs if shared else ())]
        self._payloads.append(payload)
        self._annotations.append(pairs or None)
        return ""

    def is_undecodable(self, text: bytes) -> bool:
        """Return whether a JSON text is too large for a message, and decoding it would hold the interpreter lock."""
        return len(text) > self._max_message_bytes and has_too_many_values(text, self._max_values)

    def refuse(self, reason: str) -> str:
        """Count a refused message and return ``reason``. Raises Refused above ``max_messages``."""
        self._count_message()
        self.refused[reason] += 1
        return reason

    def identify(self, name: str, request_id: str) -> None:
        """Annotate each message with an id: ``request_id`` and its index in the request."""
        for index, pairs in enumerate(self._annotations):
            self._annotations[index] = [*(pairs or ()), (name, f"{request_id}-{index}")]

    def have(self, name: str) -> bool:
        """Return whether each message has an annotation."""
        return all(any(own_name == name for own_name, _ in pairs or ()) for pairs in self._annotations)

    def _count_message(self) -> None:
        # Limit: checked before a message is stored, so that a small body does not become millions of objects.
        self._seen += 1
        check_message_count(self._seen, self._max_messages)

    def received(self, answer: Answer) -> Received:
        """Return the collected messages with ``answer``; few of them as rows."""
        if 0 < len(self) <= MAX_ROWS:
            pairs = zip(self._payloads, self._annotations, strict=True)
            return Received(Rows((None, payload, None, own) for payload, own in pairs), self.refused, answer)
        annotations = _to_arrow(self._annotations, ANNOTATIONS) if any(self._annotations) else None
        return Received(body(_to_arrow(self._payloads, pa.binary()), annotations=annotations), self.refused, answer)


def _to_arrow(rows: Sequence[Any], kind: pa.DataType) -> pa.Array[Any]:
    """Convert ``rows`` to Arrow in parts: between them other threads can take the interpreter lock."""
    starts = range(0, len(rows), ROWS_PER_CONVERSION)
    parts = [pa.array(rows[start : start + ROWS_PER_CONVERSION], kind) for start in starts]
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts or [pa.array([], kind)])


def oversize_text(size: int, max_message_bytes: int) -> str:
    """Return why a message of ``size`` bytes, with its annotations, is too large."""
    if size > max_message_bytes:
        return f"a message of {size} bytes is larger than max_line ({max_message_bytes} bytes)"
    return f"a message of {size} bytes lets its request grow too much by what is stated once for several messages"


def check_message_count(count: int, max_messages: int, kind: str = "messages") -> None:
    """Raise Refused if a request has more messages, or containers of one ``kind``, than ``max_messages``.

    Limit: containers count by themselves, so that only empty ones can be too many; each costs as much as a message.
    """
    if count > max_messages:
        raise Refused(413, MESSAGES, f"a request may have {max_messages} {kind} (max_messages)")


def has_too_many_values(data: bytes, max_values: int) -> bool:
    """Return whether JSON text has more than ``max_values`` values, without decoding it."""
    # Fast path: a value takes a byte at least.
    return len(data) > max_values and count_values(data) > max_values


def check_value_count(data: bytes, max_values: int) -> None:
    """Raise Refused if JSON text has more than ``max_values`` values, before it is decoded."""
    if has_too_many_values(data, max_values):
        raise Refused(413, OVERSIZE, f"a request may have {max_values} JSON values (one for each 16 bytes of max_body)")


def split_lines(data: bytes) -> Iterator[bytes]:
    """Yield the lines of ``data``, split in parts: between them other threads can take the interpreter lock."""
    begin = 0
    while begin <= len(data):
        end = data.find(b"\n", begin + SPLIT_BYTES)
        end = len(data) if end < 0 else end
        yield from data[begin:end].split(b"\n")
        begin = end + 1


def annotation_text(content: Any) -> str:
    """Encode a JSON value as an annotation: a string unchanged, other values as JSON."""
    return content if isinstance(content, str) else encode_json(content).decode()


def payload_bytes(content: Any) -> bytes:
    """Encode a JSON value as a payload: a string unchanged, other values as JSON."""
    return content.encode() if isinstance(content, str) else encode_json(content)


def encode_json(document: Any) -> bytes:
    """Encode a document as JSON. Raises Refused if it is nested too deep or not representable."""
    try:
        # Workaround: bytes of orjson 3 keep its 1 KiB buffer (4 KiB of memory each); the copy has the exact size.
        return b"%b" % orjson.dumps(document)
    except TypeError as error:
        raise Refused(400, SYNTAX, f"a value cannot be written as JSON: {error}") from None


def decode_json(text: bytes | str, subject: str = "the body") -> Any:
    """Decode JSON; ``subject`` names the text in the error. Raises Refused."""
    try:
        return orjson.loads(text)
    except ValueError as error:
        raise Refused(400, SYNTAX, f"{subject} is {describe_error(error)}") from None


def json_answer(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """Return an answer with a JSON body."""
    return Answer(status, orjson.dumps(document), JSON, headers or {})


def find_protocol(protocols: Sequence[RequestProtocol], method: str, path: str) -> RequestProtocol | None:
    """Return the protocol that a request belongs to, or None."""
    return next((protocol for protocol in protocols if protocol.takes(method, path)), None)
