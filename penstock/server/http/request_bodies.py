"""Bodies of requests: bounded, unpacked where they come as gzip, and JSON objects where a route asks for one."""

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
    """No route reads more than ``limit`` gives (bytes), packed or unpacked; what reads the body raises ApiError."""

    def __init__(self, app: ASGIApp, limit: Callable[[], int]) -> None:
        self._app, self._limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, _bounded(scope, receive, self._limit()) if scope["type"] == "http" else receive, send)


def _bounded(scope: Scope, receive: Receive, limit: int) -> Receive:
    named = next((value for name, value in scope["headers"] if name == b"content-encoding"), b"")
    encoding, size = named.decode("latin-1").strip().lower(), 0
    unpacked = _Unpacked() if encoding in ("gzip", "x-gzip") else None

    async def bounded() -> Message:
        nonlocal size
        message = await receive()
        if message["type"] != "http.request":
            return message
        body = message.get("body", b"")
        if body and unpacked is None and encoding not in _PLAIN:
            raise UnknownEncoding(f"content-encoding {encoding[:50]!r}: gzip is understood")
        if unpacked is not None:
            parts = []
            for part in unpacked.parts(body, limit + 1 - size, last=not message.get("more_body", False)):
                parts.append(part)
                await asyncio.sleep(0)  # others are served between the parts
            body = b"".join(parts)
        size += len(body)
        if size > limit:
            raise TooLong(f"The request is longer than {limit} bytes")
        return {**message, "body": body}

    return bounded


class _Unpacked:
    """A gzip stream, which may be of several members."""

    def __init__(self) -> None:
        self._stream, self._begun = zlib.decompressobj(_GZIP), False

    def parts(self, data: bytes, room: int, *, last: bool) -> Iterator[bytes]:
        """Yield what the next bytes hold in parts, ``room`` bytes of it at most. Raises BadRequest."""
        part = b""
        try:
            # A part that is full may leave more of its input in the stream.
            while room > 0 and (data or (len(part) == PART_BYTES and not self._stream.eof)):
                if self._stream.eof:
                    self._stream = zlib.decompressobj(_GZIP)
                self._begun = True
                part = self._stream.decompress(data, min(room, PART_BYTES))
                data = self._stream.unused_data or self._stream.unconsumed_tail
                room -= len(part)
                if part:
                    yield part
        except zlib.error:
            raise BadRequest("The body is no gzip") from None
        if last and self._begun and room > 0 and not self._stream.eof:
            raise BadRequest("The body is cut short: its gzip has no end")


async def json_object(request: Request) -> dict[str, Any]:
    """The JSON object in the body, whatever type it is said to have; nothing is an empty one. Raises ApiError."""
    data = await request.body()
    try:
        given = first_value(data) if data.strip() else {}
    except ValueError as error:
        raise BadRequest(str(error)) from None
    if not isinstance(given, dict):
        raise BadRequest("The body must be a JSON object")
    return given
