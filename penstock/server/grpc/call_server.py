"""A gRPC server on grpcio's completion queue: one thread at a time takes what happens to all calls.

grpc.aio takes four hand-offs to the event loop and as many futures for each call: six times the processor time of an
append. Here a call for which the thread itself knows what to do takes none (``direct``); the others run as coroutines
on the event loop, with handlers as grpc.aio has them. The classes of ``cygrpc`` are those that grpcio's own threaded
server is made of (grpc/_server.py).

What a direct call has to have done, to commit, the thread does itself, and another one takes its place meanwhile: a
hand-over to a thread that sleeps is half of what a commit costs. Where the other one is busy so, the committers do it.
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

from penstock.log.commit.committer_threads import Committers, Work
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

    def __init__(
        self, options: list[tuple[str, int]], direct: Mapping[str, Direct], refusal: Refusal, committers: Committers
    ) -> None:
        self._direct, self._refusal, self._committers = direct, refusal, committers
        self._handlers: dict[str, Any] = {}
        self._queue, self._server = cygrpc.CompletionQueue(), cygrpc.Server(tuple(options), False)
        self._server.register_completion_queue(self._queue)
        self._threads = [threading.Thread(target=self._run, name=f"grpc-{n}", daemon=True) for n in range(2)]
        self._leading, self._is_one_away = threading.Lock(), False
        self._stopping = self._at_rest = self._is_over = False
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
        for thread in self._threads:
            thread.start()

    async def stop(self, grace: float) -> None:
        """Take no more calls; end those that are left after ``grace`` seconds."""
        if self._threads[0].is_alive() and not self._stopping:
            self._stopping = True
            self._server.shutdown(self._queue, self._rest)
            if not await asyncio.to_thread(self._joined, grace):
                self._server.cancel_all_calls()
                await asyncio.to_thread(self._joined, grace)

    def _joined(self, patience: float) -> bool:
        until = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in self._threads)

    def _expect(self) -> None:
        self._server.request_call(self._queue, self._queue, self._arrived)

    def _rest(self, _: Any) -> None:
        self._at_rest, self._ends = True, time.monotonic() + DRAIN

    def _run(self) -> None:
        while not self._is_over:
            with self._leading:
                work = self._lead()
                self._is_one_away = work is not None
            if work is not None:
                self._committers.run(work)
                self._is_one_away = False

    def _lead(self) -> Work | None:
        """Take what happens, until this thread has something to do, or the server is at rest."""
        while not self._is_over:
            # Not by a deadline of the wall clock, which may be set meanwhile: 0 is always over.
            event = self._queue.poll(0.0 if self._at_rest else None)
            if event.completion_type == cygrpc.CompletionType.queue_timeout:
                self._look_whether_over()
            elif self._is_one_away:
                self._take(event)
            else:
                with self._committers.keeping() as kept:
                    self._take(event)
                if kept:
                    return kept[0]
            # An event of a call that is over, kept while waiting for the next one, would let grpc spin.
            event = None
        return None

    def _take(self, event: Any) -> None:
        try:
            event.tag(event)
        except Exception:
            _LOGGER.exception("a call failed")

    def _look_whether_over(self) -> None:
        if time.monotonic() < self._ends:
            time.sleep(DRAIN / 10)
        else:
            self._is_over = True
            self._server.destroy()

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
