"""gRPC calls with one or many requests and answers, served on grpcio's completion queue without grpc.aio."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import grpc
from grpc._cython import cygrpc  # type: ignore[attr-defined]  # the stubs know public names

OK = int(grpc.StatusCode.OK.value[0])
CANCELLED = int(grpc.StatusCode.CANCELLED.value[0])
_NO_FLAGS = 0


def address_of(peer: bytes | str) -> str:
    """Return the host in gRPC's name of a peer, such as ``ipv4:127.0.0.1:40000`` or ``ipv6:%5B::1%5D:40000``."""
    text = peer.decode() if isinstance(peer, bytes) else peer
    return unquote(text).partition(":")[2].rpartition(":")[0].strip("[]")


def port_of(peer: bytes | str) -> int:
    """Return the port in gRPC's name of a peer; 0 for a Unix socket, which has none."""
    port = (peer.decode() if isinstance(peer, bytes) else peer).rpartition(":")[2]
    return int(port) if port.isdecimal() else 0


class Call:
    """A call with one request and one answer. Thread-safe: it may be answered on any thread."""

    def __init__(self, call: Any, metadata: Any) -> None:
        self.raw = call
        """The call object of cygrpc."""
        self._metadata = metadata
        self._watched = self.client_left = False
        """``client_left`` is kept up to date only after ``watch``."""
        self._on_left: Callable[[], None] = lambda: None
        self.on_answered: Callable[[Any], object] = lambda call: None
        """Called with the call of cygrpc before the answer or the error is sent, on any thread."""

    def invocation_metadata(self) -> Any:
        """Return the names and values that the client sent with the call."""
        return self._metadata

    def watch(self, on_left: Callable[[], None] = lambda: None) -> None:
        """Track from now on whether the client leaves, so that work for it can be skipped; then call ``on_left``."""
        self._watched, self._on_left = True, on_left
        self.raw.start_server_batch((cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS),), self._closed)

    def _closed(self, event: Any) -> None:
        self.client_left = event.batch_operations[0].cancelled()
        if self.client_left:
            self._on_left()

    def receive(self, handle: Callable[[bytes, Call], None], on_received: Callable[[], None] = lambda: None) -> None:
        """Call ``handle`` with the request, on the server's thread; not if the client has left.

        ``on_received`` is called first in both cases.
        """

        def received(data: bytes | None) -> None:
            on_received()
            if data is None:
                self.refuse(CANCELLED, "no request")
            else:
                handle(data, self)

        self.receive_message(received)

    def receive_message(self, received: Callable[[bytes | None], None]) -> None:
        """Call ``received`` with the request, on the server's thread; with None if there is none."""

        def on_event(event: Any) -> None:
            received(event.batch_operations[0].message())

        self.raw.start_server_batch((cygrpc.ReceiveMessageOperation(_NO_FLAGS),), on_event)

    def answer(self, data: bytes) -> None:
        """Send the answer and the status OK."""
        self._end(status_operation(OK, ""), cygrpc.SendMessageOperation(data, _NO_FLAGS))

    def refuse(self, code: int, text: str, trailers: tuple[tuple[str, bytes], ...] | None = None) -> None:
        """Send an error."""
        self._end(status_operation(code, text, trailers))

    def _end(self, end: Any, *message: Any) -> None:
        self.on_answered(self.raw)
        metadata = cygrpc.SendInitialMetadataOperation(None, _NO_FLAGS)
        # grpc finishes a call only with a close operation; ``watch`` may have started it already.
        close = () if self._watched else (cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS),)
        self.raw.start_server_batch((metadata, *message, end, *close), self._on_end)

    def _on_end(self, _: Any) -> None:
        """Keep a reference to the call until grpc has finished it."""


class StreamCall(Call):
    """A call with many requests and answers. Owned by one thread, which also handles its events."""

    def __init__(
        self,
        call: Any,
        metadata: Any,
        on_left: Callable[[], None] = lambda: None,
        on_sent: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(call, metadata)
        self._on_sent = on_sent
        self._operations: deque[Any] = deque()
        self._metadata_operations: tuple[Any, ...] = (cygrpc.SendInitialMetadataOperation(None, _NO_FLAGS),)
        self._is_sending = self._is_over = False
        self.watch(on_left)

    @property
    def unsent(self) -> int:
        """The number of answers that grpc has not sent yet, for example because the client does not read them."""
        return len(self._operations) + self._is_sending

    def send(self, data: bytes) -> None:
        """Send an answer after the earlier ones, then call ``on_sent``; do nothing once the call is over."""
        self._add(cygrpc.SendMessageOperation(data, _NO_FLAGS))

    def end(self, code: int, text: str) -> None:
        """Send a status after all answers; nothing follows it."""
        self._add(status_operation(code, text))
        self._is_over = True

    def _add(self, operation: Any) -> None:
        if not (self._is_over or self.client_left):
            self._operations.append(operation)
            self._send_next()

    def _send_next(self) -> None:
        # Order: grpc sends one message at a time, and initial metadata before the first.
        if self._operations and not self._is_sending:
            begin, self._metadata_operations = self._metadata_operations, ()
            self._is_sending = True
            self.raw.start_server_batch((*begin, self._operations.popleft()), self._sent)

    def _sent(self, event: Any) -> None:
        self._is_sending = False
        if event.success:
            self._send_next()
            self._on_sent()
        else:
            self._operations.clear()


def status_operation(code: int, text: str, trailers: tuple[tuple[str, bytes], ...] | None = None) -> Any:
    """Return the operation that sends a call's status and ends the call."""
    return cygrpc.SendStatusFromServerOperation(trailers, int(code), text.encode(errors="replace"), _NO_FLAGS)
