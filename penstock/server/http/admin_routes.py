"""HTTP routes of administration: topics and their settings, transactions, cursors, maintenance."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from google.protobuf import json_format
from google.protobuf.duration_pb2 import Duration
from starlette.requests import Request
from starlette.responses import Response

from penstock.server.api.administration import AdminApi
from penstock.server.api.entries import EntriesApi
from penstock.server.auth.rights import Principal
from penstock.server.http.described_routes import DescribedRoute, json_response
from penstock.server.http.request_bodies import json_object
from penstock.slogd import slogd_pb2 as pb
from penstock.slogd.errors import BadRequest

MAX_DIGITS = 20
"""Limit: digits of a number of 64 bits."""
_Call = Callable[[AdminApi, Principal], Any]


def admin_routes(api: EntriesApi) -> list[DescribedRoute]:
    """Return the routes of administration."""
    calls = _Routes(api)
    topic, cursor = "/topics/{topic}", "/topic/{topic}/cursors/{name}"
    of_topics, of_transactions, of_cursors = (
        partial(DescribedRoute, tag=tag) for tag in ("topics", "transactions", "cursors")
    )
    return [
        of_topics("/describe", "GET", calls.describe_all, "Topics with their settings", query="DescribeQuery"),
        of_topics(topic, "GET", calls.describe, "A topic, its settings and cursors"),
        of_topics(topic, "PUT", calls.create, "Create a topic", body="TopicConfig", status=201),
        of_topics(topic, "PATCH", calls.configure, "Change settings", body="TopicConfig"),
        of_topics(topic, "DELETE", calls.delete, "Delete a topic"),
        of_topics("/topic/{topic}/compact", "POST", calls.compact, "Rewrite sealed segments"),
        of_topics("/cleanup", "POST", calls.cleanup, "Drop what retention allows, now"),
        of_transactions("/transactions", "POST", calls.begin, "Begin a transaction", body="BeginBody"),
        of_transactions("/transactions/{id}/commit", "POST", calls.commit, "Commit it"),
        of_transactions("/transactions/{id}/abort", "POST", calls.abort, "Abort it"),
        of_cursors("/cursors", "GET", calls.all_cursors, "All cursors and their lag"),
        of_cursors("/topic/{topic}/cursors", "GET", calls.cursors, "A topic's cursors and their lag"),
        of_cursors(cursor, "PUT", calls.commit_cursor, "Set a cursor", body="CursorBody"),
        of_cursors(cursor, "DELETE", calls.remove_cursor, "Forget a cursor"),
    ]


class _Routes:
    def __init__(self, api: EntriesApi) -> None:
        self._api = api

    async def _run(self, request: Request, call: _Call, status: int = 200, change: str = "") -> Response:
        """Answer with the outcome of ``call``, which runs on a thread; a message becomes JSON with all its fields.

        ``change`` goes to the change log if the call succeeds.
        """

        def answer() -> Response:
            message = call(self._api.manage, request.state.caller)
            if change:
                origin = request.client.host if request.client else ""
                self._api.manage.record(change, request.state.caller, origin)
            return json_response(_document(message) if message is not None else {}, status)

        # On a thread: each of these calls may wait for the disk, and a thousand topics are a large document.
        return await self._api.run(answer)

    async def describe_all(self, request: Request) -> Response:
        """Without ``topic``, describe all readable topics; for thousands of topics this takes seconds."""
        names = request.query_params.getlist("topic")
        return await self._run(
            request, lambda manage, caller: pb.DescribeTopicsResponse(topic=manage.describe(names, caller))
        )

    async def describe(self, topic: str, request: Request) -> Response:
        return await self._run(request, lambda manage, caller: manage.describe([topic], caller)[0])

    async def create(self, topic: str, request: Request) -> Response:
        """Sizes may be written as ``16MiB``, times as ``6h``."""
        settings = await json_object(request)
        return await self._run(
            request, lambda manage, caller: manage.create(topic, settings, caller), 201, f"create topic {topic}"
        )

    async def configure(self, topic: str, request: Request) -> Response:
        """Sizes may be written as ``16MiB``, times as ``6h``."""
        settings = await json_object(request)
        return await self._run(
            request, lambda manage, caller: manage.configure(topic, settings, caller), change=f"configure topic {topic}"
        )

    async def delete(self, topic: str, request: Request) -> Response:
        return await self._run(
            request, lambda manage, caller: manage.delete(topic, caller), change=f"delete topic {topic}"
        )

    async def compact(self, topic: str, request: Request) -> Response:
        def compact_topic(manage: AdminApi, caller: Principal) -> pb.CompactTopicResponse:
            before, after = manage.compact(topic, caller)
            return pb.CompactTopicResponse(bytes_before=before, bytes_after=after)

        return await self._run(request, compact_topic, change=f"compact topic {topic}")

    async def cleanup(self, request: Request) -> Response:
        return await self._run(
            request,
            lambda manage, caller: pb.CleanupResponse(swept=manage.cleanup(caller)),
            change="drop what retention allows",
        )

    async def begin(self, request: Request) -> Response:
        timeout = _duration((await json_object(request)).get("timeout"))
        return await self._run(
            request, lambda manage, caller: pb.BeginResponse(transaction_id=manage.begin(timeout, caller))
        )

    async def commit(self, id: str, request: Request) -> Response:
        return await self._run(request, lambda manage, caller: pb.CommitResponse(topic=manage.commit(id, caller)))

    async def abort(self, id: str, request: Request) -> Response:
        return await self._run(request, lambda manage, caller: manage.abort(id, caller))

    async def all_cursors(self, request: Request) -> Response:
        return await self.cursors("", request)

    async def cursors(self, topic: str, request: Request) -> Response:
        def list_cursors(manage: AdminApi, caller: Principal) -> pb.ListCursorsResponse:
            return pb.ListCursorsResponse(cursor=manage.cursors(topic, caller))

        return await self._run(request, list_cursors)

    async def commit_cursor(self, topic: str, name: str, request: Request) -> Response:
        offset = str((await json_object(request)).get("offset"))
        if not (offset.isascii() and offset.isdigit() and len(offset) <= MAX_DIGITS):
            raise BadRequest("offset: must be a whole number")
        return await self._run(request, lambda manage, caller: manage.commit_cursor(topic, name, int(offset), caller))

    async def remove_cursor(self, topic: str, name: str, request: Request) -> Response:
        return await self._run(
            request,
            lambda manage, caller: manage.remove_cursor(topic, name, caller),
            change=f"forget cursor {name} of topic {topic}",
        )


def _document(message: Any) -> Any:
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def _duration(field: Any) -> Duration | None:
    """Parse a protobuf Duration in JSON (``"1.5s"``). Raises BadRequest."""
    if field is None:
        return None
    if not isinstance(field, str):
        raise BadRequest('timeout: must be a text such as "30s"')
    duration = Duration()
    try:
        duration.FromJsonString(field)
    except ValueError as error:
        raise BadRequest(f"timeout: {error}") from None
    return duration
