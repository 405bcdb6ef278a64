"""The protocol for JSON as agents send it: ``POST /`` with one document a line, an array of them, or one alone."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from penstock.wire.json_text import Scanner, is_json, is_unchanged, without_blanks
from penstock.wire.requests import (
    SYNTAX,
    Answer,
    Messages,
    Received,
    Refused,
    Request,
    check_message_count,
    encode_json,
    json_answer,
)

MOST_TOLD = 10
"""Lines that are named in an answer."""


class JsonProtocol:
    """Each document is a message, as it is; what is no JSON is refused line by line."""

    codec = "json"

    def takes(self, method: str, path: str) -> bool:
        """POST or PUT to the path ``/``."""
        return path == "/" and method in ("POST", "PUT")

    def receive(self, request: Request) -> Received:
        """Raises Refused."""
        data = request.body.strip()
        messages = Messages(request)
        refused = _elements(data, messages, request.max_messages) if data.startswith(b"[") else _lines(data, messages)
        if not messages and refused:
            number, reason = refused[0]
            raise Refused(413 if reason != SYNTAX else 400, reason, f"nothing was taken: document {number}: {reason}")
        told = [{"document": number, "reason": reason} for number, reason in refused[:MOST_TOLD]]
        return messages.received(
            json_answer({"accepted": len(messages), "refused": len(refused), **({"errors": told} if told else {})})
        )

    def refusal(self, why: Refused, request: Request) -> Answer:
        """As JSON."""
        headers = {"retry-after": "1"} if why.is_retryable else {}
        return json_answer({"error": str(why), "reason": why.reason}, why.status, headers)


def _elements(data: bytes, messages: Messages, max_messages: int) -> list[tuple[int, str]]:
    """Take the elements of a list, as they were sent but for blanks; return which were refused, and why."""
    try:
        documents = orjson.loads(data)
    except ValueError:
        documents = []
    check_message_count(len(documents), max_messages)
    payloads: Iterable[bytes | None] = ()
    if documents and is_unchanged(data, documents):
        payloads = map(encode_json, documents)
    else:
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise Refused(400, SYNTAX, f"the body is not JSON: {error}") from None
        spans = Scanner(text).documents()
        payloads = (None if span.error else without_blanks(text[span.begin : span.end]).encode() for span in spans)
    added = (messages.refuse(SYNTAX) if each is None else messages.add(each) for each in payloads)
    return [(number, why) for number, why in enumerate(added, 1) if why]


def _lines(data: bytes, messages: Messages) -> list[tuple[int, str]]:
    """Takes the documents that stand a line each, or one that stands on several; which were refused, and why."""
    refused = []
    for number, line in enumerate(data.split(b"\n"), 1):
        line = line.strip()
        if not line:
            continue
        if is_json(line):
            why = messages.add(line)
        elif number == 1 and is_json(data):
            why = messages.add(data)
            return [(1, why)] if why else []
        else:
            why = messages.refuse(SYNTAX)
        if why:
            refused.append((number, why))
    return refused
