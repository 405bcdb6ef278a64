"""Arrow Flight: topics in whole batches, both ways.

A ticket is a JSON object: ``topic``; ``from`` (an offset, ``"earliest"``, ``"latest"`` or an RFC 3339 time) and ``to``
(an offset, exclusive), by default all there is; ``filter``; ``columns``, by default those of ``records.SCHEMA``, but
also ``source``, ``bucket``, ``received`` and ``codec``. A topic as a descriptor's path is all of it. Actions tell
where topics begin and end, and what is gone (``flight_actions``).

What is put has the columns of ``records.BODY``, ``payload`` at least; those that the log itself gives are left out.
The path names the topic, or a command does: a JSON object with ``topic`` and, to make retries harmless,
``producer_id`` and the ``sequence`` of the first batch. Each batch is answered once it is stored, by a JSON object:
``first`` (its first offset), ``rows`` and ``durability``.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from penstock.files.json_values import parse_object
from penstock.log import Appended, LogError, ProducerSequence, Topic
from penstock.records import BODY, SCHEMA
from penstock.server.auth.rights import NOBODY_ASKED, Principal, TokenAuthenticator
from penstock.server.flight.actions import ACTIONS, act
from penstock.server.flight.tickets import Scan, Ticket
from penstock.server.permitted_topics import PermittedTopics, answer
from penstock.slogd.errors import ApiError, BadRequest, Code

PIPELINED = 16
"""Batches of one put that are under way at once: they share commits."""
_LOGGER = logging.getLogger(__name__)
GRACE = 5.0
"""Seconds."""
_MIDDLEWARE = "caller"


class FlightServer(flight.FlightServerBase):
    """Serves the topics. ``location``: ``grpc://host:port``, or ``grpc+tls://`` with ``tls`` (see flight's options)."""

    def __init__(self, location: str, topics: PermittedTopics, guard: TokenAuthenticator, **tls: Any) -> None:
        self._topics = topics
        self._closing = threading.Event()
        super().__init__(location, middleware={_MIDDLEWARE: _CallerFactory(guard)}, **tls)

    def close(self) -> None:
        """Stop: streams under way end at their next batch; not waited for longer than GRACE. From any thread."""
        if self._closing.is_set():
            return
        self._closing.set()
        stopping = threading.Thread(target=self.shutdown, daemon=True)
        stopping.start()
        stopping.join(GRACE)

    def list_flights(  # type: ignore[override]  # the stub says that criteria are texts
        self, context: Any, criteria: bytes
    ) -> Iterator[flight.FlightInfo]:
        """All topics that the caller may read and that can be opened."""
        with _as_flight():
            caller = _caller(context)
            for name in [topic.name for topic in self._topics.all(caller)]:
                yield self._info(Ticket(name), caller, flight.FlightDescriptor.for_path(name))

    def get_flight_info(self, context: Any, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        """One topic (by path), or what a ticket (as command) asks for."""
        with _as_flight():
            return self._info(_ticket_of(descriptor), _caller(context), descriptor)

    def _info(self, ticket: Ticket, caller: Principal, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        scan = Scan(self._topics.readable(ticket.topic, caller), ticket)
        rows = scan.rows if ticket.filter is None else -1
        endpoint = flight.FlightEndpoint(ticket.encode(), [])
        return flight.FlightInfo(scan.schema, descriptor, [endpoint], rows, -1)

    def get_schema(  # type: ignore[override]  # the stub says a schema
        self, context: Any, descriptor: flight.FlightDescriptor
    ) -> flight.SchemaResult:
        """The columns that a ticket (as command) asks for; else those that all topics have, also ones still to come.

        Nothing is refused here: Arrow would send the traceback along.
        """
        with contextlib.suppress(BadRequest):
            return flight.SchemaResult(_ticket_of(descriptor).schema)
        return flight.SchemaResult(SCHEMA)

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Nothing is exchanged."""
        raise flight.FlightServerError("UNIMPLEMENTED: do_put appends, do_get reads")

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.FlightDataStream:
        """The batches that a ticket asks for; only what is synced is seen."""
        with _as_flight():
            wanted = Ticket.parse(ticket.ticket)
            scan = Scan(self._topics.readable(wanted.topic, _caller(context)), wanted)
            return flight.GeneratorStream(scan.schema, self._batches(scan))

    def _batches(self, scan: Scan) -> Iterator[pa.RecordBatch]:
        with _as_flight():
            for batch in scan:
                if self._closing.is_set():
                    raise flight.FlightUnavailableError("The server is stopping")
                yield batch

    def list_actions(  # type: ignore[override]  # the stub leaves the tuples out
        self, context: Any
    ) -> list[tuple[str, str]]:
        """What can be asked."""
        return list(ACTIONS.items())

    def do_action(self, context: Any, action: flight.Action) -> Iterator[bytes]:
        """The answers to a question: JSON objects."""
        with _as_flight():
            body = action.body.to_pybytes() if action.body is not None else b""
            for document in act(self._topics, _caller(context), action.type, body):
                yield json.dumps(document).encode()

    def do_put(self, context: Any, descriptor: flight.FlightDescriptor, reader: Any, writer: Any) -> None:
        """Append batches, each all or none, each answered once it is stored."""
        with _as_flight():
            name, producer, sequence = destination_of(descriptor)
            topic = self._topics.writable(name, _caller(context))
            put = _Put(self._topics, topic, writer)
            for number, chunk in enumerate(_chunks(reader)):
                put.append(_body(chunk), ProducerSequence(producer, sequence + number) if producer else None)
            put.finish()


class _Put:
    """The batches of one put that are under way, answered in their order."""

    def __init__(self, topics: PermittedTopics, topic: Topic, writer: Any) -> None:
        self._topics, self._topic, self._writer = topics, topic, writer
        self._under_way: deque[tuple[Future[Appended], int]] = deque()

    def append(self, body: pa.RecordBatch, producer: ProducerSequence | None) -> None:
        while len(self._under_way) >= PIPELINED or (self._under_way and self._under_way[0][0].done()):
            self._answer()
        self._under_way.append((self._topics.append(self._topic, body, "flight", producer), body.num_rows))

    def finish(self) -> None:
        while self._under_way:
            self._answer()

    def _answer(self) -> None:
        future, rows = self._under_way.popleft()
        try:
            stored = future.result()
        except LogError as error:
            raise answer(error, self._topic.name) from error
        document = {"first": stored.first, "rows": rows, "durability": stored.durability}
        self._writer.write(pa.py_buffer(json.dumps(document).encode()))


def _chunks(reader: Any) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            chunk = reader.read_chunk()
        except StopIteration:
            return
        if chunk.data is not None:
            yield chunk.data


def _body(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The BODY batch of what was put. Raises BadRequest."""
    unknown = set(batch.schema.names) - set(SCHEMA.names)
    if unknown or "payload" not in batch.schema.names or len(set(batch.schema.names)) < len(batch.schema.names):
        raise BadRequest(f"columns must be payload and of {', '.join(BODY.names)}; not {sorted(batch.schema.names)}")
    try:
        columns = [
            batch.column(field.name).cast(field.type) if field.name in batch.schema.names else _nulls(batch, field)
            for field in BODY
        ]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BadRequest(f"columns do not have the types of the log: {error}") from None
    body = pa.RecordBatch.from_arrays(columns, schema=BODY)
    try:
        body.validate(full=True)
    except pa.ArrowInvalid as error:
        raise BadRequest(str(error)) from None
    return body


def _nulls(batch: pa.RecordBatch, field: pa.Field[Any]) -> pa.Array[Any]:
    nulls: pa.Array[Any] = pa.nulls(batch.num_rows, field.type)
    return nulls


def destination_of(descriptor: flight.FlightDescriptor) -> tuple[str, str, int]:
    """Topic, producer id and first sequence number. Raises BadRequest."""
    if descriptor.path:
        return _one(descriptor.path), "", 0
    try:
        command = parse_object(descriptor.command or b"null")
    except ValueError:
        command = {}
    if not isinstance(command.get("topic"), str):
        raise BadRequest('a descriptor is the path [topic] or a command {"topic": ...}')
    producer, sequence = command.get("producer_id", ""), command.get("sequence", 0)
    if not isinstance(producer, str) or type(sequence) is not int or not 0 <= sequence < 2**63:
        raise BadRequest("producer_id must be a text, sequence a number")
    return command["topic"], producer, sequence


def _ticket_of(descriptor: flight.FlightDescriptor) -> Ticket:
    return Ticket(_one(descriptor.path)) if descriptor.path else Ticket.parse(descriptor.command or b"")


def _one(path: list[bytes]) -> str:
    if len(path) != 1:
        raise BadRequest("a path is one topic")
    return path[0].decode(errors="replace")


class _CallerFactory(flight.ServerMiddlewareFactory):
    """Knows the callers by their tokens."""

    def __init__(self, guard: TokenAuthenticator) -> None:
        self._guard = guard

    def start_call(self, info: Any, headers: dict[str, list[Any]]) -> _CallerMiddleware:
        shown = next((values for name, values in headers.items() if name.lower() == "authorization"), [None])[0]
        with _as_flight():
            return _CallerMiddleware(self._guard.caller(shown.decode() if isinstance(shown, bytes) else shown))


class _CallerMiddleware(flight.ServerMiddleware):
    def __init__(self, caller: Principal) -> None:
        self.caller = caller


def _caller(context: Any) -> Principal:
    middleware = context.get_middleware(_MIDDLEWARE)
    return middleware.caller if middleware is not None else NOBODY_ASKED


@contextlib.contextmanager
def _as_flight() -> Iterator[None]:
    """Errors as Flight knows them; those without a class of their own begin with the code's name.

    Classes of Flight's own alone: with every other one Arrow sends the traceback along.
    """
    try:
        yield
    except ApiError as error:
        raise _flight_error(error) from None
    except flight.FlightError:
        raise
    except pa.ArrowException as error:  # what was sent is no Arrow
        raise _flight_error(BadRequest(str(error))) from None
    except Exception as error:
        _LOGGER.exception("a request failed")
        raise flight.FlightInternalError("Internal error") from error


def _flight_error(error: ApiError) -> flight.FlightError:
    kinds: dict[Code, type[flight.FlightError]] = {
        Code.UNAUTHENTICATED: flight.FlightUnauthenticatedError,
        Code.PERMISSION_DENIED: flight.FlightUnauthorizedError,
        Code.UNAVAILABLE: flight.FlightUnavailableError,
    }
    kind = kinds.get(error.code)
    if kind is not None:
        return kind(error.message)
    return flight.FlightServerError(f"{error.code.name}: {error.message}")
