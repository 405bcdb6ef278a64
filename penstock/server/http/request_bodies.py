"""Request bodies: limited in size, decompressed if sent as gzip, and parsed as JSON objects for routes that need
one.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.slogd.errors import BadRequest, TooLong, UnknownEncoding
from penstock.slogd.json.values import first_value
from penstock.wire.unpacking import PART_BYTES

_GZIP = 16 + zlib.MAX_WBITS
_PLAIN = ("", "identity")


class RequestBodies:
    """Middleware: no route reads more than ``limit`` bytes, compressed or not. Reading a body raises ApiError."""

    def __init__(self, app: ASGIApp, limit: Callable[[], int]) -> None:
        self._app, self._limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, _bounded(scope, receive, self._limit()) if scope["type"] == "http" else receive, send)


def _bounded(scope: Scope, receive: Receive, limit: int) -> Receive:
    header = next((content for name, content in scope["headers"] if name == b"content-encoding"), b"")
    encoding, size = header.decode("latin-1").strip().lower(), 0
    decompressor = _Decompressor() if encoding in ("gzip", "x-gzip") else None

    async def bounded() -> Message:
        nonlocal size
        message = await receive()
        if message["type"] != "http.request":
            return message
        body = message.get("body", b"")
        if body and decompressor is None and encoding not in _PLAIN:
            raise UnknownEncoding(f"content-encoding {encoding[:50]!r}: gzip is understood")
        if decompressor is not None:
            parts = []
            # Limit: one byte more than the limit is decompressed, so that a small body cannot fill the memory.
            for part in decompressor.parts(body, limit + 1 - size, is_last=not message.get("more_body", False)):
                parts.append(part)
                # Other requests are served between the parts.
                await asyncio.sleep(0)
            body = b"".join(parts)
        size += len(body)
        if size > limit:
            raise TooLong(f"The request is longer than {limit} bytes")
        return {**message, "body": body}

    return bounded


class _Decompressor:
    """A gzip stream of one or more members."""

    def __init__(self) -> None:
        self._stream, self._has_begun = zlib.decompressobj(_GZIP), False

    def parts(self, packed: bytes, remaining_bytes: int, *, is_last: bool) -> Iterator[bytes]:
        """Decompress the next bytes into parts, at most ``remaining_bytes`` in total. Raises BadRequest."""
        part = b""
        try:
            # Limit: a part is at most PART_BYTES. A full part may leave unread input in the stream.
            while remaining_bytes > 0 and (packed or (len(part) == PART_BYTES and not self._stream.eof)):
                if self._stream.eof:
                    self._stream = zlib.decompressobj(_GZIP)
                self._has_begun = True
                part = self._stream.decompress(packed, min(remaining_bytes, PART_BYTES))
                packed = self._stream.unused_data or self._stream.unconsumed_tail
                remaining_bytes -= len(part)
                if part:
                    yield part
        except zlib.error:
            raise BadRequest("The body is not gzip") from None
        if is_last and self._has_begun and remaining_bytes > 0 and not self._stream.eof:
            raise BadRequest("The body is cut short: its gzip has no end")


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
