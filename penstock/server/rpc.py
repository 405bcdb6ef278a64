"""The gRPC service slogd.StructuredLog on an event loop (grpc.aio)."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import AsyncIterator
from typing import Any, NoReturn

import grpc
import grpc.aio
import pyarrow as pa

from penstock.server import slogd_pb2 as pb
from penstock.server.api import Api
from penstock.server.entries import from_batches, to_body
from penstock.server.errors import ApiError, Code
from penstock.server.query import Query
from penstock.server.slogd_pb2_grpc import StructuredLogServicer, add_StructuredLogServicer_to_server

MAX_MESSAGE = 64 << 20
"""Bytes of a request or an answer; gRPC's own 4 MiB is too small for slogd's messages of 16 MiB."""

_log = logging.getLogger(__name__)
_Context = grpc.aio.ServicerContext[Any, Any]


class StructuredLog(StructuredLogServicer):
    """The four calls, each a thin shell around ``Api``."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def AppendLogs(self, request: pb.AppendRequest, context: _Context) -> pb.AppendResponse:  # noqa: N802
        try:
            parse = functools.partial(to_body, request.logs)
            offsets = await self._api.append(request.topic, parse, request.ByteSize(), "grpc")
        except Exception as error:
            await _abort(context, error)
        return pb.AppendResponse(offsets=offsets)

    async def GetLogs(self, request: pb.GetLogsRequest, context: _Context) -> pb.GetLogsResponse:  # noqa: N802
        try:
            return await self._api.get(Query.of(request), _response)
        except Exception as error:
            await _abort(context, error)

    async def StreamLogs(  # noqa: N802
        self, request: pb.GetLogsRequest, context: _Context
    ) -> AsyncIterator[pb.GetLogsResponse]:
        try:
            async with contextlib.aclosing(await self._api.follow(Query.of(request), _response)) as pages:
                # So that the caller knows that it is being served, however long nothing comes.
                await context.send_initial_metadata(())
                async for page in pages:
                    yield page
        except Exception as error:
            await _abort(context, error)

    async def ListTopics(self, request: pb.ListTopicsRequest, context: _Context) -> pb.ListTopicsResponse:  # noqa: N802
        return pb.ListTopicsResponse(topic=[pb.Topic(name=name) for name in await self._api.topics()])


def _response(batches: list[pa.RecordBatch]) -> pb.GetLogsResponse:
    return pb.GetLogsResponse(logs=from_batches(batches))


async def _abort(context: _Context, error: Exception) -> NoReturn:
    """Answer with the error's code; what is not an answer of ours is logged, and its text kept to ourselves."""
    if isinstance(error, ApiError):
        await context.abort(grpc.StatusCode[error.code.name], error.message)
    _log.error("a request failed", exc_info=error)
    await context.abort(grpc.StatusCode[Code.INTERNAL.name], "Internal error")
    raise AssertionError("abort raises")


def create_server(api: Api) -> grpc.aio.Server:
    """A server of ``api`` without an address yet."""
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", MAX_MESSAGE),
            ("grpc.max_send_message_length", MAX_MESSAGE),
            # Else a second server on the same port would take half of the connections in silence.
            ("grpc.so_reuseport", 0),
        ]
    )
    add_StructuredLogServicer_to_server(StructuredLog(api), server)
    return server
