"""Arrow Flight: topics in whole batches, in both directions. ``CallServer`` serves it and limits calls and threads;
Arrow's own server has a thread per open call, without a limit.

A ticket is a JSON object: ``topic``; ``from`` (an offset, ``"earliest"``, ``"latest"`` or an RFC 3339 time) and ``to``
(an offset, exclusive), by default the whole topic; ``filter``; ``columns``, by default the columns of
``records.SCHEMA``, also ``source``, ``bucket``, ``received`` and ``codec``. A descriptor's path names a whole topic.
Actions describe topics and gaps (``actions``).

A put has the columns of ``records.BODY``, at least ``payload``; the log adds the others. The topic is named by the
path, or by a command: a JSON object with ``topic`` and, to make retries harmless, ``producer_id`` and the ``sequence``
of the first batch. Each stored batch is answered by a JSON object: ``first`` (its first offset), ``rows`` and
``durability``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import grpc
import pyarrow as pa
import pyarrow.flight as flight

from penstock.process.kernel import file_shortage
from penstock.process.servers.bounded_calls import BoundedCalls
from penstock.process.servers.calls import Call
from penstock.process.servers.connection_limit import ConnectionLimit
from penstock.records import SCHEMA
from penstock.server.auth.permitted_topics import PermittedTopics
from penstock.server.auth.rights import Principal, TokenAuthenticator
from penstock.server.flight.actions import ACTIONS, act
from penstock.server.flight.batch_messages import BadFlightData, BatchEncoder, bytes_field
from penstock.server.flight.puts import Puts
from penstock.server.flight.tickets import Scan, Ticket, topic_of_path
from penstock.server.grpc.call_errors import caller_of
from penstock.server.grpc.call_server import STREAM_GRACE_S, CallServer
from penstock.server.grpc.call_threads import CallThreads
from penstock.server.grpc.closed_calls import TokenForServices
from penstock.server.grpc.pulled_answers import PAUSE, PulledAnswers
from penstock.slogd.errors import ApiError, BadRequest, Code, Exhausted, Stopping

SERVICE = "arrow.flight.protocol.FlightService"
FLIGHT_THREADS = 8
"""Limit: threads that read, encode and decode. A stream whose client does not read occupies none."""
OPTIONS = [
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", -1),  # a single row may be larger than any limit of messages
    # Otherwise a second server on the same port would silently get half of the connections.
    ("grpc.so_reuseport", 0),
    # Limit: of one connection. More are refused by gRPC before any work is done for them.
    ("grpc.max_concurrent_streams", 100),
]
MAX_OPEN_READS = 64
"""Limit: calls that are being answered. Each may hold two messages of up to MAX_PART_BYTES for a client that does not
read; over the limit the one that read least recently is ended.
"""
_UNKNOWN = int(grpc.StatusCode.UNKNOWN.value[0])
_LOGGER = logging.getLogger(__name__)

_Answers = Iterator[bytes]


class FlightServer:
    """Flight server of the topics. Not bound to an address yet; ``start`` and ``stop`` are called on the event loop."""

    def __init__(
        self, topics: PermittedTopics, guard: TokenAuthenticator, connections: ConnectionLimit, threads: CallThreads
    ) -> None:
        """``threads`` handle the calls, and may be shared with another server."""
        self._topics, self._guard = topics, guard
        self._closing = threading.Event()
        self._threads = ThreadPoolExecutor(FLIGHT_THREADS, "penstock-flight")
        self._open_reads = BoundedCalls(MAX_OPEN_READS, "the client does not read, and others wait")
        methods: dict[str, Callable[[bytes, Principal], _Answers]] = {
            "ListFlights": self._list_flights,
            "GetFlightInfo": self._get_flight_info,
            "GetSchema": self._get_schema,
            "DoGet": self._do_get,
            "DoAction": self._do_action,
            "ListActions": self._list_actions,
        }
        direct = {f"/{SERVICE}/{name}": partial(self._serve, method) for name, method in methods.items()}
        connections.streams.append(self._open_reads.last_progress)
        tokens = TokenForServices(guard, (SERVICE,))
        self.calls = CallServer(OPTIONS, direct, tokens, threads, connections)
        puts = Puts(topics, guard, self._threads, status_of)
        self.calls.add_registered_method_handlers(
            SERVICE, {"DoPut": grpc.stream_stream_rpc_method_handler(puts.do_put)}
        )

    async def start(self) -> None:
        """Start serving."""
        await self.calls.start()

    async def stop(self, grace: float) -> None:
        """End the streams at their next batch; readers that do not take it, and puts after ``grace`` s, are cut off."""
        self._closing.set()
        stopping = asyncio.create_task(self.calls.stop(grace))
        if not (await asyncio.wait((stopping,), timeout=min(grace, STREAM_GRACE_S)))[0]:
            self._open_reads.cancel_all("the server stops")
        await stopping
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _serve(self, method: Callable[[bytes, Principal], _Answers], request: bytes, call: Call) -> None:
        # From here on the call is one of the open reads, which may be closed while they are silent.
        call.on_answered(call.raw)
        answers = self._answers_while_valid(method, request, call)
        PulledAnswers(call.raw, self._threads, answers, status_of, self._open_reads).start()

    def _answers_while_valid(
        self, method: Callable[[bytes, Principal], _Answers], request: bytes, call: Call
    ) -> _Answers:
        """Yield the answers of a method as long as the caller's token is valid."""
        caller = caller_of(self._guard, call)
        for answer in method(request, caller):
            if self._closing.is_set():
                raise Stopping("The server is stopping")
            self._guard.current(caller)
            yield answer

    def _list_flights(self, _: bytes, caller: Principal) -> _Answers:
        """Answer ListFlights: all topics that the caller may read and that can be opened."""
        for topic in self._topics.all_readable(caller):
            descriptor = flight.FlightDescriptor.for_path(topic.name)
            yield self._info(Ticket(topic.name), caller, descriptor)

    def _get_flight_info(self, request: bytes, caller: Principal) -> _Answers:
        """Answer GetFlightInfo for a topic (path) or a ticket (command)."""
        descriptor = flight.FlightDescriptor.deserialize(request)
        yield self._info(_ticket_of(descriptor), caller, descriptor)

    def _info(self, ticket: Ticket, caller: Principal, descriptor: flight.FlightDescriptor) -> bytes:
        scan = Scan(self._topics.readable(ticket.topic, caller), ticket)
        rows = scan.rows if not ticket.filter_text else -1
        endpoint = flight.FlightEndpoint(ticket.encode(), [])
        return flight.FlightInfo(scan.schema, descriptor, [endpoint], rows, -1).serialize()

    def _get_schema(self, request: bytes, _: Principal) -> _Answers:
        """Answer GetSchema for a ticket (command), else with the columns of every topic, also of future ones."""
        schema = SCHEMA
        with contextlib.suppress(BadRequest, pa.ArrowInvalid):
            schema = _ticket_of(flight.FlightDescriptor.deserialize(request)).schema
        yield flight.SchemaResult(schema).serialize()

    def _do_get(self, request: bytes, caller: Principal) -> _Answers:
        """Answer DoGet with the synced batches that a ticket selects."""
        ticket = Ticket.parse(flight.Ticket.deserialize(request).ticket)
        scan = Scan(self._topics.readable(ticket.topic, caller), ticket)
        encoder = BatchEncoder(scan.schema)
        yield encoder.schema_message()
        for batch in scan:
            # Checked for each batch: the right may be removed while a long read is open.
            self._topics.check_read(ticket.topic, self._guard.current(caller))
            if batch.num_rows:
                yield from encoder.batch_messages(batch)
            else:
                yield PAUSE

    def _do_action(self, request: bytes, caller: Principal) -> _Answers:
        """Answer DoAction with JSON objects."""
        action = flight.Action.deserialize(request)
        body = action.body.to_pybytes() if action.body is not None else b""
        for document in act(self._topics, caller, action.type, body):
            yield bytes_field(1, json.dumps(document).encode())

    def _list_actions(self, _: bytes, __: Principal) -> _Answers:
        for name, description in ACTIONS.items():
            yield bytes_field(1, name.encode()) + bytes_field(2, description.encode())


def _ticket_of(descriptor: flight.FlightDescriptor) -> Ticket:
    if descriptor.path:
        return Ticket(topic_of_path(descriptor.path))
    return Ticket.parse(descriptor.command or b"")


def status_of(error: Exception) -> tuple[int, str]:
    """Return the code and text of an error as Flight's clients know them.

    Codes for which pyarrow has no class of its own become UNKNOWN with the code's name before the text: pyarrow's
    clients would take NOT_FOUND for a KeyError.
    """
    if isinstance(error, pa.ArrowException | BadFlightData):  # the client sent invalid Arrow data
        error = BadRequest(str(error))
    if text := file_shortage(error):
        error = Exhausted(text)
    if not isinstance(error, ApiError):
        _LOGGER.error("a request failed", exc_info=error)
        return Code.INTERNAL, "Internal error"
    if error.code in (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED, Code.UNAVAILABLE):
        return error.code, error.message
    return _UNKNOWN, f"{error.code.name}: {error.message}"
