"""Requests to request protocols, and what these answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson

from penstock.records import as_batch
from penstock.wire.requests import Answer, Received, Refused, Request, RequestProtocol


def make_request(
    path: str, body: bytes = b"", headers: Mapping[str, str] | None = None, method: str = "POST", **more: Any
) -> Request:
    split = urlsplit(path)
    return Request(method, split.path, body, dict(parse_qsl(split.query)), headers or {}, **more)


def rows(received: Received | Answer) -> list[tuple[bytes, dict[str, str]]]:
    """Return payloads and annotations."""
    assert isinstance(received, Received)
    return [(row["payload"], dict(row["annotations"] or [])) for row in as_batch(received.body).to_pylist()]


def answer_document(received: Received | Answer) -> Any:
    """Decode the body of an answer."""
    return orjson.loads(received.answer.body if isinstance(received, Received) else received.body)


def refusal_of(protocol: RequestProtocol, request: Request) -> Answer:
    """Return the answer to a request that must be refused."""
    try:
        protocol.receive(request)
    except Refused as error:
        return protocol.refusal(error, request)
    raise AssertionError("the request was accepted")


def assert_accepted_or_refused(protocol: RequestProtocol, request: Request) -> None:
    """Check that nothing but Refused is raised, and that seen = accepted + refused."""
    received = None
    try:
        received = protocol.receive(request)
    except Refused as error:
        refusal = error
    if received is None:
        assert protocol.refusal(refusal, request).status >= 400
    if isinstance(received, Received):
        as_batch(received.body).validate(full=True)
        assert received.counts["seen"] == received.body.num_rows + received.counts.total("refused.")


EXACT = (
    "1.10",
    "1E5",
    "-0",
    "1e400",
    "123456789012345678901234567890",
    "18446744073709551616",
    "9" * 660,
    '{"a":1,"a":2}',
    '{"a":"\\u00e9\\/","b":[1.0,{}]}',
    '{"a":"\\ud83d"}',
)
"""JSON that changes when a parser reads it and writes it again."""
