"""What all gRPC calls share: who calls, and how errors are answered."""

from __future__ import annotations

import logging
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from penstock.server.auth.rights import Principal, TokenAuthenticator
from penstock.server.grpc.calls import Call, LoopCall
from penstock.slogd.errors import ApiError, BadRequest, Code

_LOGGER = logging.getLogger(__name__)
Context = LoopCall


def caller_of(guard: TokenAuthenticator, context: Context | Call) -> Principal:
    """Return who calls. Raises Unauthenticated."""
    if not guard.closed:
        return guard.caller(None)
    shown = [str(value) for name, value in context.invocation_metadata() or () if name == "authorization"]
    return guard.caller(shown[0] if shown else None)


def parsed(kind: Any, data: bytes) -> Any:
    """The message of a request. Raises BadRequest."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise BadRequest(f"error unmarshalling request: {error}") from None


def told(error: Exception) -> tuple[Code, str]:
    """The error's code and text; what is not an answer of ours is logged, and its text kept to ourselves."""
    if isinstance(error, ApiError):
        return error.code, error.message
    _LOGGER.error("a request failed", exc_info=error)
    return Code.INTERNAL, "Internal error"


async def abort(context: Context, error: Exception) -> NoReturn:
    """Answer with what is told of the error."""
    code, text = told(error)
    await context.abort(grpc.StatusCode[code.name], text)
