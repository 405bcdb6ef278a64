"""The HTTP API as an application: routes, errors, and what stands before every route."""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.config.browser_access import FRAME_HEADERS, STATIC_PAGE_POLICY, BrowserAccess
from penstock.process.http_limits import HttpLimits, LimitedBodies
from penstock.server.auth.rights import TokenAuthenticator
from penstock.server.http.body_limits import told
from penstock.server.http.described_routes import DescribedRoute, json_response, served
from penstock.server.http.request_bodies import RequestBodies
from penstock.slogd.errors import ApiError, Code, Unauthenticated

MAX_BODY = 96 << 20
"""Bytes of a request's body: what gRPC takes, in base64, and a little."""

OPEN_PATHS = ("/docs", "/openapi.json")
"""Paths that need no token: they say nothing of what is stored."""


def create_app(
    routes: Sequence[DescribedRoute],
    guard: TokenAuthenticator,
    *,
    open_paths: Sequence[str] = OPEN_PATHS,
    hosts: Sequence[str] = (),
    limits: HttpLimits | None = None,
) -> Starlette:
    """The application, with the routes and with pages that describe them.

    ``open_paths`` need no token; ``hosts`` are names of this machine (see ``config.browser_access``), asked for as
    long as there are no tokens.
    """
    app = Starlette(
        routes=[*_pages(routes), *map(served, routes)],
        exception_handlers={
            ApiError: _refused,
            HTTPException: _plain,
            ClientDisconnect: _gone,
            Exception: _failed,
        },
        middleware=[
            Middleware(BrowserAccess, names=hosts, is_enabled=lambda: not guard.closed),
            Middleware(KnownCallers, guard=guard, open_paths=open_paths),
            Middleware(HeadAsGet),
            Middleware(RequestBodies, limit=lambda: MAX_BODY),
            Middleware(CleanPaths),
            Middleware(LimitedBodies, limits=limits or HttpLimits(), translate=told),
        ],
    )
    app.router.redirect_slashes = False
    return app


def _pages(routes: Sequence[DescribedRoute]) -> list[Route]:
    """The description, for machines and for people; what makes it is loaded when it is asked for."""

    @functools.cache
    def description() -> dict[str, Any]:
        from penstock.server.http.openapi import document

        return document(routes)

    def machines(request: Request) -> Response:
        return json_response(description())

    def people(request: Request) -> Response:
        from penstock.server.http.docs_page import docs_page

        return HTMLResponse(
            docs_page(description()), headers=FRAME_HEADERS | {"content-security-policy": STATIC_PAGE_POLICY}
        )

    return [Route("/openapi.json", machines), Route("/docs", people)]


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return json_response({"error": error.message, "code": int(error.code)}, error.status)


async def _failed(request: Request, error: Exception) -> Response:
    # uvicorn logs it: the text is for us alone.
    return json_response({"error": "Internal error", "code": int(Code.INTERNAL)}, 500)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=400)


async def _plain(request: Request, error: Exception) -> Response:
    """``Not Found\\n`` and the like as text; what has a text of its own as JSON."""
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    if error.detail != phrase:
        return json_response({"error": error.detail, "code": _CODES.get(error.status_code, 2)}, error.status_code)
    headers = {"x-content-type-options": "nosniff"}
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["allow"] = ", ".join(_allowed(request))  # the router knows of one route alone
    return Response(phrase + "\n", error.status_code, headers, "text/plain")


def _allowed(request: Request) -> list[str]:
    """The methods that the path has."""
    routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    methods = {method for route in routes for method in route.methods or ()}
    return sorted(methods | ({"HEAD"} if "GET" in methods and not _SLOGDS.fullmatch(request.url.path) else set()))


_SLOGDS = re.compile(r"/topics|/topic/[^/]+/(logs|logstream)")
"""slogd's own routes, which have no HEAD there either."""
_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 409: 10, 412: 9, 429: 8, 503: 14}


class KnownCallers:
    """Says who calls (``request.state.caller``); answers 401 to those who must say it and do not."""

    def __init__(self, app: ASGIApp, guard: TokenAuthenticator, open_paths: Sequence[str]) -> None:
        self._app, self._guard, self._open_paths = app, guard, open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            shown = [value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"]
            try:
                scope.setdefault("state", {})["caller"] = self._guard.caller(shown[0] if shown else None)
            except Unauthenticated as error:
                if scope["path"] not in self._open_paths:
                    document = {"error": error.message, "code": int(error.code)}
                    app = json_response(document, error.status, {"www-authenticate": "Bearer"})
        await app(scope, receive, send)


class HeadAsGet:
    """Answers HEAD as GET; the server leaves out the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD" and not _SLOGDS.fullmatch(scope["path"]):
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)


class CleanPaths:
    """Redirects a path with empty, ``.`` or ``..`` segments to the path without, as Go's server does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            path = scope.get("raw_path", b"").decode("latin-1")
            clean = clean_path(path)
            if clean != path:
                query = scope["query_string"].decode("latin-1")
                app = RedirectResponse(clean + ("?" + query if query else ""), 307)
        await app(scope, receive, send)


def clean_path(path: str) -> str:
    """The path without empty, ``.`` and ``..`` segments; a slash at the end stays. Percent signs are not resolved."""
    if not path.startswith("/"):
        return path
    clean = "/" + posixpath.normpath(path).lstrip("/")
    return clean + "/" if path.endswith("/") and clean != "/" else clean
