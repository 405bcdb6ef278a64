"""Routes that carry their own description for the OpenAPI document."""

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
    """A method of a path, with its description.

    ``call`` gets the parameters of the path by name, and ``request``; a call that is not async runs on a thread. It
    returns a Response or a JSON-ready document. ``query`` and ``body`` name models of
    ``penstock.server.http.openapi``; ``status`` and ``media_type`` describe a successful answer.
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
    """Return compact JSON."""
    return Response(dumps(document), status, headers, media_type=JSON)


def starlette_route(described: DescribedRoute) -> Route:
    """Return the route for the application."""

    async def answer(request: Request) -> Response:
        answered = await await_call(described.call, **request.path_params, request=request)
        return answered if isinstance(answered, Response) else json_response(answered, described.status)

    route = Route(described.path, answer, methods=[described.method])
    # Starlette adds HEAD to GET; the middleware HeadAsGet decides which routes answer it.
    route.methods = {described.method}
    return route


async def await_call(call: Callable[..., Any], **arguments: Any) -> Any:
    """Return the outcome of ``call``; a call that is not async runs on a thread."""
    # A call that is not async may wait for the disk, which must not block the event loop.
    if inspect.iscoroutinefunction(call):
        return await call(**arguments)
    outcome = await run_in_threadpool(call, **arguments)
    return await outcome if inspect.isawaitable(outcome) else outcome
