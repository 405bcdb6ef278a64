"""JSON as agents send it: ``POST /`` with one document per line, an array of documents, or a single document."""

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

MAX_REPORTED = 10
"""Limit: refused documents that an answer names."""


class JsonProtocol:
    """Documents as messages, unchanged; a document that is not JSON is refused alone."""

    codec = "json"

    def takes(self, method: str, path: str) -> bool:
        """Return whether a request is POST or PUT to ``/``."""
        return path == "/" and method in ("POST", "PUT")

    def receive(self, request: Request) -> Received:
        """Return the documents of a request. Raises Refused."""
        data = request.body.strip()
        messages = Messages(request)
        is_array = data.startswith(b"[")
        refused = _add_elements(data, messages, request.max_messages) if is_array else _add_lines(data, messages)
        if not messages and refused:
            number, reason = refused[0]
            raise Refused(
                413 if reason != SYNTAX else 400, reason, f"no document was accepted: document {number}: {reason}"
            )
        errors = [{"document": number, "reason": reason} for number, reason in refused[:MAX_REPORTED]]
        return messages.received(
            json_answer({"accepted": len(messages), "refused": len(refused), **({"errors": errors} if errors else {})})
        )

    def refusal(self, error: Refused, request: Request) -> Answer:
        """Encode a refusal as JSON."""
        headers = {"retry-after": "1"} if error.is_retryable else {}
        return json_answer({"error": str(error), "reason": error.reason}, error.status, headers)


def _add_elements(data: bytes, messages: Messages, max_messages: int) -> list[tuple[int, str]]:
    """Add the sent text of an array's elements, without blanks; return index and reason of the refused ones."""
    try:
        documents = orjson.loads(data)
    except ValueError:
        documents = []
    # Limit: before the documents are encoded again, which is the larger part of the work.
    check_message_count(len(documents), max_messages)
    payloads: Iterable[bytes | None] = ()
    # Fast path: one comparison of the whole body; only a body that orjson would change is scanned.
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
    return [(number, reason) for number, reason in enumerate(added, 1) if reason]


def _add_lines(data: bytes, messages: Messages) -> list[tuple[int, str]]:
    """Add one document per line, or a single document of several lines; return index and reason of the refused ones."""
    refused = []
    for number, line in enumerate(data.split(b"\n"), 1):
        line = line.strip()
        if not line:
            continue
        if is_json(line):
            reason = messages.add(line)
        # Only the first line decides this, so that the whole body is parsed at most once more.
        elif number == 1 and is_json(data):
            reason = messages.add(data)
            return [(1, reason)] if reason else []
        else:
            reason = messages.refuse(SYNTAX)
        if reason:
            refused.append((number, reason))
    return refused
