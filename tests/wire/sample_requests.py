"""Requests to protocols, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson

from penstock.wire.requests import Answer, Received, Refused, Request, RequestProtocol


def asked(
    path: str, body: bytes = b"", headers: Mapping[str, str] | None = None, method: str = "POST", **more: Any
) -> Request:
    split = urlsplit(path)
    return Request(method, split.path, body, dict(parse_qsl(split.query)), headers or {}, **more)


def rows(received: Received | Answer) -> list[tuple[bytes, dict[str, str]]]:
    """Payloads and annotations."""
    assert isinstance(received, Received)
    return [(row["payload"], dict(row["annotations"] or [])) for row in received.body.to_pylist()]


def told(received: Received | Answer) -> Any:
    """The answer's document."""
    return orjson.loads(received.answer.body if isinstance(received, Received) else received.body)


def refused(protocol: RequestProtocol, request: Request) -> Answer:
    """What a sender is told whose request is refused."""
    try:
        protocol.receive(request)
    except Refused as why:
        return protocol.refusal(why, request)
    raise AssertionError("it was taken")


def taken_or_refused(protocol: RequestProtocol, request: Request) -> None:
    """Nothing but Refused may be raised, and the books close."""
    received = None
    try:
        received = protocol.receive(request)
    except Refused as error:
        why = error
    if received is None:
        assert protocol.refusal(why, request).status >= 400
    if isinstance(received, Received):
        received.body.validate(full=True)
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
"""JSON that a parser which writes again would change."""
