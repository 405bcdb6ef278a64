"""HTTP application: routes, errors, and the middleware in front of every route.

Invariant: the caller is identified before the body is read, so a request without a token costs no memory.
"""

from __future__ import annotations

import difflib
import functools
import itertools
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
from penstock.process.kernel import file_shortage
from penstock.process.servers.http_limits import HttpLimits, LimitedBodies
from penstock.server.auth.rights import TokenAuthenticator
from penstock.server.http.body_limits import api_error
from penstock.server.http.described_routes import DescribedRoute, json_response, starlette_route
from penstock.server.http.request_bodies import RequestBodies
from penstock.slogd.errors import ApiError, Code, Unauthenticated

MAX_BODY_BYTES = 96 << 20
"""Limit: of a request's body: gRPC's largest message in base64, and some room."""

OPEN_PATHS = ("/docs", "/openapi.json")
"""Paths that need no token: they reveal nothing about stored entries."""


def create_app(
    routes: Sequence[DescribedRoute],
    guard: TokenAuthenticator,
    *,
    open_paths: Sequence[str] = OPEN_PATHS,
    hosts: Sequence[str] = (),
    limits: HttpLimits | None = None,
) -> Starlette:
    """Create the application with the routes and the pages that describe them.

    ``open_paths`` need no token; ``hosts`` are names of this machine (see ``config.browser_access``), checked only
    without tokens.
    """
    app = Starlette(
        routes=[*_pages(routes), *map(starlette_route, routes)],
        exception_handlers={
            ApiError: _answer_api_error,
            HTTPException: _answer_http_error,
            ClientDisconnect: _answer_disconnected,
            Exception: _answer_unexpected,
        },
        middleware=[
            # Order: outermost first. Origin and token are checked before a body is read or decompressed.
            Middleware(BrowserAccess, names=hosts, is_enabled=lambda: not guard.closed),
            Middleware(KnownCallers, guard=guard, open_paths=open_paths),
            Middleware(HeadAsGet),
            Middleware(RequestBodies, limit=lambda: MAX_BODY_BYTES),
            Middleware(CleanPaths),
            Middleware(LimitedBodies, limits=limits or HttpLimits(), translate=api_error),
        ],
    )
    app.router.redirect_slashes = False
    return app


def _pages(routes: Sequence[DescribedRoute]) -> list[Route]:
    """Return the routes of the description, for programs and people; it is generated on the first request."""

    @functools.cache
    def description() -> dict[str, Any]:
        # Imported on first use: most daemons are never asked for their description.
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


async def _answer_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return json_response({"error": error.message, "code": int(error.code)}, error.status)


async def _answer_unexpected(request: Request, error: Exception) -> Response:
    if text := file_shortage(error):
        return json_response({"error": text, "code": int(Code.RESOURCE_EXHAUSTED)}, HTTPStatus.TOO_MANY_REQUESTS)
    # uvicorn logs the error; its text may contain details that callers must not see.
    return json_response({"error": "Internal error", "code": int(Code.INTERNAL)}, 500)


async def _answer_disconnected(request: Request, error: Exception) -> Response:
    return Response(status_code=400)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    """``Not Found\\n`` and the like as text; what has a text of its own as JSON.

    A second line of the first one names paths that exist.
    """
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    if error.detail != phrase:
        return json_response({"error": error.detail, "code": _CODES.get(error.status_code, 2)}, error.status_code)
    headers = {"x-content-type-options": "nosniff"}
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # Starlette's answer names the methods of one route, but a path may have several routes.
        headers["allow"] = ", ".join(_allowed(request))
    hint = f"{_nearest_paths(request)}\n" if error.status_code == HTTPStatus.NOT_FOUND else ""
    return Response(f"{phrase}\n{hint}", error.status_code, headers, "text/plain; charset=utf-8")


def _nearest_paths(request: Request) -> str:
    """Return the existing paths that are most similar to the requested one; /docs lists them all."""
    methods: dict[str, set[str]] = {}
    similarity: dict[str, float] = {}
    # Limit: no route is as deep; the rest of a path is one segment.
    segments = request.url.path.split("/", MAX_SEGMENTS)
    for route in request.app.routes:
        names = route.path.split("/")
        like = [*segments[: len(names)], *names[len(segments) :]]
        path = "/".join(
            asked if "{" in name and len(asked) <= MAX_COMPARED else name
            for name, asked in zip(names, like, strict=True)
        )
        methods.setdefault(path, set()).update((route.methods or set()) - {"HEAD"})
        if path not in similarity:
            similarity[path] = _similarity(segments, names)
    near = sorted((path for path in methods if similarity[path] >= PATH_SIMILARITY), key=lambda path: -similarity[path])
    named = [f"{', '.join(sorted(methods[path]))} {path}" for path in near[:NAMED_PATHS]]
    return "; ".join([*(f"did you mean {path}?" for path in named), "all paths: GET /docs"])


def _similarity(segments: Sequence[str], names: Sequence[str]) -> float:
    """Return how similar the segments of a path and of a route are, from 0 to 1; 0 below PATH_SIMILARITY."""
    # Any text may stand in the place of a parameter, so it is one character in both.
    asked = [
        "*" if "{" in name else segment[:MAX_COMPARED]
        for segment, name in itertools.zip_longest(segments, names[: len(segments)], fillvalue="")
    ]
    template = "/".join("*" if "{" in name else name for name in names)
    # Limit: this runs on the event loop, and the time of a comparison grows with the product of the lengths.
    matcher = difflib.SequenceMatcher(None, template, "/".join(asked)[:MAX_COMPARED])
    # Fast path: most paths differ in length or in their characters, which costs little to see.
    if min(matcher.real_quick_ratio(), matcher.quick_ratio()) < PATH_SIMILARITY:
        return 0.0
    return matcher.ratio()


def _allowed(request: Request) -> list[str]:
    """Return the methods of the path."""
    routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    methods = {method for route in routes for method in route.methods or ()}
    return sorted(methods | ({"HEAD"} if "GET" in methods and not _SLOGD_ROUTES.fullmatch(request.url.path) else set()))


MAX_COMPARED, MAX_SEGMENTS, NAMED_PATHS, PATH_SIMILARITY = 64, 8, 3, 0.6
_SLOGD_ROUTES = re.compile(r"/topics|/topic/[^/]+/(logs|logstream)")
"""Routes of slogd, which do not answer HEAD there either."""
_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 409: 10, 412: 9, 429: 8, 503: 14}


class KnownCallers:
    """Middleware: sets ``request.state.caller``; answers 401 if a token is required and none is valid."""

    def __init__(self, app: ASGIApp, guard: TokenAuthenticator, open_paths: Sequence[str]) -> None:
        self._app, self._guard, self._open_paths = app, guard, open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            headers = [content.decode("latin-1") for name, content in scope["headers"] if name == b"authorization"]
            try:
                scope.setdefault("state", {})["caller"] = self._guard.caller(headers[0] if headers else None)
            except Unauthenticated as error:
                if scope["path"] not in self._open_paths:
                    document = {"error": error.message, "code": int(error.code)}
                    app = json_response(document, error.status, {"www-authenticate": "Bearer"})
        await app(scope, receive, send)


class HeadAsGet:
    """Middleware: answers HEAD as GET; the server omits the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD" and not _SLOGD_ROUTES.fullmatch(scope["path"]):
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)


class CleanPaths:
    """Middleware: redirects a path with empty, ``.`` or ``..`` segments to the path without, as Go's server does."""

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
    """Return the path without empty, ``.`` and ``..`` segments; a final slash and percent signs stay."""
    if not path.startswith("/"):
        return path
    clean = "/" + posixpath.normpath(path).lstrip("/")
    return clean + "/" if path.endswith("/") and clean != "/" else clean
