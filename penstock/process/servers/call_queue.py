"""grpcio's server without grpc.aio: a completion queue, whose events the thread that polls it handles.

grpc.aio needs four hand-offs to the event loop and as many futures per call: six times the processor time of an
append. grpcio's own threaded server uses the same classes of ``cygrpc`` (grpc/_server.py).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc
from grpc._cython import cygrpc  # type: ignore[attr-defined]  # the stubs know public names

from penstock.process.servers.connection_limit import ConnectionLimit

DRAIN_S = 0.2
"""A stopped server is finished after this time without an event."""
_PENDING_OPTIONS = [
    ("grpc.server.max_pending_requests", 16_000),
    ("grpc.server.max_pending_requests_hard_limit", 32_000),
]
"""Limit: calls that gRPC holds until the server's thread takes them, 15 KB each.

Above the first it rejects some at random, with the status CANCELLED and no reason, also of callers that do no harm. So
it is above what 60 connections may open at once; the server's own limits refuse calls with RESOURCE_EXHAUSTED and say
why.
"""
_LOGGER = logging.getLogger(__name__)


class CallQueue:
    """A server that calls ``accept`` for each new call, on the thread that handles its event.

    Thread: one thread polls and handles at a time. An event's tag is the function that handles it (``handle``).
    """

    def __init__(
        self,
        options: list[tuple[str, int]],
        accept: Callable[[Any], None],
        connections: ConnectionLimit,
        queue: Any = None,
    ) -> None:
        """Create the server; ``queue`` is a completion queue that several servers share."""
        self._accept, self.connections = accept, connections
        options = [*options, *_PENDING_OPTIONS, *connections.options]
        self._queue, self._server = queue or cygrpc.CompletionQueue(), cygrpc.Server(tuple(options), False)
        self._ports: list[int] = []
        self._server.register_completion_queue(self._queue)
        self._stopping = self.is_draining = False
        """``is_draining``: all calls of a stopped server have ended, and their last events may still come."""
        self._over = threading.Event()
        self._drained_at = 0.0

    def add_insecure_port(self, address: str) -> int:
        """Listen without TLS; return the port. Raises RuntimeError."""
        return self._opened(self._server.add_http2_port(address.encode()))

    def add_secure_port(self, address: str, credentials: grpc.ServerCredentials) -> int:
        """Listen with TLS; return the port. Raises RuntimeError."""
        return self._opened(self._server.add_http2_port(address.encode(), credentials._credentials))  # type: ignore[attr-defined]

    def _opened(self, port: Any) -> int:
        self._ports.append(int(port))
        return int(port)

    @property
    def is_over(self) -> bool:
        """Whether a stopped server has finished all calls."""
        return self._over.is_set()

    def wait_until_over(self, timeout_s: float) -> bool:
        """Wait on another thread until a stopped server has finished all calls; report whether it has."""
        return self._over.wait(timeout_s)

    def begin(self) -> None:
        """Start to accept calls."""
        self._server.start(False)  # with a queue it would wait by the wall clock, which may be set during the wait
        self._request_next_call()
        self.connections.start(self._ports)

    def shut_down(self) -> None:
        """Accept no more calls; the open ones go on."""
        self._stopping = True
        self.connections.stop()
        self._server.shutdown(self._queue, self._on_shutdown)

    def cancel_all(self) -> None:
        """Cut off the open calls."""
        self._server.cancel_all_calls()

    def poll(self, timeout_s: float) -> Any:
        """Return the next event, or None if none happens in time.

        Limit: ``timeout_s`` is short, because gRPC measures it by the wall clock, which may be set during the wait.
        """
        event = self._queue.poll(time.time() + timeout_s if timeout_s > 0 else 0.0)
        return None if event.completion_type == cygrpc.CompletionType.queue_timeout else event

    def finish_if_drained(self) -> None:
        """Destroy a stopped server if no event has come for a while, else wait a little."""
        if not self.is_draining:
            return
        if time.monotonic() < self._drained_at:
            time.sleep(DRAIN_S / 10)
        else:
            self.is_draining = False
            self._server.destroy()
            self._over.set()

    def _request_next_call(self) -> None:
        self._server.request_call(self._queue, self._queue, self._on_call)

    def _on_shutdown(self, _: Any) -> None:
        self.is_draining, self._drained_at = True, time.monotonic() + DRAIN_S

    def _on_call(self, event: Any) -> None:
        if not event.success:
            return
        if not self._stopping:
            self._request_next_call()
        self._accept(event)


def handle(event: Any) -> None:
    """Call the function that waits for an event. Any error is logged."""
    try:
        event.tag(event)
    except Exception:
        _LOGGER.exception("a call failed")
