"""Health and reflection, which are not the API's own calls: asked for a token only where the configuration says so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from penstock.server.auth.rights import TokenAuthenticator
from penstock.slogd.errors import Unauthenticated


class TokenForServices(grpc.aio.ServerInterceptor):
    """Answers UNAUTHENTICATED to calls of ``services`` (full names) that show no token that is known."""

    def __init__(self, guard: TokenAuthenticator, services: tuple[str, ...]) -> None:
        self._guard, self._begins = guard, tuple(f"/{name}/" for name in services)

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """As grpc calls it."""
        handler = await continuation(details)
        if handler is None or not details.method.startswith(self._begins):
            return handler
        shown = next((str(value) for name, value in details.invocation_metadata if name == "authorization"), None)
        try:
            self._guard.caller(shown)
        except Unauthenticated as error:
            return _refusing(handler, error)
        return handler


def _refusing(handler: Any, error: Unauthenticated) -> Any:
    """A method of the same kind as ``handler`` that refuses."""

    async def refuse(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, error.message)

    asks, answers = ("stream" if many else "unary" for many in (handler.request_streaming, handler.response_streaming))
    return getattr(grpc, f"{asks}_{answers}_rpc_method_handler")(refuse)
