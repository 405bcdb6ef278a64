"""HTTP routes of entries, statistics, metrics and the balance.

Paths, statuses and texts are the same as in slogd's gateway if it has the route.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from penstock.server.api.entries import EntriesApi
from penstock.server.http.admin_routes import admin_routes
from penstock.server.http.described_routes import JSON, DescribedRoute, await_call, json_response
from penstock.server.metrics.prometheus import CONTENT_TYPE, Family, render
from penstock.server.reading.query import Query, parse_query
from penstock.server.reading.search import Search, SearchPage
from penstock.slogd.errors import ApiError, BadRequest, Code
from penstock.slogd.json.append_request import parse_append
from penstock.slogd.json.entry_documents import dumps, logs_document, sorted_annotations

Report = Callable[[], Any]
"""Returns a JSON-ready answer or an awaitable of one; runs on a thread unless it is async."""
QueriedReport = Callable[[Mapping[str, str]], Any]
"""A report that gets the parameters of the request's query."""


def daemon_routes(
    api: EntriesApi, *, stat: Report, metrics: Callable[[], Iterable[Family]], balance: QueriedReport
) -> list[DescribedRoute]:
    """Return the routes that every daemon has."""
    return [
        *_log_routes(_LogRoutes(api)),
        *admin_routes(api),
        DescribedRoute("/stat", "GET", _report(stat), "Statistics of the receivers"),
        DescribedRoute("/balance", "GET", _queried(api, balance), "What became of every message", query="BalanceQuery"),
        DescribedRoute("/metrics", "GET", _metrics(api, metrics), "Counts as Prometheus text", media_type="text/plain"),
    ]


def _log_routes(calls: _LogRoutes) -> list[DescribedRoute]:
    logs, stream = "/topic/{topic}/logs", "/topic/{topic}/logstream"
    return [
        DescribedRoute("/topics", "GET", calls.topics, "The topics"),
        DescribedRoute(logs, "POST", calls.append, "Append", body="AppendBody"),
        DescribedRoute(logs, "GET", calls.get, "Read", query="ReadQuery"),
        DescribedRoute("/topic/{topic}/search", "GET", calls.search, "Search", query="SearchQuery"),
        DescribedRoute(stream, "GET", calls.stream, "Follow", query="ReadQuery"),
    ]


class _LogRoutes:
    def __init__(self, api: EntriesApi) -> None:
        self._api = api

    async def topics(self, request: Request) -> Response:
        """Return the names of all topics."""
        names = await self._api.names(request.state.caller)
        return json_response({"topic": [{"name": name} for name in names]} if names else {})

    async def append(self, topic: str, request: Request) -> Response:
        """Append entries, all or none; answered once they are synced to disk."""
        body = await request.body()
        if not body:
            # The text of the answer is slogd's; the reason is in a header that slogd's clients ignore.
            warning = '299 penstock "the body is empty: a JSON object with logs is needed"'
            return json_response({"error": "EOF", "code": int(Code.INVALID_ARGUMENT)}, 400, {"warning": warning})
        append = await self._api.parsed(functools.partial(parse_append, topic, body), len(body))
        accepted = await self._api.append(append, "http", request.state.caller)
        answer: dict[str, Any] = {"offsets": list(map(str, accepted.offsets))} if accepted.offsets else {}
        # Only deviations are reported, because slogd's answers have no such field.
        if accepted.durability != "synced":
            answer["durability"] = accepted.durability.upper()
        headers = {"penstock-durability": accepted.durability}
        ignored = [f"unknown field {quote(append.unknown)}"] if append.unknown else []
        # The status is slogd's: its gateway reads a stream of which it takes the first value.
        ignored += ["what follows the first JSON value"] if append.has_more else []
        if ignored:
            headers["warning"] = f'299 penstock "{", ".join(ignored)} was ignored"'
        return json_response(answer, headers=headers)

    async def get(self, topic: str, request: Request) -> Response:
        """Return a page of entries."""
        query = Query.from_request(parse_query(topic, request.query_params.multi_items()))
        return Response(await self._api.get(query, _logs, request.state.caller), media_type=JSON)

    async def search(self, topic: str, request: Request) -> Response:
        """Return a page of matching entries, newest pages first.

        Searches offsets from begin to end, for up to a second: to continue, ask again with before=begin, or with
        offset=end.
        """
        search = Search.from_parameters(topic, request.query_params)
        return Response(await self._api.search(search, _encode_search_page, request.state.caller), media_type=JSON)

    async def stream(self, topic: str, request: Request) -> Response:
        """Return entries from the start on, then new entries, as frames ``{"result": {"logs": [...]}}``."""
        query = Query.from_request(parse_query(topic, request.query_params.multi_items()))
        try:
            pages = await self._api.follow(query, _frame, request.state.caller)
        except ApiError as error:
            # Like slogd, which sends the status before it checks the topic's name; a missing topic gets its own status.
            status = 200 if isinstance(error, BadRequest) else error.status
            return Response(_error_frame(error), status, media_type=JSON)
        return FrameStream(_frames(pages), media_type=JSON)


class FrameStream(StreamingResponse):
    """A stream that closes its pages as soon as the client leaves."""

    def __init__(self, frames: AsyncGenerator[bytes], media_type: str) -> None:
        super().__init__(frames, media_type=media_type)
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            # Closed at once, not when it is collected: an open stream counts and keeps a reader.
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


def _encode_search_page(page: SearchPage) -> bytes:
    return dumps(page.document(sorted_annotations(logs_document(page.batches))))


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
        return json_response(await await_call(report))

    return answer


def _queried(api: EntriesApi, report: QueriedReport) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        document = await await_call(functools.partial(report, dict(request.query_params)))
        return json_response(
            document if request.state.caller.monitor else _readable_part(document, _readable_topics(api, request))
        )

    return answer


def _metrics(api: EntriesApi, families: Callable[[], Iterable[Family]]) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        readable: Iterable[Family] = await await_call(families)
        if not request.state.caller.monitor:
            readable = (family.of_topics(_readable_topics(api, request)) for family in readable)
        return Response(render(readable), headers={"content-type": CONTENT_TYPE})

    return answer


def _readable_topics(api: EntriesApi, request: Request) -> Callable[[str], bool]:
    """Return a test whether the caller may read a topic."""
    return lambda topic: request.state.caller.reads(topic, api.topics.log.settings(topic))


def _readable_part(document: Mapping[str, Any], is_readable: Callable[[str], bool]) -> dict[str, Any]:
    """Return the part of a balance that belongs to readable topics."""
    return {
        name: [entry for entry in document.get(name, ()) if is_readable(entry["topic"])]
        for name in ("topics", "audits")
    }
