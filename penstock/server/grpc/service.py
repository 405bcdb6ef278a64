"""gRPC service slogd.StructuredLog, with reflection and health.

Calls with entries are served as bytes: whole columns of entries are decoded from them and encoded to them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as async_health

from penstock.config import SecurityConfig
from penstock.process.servers.calls import CANCELLED, Call
from penstock.process.servers.connection_limit import ConnectionLimit
from penstock.server.api.entries import INLINE_SIZE, Accepted, EntriesApi
from penstock.server.auth.rights import Principal
from penstock.server.grpc.admin_calls import manage_handlers
from penstock.server.grpc.call_errors import Context, abort, caller_of, parsed, status_of
from penstock.server.grpc.call_server import CallServer
from penstock.server.grpc.call_threads import CallThreads
from penstock.server.grpc.closed_calls import TokenForServices
from penstock.server.grpc.reflection import SERVICES, add_reflection
from penstock.server.reading.query import Query
from penstock.slogd import slogd_pb2 as pb
from penstock.slogd.columns.decode import parse_append
from penstock.slogd.columns.encode import response, responses
from penstock.slogd.errors import ApiError, Exhausted

SERVICE = "slogd.StructuredLog"
HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
MAX_MESSAGE_BYTES = 64 << 20
"""Limit: of a request. Answers are as large as a page, but for a single larger entry."""
MAX_PLAIN_BYTES = 4 << 20
"""Limit: of an AppendLogs request without Penstock's extensions; a longer one gets slogd's error."""
OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", -1),  # a single entry may be larger than any limit of messages
    # Otherwise a second server on the same port would silently get half of the connections.
    ("grpc.so_reuseport", 0),
    # Relays ping during calls, so that they notice a partition; the default limit is one ping in five minutes.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    # Limit: of one connection. More are refused by gRPC before any work is done for them; its own clients queue.
    ("grpc.max_concurrent_streams", 256),
]
MAX_PIPELINED = 256
"""Limit: requests of one AppendStream in flight."""
DURABILITY = {"synced": pb.SYNCED, "written": pb.WRITTEN, "staged": pb.STAGED}


class Entries:
    """The calls that carry entries, each a thin layer over ``EntriesApi``."""

    def __init__(self, api: EntriesApi) -> None:
        self._api = api

    def append(self, data: bytes, call: Call) -> None:
        """Serve AppendLogs on the server's thread; the committing thread answers, and long work moves to a reader
        thread.
        """
        self._append(data, call)

    def _append(self, data: bytes, call: Call, may_wait: bool = False) -> None:
        try:
            if len(data) > INLINE_SIZE and not may_wait:
                self._api.threads.submit(self._append, data, call, may_wait=True)
                return
            caller, request = caller_of(self._api.guard, call), parse_append(data)
            if len(data) > MAX_PLAIN_BYTES and not (request.producer_id or request.transaction_id):
                raise Exhausted(f"grpc: received message larger than max ({len(data)} vs. {MAX_PLAIN_BYTES})")
            if may_wait or self._api.at_once(request):
                self._api.hand_over(request, "grpc", caller, partial(_answer, call, request.origin is not None))
            else:
                self._api.threads.submit(self._append, data, call, may_wait=True)
        except Exception as error:  # noqa: BLE001 - every call ends with a code
            call.refuse(*status_of(error))

    def get(self, data: bytes, call: Call) -> None:
        """Serve GetLogs: at once if the page is cached, else on a reader thread."""
        try:
            query, caller = _parse_query(data), caller_of(self._api.guard, call)
            cached_page = self._api.pages.cached(query, response, caller, responses)
            if cached_page is not None:
                return call.answer(cached_page)
            # A client may leave while its call waits for a thread; the read is then skipped.
            call.watch()
            self._api.threads.submit(self._get, query, caller, call)
        except Exception as error:  # noqa: BLE001 - every call ends with a code
            call.refuse(*status_of(error))

    def _get(self, query: Query, caller: Principal, call: Call) -> None:
        try:
            if call.client_left:
                # Order: ended like any other call, else its connection would count as waiting for an answer forever.
                call.refuse(CANCELLED, "the client has left")
            else:
                call.answer(self._api.pages.get(query, response, caller, responses))
        except Exception as error:  # noqa: BLE001 - every call ends with a code
            call.refuse(*status_of(error))

    async def append_stream(self, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        """Serve AppendStream: requests are appended and answered in their order."""
        answers: asyncio.Queue[Awaitable[bytes] | None] = asyncio.Queue(MAX_PIPELINED)
        reading: asyncio.Task[None] | None = None
        try:
            reading = asyncio.create_task(self._read_requests(requests, context, answers))
            while (answer := await answers.get()) is not None:
                yield await answer
            await reading
        except Exception as error:  # noqa: BLE001 - every call ends with a code
            await abort(context, error)
        finally:
            if reading is not None:
                reading.cancel()

    async def _read_requests(
        self, requests: AsyncIterator[bytes], context: Context, answers: asyncio.Queue[Awaitable[bytes] | None]
    ) -> None:
        try:
            caller = caller_of(self._api.guard, context)
            async for data in requests:
                caller = self._api.guard.current(caller)
                context.unanswered += 1
                outcome = asyncio.ensure_future(_encode_outcome(await self._start_append(data, caller)))
                outcome.add_done_callback(context.count_outcome)
                await answers.put(outcome)
        except Exception:
            await answers.put(None)
            raise
        await answers.put(None)

    async def _start_append(self, data: bytes, caller: Principal) -> Awaitable[Accepted]:
        """Hand one request of a stream to the log, before any later request of the stream."""
        try:
            request = await self._api.parsed(lambda: parse_append(data), len(data))
            return await self._api.start(request, "grpc", caller)
        except ApiError as error:
            failed: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed

    async def stream(self, data: bytes, context: Context) -> AsyncIterator[bytes]:
        """Serve StreamLogs."""
        try:
            pages = await self._api.follow(_parse_query(data), response, caller_of(self._api.guard, context))
            async with contextlib.aclosing(pages):
                # Sent at once, so that the client knows that the stream is open even if no entry arrives for long.
                await context.send_initial_metadata(())
                async for page in pages:
                    yield page
        except Exception as error:  # noqa: BLE001 - every call ends with a code
            await abort(context, error)

    async def topics(self, data: bytes, context: Context) -> pb.ListTopicsResponse:
        """Serve ListTopics."""
        try:
            parsed(pb.ListTopicsRequest, data)
            names = await self._api.names(caller_of(self._api.guard, context))
        except Exception as error:  # noqa: BLE001 - every call ends with a code
            await abort(context, error)
        return pb.ListTopicsResponse(topic=[pb.Topic(name=name) for name in names])


async def _encode_outcome(accepted: Awaitable[Accepted]) -> bytes:
    """Encode the answer to one request of a stream, also an error."""
    try:
        return _encode_accepted(await accepted)
    except ApiError as error:
        return pb.AppendResponse(error=pb.Error(code=error.code, message=error.message)).SerializeToString()


def _answer(call: Call, is_relayed: bool, outcome: Accepted | ApiError) -> None:
    if isinstance(outcome, ApiError):
        call.refuse(*status_of(outcome))
    else:
        call.answer(_encode_accepted(outcome, is_relayed))


def _encode_accepted(accepted: Accepted, is_relayed: bool = False) -> bytes:
    answer = pb.AppendResponse(offsets=accepted.offsets, durability=DURABILITY[accepted.durability])
    answer.stored_now = is_relayed and accepted.stored_now
    return answer.SerializeToString()


def _parse_query(data: bytes) -> Query:
    return Query.from_request(parsed(pb.GetLogsRequest, data))


@dataclass(frozen=True, slots=True)
class Rpc:
    """A gRPC server and its health service."""

    server: CallServer
    health: Any

    async def start(self) -> None:
        """Start serving and report it as healthy."""
        await self.server.start()
        await self.health.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)


def create_server(api: EntriesApi, security: SecurityConfig, connections: ConnectionLimit) -> Rpc:
    """Create a server of ``api`` that is not bound to an address yet."""
    entries = Entries(api)
    closed = (() if security.open_health else (HEALTH,)) + (() if security.open_reflection else SERVICES)
    direct = {f"/{SERVICE}/AppendLogs": entries.append, f"/{SERVICE}/GetLogs": entries.get}
    tokens = TokenForServices(api.guard, closed)
    server = CallServer(OPTIONS, direct, tokens, CallThreads(api.topics.log.committers), connections)
    list_topics: Any = grpc.unary_unary_rpc_method_handler(
        entries.topics, None, pb.ListTopicsResponse.SerializeToString
    )
    handlers = {
        "AppendStream": grpc.stream_stream_rpc_method_handler(entries.append_stream),
        "StreamLogs": grpc.unary_stream_rpc_method_handler(entries.stream),
        "ListTopics": list_topics,
        **manage_handlers(api),
    }
    server.add_registered_method_handlers(SERVICE, handlers)
    health = async_health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)  # type: ignore[arg-type]  # it has what this calls
    add_reflection(server, (SERVICE, HEALTH, *SERVICES))
    return Rpc(server, health)
