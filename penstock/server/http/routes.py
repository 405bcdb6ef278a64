"""The HTTP API: slogd's routes and answers, and what watches over the daemon.

Paths, statuses and texts are those of slogd's gateway where it has the route.
"""

from __future__ import annotations

import functools
import inspect
import posixpath
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock import __version__
from penstock.config.browser_access import BrowserAccess
from penstock.config.complaints import in_words
from penstock.process.http_limits import HttpLimits, LimitedBodies
from penstock.server.auth.rights import TokenAuthenticator
from penstock.server.entries_api import EntriesApi
from penstock.server.http.admin_routes import json_response, manage_router
from penstock.server.http.body_limits import told
from penstock.server.http.docs_page import docs_page
from penstock.server.http.openapi import (
    AppendBody,
    BalanceQuery,
    Error,
    ReadQuery,
    SearchQuery,
    json_body,
    query_parameters,
)
from penstock.server.http.request_bodies import RequestBodies
from penstock.server.metrics.prometheus import CONTENT_TYPE, Family, render
from penstock.server.read_query import Query, parse_query
from penstock.server.search_pages import Found, Search
from penstock.slogd.errors import ApiError, BadRequest, Code, Unauthenticated
from penstock.slogd.json.append_request import parse_append
from penstock.slogd.json.entry_documents import dumps, logs_document, sorted_annotations

MAX_BODY = 96 << 20
"""Bytes of a request's body: what gRPC takes, in base64, and a little."""

OPEN_PATHS = ("/docs", "/openapi.json")
"""Paths that need no token: they say nothing of what is stored."""

Report = Callable[[], Any]
"""Gives a JSON-ready answer, or an awaitable of one; what is not async runs on a thread."""
QueriedReport = Callable[[Mapping[str, str]], Any]
"""Likewise, of the parameters of the request's query."""


def create_app(
    api: EntriesApi,
    *,
    stat: Report,
    metrics: Callable[[], Iterable[Family]],
    balance: QueriedReport,
    routers: Sequence[APIRouter] = (),
    open_paths: Sequence[str] = OPEN_PATHS,
    hosts: Sequence[str] = (),
    limits: HttpLimits | None = None,
) -> FastAPI:
    """The application; ``routers`` bring further routes, such as those of the ledger.

    ``open_paths`` need no token; ``hosts`` are names of this machine (see ``config.browser_access``), asked for as
    long as there are no tokens.
    """
    app = FastAPI(
        title="Penstock",
        version=__version__,
        redirect_slashes=False,
        redoc_url=None,
        docs_url=None,
        responses={"default": {"model": Error, "description": "An error."}},
    )
    app.add_route("/docs", lambda _: HTMLResponse(docs_page(app.openapi())), methods=["GET"], include_in_schema=False)
    _add_log_routes(app, _LogRoutes(api))
    app.include_router(manage_router(api))
    app.add_api_route("/stat", _report(stat), methods=["GET"], summary="Statistics of the receivers")
    app.add_api_route(
        "/balance",
        _queried(api, balance),
        methods=["GET"],
        summary="What became of every message",
        openapi_extra=query_parameters(BalanceQuery),
    )
    app.add_api_route(
        "/metrics",
        _metrics(api, metrics),
        methods=["GET"],
        summary="Counts as Prometheus text",
        response_class=PlainTextResponse,
    )
    for router in routers:
        app.include_router(router)
    _add_error_handlers(app)
    app.add_middleware(LimitedBodies, limits=limits or HttpLimits(), told=told)
    app.add_middleware(CleanPaths)
    app.add_middleware(RequestBodies, limit=lambda: MAX_BODY)
    app.add_middleware(HeadAsGet)
    app.add_middleware(KnownCallers, guard=api.guard, open_paths=open_paths)
    app.add_middleware(BrowserAccess, names=hosts, asked=lambda: not api.guard.closed)
    return app


def _add_log_routes(app: FastAPI, routes: _LogRoutes) -> None:
    for path, method, call, summary, extra in (
        ("/topics", "GET", routes.topics, "The topics", None),
        ("/topic/{topic}/logs", "POST", routes.append, "Append", json_body(AppendBody)),
        ("/topic/{topic}/logs", "GET", routes.get, "Read", query_parameters(ReadQuery)),
        ("/topic/{topic}/search", "GET", routes.search, "Search", query_parameters(SearchQuery)),
        ("/topic/{topic}/logstream", "GET", routes.stream, "Read on and on", query_parameters(ReadQuery)),
    ):
        app.add_api_route(path, call, methods=[method], summary=summary, openapi_extra=extra)


class _LogRoutes:
    def __init__(self, api: EntriesApi) -> None:
        self._api = api

    async def topics(self, request: Request) -> Response:
        """The names of all topics."""
        names = await self._api.names(request.state.caller)
        return json_response({"topic": [{"name": name} for name in names]} if names else {})

    async def append(self, topic: str, request: Request) -> Response:
        """Append entries, all or none; answered once they are synced to disk."""
        data = await request.body()
        if not data:  # slogd's word for it
            told = '299 penstock "the body is empty: a JSON object with logs is needed"'
            return json_response({"error": "EOF", "code": int(Code.INVALID_ARGUMENT)}, 400, {"warning": told})
        append = await self._api.parsed(functools.partial(parse_append, topic, data), len(data))
        accepted = await self._api.append(append, "http", request.state.caller)
        answer: dict[str, Any] = {"offsets": list(map(str, accepted.offsets))} if accepted.offsets else {}
        if accepted.durability != "synced":  # what slogd promises is not said in the body, as it does not say it
            answer["durability"] = accepted.durability.upper()
        headers = {"penstock-durability": accepted.durability}
        if append.unknown:
            headers["warning"] = f'299 penstock "unknown field {quote(append.unknown)} was passed over"'
        return json_response(answer, headers=headers)

    async def get(self, topic: str, request: Request) -> Response:
        """One page of entries."""
        query = Query.of(parse_query(topic, request.query_params.multi_items()))
        return Response(await self._api.get(query, _logs, request.state.caller), media_type="application/json")

    async def search(self, topic: str, request: Request) -> Response:
        """A page of the entries that have a text in them, newest pages first.

        Offsets from begin to end were looked at, within a second: where that is not all, go on with before=begin, or
        with offset=end.
        """
        asked = Search.of(topic, request.query_params)
        return Response(await self._api.search(asked, _found, request.state.caller), media_type="application/json")

    async def stream(self, topic: str, request: Request) -> Response:
        """Entries from the start asked for, then what is appended, as frames ``{"result": {"logs": [...]}}``."""
        query = Query.of(parse_query(topic, request.query_params.multi_items()))
        try:
            pages = await self._api.follow(query, _frame, request.state.caller)
        except ApiError as error:
            # As slogd, which begins its answer before it looks at the topic's name; that a topic is missing is told.
            status = 200 if isinstance(error, BadRequest) else error.status
            return Response(_error_frame(error), status, media_type="application/json")
        return FrameStream(_frames(pages), media_type="application/json")


class FrameStream(StreamingResponse):
    """A stream that closes its pages as soon as the client leaves."""

    def __init__(self, frames: AsyncGenerator[bytes], media_type: str) -> None:
        super().__init__(frames, media_type=media_type)
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._frames.aclose()


async def _frames(pages: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    try:
        async for frame in pages:
            yield frame
    except ApiError as error:
        yield _error_frame(error)
    finally:
        await pages.aclose()


def _logs(batches: list[pa.RecordBatch], next_offset: int) -> bytes:
    return dumps(_page(batches, next_offset))


def _found(found: Found) -> bytes:
    return dumps(found.document(sorted_annotations(logs_document(found.batches))))


def _frame(batches: list[pa.RecordBatch], next_offset: int) -> bytes:
    return dumps({"result": _page(batches, next_offset)}) + b"\n"


def _page(batches: list[pa.RecordBatch], next_offset: int) -> dict[str, Any]:
    document = sorted_annotations(logs_document(batches))
    return {**document, "next_offset": str(next_offset)} if next_offset else document


def _error_frame(error: ApiError) -> bytes:
    described = {
        "grpc_code": int(error.code),
        "http_code": int(error.status),
        "message": error.described,
        "http_status": error.status.phrase,
    }
    return dumps({"error": described}) + b"\n"


def _report(report: Report) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        request.state.caller.check_monitor()
        return json_response(await _called(report))

    return answer


def _queried(api: EntriesApi, report: QueriedReport) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        document = await _called(functools.partial(report, dict(request.query_params)))
        return json_response(document if request.state.caller.monitor else _of_topics(document, _reads(api, request)))

    return answer


def _metrics(api: EntriesApi, families: Callable[[], Iterable[Family]]) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        made: Iterable[Family] = await _called(families)
        if not request.state.caller.monitor:
            made = (family.of_topics(_reads(api, request)) for family in made)
        return Response(render(made), headers={"content-type": CONTENT_TYPE})

    return answer


def _reads(api: EntriesApi, request: Request) -> Callable[[str], bool]:
    """Whether the caller may read a topic."""
    return lambda topic: request.state.caller.reads(topic, api.topics.log.settings(topic))


def _of_topics(document: Mapping[str, Any], reads: Callable[[str], bool]) -> dict[str, Any]:
    """What of a balance belongs to topics that may be read."""
    return {name: [one for one in document.get(name, ()) if reads(one["topic"])] for name in ("topics", "audits")}


async def _called(call: Callable[[], Any]) -> Any:
    result = await run_in_threadpool(call)
    return await result if inspect.isawaitable(result) else result


def _add_error_handlers(app: FastAPI) -> None:
    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        return json_response({"error": error.message, "code": int(error.code)}, error.status)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        wrong = (f"{'.'.join(map(str, one['loc'][1:]))}: {in_words(one)}" for one in error.errors())
        return await refused(request, BadRequest("; ".join(wrong)))

    async def failed(_: Request, error: Exception) -> Response:
        # uvicorn logs it: the text is for us alone.
        return json_response({"error": "Internal error", "code": int(Code.INTERNAL)}, 500)

    async def gone(_: Request, error: Exception) -> Response:
        return Response(status_code=400)

    app.add_exception_handler(ApiError, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, _plain)
    app.add_exception_handler(ClientDisconnect, gone)
    app.add_exception_handler(Exception, failed)


async def _plain(request: Request, error: Exception) -> Response:
    """``Not Found\\n`` and the like as text; what has a text of its own as JSON."""
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    if error.detail != phrase:
        return json_response({"error": error.detail, "code": _CODES.get(error.status_code, 2)}, error.status_code)
    headers = {**(error.headers or {}), "x-content-type-options": "nosniff"}
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["allow"] = ", ".join(_allowed(request))
    return Response(phrase + "\n", error.status_code, headers, "text/plain")


def _allowed(request: Request) -> list[str]:
    """The methods that the path has."""
    routes = [route for route in _flat(request.app.routes) if route.matches(request.scope)[0] is not Match.NONE]
    methods = {method for route in routes for method in getattr(route, "methods", None) or ()}
    return sorted(methods | ({"HEAD"} if "GET" in methods and not _SLOGDS.fullmatch(request.url.path) else set()))


def _flat(routes: Iterable[Any]) -> Iterator[Any]:
    """The routes, those of routers among them too."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        yield from [route] if inner is None else _flat(inner.routes)


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
