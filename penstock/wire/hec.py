"""The door for Splunk's HTTP event collector: events, raw lines, and acknowledgement.

An answer is given once the log has the events; so whatever ``ackId`` was given is acknowledged.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import orjson

from penstock.wire.requests import (
    MESSAGES,
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
_CODES = {
    400: (6, "Invalid data format"),
    401: (2, "Token is required"),
    403: (4, "Invalid token"),
    413: (27, "Request entity too large"),
}
_BUSY = (9, "Server is busy")
_DECODER = json.JSONDecoder()


class HecDoor:
    """Splunk's HTTP event collector."""

    codec = "hec"

    def __init__(self) -> None:
        # Beyond those of the process before: a sender keeps them apart by their number.
        self._ack_ids = itertools.count(time.time_ns() // 1_000_000)

    def takes(self, method: str, path: str) -> bool:
        """What lies below /services/collector."""
        if path in _HEALTH:
            return method == "GET"
        return method == "POST" and (path in _EVENTS or path in _RAW or path == _ACK)

    def receive(self, request: Request) -> Received | Answer:
        """Raises Refused."""
        if request.path in _HEALTH:
            return dumped({"text": "HEC is healthy", "code": 17})
        channel = request.headers.get("x-splunk-request-channel") or request.query.get("channel")
        if request.path == _ACK:
            return _acknowledged(request, channel)
        messages = Messages(request)
        if request.path in _RAW:
            _take_lines(request, messages)
        else:
            _take_events(request, messages)
        if messages.refused:  # there are no answers by event: its sender has to know that not all were taken
            raise Refused(413, OVERSIZE, "an event is too large")
        said: dict[str, Any] = {"text": "Success", "code": 0}
        return messages.received(dumped(said | ({"ackId": next(self._ack_ids)} if channel else {})))

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

    def __init__(self, text: str, code: int, **more: Any) -> None:
        super().__init__(400, SYNTAX, text)
        self.answer = dumped({"text": text, "code": code, **more}, 400)


def _acknowledged(request: Request, channel: str | None) -> Answer:
    if not channel:
        raise _Told("Data channel is missing", 10)
    asked = parsed(request.body)
    acks = asked.get("acks") if isinstance(asked, dict) else None
    if not isinstance(acks, list) or not all(isinstance(ack, int) for ack in acks):
        raise _Told("Invalid data format", 6)
    return dumped({"acks": {str(ack): True for ack in acks}})


def _take_lines(request: Request, messages: Messages) -> None:
    """Lines as they are; what is said of them stands in the query."""
    said = {name: request.query[name] for name in _METADATA if request.query.get(name)}
    lines = [line for line in request.body.replace(b"\r\n", b"\n").split(b"\n") if line]
    if not lines:
        raise _Told("No data", 5)
    for line in lines:
        messages.add(line, said)


def _take_events(request: Request, messages: Messages) -> None:
    """One event after the other; the first that is none refuses all, so that a sender may mend and send it again."""
    number = 0
    for number, found in enumerate(_documents(request.body)):
        if not isinstance(found, dict):
            raise _Told("Invalid data format", 6, **{"invalid-event-number": number})
        if "event" not in found:
            raise _Told("Event field is required", 12, **{"invalid-event-number": number})
        event = found["event"]
        if event is None or event == "":
            raise _Told("Event field cannot be blank", 13, **{"invalid-event-number": number})
        try:
            messages.add(payload_of(event), _said(found))
        except (Refused, UnicodeEncodeError) as error:  # numbers and texts that JSON cannot have
            if isinstance(error, Refused) and error.reason == MESSAGES:
                raise
            raise _Told("Invalid data format", 6, **{"invalid-event-number": number}) from None
    if not messages and not messages.refused:
        raise _Told("No data", 5)


def _said(found: dict[str, Any]) -> dict[str, str]:
    """Splunk's metadata, and the fields that are to be indexed."""
    said = {name: text_of(found[name]) for name in _METADATA if found.get(name) not in (None, "")}
    fields = found.get("fields")
    if isinstance(fields, dict):
        said |= {f"fields.{name}": text_of(value) for name, value in fields.items()}
    return said


def _documents(data: bytes) -> Iterator[Any]:
    """Documents that stand one behind the other, with or without white space between them."""
    lines = [line for line in data.split(b"\n") if line.strip()]
    try:
        yield from [orjson.loads(line) for line in lines]
        return
    except ValueError:
        pass
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise _Told("Invalid data format", 6, **{"invalid-event-number": 0}) from None
    at = number = 0
    while (at := _past_space(text, at)) < len(text):
        try:
            found, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            raise _Told("Invalid data format", 6, **{"invalid-event-number": number}) from None
        number += 1
        yield found


def _past_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at
