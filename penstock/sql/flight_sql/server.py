"""gRPC's server of Arrow Flight SQL. Calls run on threads; their number is limited, and each ends with its query."""

from __future__ import annotations

import base64
import binascii
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import grpc
import pyarrow as pa
import pyarrow.flight as flight

from penstock.config import Settings
from penstock.errors import PenstockError
from penstock.process.kernel import raise_file_limit
from penstock.process.servers.connection_limit import ConnectionLimit
from penstock.server.auth.server_tls import ServerTls
from penstock.server.flight.batch_messages import BadFlightData, BatchDecoder, BatchEncoder, FlightData, bytes_field
from penstock.slogd.errors import BadRequest, Exhausted
from penstock.sql.flight_sql.commands import Command, Handle, pack, parse_command
from penstock.sql.flight_sql.service import Service, bound, command_of
from penstock.sql.postgres.access import Engine, RightsUnknown, WrongPassword
from penstock.sql.postgres.session.preparation import READ_ONLY, StatementFailed, code_of
from penstock.sql.query import BadQuery

SERVICE = "arrow.flight.protocol.FlightService"
MAX_REQUEST_BYTES = 4 << 20
"""Limit of one message, which is also gRPC's default."""
END_AFTER_S = 5.0
"""Time after a query's limit within which its last rows must be taken, or the last parameters sent."""
STOP_TIMEOUT_S = 2.0
"""Time that running calls get to end when the server stops."""
ACTIONS = {
    "CreatePreparedStatement": "Prepare a statement.",
    "ClosePreparedStatement": "Forget a prepared statement.",
}
_OPTIONS = [
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.max_send_message_length", -1),  # a single row may be larger than any limit of messages
    # Otherwise a second server on the same port would silently get half of the connections.
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", 100),
]
_LOGGER = logging.getLogger(__name__)
_Method = Callable[[Any, grpc.ServicerContext], Any]


class FlightSqlServer:
    """Server at ``sql.flight_sql``. ``start`` opens the port; ``close`` ends all calls."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self._engine, config = engine, settings.sql
        threads = ThreadPoolExecutor(config.max_connections, "flight-sql")
        self.connections = ConnectionLimit(config.max_connections, "sql.max_connections", raise_file_limit() // 4)
        options = [*_OPTIONS, *self.connections.options]
        self._server = grpc.server(threads, options=options, maximum_concurrent_rpcs=config.max_connections)
        self._calls: set[grpc.ServicerContext] = set()
        self.connections.answering.append(lambda: [context.peer() for context in list(self._calls)])
        self._address, self._security = config.flight_sql, settings.security
        self.port = 0
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        both = grpc.stream_stream_rpc_method_handler
        handlers: dict[str, Any] = {
            "Handshake": both(self._streamed(self._handshake)),
            "GetFlightInfo": unary(self._answered(self._get_flight_info)),
            "GetSchema": unary(self._answered(self._get_schema)),
            "DoGet": stream(self._streamed(self._do_get)),
            "DoAction": stream(self._streamed(self._do_action)),
            "DoPut": both(self._streamed(self._do_put)),
            "ListActions": stream(self._streamed(self._list_actions)),
        }
        self._server.add_registered_method_handlers(SERVICE, handlers)

    def start(self) -> None:
        """Open the port. Raises OSError, ConfigError."""
        credentials = ServerTls(self._security).for_rpc()
        try:
            if credentials is None:
                self.port = self._server.add_insecure_port(self._address)
            else:
                self.port = self._server.add_secure_port(self._address, credentials)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self._address}: {error}") from None
        self._server.start()
        self.connections.start([self.port])

    def close(self) -> None:
        """Close the port and end all calls."""
        self.connections.stop()
        self._server.stop(STOP_TIMEOUT_S).wait(2 * STOP_TIMEOUT_S)

    def _service(self, context: grpc.ServicerContext) -> Service:
        """Return the caller's service; its query ends with the call. Raises WrongPassword, RightsUnknown."""
        token, user = _credentials(context)
        readable = self._admit(token, context)
        cancelled = threading.Event()
        if not context.add_callback(cancelled.set):
            cancelled.set()
        return Service(self._engine, readable, user, cancelled)

    def _admit(self, token: str, context: grpc.ServicerContext) -> frozenset[str] | None:
        """Return the tables that a token may read; its connection stays open while the call runs.

        Raises WrongPassword, RightsUnknown.
        """
        # Order: the rights first, so that a refused call does not keep its connection open.
        readable = self._engine.rights.readable(token)
        self.connections.note_call(context.peer())
        self._calls.add(context)
        if not context.add_callback(lambda: self._end(context)):
            self._end(context)
        return readable

    def _end(self, context: grpc.ServicerContext) -> None:
        self._calls.discard(context)
        self.connections.note_end(context.peer())

    def _answered(self, method: _Method) -> _Method:
        def call(request: Any, context: grpc.ServicerContext) -> Any:
            self._limit_time(context)
            try:
                return method(request, context)
            except Exception as error:  # noqa: BLE001 - every call ends with a code
                _abort(context, error)

        return call

    def _streamed(self, method: _Method) -> _Method:
        def call(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            self._limit_time(context)
            try:
                yield from method(request, context)
            except grpc.RpcError:  # the call is over: its client has left, or its time is up
                raise
            except Exception as error:  # noqa: BLE001 - every call ends with a code
                _abort(context, error)

        return call

    def _limit_time(self, context: grpc.ServicerContext) -> None:
        """Cancel a call that takes longer than a query may take."""
        # Limit: a client that takes no answer, or sends no parameters, must not keep a thread, query and connection.
        timer = threading.Timer(self._engine.config.timeout + END_AFTER_S, context.cancel)
        timer.start()
        if not context.add_callback(timer.cancel):
            timer.cancel()

    def _handshake(self, _: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Answer a password with the token that following calls send."""
        token, _user = _credentials(context)
        self._admit(token, context)
        if token:
            context.send_initial_metadata((("authorization", f"Bearer {token}"),))
        yield b""

    def _get_flight_info(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        descriptor = flight.FlightDescriptor.deserialize(request)
        command = command_of(request)
        schema = self._service(context).schema_of_command(command)
        ticket = descriptor.command or b""
        if command.name == "CommandStatementQuery":
            ticket = pack("TicketStatementQuery", (1, Handle(command.text(1) or "").encode()))
        # -1: rows and bytes are unknown before the query runs.
        return flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint(ticket, [])], -1, -1).serialize()

    def _get_schema(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        return flight.SchemaResult(self._service(context).schema_of_command(command_of(request))).serialize()

    def _do_get(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        command = parse_command(flight.Ticket.deserialize(request).ticket)
        answer = self._service(context).answer(command)
        # gRPC stops asking for answers when the client has gone, and closes no iterator.
        if not context.add_callback(threading.Thread(target=answer.close, daemon=True).start):
            answer.close()
        encoder = BatchEncoder(answer.schema)
        yield encoder.schema_message()
        for batch in answer.batches():
            yield from encoder.batch_messages(batch)

    def _do_action(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        action = flight.Action.deserialize(request)
        service = self._service(context)
        # A handle contains its statement, so there is nothing to forget.
        if action.type == "ClosePreparedStatement":
            return
        if action.type != "CreatePreparedStatement":
            raise BadRequest(f"the action {action.type[:60]!r} is not supported")
        command = parse_command(action.body.to_pybytes() if action.body is not None else b"")
        handle = Handle(command.text(1) or "")
        schema = service.schema_of(handle).serialize().to_pybytes()
        yield bytes_field(1, pack("ActionCreatePreparedStatementResult", (1, handle.encode()), (2, schema)))

    def _do_put(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Bind the parameters of a prepared statement; answer its new handle."""
        self._admit(_credentials(context)[0], context)
        decoder, command = BatchDecoder(), Command("", {}, {})
        for request in requests:
            fields = FlightData.parse(request)
            if fields.descriptor:
                command = command_of(bytes(fields.descriptor))
            batch = decoder.decode(fields)
            if batch is None:
                continue
            if command.name != "CommandPreparedStatementQuery":
                raise BadRequest("the tables are read-only: parameters of a query may be put, and nothing else")
            handle = bound(Handle.parse((command.texts.get(1) or [b""])[-1]), batch)
            yield bytes_field(1, bytes_field(1, handle.encode()))
            return

    def _list_actions(self, _: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        self._admit(_credentials(context)[0], context)
        for name, description in ACTIONS.items():
            yield bytes_field(1, name.encode()) + bytes_field(2, description.encode())


def _credentials(context: grpc.ServicerContext) -> tuple[str, str]:
    """Return token and user of a call: a bearer token, or name and password as in HTTP. Both may be empty."""
    headers = [str(content) for name, content in context.invocation_metadata() or () if name == "authorization"]
    scheme, _, content = (headers[0] if headers else "").partition(" ")
    if scheme.lower() == "basic":
        try:
            # Workaround: Go's clients leave the padding out.
            padded = content.strip() + "=" * (-len(content.strip()) % 4)
            user, _, password = base64.b64decode(padded, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            raise WrongPassword("the authorization header is damaged") from None
        return password, user
    return (content.strip() if scheme.lower() == "bearer" else ""), ""


def _abort(context: grpc.ServicerContext, error: Exception) -> NoReturn:
    match error:
        case WrongPassword():
            context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        case RightsUnknown():
            context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        case Exhausted():
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, error.message)
        case BadRequest():
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, error.message)
        case StatementFailed():
            _abort_with_code(context, error.error.code, str(error))
        case BadQuery():
            _abort_with_code(context, code_of(error.cause) if error.cause is not None else READ_ONLY, str(error))
        case BadFlightData() | pa.ArrowException() | PenstockError():
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    _LOGGER.error("a request failed", exc_info=error)
    context.abort(grpc.StatusCode.INTERNAL, "Internal error")


# gRPC has fewer codes than SQL, so the text ends with SQL's.
_STATUS = {
    "57014": grpc.StatusCode.CANCELLED,
    "53200": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "42501": grpc.StatusCode.PERMISSION_DENIED,
    "42P01": grpc.StatusCode.NOT_FOUND,
}


def _abort_with_code(context: grpc.ServicerContext, code: str, text: str) -> NoReturn:
    context.abort(_STATUS.get(code, grpc.StatusCode.INVALID_ARGUMENT), f"{text} ({code})")
