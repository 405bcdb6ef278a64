"""Receiver of OTLP and OTAP over gRPC: requests as over HTTP (``otlp_export``), and streams of Arrow batches (``otap``)
at the same port.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import grpc
from grpc._cython import cygrpc  # type: ignore[attr-defined]  # the stubs know public names

from penstock.config import ListenerConfig
from penstock.config.keys.security.renewed_tls import Pem, renewed_server_credentials
from penstock.handover.buffer import HandlerPosition
from penstock.handover.writer import FrameWriter
from penstock.ingest.networks import networks_of
from penstock.ingest.requests.body_decompression import decompress, decompress_if_small
from penstock.ingest.requests.large_requests import INLINE_BYTES, LargeRequests
from penstock.ingest.requests.otap import METHOD, ArrowBatch, ArrowStream, max_streams
from penstock.ingest.requests.otlp_export import Export, Reads
from penstock.ingest.requests.request_writer import BUSY, RequestWriter, Sender
from penstock.ingest.requests.tokens import check_token
from penstock.ingest.sockets import CannotListen
from penstock.ingest.tls import admitted_name
from penstock.process.kernel import raise_file_limit
from penstock.process.servers.bounded_calls import BoundedCalls
from penstock.process.servers.call_queue import DRAIN_S, CallQueue, handle
from penstock.process.servers.calls import Call, address_of
from penstock.process.servers.connection_limit import ConnectionLimit
from penstock.wire.otlp.records import Logs
from penstock.wire.requests import SYNTAX, Answer, Received, Refused

FINISH_TIME_S = 3.0
"""Time that calls in flight have when the receiver ends."""
SERVICE = "opentelemetry.proto.collector.logs.v1.LogsService"
EXPORT = f"/{SERVICE}/Export".encode()
CODEC = "otlp"
COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x78": "deflate", b"\x28\xb5\x2f\xfd": "zstd"}
"""Compressions by the first bytes of requests; an uncompressed one begins with the tag of one of its fields."""
MAX_STREAMS = 100
"""Limit: calls of one connection. More wait in the client, or are refused by gRPC before any work is done."""
CANCEL_S = 0.1
"""Time in which gRPC cancels a call whose message it has refused."""
MAX_WAIT_S = 0.15
"""Longest wait for an event: below the 200 ms after which grpcio compares the deadline with the wall clock again."""
POLLS_BEFORE_FLUSH = 3
"""Polls without an event before requests are written: a single poll may miss data that has already arrived."""
LARGE_POLL_S = 0.001
"""Interval at which a large request is asked for while the thread parses it."""
MAX_CACHED_SENDERS = 1024
_NO_ANSWER = Answer()
_UNIMPLEMENTED = int(grpc.StatusCode.UNIMPLEMENTED.value[0])
_LOGGER = logging.getLogger(__name__)


class OtlpGrpcReceiver:
    """Receiver of one listener; runs in the receiver's only thread. ``wake`` is called after each frame.

    The thread handles all calls that have arrived, writes their messages as one frame, and sleeps while the log syncs
    it: requests that arrive during a sync share the next frame.
    """

    def __init__(
        self,
        listener: ListenerConfig,
        sock: socket.socket,
        writer: FrameWriter,
        readers: Sequence[HandlerPosition],
        wake: Callable[[], None],
    ) -> None:
        self._listener, self._sock = listener, sock
        self._requests = RequestWriter(listener, writer, readers, wake)
        self.limits = listener.max_line, listener.max_messages
        """Bytes of one message with its annotations, and messages of one request."""
        self._networks = networks_of(listener)
        self._senders: dict[str, Sender] = {}
        self._calls = CallQueue(_options(listener), self._accept, _connection_limit(listener))
        self._reads = Reads(max(listener.max_unfinished // listener.max_body, 1), listener.request_timeout)
        self._unfinished_bytes = self._closed = 0
        self._large = LargeRequests()
        self._parsed: deque[_Parsing] = deque()
        self._streams: dict[ArrowStream, None] = {}
        limit = max_streams(listener.max_unfinished, listener.max_body)
        self._bounded_streams = BoundedCalls(limit, f"a listener has at most {limit} open streams; begin another one")
        self._exports: set[Export] = set()
        """Calls of Export whose message has arrived and that are not answered yet."""
        self._calls.connections.streams.append(self._bounded_streams.last_progress)
        self._calls.connections.answering.append(self._answered_peers)
        self._without_message: deque[tuple[float, Export]] = deque()
        self._listen()

    def take_over(self) -> None:
        """Start to accept requests: the requests of a predecessor ended with it, and their senders retry."""
        self._calls.begin()

    def _listen(self) -> None:
        """Bind gRPC's own socket. Raises CannotListen."""
        host, port = self._sock.getsockname()[:2]
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            credentials = _credentials(self._listener)
            bound = (
                self._calls.add_secure_port(address, credentials)
                if credentials
                else self._calls.add_insecure_port(address)
            )
        except RuntimeError as error:
            raise CannotListen(f"listener {self._listener.name!r}: cannot listen on {address}: {error}") from None
        assert bound == port, "gRPC binds the port of the supervisor's socket"

    def receive(self, timeout: float) -> None:
        """Serve for ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while (remaining_s := deadline - time.monotonic()) > 0:
            self._serve_once(min(remaining_s, MAX_WAIT_S))

    def tick(self) -> None:
        """End slow requests and publish pending counts; called about every second."""
        closed, self._closed = self._closed, self._calls.connections.closed
        self._requests.count_closed_connections(self._closed - closed)
        self._reads.end_slow()
        while self._without_message and self._without_message[0][0] < time.monotonic() - CANCEL_S:
            self._without_message.popleft()[1].refuse(Refused(400, SYNTAX, "the call has no message"))
        self._requests.tick()

    def finish(self) -> None:
        """Stop accepting calls and answer those in flight."""
        self._calls.shut_down()
        for stream in list(self._streams):
            stream.complete()
        deadline = time.monotonic() + FINISH_TIME_S
        self._serve_until_over(deadline)
        if not self._calls.is_over:
            self._calls.cancel_all()
            self._serve_until_over(deadline + FINISH_TIME_S)
        self._large.close()

    def _serve_until_over(self, deadline: float) -> None:
        while not self._calls.is_over and time.monotonic() < deadline:
            if not self._serve_once(DRAIN_S / 10):
                self._calls.finish_if_drained()

    def _serve_once(self, max_wait_s: float) -> bool:
        """Handle the next event, or write or settle requests if there is none; report whether anything was done."""
        requests = self._requests
        if requests.pending and not requests.holds_back:
            if not requests.fills_a_frame and self._handle_next(0.0, POLLS_BEFORE_FLUSH):
                return True
            requests.flush()
        elif self._parsed or requests.pause is not None:
            if self._handle_next(0.0):
                return True
            time.sleep(min(requests.pause or LARGE_POLL_S, max_wait_s))
            self._take_parsed()
            requests.settle_decided()
        else:
            return self._handle_next(max_wait_s)
        return True

    def _handle_next(self, timeout_s: float, polls: int = 1) -> bool:
        for _ in range(polls):
            event = self._calls.poll(timeout_s)
            if event is not None:
                handle(event)
                return True
        return False

    def _accept(self, event: Any) -> None:
        """Admit a new call and read its message."""
        method = event.call_details.method
        export = Export(Call(event.call, event.invocation_metadata), self)
        try:
            if method not in (EXPORT, METHOD):
                self._requests.count_refusal("path")
                return export.call.refuse(_UNIMPLEMENTED, f"only {SERVICE}/Export and ArrowLogs are served")
            # Order: network, certificate and token before the message, so that a stranger's message is not read.
            export.sender = self._identify_sender(event)
            self._calls.connections.note_call(event.call.peer())
        except Refused as refusal:
            return export.refuse(refusal)
        if method == METHOD:
            return ArrowStream(event.call, self, export.sender, self._listener.max_body).begin()
        self._reads.begin(export)
        export.call.receive_message(export.received)
        return None

    def progress(self, stream: ArrowStream) -> None:
        """Note that a stream is open and used; over the limit, end the one that was used least recently."""
        self._streams[stream] = None
        self._bounded_streams.progress(stream)

    def discard(self, stream: ArrowStream) -> None:
        """Forget a stream that has ended."""
        self._streams.pop(stream, None)
        self._bounded_streams.discard(stream)

    def _answered_peers(self) -> list[bytes]:
        """Return the peers whose requests are being answered. On any thread."""
        streams = [stream.peer() for stream in list(self._streams) if stream.unanswered]
        return [*streams, *(export.peer() for export in list(self._exports))]

    def begin_answer(self, export: Export) -> None:
        """Note that the message of a call has arrived: its connection stays open until ``end_answer``."""
        self._exports.add(export)

    def end_answer(self, export: Export) -> None:
        """Note that a call is being answered, or is over."""
        if export in self._exports:
            self._exports.discard(export)
            self._calls.connections.note_end(export.peer())

    def read(self, export: Export | ArrowBatch, data: bytes) -> None:
        """Parse the message of a call, on a thread if it is large, and add its records."""
        try:
            if self._unfinished_bytes and self._unfinished_bytes + len(data) > self._listener.max_unfinished:
                raise Refused(503, BUSY, "the requests being read exceed max_unfinished; retry")
            logs = self._parse_if_small(export, data)
            if logs is not None:
                return self._store(export, logs)
        except Refused as refusal:
            return export.refuse(refusal)
        except Exception:
            export.fail()
            raise
        self._unfinished_bytes += len(data)
        self._parsed.append(_Parsing(self._large, partial(self._parse, export), export, data))
        export.watch(lambda: self._drop_of_left(export))
        return None

    def _drop_of_left(self, export: Export | ArrowBatch) -> None:
        """Drop a large request that is not parsed yet, because its client has disconnected."""
        for parsing in self._parsed:
            if parsing.export is export and parsing.cancel():
                self._parsed.remove(parsing)
                self._unfinished_bytes -= parsing.size
                export.leave()
                return

    def _parse_if_small(self, export: Export | ArrowBatch, data: bytes) -> Logs | None:
        # Limit: how large a batch of OTAP becomes does not follow from its bytes.
        if len(data) > INLINE_BYTES or isinstance(export, ArrowBatch):
            return None
        content = decompress_if_small(data, _compression(data), self._listener.max_body, INLINE_BYTES)
        return None if content is None else export.decode(content)

    def _parse(self, export: Export | ArrowBatch, data: bytes) -> Logs:
        return export.decode(decompress(data, _compression(data), self._listener.max_body))

    def _take_parsed(self) -> None:
        """Add the records of large requests that the thread has parsed, in order."""
        while self._parsed and self._parsed[0].logs.done():
            parsing = self._parsed.popleft()
            self._unfinished_bytes -= parsing.size
            export = parsing.export
            try:
                self._store(export, parsing.logs.result())
            except Refused as refusal:
                export.refuse(refusal)
            except Exception:
                export.fail()
                _LOGGER.exception("a call failed")

    def _store(self, export: Export | ArrowBatch, logs: Logs) -> None:
        assert export.sender is not None
        self._requests.add(Received(logs.body, logs.refused, _NO_ANSWER), CODEC, export.sender, export.settle(logs))

    def expect_cancellation(self, export: Export) -> None:
        """Refuse a call whose message did not come, unless gRPC cancels it within CANCEL_S."""
        self._without_message.append((time.monotonic(), export))

    def count_refusal(self, reason: str) -> None:
        """Count a refused call."""
        self._requests.count_refusal(reason)

    def end_read(self, export: Export) -> None:
        """Note that the message of a call has arrived, or does not arrive."""
        self._reads.end(export)

    def _identify_sender(self, event: Any) -> Sender:
        """Return the sender after its address, token and certificate are checked. Raises Refused."""
        peer = event.call.peer()
        sender = self._senders.get(peer)
        if sender is None:
            address = address_of(peer)
            if not self._networks.contain(address):
                raise Refused(403, "network", "this address is not permitted (allow_from)")
            if len(self._senders) >= MAX_CACHED_SENDERS:
                self._senders.clear()
            sender = self._senders[peer] = Sender(address)
        if self._listener.tokens:
            headers = {str(key): value for key, value in event.invocation_metadata or () if isinstance(value, str)}
            check_token(self._listener.tokens, headers, {})
        if self._listener.client_ca is not None:
            sender = Sender(sender.address, self._certificate_name(cygrpc.auth_context(event.call)))
        return sender

    def _certificate_name(self, auth_context: Mapping[bytes, Sequence[bytes]] | None) -> str:
        """Return the name of the sender's certificate. Raises Refused if it is not permitted."""
        context = auth_context or {}
        names = context.get(b"x509_subject_alternative_name") or context.get(b"x509_common_name") or ()
        name = admitted_name([name.decode("utf-8", "replace").lower() for name in names], self._listener)
        if name is None:
            raise Refused(403, "name", "this certificate is not permitted (client_names)")
        return name


class _Parsing:
    """A large request that the thread parses, and its outcome."""

    def __init__(
        self,
        thread: LargeRequests,
        parse: Callable[[bytes], Logs],
        export: Export | ArrowBatch,
        data: bytes,
    ) -> None:
        self.export, self.size = export, len(data)
        # Limit: the thread keeps a cancelled call until its turn, but not the request.
        self._data = [data]
        self.logs: Future[Logs] = thread.submit(lambda: parse(self._data.pop()))

    def cancel(self) -> bool:
        """Drop the request; return whether its parsing had not begun."""
        is_cancelled = self.logs.cancel()
        if is_cancelled:
            self._data.clear()
        return is_cancelled


def _compression(data: bytes) -> str:
    # Limit: gRPC itself does not bound the decompressed size, so it passes messages as they were sent.
    return next((name for magic, name in COMPRESSIONS.items() if data.startswith(magic)), "")


def _connection_limit(listener: ListenerConfig) -> ConnectionLimit:
    key = f"listener.{listener.name}.max_connections"
    return ConnectionLimit(listener.max_connections, key, raise_file_limit() // 2)


def _options(listener: ListenerConfig) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", 1),
        ("grpc.max_concurrent_streams", MAX_STREAMS),
        ("grpc.max_receive_message_length", listener.max_body),
        ("grpc.per_message_decompression", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", int(listener.request_timeout * 1000)),
        ("grpc.max_connection_idle_ms", int(listener.idle_timeout * 1000) or (1 << 31) - 1),
    ]


def _credentials(listener: ListenerConfig) -> grpc.ServerCredentials | None:
    if listener.tls_cert is None or listener.tls_key is None:
        return None

    def load() -> Pem:
        assert listener.tls_cert
        assert listener.tls_key
        # Order: checked first; gRPC would accept files that do not match, and fail every handshake.
        listener.tls_context()
        authorities = listener.client_ca.read_bytes() if listener.client_ca else None
        return listener.tls_key.read_bytes(), listener.tls_cert.read_bytes(), authorities

    return renewed_server_credentials(load, (listener.tls_cert, listener.tls_key, listener.client_ca))
