"""The HTTP API: slogd's routes and answers, and what watches over the daemon.

Paths, statuses and texts are those of slogd's gateway where it has the route.
"""

from __future__ import annotations

import functools
import inspect
import posixpath
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import pyarrow as pa
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock import __version__
from penstock.server import openapi
from penstock.server.api import Api
from penstock.server.documents import dumps, logs_document, parse_append
from penstock.server.errors import ApiError, BadRequest, Code, TooLong
from penstock.server.metrics import CONTENT_TYPE, Family, render
from penstock.server.query import Query, parse_query

MAX_BODY = 96 << 20
"""Bytes of a request's body: what gRPC takes, in base64, and a little."""

Report = Callable[[], Any]
"""Gives a JSON-ready answer, or an awaitable of one; what is not async runs on a thread."""
QueriedReport = Callable[[Mapping[str, str]], Any]
"""Likewise, of the parameters of the request's query."""


def create_app(
    api: Api,
    *,
    stat: Report,
    metrics: Callable[[], Iterable[Family]],
    balance: QueriedReport,
    routers: Sequence[APIRouter] = (),
) -> FastAPI:
    """The application; ``routers`` bring further routes, such as those of the ledger."""
    app = FastAPI(title="Penstock", version=__version__, redirect_slashes=False, redoc_url=None)
    _add_log_routes(app, _LogRoutes(api))
    app.add_api_route("/stat", _report(stat), methods=["GET"], summary="Statistics of the receivers")
    app.add_api_route("/balance", _queried(balance), methods=["GET"], summary="What became of every message")
    app.add_api_route("/metrics", _metrics(metrics), methods=["GET"], summary="Counts as Prometheus text")
    for router in routers:
        app.include_router(router)
    _add_error_handlers(app)
    app.add_middleware(CleanPaths)
    return app


def _add_log_routes(app: FastAPI, routes: _LogRoutes) -> None:
    read, append = {"parameters": openapi.START}, {"requestBody": openapi.APPEND}
    app.add_api_route("/topics", routes.topics, methods=["GET"])
    app.add_api_route("/topic/{topic}/logs", routes.append, methods=["POST"], openapi_extra=append)
    app.add_api_route("/topic/{topic}/logs", routes.get, methods=["GET"], openapi_extra=read)
    app.add_api_route("/topic/{topic}/logstream", routes.stream, methods=["GET"], openapi_extra=read)


class _LogRoutes:
    def __init__(self, api: Api) -> None:
        self._api = api

    async def topics(self) -> Response:
        """The names of all topics."""
        names = await self._api.topics()
        return _json({"topic": [{"name": name} for name in names]} if names else {})

    async def append(self, topic: str, request: Request) -> Response:
        """Append entries, all or none; answered once they are synced to disk."""
        data = await _body(request)
        offsets = await self._api.append(topic, functools.partial(parse_append, data), len(data), "http")
        return _json({"offsets": [str(offset) for offset in offsets]} if offsets else {})

    async def get(self, topic: str, request: Request) -> Response:
        """One page of entries."""
        query = Query.of(parse_query(topic, request.query_params.multi_items()))
        return Response(await self._api.get(query, _logs), media_type="application/json")

    async def stream(self, topic: str, request: Request) -> Response:
        """Entries from the start asked for, then what is appended, as frames ``{"result": {"logs": [...]}}``."""
        query = Query.of(parse_query(topic, request.query_params.multi_items()))
        try:
            pages = await self._api.follow(query, _frame)
        except ApiError as error:
            return Response(_error_frame(error), error.status, media_type="application/json")
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


def _logs(batches: list[pa.RecordBatch]) -> bytes:
    return dumps(logs_document(batches))


def _frame(batches: list[pa.RecordBatch]) -> bytes:
    return dumps({"result": logs_document(batches)}) + b"\n"


def _error_frame(error: ApiError) -> bytes:
    described = {
        "grpc_code": int(error.code),
        "http_code": int(error.status),
        "message": error.described,
        "http_status": error.status.phrase,
    }
    return dumps({"error": described}) + b"\n"


async def _body(request: Request) -> bytes:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BODY:
            raise TooLong(f"The request is longer than {MAX_BODY} bytes")
    return bytes(data)


def _json(document: Any, status: int = 200) -> Response:
    return Response(dumps(document), status, media_type="application/json")


def _report(report: Report) -> Callable[[], Any]:
    async def answer() -> Response:
        return _json(await _called(report))

    return answer


def _queried(report: QueriedReport) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        return _json(await _called(functools.partial(report, dict(request.query_params))))

    return answer


def _metrics(families: Callable[[], Iterable[Family]]) -> Callable[[], Any]:
    async def answer() -> Response:
        return Response(render(await _called(families)), headers={"content-type": CONTENT_TYPE})

    return answer


async def _called(call: Callable[[], Any]) -> Any:
    result = await run_in_threadpool(call)
    return await result if inspect.isawaitable(result) else result


def _add_error_handlers(app: FastAPI) -> None:
    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        return _json({"error": error.message, "code": int(error.code)}, error.status)

    async def invalid(request: Request, error: Exception) -> Response:
        return await refused(request, BadRequest(str(error)))

    async def failed(_: Request, error: Exception) -> Response:
        # uvicorn logs it: the text is for us alone.
        return _json({"error": "Internal error", "code": int(Code.INTERNAL)}, 500)

    async def gone(_: Request, error: Exception) -> Response:
        return Response(status_code=400)

    app.add_exception_handler(ApiError, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, _plain)
    app.add_exception_handler(ClientDisconnect, gone)
    app.add_exception_handler(Exception, failed)


async def _plain(_: Request, error: Exception) -> Response:
    """``Not Found\\n`` and the like as text; what has a text of its own as JSON."""
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    if error.detail != phrase:
        return _json({"error": error.detail, "code": _CODES.get(error.status_code, 2)}, error.status_code)
    headers = {**(error.headers or {}), "x-content-type-options": "nosniff"}
    return Response(phrase + "\n", error.status_code, headers, "text/plain")


_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 409: 10, 429: 8, 503: 14}


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
