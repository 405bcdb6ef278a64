"""Caller, request and errors of all gRPC calls."""

from __future__ import annotations

import logging
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from penstock.process.kernel import file_shortage
from penstock.process.servers.calls import Call
from penstock.server.auth.rights import Principal, TokenAuthenticator
from penstock.server.grpc.calls import LoopCall
from penstock.slogd.errors import ApiError, BadRequest, Code

_LOGGER = logging.getLogger(__name__)
Context = LoopCall


def caller_of(guard: TokenAuthenticator, context: Context | Call) -> Principal:
    """Return the caller. Raises Unauthenticated."""
    if not guard.closed:
        return guard.caller(None)
    headers = [str(content) for name, content in context.invocation_metadata() or () if name == "authorization"]
    return guard.caller(headers[0] if headers else None)


def parsed(kind: Any, data: bytes) -> Any:
    """Parse the message of a request. Raises BadRequest."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise BadRequest(f"error unmarshalling request: {error}") from None


def status_of(error: Exception) -> tuple[Code, str]:
    """Return code and text of an error. An unexpected error is logged, and its text is not sent."""
    if isinstance(error, ApiError):
        return error.code, error.message
    if text := file_shortage(error):
        return Code.RESOURCE_EXHAUSTED, text
    _LOGGER.error("a request failed", exc_info=error)
    return Code.INTERNAL, "Internal error"


async def abort(context: Context, error: Exception) -> NoReturn:
    """End the call with the error's code and text."""
    code, text = status_of(error)
    await context.abort(grpc.StatusCode[code.name], text)
