"""Splunk's HTTP event collector: events, raw lines, and acknowledgements.

Invariant: a request is answered once the log has its events; therefore every issued ``ackId`` is acknowledged.

As in Splunk, processing stops at the first bad event: the events before it are stored, the answer has its index as
``invalid-event-number``, and the sender resends from there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from penstock.wire.json_text import Scanner, Span, is_unchanged, readable, without_blanks
from penstock.wire.message_ids import message_id
from penstock.wire.requests import (
    OVERSIZE,
    SYNTAX,
    Answer,
    Messages,
    Received,
    Refused,
    Request,
    SharedAnnotations,
    annotation_text,
    check_message_count,
    check_value_count,
    decode_json,
    join_repeated,
    json_answer,
    payload_bytes,
    split_lines,
)

ROOT = "/services/collector"
UUID = "uuid"
_EVENTS = {ROOT, f"{ROOT}/event", f"{ROOT}/event/1.0"}
_RAW = {f"{ROOT}/raw", f"{ROOT}/raw/1.0"}
_ACK = f"{ROOT}/ack"
_HEALTH = {f"{ROOT}/health", f"{ROOT}/health/1.0"}
_METADATA = ("time", "host", "source", "sourcetype", "index")
_NESTED: dict[str, Any] = {"": {}}
"""Stands for nested fields: it fails the same check as they do, without being copied out of the text."""
_CODES = {
    400: (6, "Invalid data format"),
    401: (2, "Token is required"),
    403: (4, "Invalid token"),
    413: (27, "Request entity too large"),
}
MIN_ACK_ID = 1_600_000_000_000
"""Lower bound of all issued ids: a process starts with the milliseconds since 1970."""
_BUSY = (9, "Server is busy")
_INVALID = ("Invalid data format", 6)
_BAD_FIELDS = ("Error in handling indexed fields", 15)
_TOO_LARGE = ("Request entity too large", 27)
_NO_OBJECT, _BINARY = "an object is expected", "not valid JSON: it is not UTF-8"


class HecProtocol:
    """Splunk's HTTP event collector."""

    codec = "hec"

    def __init__(self) -> None:
        # Invariant: ids are above those of earlier processes, because senders compare them by number.
        self._next_ack_id = time.time_ns() // 1_000_000

    def takes(self, method: str, path: str) -> bool:
        """Return whether the path is one of the collector's, below /services/collector."""
        if self.is_open(method, path):
            return True
        return method == "POST" and (path in _EVENTS or path in _RAW or path == _ACK)

    def is_open(self, method: str, path: str) -> bool:
        """Return whether a request needs no token: load balancers check the health without one.

        Docker sends OPTIONS to the path of the events, without a token, before it starts a container.
        """
        return (method == "GET" and path in _HEALTH) or (method == "OPTIONS" and path in _EVENTS | _RAW)

    def receive(self, request: Request) -> Received | Answer:
        """Return the events of a request, or the answer to a question. Raises Refused."""
        if request.method == "OPTIONS":
            return Answer(200, headers={"allow": "POST, OPTIONS"})
        if request.path in _HEALTH:
            return json_answer({"text": "HEC is healthy", "code": 17})
        # Splunk does not say which text of a repeated parameter applies, and its imitators take different ones.
        for name in sorted(request.ambiguous.intersection((*_METADATA, "channel"))):
            raise _HecRefused(*_INVALID, detail=f"{name} occurs more than once in the query")
        channel = request.headers.get("x-splunk-request-channel") or request.query.get("channel")
        if request.path == _ACK:
            return self._answer_acks(request, channel)
        messages = Messages(request)
        error = _add_lines(request, messages) if request.path in _RAW else _add_events(request, messages)
        if not messages:
            raise error or _HecRefused("No data", 5)
        if error is not None:
            # Some senders repeat the whole request (Docker's driver, moby/moby#35862): the same ids then make the
            # stored events duplicates. Other requests have none: two hosts may send equal bodies. Without a time, so
            # may one host at two times.
            if messages.have("time"):
                # Names, too: ``?host=a`` and ``?source=a`` state different events; a raw line is another event.
                origin = (channel or "", request.path, *(text for pair in _defaults(request).items() for text in pair))
                messages.identify(
                    UUID, message_id([*(text.encode("utf-8", "replace") for text in origin), request.body])
                )
            return messages.received(error.answer)
        document: dict[str, Any] = {"text": "Success", "code": 0}
        if channel:
            document["ackId"] = self._next_ack_id
            self._next_ack_id += 1
        return messages.received(json_answer(document))

    def _answer_acks(self, request: Request, channel: str | None) -> Answer:
        """Answer true for ids that this process or an earlier one has issued, false for all others."""
        if not channel:
            raise _HecRefused("Data channel is missing", 10)
        check_value_count(request.text, request.max_values)
        document = decode_json(request.text)
        acks = document.get("acks") if isinstance(document, dict) else None
        check_message_count(len(acks) if isinstance(acks, list) else 0, request.max_messages, "acks")
        if not isinstance(acks, list) or not all(type(ack) is int for ack in acks):
            raise _HecRefused("Invalid data format", 6)
        return json_answer({"acks": {str(ack): MIN_ACK_ID <= ack < self._next_ack_id for ack in acks}})

    def refusal(self, error: Refused, request: Request) -> Answer:
        """Encode a refusal with Splunk's codes and texts; its clients retry after "Server is busy"."""
        if isinstance(error, _HecRefused):
            return error.answer
        if error.is_retryable:
            code, text = _BUSY
            return json_answer({"text": text, "code": code}, 503, error.retry_header)
        code, text = _CODES.get(error.status, (6, str(error)))
        detail = {"detail": str(error)} if error.status in (400, 413) and str(error) != text else {}
        return json_answer({"text": text, "code": code, **detail}, error.status)


class _HecRefused(Refused):
    """A refusal with one of Splunk's codes; ``number`` is the index of the bad event."""

    def __init__(self, text: str, code: int, status: int = 400, number: int | None = None, detail: str = "") -> None:
        super().__init__(status, OVERSIZE if status == 413 else SYNTAX, text)
        # The text is Splunk's, by which some clients decide; the detail is ours.
        event_number = {} if number is None else {"invalid-event-number": number}
        own = {"detail": detail} if detail else {}
        self.answer = json_answer({"text": text, "code": code, **event_number, **own}, status)


def _add_lines(request: Request, messages: Messages) -> _HecRefused | None:
    """Add raw lines with the metadata of the query; stop at the first line that is too large and return its error."""
    metadata = SharedAnnotations(_defaults(request))
    lines = (line.removesuffix(b"\r") for line in split_lines(request.text))
    for number, line in enumerate(filter(None, lines)):
        if messages.add(line, shared=metadata):
            return _HecRefused(*_TOO_LARGE, 413, number, messages.oversize_text)
    return None


def _defaults(request: Request) -> dict[str, str]:
    """Return Splunk's metadata in the query: that of raw lines, and of events that lack it."""
    return {name: request.query[name] for name in _METADATA if request.query.get(name)}


def _add_events(request: Request, messages: Messages) -> _HecRefused | None:
    """Add events; stop at the first bad one and return its error."""
    defaults = _defaults(request)
    for number, event in enumerate(_events(request.text, request)):
        error = _add_event(event, defaults, messages)
        if error is not None:
            text, code = error
            detail = event if isinstance(event, str) else messages.oversize_text
            return _HecRefused(text, code, 413 if code == _TOO_LARGE[1] else 400, number, detail)
    return None


def _add_event(event: dict[str, Any] | str, defaults: Mapping[str, str], messages: Messages) -> tuple[str, int] | None:
    """Add an event; return Splunk's text and code if it is bad, or says why it is not an object."""
    if isinstance(event, str):
        error = _INVALID
    elif "event" not in event:
        error = "Event field is required", 12
    elif event["event"] is None or event["event"] == "":
        error = "Event field cannot be blank", 13
    elif not _is_flat(event.get("fields")):
        error = _BAD_FIELDS
    else:
        annotations = {**defaults, **_annotations(event)}
        return _TOO_LARGE if messages.add(payload_bytes(event["event"]), annotations) else None
    messages.refuse(SYNTAX)
    return error


def _is_flat(fields: Any) -> bool:
    """Return whether indexed fields are strings, numbers or lists of these, as Splunk requires."""
    if not isinstance(fields, dict):
        return fields is None or fields == ""
    elements = (each for field in fields.values() for each in (field if isinstance(field, list) else [field]))
    return not any(isinstance(each, dict | list) for each in elements)


def _annotations(event: dict[str, Any]) -> dict[str, str]:
    """Return Splunk's metadata and the indexed fields; null is not a value."""
    annotations = {name: annotation_text(event[name]) for name in _METADATA if event.get(name) not in (None, "")}
    fields = event.get("fields")
    if isinstance(fields, dict):
        annotations |= {
            f"fields.{name}": annotation_text(content) for name, content in fields.items() if content is not None
        }
    return annotations


def _events(data: bytes, limits: Request) -> Iterator[dict[str, Any] | str]:
    """Yield the objects of a body, concatenated or in lists; for a document that is not an object, why. Raises Refused.

    Numbers and nested values that orjson would change are the sent JSON text without blanks.
    """
    # Fast path: most senders write one event directly behind the other. The same two characters within a string would
    # leave pieces that are not JSON, and the whole body is scanned.
    lines = [line for line in split_lines(data.replace(b"}{", b"}\n{")) if line.strip()]
    # Limit: only lines that are longer than an event may be much work before the first event is looked at.
    if max(map(len, lines), default=0) > limits.max_message_bytes:
        check_value_count(data, limits.max_values)
    try:
        # An event in several lines has more lines than messages: then the body is scanned, and messages are counted.
        documents = [orjson.loads(line) for line in lines] if len(lines) <= limits.max_messages else []
    except ValueError:
        documents = []
    if documents:
        # Fast path: one comparison of the whole body; if orjson changes nothing, no line is compared or scanned.
        is_body_unchanged = is_unchanged(b"[" + b",".join(lines) + b"]", documents)
        for line, document in zip(lines, documents, strict=True):
            if isinstance(document, dict) and not is_body_unchanged and not is_unchanged(line, document):
                yield _as_sent(Scanner(line.decode().strip()), 0)
            elif isinstance(document, list) and not is_body_unchanged:
                yield from _scan(Scanner(line.decode()))
            else:
                yield from _objects(document if isinstance(document, list) else [document])
        return
    try:
        text = data.decode()
    except UnicodeDecodeError:
        # Each line is decoded by itself: a line that is not UTF-8 is one bad event and does not hide those before it.
        for line in split_lines(data):
            yield from [_BINARY] if _is_binary(line) else _events(line, limits)
        return
    check_value_count(data, limits.max_values)
    yield from _scan(Scanner(text))


def _scan(scanner: Scanner) -> Iterator[dict[str, Any] | str]:
    for span in scanner.documents():
        yield span.error or (_as_sent(scanner, span.begin) if isinstance(span.value, dict) else _NO_OBJECT)


def _objects(documents: Iterable[Any]) -> Iterator[dict[str, Any] | str]:
    return (document if isinstance(document, dict) else _NO_OBJECT for document in documents)


def _is_binary(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return True
    return False


def _as_sent(scanner: Scanner, begin: int) -> dict[str, Any] | str:
    """Return the event of the envelope at ``begin`` with the sent text of its values, or why it is refused."""
    event: dict[str, Any] = {}
    for sent_name, span in scanner.members(begin):
        name = readable(sent_name)
        if name in event:
            return f"{name!r} occurs more than once"
        if name == "fields" and isinstance(span.value, dict):
            fields = list(scanner.members(span.begin))
            is_nested = not _is_flat(dict(enumerate(member.value for _, member in fields)))
            event[name] = _NESTED if is_nested else _join_repeated(scanner, fields)
        else:
            event[name] = _cut(scanner, span)
    return event


def _join_repeated(scanner: Scanner, fields: list[tuple[str, Span]]) -> dict[str, str | None]:
    """Return the sent texts of indexed fields; a repeated name has its texts joined by NUL, as in the tables."""
    pairs = [(readable(field), _cut(scanner, member)) for field, member in fields]
    # A null has no text; a name that has only nulls stays null.
    return dict(pairs) | join_repeated((name, text) for name, text in pairs if text is not None)


def _cut(scanner: Scanner, span: Span) -> str | None:
    if span.value is None:
        return None
    is_text = scanner.text[span.begin] == '"'
    return readable(span.value) if is_text else without_blanks(scanner.text[span.begin : span.end])
