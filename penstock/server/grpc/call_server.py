"""A gRPC server on grpcio's completion queue: one thread takes what happens to all calls.

grpc.aio takes four hand-offs to the event loop and as many futures for each call: six times the processor time of an
append. Here a call for which the thread itself knows what to do takes none (``direct``); the others run as coroutines
on the event loop, with handlers as grpc.aio has them. The classes of ``cygrpc`` are those that grpcio's own threaded
server is made of (grpc/_server.py).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import grpc
from grpc._cython import cygrpc  # type: ignore[attr-defined]  # the stubs know public names

from penstock.server.grpc.calls import UNIMPLEMENTED, Call, LoopCall
from penstock.server.thread_results import LoopCalls
from penstock.slogd.errors import Code

Direct = Callable[[bytes, Call], None]
"""Is given a request on the server's thread, where it must not wait; answers the call on whatever thread."""
Refusal = Callable[[str, Any], str | None]
"""Why nobody, or not one who shows such metadata, may call a method; None where it may be called."""
DRAIN = 0.2
"""Seconds without an event after which a server that has stopped is at rest."""
_LOGGER = logging.getLogger(__name__)


class CallServer:
    """Serves ``direct`` methods by their full names, and what is added as to a server of grpc.aio."""

    def __init__(self, options: list[tuple[str, int]], direct: Mapping[str, Direct], refusal: Refusal) -> None:
        self._direct, self._refusal = direct, refusal
        self._handlers: dict[str, Any] = {}
        self._queue, self._server = cygrpc.CompletionQueue(), cygrpc.Server(tuple(options), False)
        self._server.register_completion_queue(self._queue)
        self._thread = threading.Thread(target=self._run, name="grpc", daemon=True)
        self._stopping = self._at_rest = False
        self._ends = 0.0

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Serve these methods of a service; their functions are coroutines."""
        self._handlers |= {f"/{service}/{name}": handler for name, handler in handlers.items()}

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """Nothing: generated code adds the same methods by ``add_registered_method_handlers``."""

    def add_insecure_port(self, address: str) -> int:
        """The port taken. Raises RuntimeError."""
        return int(self._server.add_http2_port(address.encode()))

    def add_secure_port(self, address: str, credentials: grpc.ServerCredentials) -> int:
        """The port taken. Raises RuntimeError."""
        return int(self._server.add_http2_port(address.encode(), credentials._credentials))  # type: ignore[attr-defined]

    async def start(self) -> None:
        """Serve; coroutines run on the event loop of the caller."""
        self._loop = LoopCalls(asyncio.get_running_loop())
        self._server.start(False)  # with a queue besides it waits by the wall clock, which may be set meanwhile
        self._expect()
        self._thread.start()

    async def stop(self, grace: float) -> None:
        """Take no more calls; end those that are left after ``grace`` seconds."""
        if self._thread.is_alive() and not self._stopping:
            self._stopping = True
            self._server.shutdown(self._queue, self._rest)
            await asyncio.to_thread(self._thread.join, grace)
            if self._thread.is_alive():
                self._server.cancel_all_calls()
                await asyncio.to_thread(self._thread.join, grace)

    def _expect(self) -> None:
        self._server.request_call(self._queue, self._queue, self._arrived)

    def _rest(self, _: Any) -> None:
        self._at_rest, self._ends = True, time.monotonic() + DRAIN

    def _run(self) -> None:
        while True:
            # Not by a deadline of the wall clock, which may be set meanwhile: 0 is always over.
            event = self._queue.poll(0.0 if self._at_rest else None)
            if event.completion_type == cygrpc.CompletionType.queue_timeout:
                if time.monotonic() < self._ends:
                    time.sleep(DRAIN / 10)
                    continue
                self._server.destroy()
                return
            try:
                event.tag(event)
            except Exception:
                _LOGGER.exception("a call failed")
            # An event of a call that is over, kept while waiting for the next one, would let grpc spin.
            event = None

    def _arrived(self, event: Any) -> None:
        if not event.success:
            return
        if not self._stopping:
            self._expect()
        method = event.call_details.method.decode(errors="replace")
        metadata = event.invocation_metadata
        refused = self._refusal(method, metadata)
        if refused is not None:
            Call(event.call, metadata).refuse(Code.UNAUTHENTICATED, refused)
        elif (direct := self._direct.get(method)) is not None:
            Call(event.call, metadata).receive(direct)
        elif (handler := self._handlers.get(method)) is not None:
            LoopCall(event.call, metadata, self._loop).serve(handler)
        else:
            Call(event.call, metadata).refuse(UNIMPLEMENTED, "Method not found!")
