"""Routes that say of themselves what the OpenAPI document tells of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.slogd.json.entry_documents import dumps

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class DescribedRoute:
    """One method of a path.

    ``call`` is given the parameters of the path by their names, and ``request``; one that is not async runs on a
    thread. It gives a Response, or a JSON-ready document. ``query`` and ``body`` name models of
    ``penstock.server.http.openapi``; ``status`` and ``media_type`` are those of a good answer (of a document: JSON).
    """

    path: str
    method: str
    call: Callable[..., Any]
    summary: str
    tag: str = ""
    query: str = ""
    body: str = ""
    status: int = 200
    media_type: str = JSON


def json_response(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Compact JSON."""
    return Response(dumps(document), status, headers, media_type=JSON)


def served(described: DescribedRoute) -> Route:
    """The route as the application has it."""

    async def answer(request: Request) -> Response:
        given = await called(described.call, **request.path_params, request=request)
        return given if isinstance(given, Response) else json_response(given, described.status)

    route = Route(described.path, answer, methods=[described.method])
    route.methods = {described.method}  # HEAD is added to GET otherwise
    return route


async def called(call: Callable[..., Any], **given: Any) -> Any:
    """What ``call`` gives, or what it gives an awaitable of; one that is not async runs on a thread."""
    if inspect.iscoroutinefunction(call):
        return await call(**given)
    result = await run_in_threadpool(call, **given)
    return await result if inspect.isawaitable(result) else result
