"""Request bodies: limited in size, decompressed if sent as gzip, and parsed as JSON objects for routes that need
one.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.slogd.errors import BadRequest, TooLong, UnknownEncoding
from penstock.slogd.json.values import first_value
from penstock.wire.unpacking import GZIP, Bomb, CutShort, Inflater, NotPacked, content_encoding, is_named_twice

_GZIP = 16 + zlib.MAX_WBITS


class RequestBodies:
    """Middleware: no route reads more than ``limit`` bytes, compressed or not. Reading a body raises ApiError."""

    def __init__(self, app: ASGIApp, limit: Callable[[], int]) -> None:
        self._app, self._limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, _bounded(scope, receive, self._limit()) if scope["type"] == "http" else receive, send)


def _bounded(scope: Scope, receive: Receive, limit: int) -> Receive:
    encoding, size, begin = content_encoding(scope["headers"]), 0, b""
    encodings = encoding.split(",")
    is_gzip = len(encodings) <= 2 and all(name in GZIP for name in encodings)
    inflater = Inflater(limit, _GZIP) if is_gzip else None

    async def bounded() -> Message:
        nonlocal size, begin
        message = await receive()
        if message["type"] != "http.request":
            return message
        body = message.get("body", b"")
        if body and inflater is None and encoding:
            raise _unknown(encoding)
        if inflater is not None:
            body = await _inflate(inflater, body, is_last=not message.get("more_body", False), limit=limit)
            begin = (begin + body[:2])[:2]
            if len(encodings) == 2 and len(begin) == 2 and not is_named_twice(encodings, begin):
                raise _unknown(encoding)
        size += len(body)
        if size > limit:
            raise _too_long(limit)
        return {**message, "body": body}

    return bounded


async def _inflate(inflater: Inflater, packed: bytes, *, is_last: bool, limit: int) -> bytes:
    parts = []
    try:
        for part in inflater.feed(packed):
            parts.append(part)
            # Other requests are served between the parts.
            await asyncio.sleep(0)
        if is_last:
            inflater.finish()
    except Bomb:
        raise _too_long(limit) from None
    except CutShort:
        raise BadRequest("The body is cut short: its gzip has no end") from None
    except NotPacked:
        raise BadRequest("The body is not gzip") from None
    return b"".join(parts)


def _unknown(encoding: str) -> UnknownEncoding:
    return UnknownEncoding(f"content-encoding {encoding[:50]!r}: a body compressed once by gzip is understood")


def _too_long(limit: int) -> TooLong:
    return TooLong(f"The request is longer than {limit} bytes")


async def json_object(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body for any content type; an empty body is an empty object. Raises ApiError."""
    body = await request.body()
    try:
        document = first_value(body) if body.strip() else {}
    except ValueError as error:
        raise BadRequest(str(error)) from None
    if not isinstance(document, dict):
        raise BadRequest("The body must be a JSON object")
    return document
