"""A gRPC server on grpcio's completion queue: one thread at a time takes what happens to all calls.

grpc.aio takes four hand-offs to the event loop and as many futures for each call: six times the processor time of an
append. Here a call for which the thread itself knows what to do takes none (``direct``); the others run as coroutines
on the event loop, with handlers as grpc.aio has them. The classes of ``cygrpc`` are those that grpcio's own threaded
server is made of (grpc/_server.py).

What direct calls have to have done, to commit, that thread does itself as soon as no more calls are there: to wake
another one costs as much as a small commit. A second thread takes its place where that takes long, and then the
committers do it for a while.

In the log daemon that thread also reads and writes the sockets, where grpc can (see ``process.tuning``).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import grpc
from grpc._cython import cygrpc  # type: ignore[attr-defined]  # the stubs know public names

from penstock.log.commit.committer_threads import Committers, Work
from penstock.process.bounded_calls import BoundedCalls
from penstock.server.event_loop import LoopCalls
from penstock.server.grpc.calls import UNIMPLEMENTED, Call, LoopCall
from penstock.slogd.errors import Code

Direct = Callable[[bytes, Call], None]
"""Is given a request on the server's thread, where it must not wait; answers the call on whatever thread."""
Refusal = Callable[[str, Any], str | None]
"""Why nobody, or not one who shows such metadata, may call a method; None where it may be called."""
LOOKS = 4
"""Looks at the sockets that find nothing before what is kept is done: not each one finds what has come."""
DRAIN = 0.2
"""Seconds without an event after which a server that has stopped is at rest."""
PATIENCE, SLOW = 0.005, 1.0
"""Seconds for which all calls may wait for a commit, and for which no more is done so after one that took longer."""
MAX_CONNECTIONS_OPTION = "grpc.max_allowed_incoming_connections"
PENDING_OPTIONS = [("grpc.server.max_pending_requests", 4000), ("grpc.server.max_pending_requests_hard_limit", 8000)]
"""Limit: calls that gRPC holds until the server's thread takes them. Above the first it rejects some at random, also of
callers that do no harm, so it is well above what a few connections may open at once.
"""
MAX_SILENT_CALLS = 2000
"""Limit: calls that have sent headers and no request yet, of all connections; about 15 KB each."""
MAX_STREAMS = 4096
"""Limit: calls served by coroutines at once, of all connections; about 30 KB each."""
_LOGGER = logging.getLogger(__name__)


class CallServer:
    """Serves ``direct`` methods by their full names, and what is added as to a server of grpc.aio."""

    def __init__(
        self, options: list[tuple[str, int]], direct: Mapping[str, Direct], refusal: Refusal, committers: Committers
    ) -> None:
        self._direct, self._refusal, self._committers = direct, refusal, committers
        self._handlers: dict[str, Any] = {}
        self._silent = BoundedCalls(MAX_SILENT_CALLS, "no request came, and others wait")
        self._streams: set[Any] = set()
        self._queue, self._server = cygrpc.CompletionQueue(), cygrpc.Server((*options, *PENDING_OPTIONS), False)
        self._server.register_completion_queue(self._queue)
        self._threads = [threading.Thread(target=self._run, name=f"grpc-{n}", daemon=True) for n in range(2)]
        self._leader, self._changing, self._called = self._threads[0], threading.Lock(), threading.Event()
        self._done, self._busy_since, self._slow_until = 0, 0.0, 0.0
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
        if any(thread.is_alive() for thread in self._threads) and not self._stopping:
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
            if self._leader is threading.current_thread():
                with self._committers.scheduling_locally() as kept:
                    self._lead(kept)
            else:
                self._stand_by()

    def _lead(self, kept: list[Work]) -> None:
        """Take what happens, and do what is ``kept`` where nothing more has, until another thread took over."""
        kept_since = 0.0
        while self._leader is threading.current_thread() and not self._is_over:
            event = self._next(bool(kept))
            if event.completion_type != cygrpc.CompletionType.queue_timeout:
                self._take(event)
            elif kept:
                self._do(kept.pop())
            else:
                self._look_whether_over()
            # An event of a call that is over, kept while waiting for the next one, would let grpc spin.
            event = None
            kept_since = self._hurried(kept, kept_since)

    def _next(self, busy: bool) -> Any:
        """What happens next; where something is to be done, only what has happened."""
        for _ in range(LOOKS if busy else 1):
            # Not by a deadline of the wall clock, which may be set meanwhile: 0 is always over.
            event = self._queue.poll(0.0 if busy or self._at_rest else None)
            if event.completion_type != cygrpc.CompletionType.queue_timeout:
                break
        return event

    def _hurried(self, kept: list[Work], since: float) -> float:
        """Leave what is kept to the committers where it waits for long, or they are to have it; since when it waits."""
        if not kept:
            return 0.0
        now = time.monotonic()
        if self._busy_since or now < self._slow_until or now - (since or now) > PATIENCE:
            self._committers.hand_over(kept.pop())
        return since or now

    def _take(self, event: Any) -> None:
        try:
            event.tag(event)
        except Exception:
            _LOGGER.exception("a call failed")

    def _do(self, work: Work) -> None:
        self._busy_since = time.monotonic()
        if not self._called.is_set():
            self._called.set()
        more = False
        try:
            more = work()
        except Exception:
            _LOGGER.exception("a commit failed")
        with self._changing:
            self._busy_since = 0.0
            self._done += 1
        if more:
            self._committers.hand_over(work)

    def _stand_by(self) -> None:
        """Take over from one who is busy for too long; where little is to be done, sleep until it is called."""
        done = self._done
        self._called.wait()
        time.sleep(PATIENCE)
        with self._changing:
            now = time.monotonic()
            if self._busy_since and now - self._busy_since > PATIENCE:
                self._leader, self._slow_until = threading.current_thread(), now + SLOW
            elif self._done == done and not self._busy_since and not self._is_over:
                self._called.clear()
        if self._busy_since:  # since just now
            self._called.set()

    def _look_whether_over(self) -> None:
        if time.monotonic() < self._ends:
            time.sleep(DRAIN / 10)
        else:
            self._is_over = True
            self._called.set()
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
            self._silent.progress(event.call)
            Call(event.call, metadata).receive(direct, partial(self._silent.discard, event.call))
        elif (handler := self._handlers.get(method)) is None:
            Call(event.call, metadata).refuse(UNIMPLEMENTED, "Method not found!")
        elif len(self._streams) >= MAX_STREAMS:
            Call(event.call, metadata).refuse(Code.RESOURCE_EXHAUSTED, f"more than {MAX_STREAMS} streams are open")
        else:
            self._silent.progress(event.call)
            self._streams.add(event.call)
            discard = partial(self._silent.discard, event.call)
            ended = partial(self._streams.discard, event.call)
            LoopCall(event.call, metadata, self._loop, discard, ended).serve(handler)
