"""The protocol for Splunk's HTTP event collector: events, raw lines, and acknowledgement.

An answer is given once the log has the events; so whatever ``ackId`` was given is acknowledged.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import orjson

from penstock.wire.json_text import Scanner, Span, is_unchanged, readable, without_blanks
from penstock.wire.requests import (
    OVERSIZE,
    SYNTAX,
    Answer,
    Messages,
    Received,
    Refused,
    Request,
    dumped,
    parsed,
    payload_of,
    text_of,
)

ROOT = "/services/collector"
_EVENTS = {ROOT, f"{ROOT}/event", f"{ROOT}/event/1.0"}
_RAW = {f"{ROOT}/raw", f"{ROOT}/raw/1.0"}
_ACK = f"{ROOT}/ack"
_HEALTH = {f"{ROOT}/health", f"{ROOT}/health/1.0"}
_METADATA = ("time", "host", "source", "sourcetype", "index")
_NESTED: dict[str, Any] = {"": {}}
_CODES = {
    400: (6, "Invalid data format"),
    401: (2, "Token is required"),
    403: (4, "Invalid token"),
    413: (27, "Request entity too large"),
}
MIN_ACK_ID = 1_600_000_000_000
"""Before all ids that were ever given: they begin with the milliseconds since 1970 at the start of a process."""
_BUSY = (9, "Server is busy")
_INVALID = ("Invalid data format", 6)
_BAD_FIELDS = ("Error in handling indexed fields", 15)
_TOO_LARGE = ("Request entity too large", 27)


class HecProtocol:
    """Splunk's HTTP event collector."""

    codec = "hec"

    def __init__(self) -> None:
        # Beyond those of the process before: a sender keeps them apart by their number.
        self._next_ack_id = time.time_ns() // 1_000_000

    def takes(self, method: str, path: str) -> bool:
        """What lies below /services/collector."""
        if self.is_open(method, path):
            return True
        return method == "POST" and (path in _EVENTS or path in _RAW or path == _ACK)

    def is_open(self, method: str, path: str) -> bool:
        """Return whether a request needs no token: load balancers ask for health without one.

        Docker asks OPTIONS of the events' path without a token before it starts a container.
        """
        return (method == "GET" and path in _HEALTH) or (method == "OPTIONS" and path in _EVENTS | _RAW)

    def receive(self, request: Request) -> Received | Answer:
        """Raises Refused."""
        if request.method == "OPTIONS":
            return Answer(200, headers={"allow": "POST, OPTIONS"})
        if request.path in _HEALTH:
            return dumped({"text": "HEC is healthy", "code": 17})
        channel = request.headers.get("x-splunk-request-channel") or request.query.get("channel")
        if request.path == _ACK:
            return self._acknowledged(request, channel)
        messages = Messages(request)
        why = _take_lines(request, messages) if request.path in _RAW else _take_events(request, messages)
        if not messages:
            raise why or _Told("No data", 5)
        if why is not None:  # as Splunk has it: the others are taken, and the first bad one is named
            return messages.received(why.answer)
        said: dict[str, Any] = {"text": "Success", "code": 0}
        if channel:
            said["ackId"] = self._next_ack_id
            self._next_ack_id += 1
        return messages.received(dumped(said))

    def _acknowledged(self, request: Request, channel: str | None) -> Answer:
        """Answer true for ids that this process or one before it has given, false for all others."""
        if not channel:
            raise _Told("Data channel is missing", 10)
        asked = parsed(request.body)
        acks = asked.get("acks") if isinstance(asked, dict) else None
        if not isinstance(acks, list) or not all(type(ack) is int for ack in acks):
            raise _Told("Invalid data format", 6)
        return dumped({"acks": {str(ack): MIN_ACK_ID <= ack < self._next_ack_id for ack in acks}})

    def refusal(self, why: Refused, request: Request) -> Answer:
        """Splunk's codes and words; "busy" is what its clients try again after."""
        if isinstance(why, _Told):
            return why.answer
        if why.may_come_again:
            code, text = _BUSY
            return dumped({"text": text, "code": code}, 503)
        code, text = _CODES.get(why.status, (6, str(why)))
        return dumped({"text": text, "code": code}, why.status)


class _Told(Refused):
    """Refused with words of Splunk's own."""

    def __init__(self, text: str, code: int, status: int = 400, number: int | None = None) -> None:
        super().__init__(status, OVERSIZE if status == 413 else SYNTAX, text)
        named = {} if number is None else {"invalid-event-number": number}
        self.answer = dumped({"text": text, "code": code, **named}, status)


def _take_lines(request: Request, messages: Messages) -> _Told | None:
    """Take lines as they are; what is said of them stands in the query. Return what is said of one too large."""
    said = {name: request.query[name] for name in _METADATA if request.query.get(name)}
    lines = [line for line in request.body.replace(b"\r\n", b"\n").split(b"\n") if line]
    too_large = [number for number, line in enumerate(lines) if messages.add(line, said)]
    return _Told(*_TOO_LARGE, 413, too_large[0]) if too_large else None


def _take_events(request: Request, messages: Messages) -> _Told | None:
    """Take the events that are some. Return what Splunk says of the first of the others."""
    first: _Told | None = None
    for number, event in enumerate(_events(request.body)):
        why = _take_event(event, messages)
        if why is not None and first is None:
            text, code = why
            status = 413 if code == _TOO_LARGE[1] else 400
            first = _Told(text, code, status, number)
    return first


def _take_event(event: dict[str, Any] | None, messages: Messages) -> tuple[str, int] | None:
    """Take an event; what Splunk says of one that is none."""
    if event is None:
        why = _INVALID
    elif "event" not in event:
        why = "Event field is required", 12
    elif event["event"] is None or event["event"] == "":
        why = "Event field cannot be blank", 13
    elif not _is_flat(event.get("fields")):
        why = _BAD_FIELDS
    else:
        return _TOO_LARGE if messages.add(payload_of(event["event"]), _said(event)) else None
    messages.refuse(SYNTAX)
    return why


def _is_flat(fields: Any) -> bool:
    """Return whether fields to be indexed are texts, numbers or lists of these, as Splunk asks for."""
    if not isinstance(fields, dict):
        return fields is None or fields == ""
    elements = (each for field in fields.values() for each in (field if isinstance(field, list) else [field]))
    return not any(isinstance(each, dict | list) for each in elements)


def _said(event: dict[str, Any]) -> dict[str, str]:
    """Splunk's metadata, and the fields that are to be indexed."""
    said = {name: text_of(event[name]) for name in _METADATA if event.get(name) not in (None, "")}
    fields = event.get("fields")
    if isinstance(fields, dict):
        said |= {f"fields.{name}": text_of(value) for name, value in fields.items()}
    return said


def _events(data: bytes) -> Iterator[dict[str, Any] | None]:
    """The objects that stand one behind the other, or in lists, as orjson reads them; None for what is none.

    Where orjson would change them, values but texts are JSON as it was sent, without blanks.
    """
    lines = [line for line in data.split(b"\n") if line.strip()]
    try:
        documents = [orjson.loads(line) for line in lines]
    except ValueError:
        documents = []
    if documents:
        whole = is_unchanged(b"[" + b",".join(lines) + b"]", documents)
        for line, document in zip(lines, documents, strict=True):
            if isinstance(document, dict) and not whole and not is_unchanged(line, document):
                yield _as_sent(Scanner(line.decode().strip()), 0)
            elif isinstance(document, list) and not whole:
                yield from _scanned(Scanner(line.decode()))
            else:
                yield from _objects(document if isinstance(document, list) else [document])
        return
    try:
        text = data.decode()
    except UnicodeDecodeError:
        # One line that is no UTF-8 takes no other with it.
        yield from (None if _is_binary(line) else next(_events(line), None) for line in lines)
        return
    yield from _scanned(Scanner(text))


def _scanned(scanner: Scanner) -> Iterator[dict[str, Any] | None]:
    for span in scanner.documents():
        yield None if span.error or not isinstance(span.value, dict) else _as_sent(scanner, span.begin)


def _objects(documents: list[Any]) -> Iterator[dict[str, Any] | None]:
    return (document if isinstance(document, dict) else None for document in documents)


def _is_binary(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return True
    return False


def _as_sent(scanner: Scanner, begin: int) -> dict[str, Any]:
    """An event of the envelope at ``begin``, its values as they were sent."""
    event: dict[str, Any] = {}
    for name, span in scanner.members(begin):
        if name == "fields" and isinstance(span.value, dict):
            fields = list(scanner.members(span.begin))
            nested = not _is_flat({field: value.value for field, value in fields})
            event[name] = _NESTED if nested else {readable(field): _cut(scanner, value) for field, value in fields}
        else:
            event[readable(name)] = _cut(scanner, span)
    return event


def _cut(scanner: Scanner, span: Span) -> str | None:
    if span.value is None:
        return None
    is_text = scanner.text[span.begin] == '"'
    return readable(span.value) if is_text else without_blanks(scanner.text[span.begin : span.end])
