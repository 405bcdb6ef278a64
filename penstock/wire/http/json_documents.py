"""JSON as agents send it: ``POST /`` with one document per line, an array of documents, or a single document.

Invariant: the elements of an array are messages wherever the array is, as in Fluent Bit, Vector and Logstash; a line
within a document of several lines is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import orjson

from penstock.wire.json_text import (
    Scanner,
    describe_error,
    find_error,
    is_json,
    is_unchanged,
    is_unfinished,
    without_blanks,
)
from penstock.wire.requests import (
    SYNTAX,
    Answer,
    Messages,
    Received,
    Refused,
    Request,
    check_message_count,
    check_value_count,
    encode_json,
    json_answer,
    split_lines,
)

_BETWEEN_OBJECTS = re.compile(rb"\}\s*\{")
_SURROGATE = re.compile("[\udc80-\udcff]")
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
        data = request.text.strip()
        if not data:
            raise Refused(400, SYNTAX, "the body is empty: a document is expected")
        messages = Messages(request)
        is_array = data.startswith(b"[") and not _has_array_in_first_line(data, messages)
        add = _add_elements if is_array else _add_lines
        refused = add(data, messages, request)
        if not messages and refused:
            number, reason, text = refused[0]
            raise Refused(
                413 if reason != SYNTAX else 400, reason, f"no document was accepted: document {number}: {text}"
            )
        errors = [
            {"document": number, "reason": reason, "text": text} for number, reason, text in refused[:MAX_REPORTED]
        ]
        return messages.received(
            json_answer({"accepted": len(messages), "refused": len(refused), **({"errors": errors} if errors else {})})
        )

    def refusal(self, error: Refused, request: Request) -> Answer:
        """Encode a refusal as JSON."""
        return json_answer({"error": str(error), "reason": error.reason}, error.status, error.retry_header)


def _has_array_in_first_line(data: bytes, messages: Messages) -> bool:
    """Return whether the first of several lines is a whole array: a bad line must not hide the arrays behind it."""
    line = data[: max(data.find(b"\n"), 0)]
    return not messages.is_undecodable(line) and is_json(line)


def _add_elements(data: bytes, messages: Messages, limits: Request) -> list[tuple[int, str, str]]:
    """Add the sent text of an array's elements, without blanks; return index, reason and text of refused ones."""
    check_value_count(data, limits.max_values)
    try:
        documents = orjson.loads(data)
    except ValueError:
        documents = []
    # Limit: before the documents are encoded again, which is the larger part of the work.
    check_message_count(len(documents), limits.max_messages)
    payloads: Iterable[bytes | str] = ()
    # Fast path: one comparison of the whole body; only a body that orjson would change is scanned.
    if documents and is_unchanged(data, documents):
        payloads = map(encode_json, documents)
    else:
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise Refused(400, SYNTAX, f"the body is {describe_error(error)}") from None
        spans = Scanner(text).documents()
        payloads = (span.error or without_blanks(text[span.begin : span.end]).encode() for span in spans)
    refused = []
    for number, payload in enumerate(payloads, 1):
        if isinstance(payload, str):
            refused.append((number, messages.refuse(SYNTAX), payload))
        elif reason := messages.add(payload):
            refused.append((number, reason, messages.oversize_text))
    return refused


def _add_lines(data: bytes, messages: Messages, limits: Request) -> list[tuple[int, str, str]]:
    """Add one document per line, objects behind each other in one line, or documents of several lines; return the index
    of the line (of documents of several lines: of the document), reason and text of refused ones.
    """
    refused: list[tuple[int, str, str]] = []
    for number, line in enumerate(split_lines(data), 1):
        line = line.strip()
        if not line:
            continue
        if messages.is_undecodable(line):
            reason = messages.add(line)
        elif is_json(line):
            if line.startswith(b"["):
                errors = _add_elements(line, messages, limits)
                refused += [(number, reason, text) for _, reason, text in errors]
                continue
            reason = messages.add(line)
        # Only the first line decides this, so that the whole body is parsed at most once more.
        elif number == 1 and not messages.is_undecodable(data) and is_json(data):
            reason = messages.add(data)
            return [(1, reason, messages.oversize_text)] if reason else []
        elif number == 1 and len(line) <= limits.max_message_bytes and is_unfinished(line):
            return _add_documents(data, messages, limits)
        elif _BETWEEN_OBJECTS.search(line) and (documents := _split_objects(line, limits.max_messages)):
            reasons = [messages.add(document) for document in documents]
            refused += [(number, reason, messages.oversize_text) for reason in reasons if reason]
            continue
        else:
            reason = messages.refuse(SYNTAX)
        if reason:
            # Fast path: only what is reported is parsed again.
            is_reported = reason == SYNTAX and len(refused) < MAX_REPORTED
            text = find_error(line) if is_reported else messages.oversize_text
            refused.append((number, reason, text or "not valid JSON"))
    return refused


def _add_documents(data: bytes, messages: Messages, limits: Request) -> list[tuple[int, str, str]]:
    """Add documents behind each other, some of several lines; return index, reason and text of refused ones.

    Line by line, a number or a list within a document would be taken for a message, and the rest would be lost.
    """
    check_value_count(data, limits.max_values)
    refused: list[tuple[int, str, str]] = []
    # Bytes that are not UTF-8 refuse their document alone.
    text = data.decode("utf-8", "surrogateescape")
    has_bytes = not text.isascii() and _SURROGATE.search(text) is not None
    for number, span in enumerate(Scanner(text).documents(), 1):
        document = text[span.begin : span.end].encode("utf-8", "surrogateescape")
        if error := span.error or (find_error(document) if has_bytes else ""):
            refused.append((number, messages.refuse(SYNTAX), error))
        elif reason := messages.add(document):
            refused.append((number, reason, messages.oversize_text))
    return refused


def _split_objects(line: bytes, max_messages: int) -> list[bytes]:
    """Return the objects of a line of concatenated JSON (Fluent Bit's ``json_stream``); none if a part of it is no
    object. Raises Refused.
    """
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return []
    documents: list[bytes] = []
    for span in Scanner(text).documents():
        # Limit: the first error ends it, because the search for what follows an error reads the rest of the line.
        if span.error or text[span.begin] != "{":
            return []
        documents.append(text[span.begin : span.end].encode())
        check_message_count(len(documents), max_messages)
    return documents
