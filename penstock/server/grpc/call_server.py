"""The daemon's gRPC server: one thread handles the events of all calls (``process.servers.call_queue``).

A call that the thread itself can handle needs no hand-off (``direct``); other calls run as coroutines on the event
loop, with handlers as in grpc.aio.

Commits of direct calls run on the same thread as soon as no more events are waiting, because waking another thread
costs as much as a small commit. If a commit takes long, a second thread takes over the events, and the committers get
the commits for a while.

In the log daemon this thread also reads and writes the sockets if grpc supports it (see ``process.tuning``).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from grpc._cython import cygrpc  # type: ignore[attr-defined]  # the stubs know public names

from penstock.log.commit.committer_threads import Committers, Work
from penstock.process.servers.bounded_calls import BoundedCalls
from penstock.process.servers.call_queue import CallQueue
from penstock.process.servers.calls import Call
from penstock.process.servers.connection_limit import ConnectionLimit
from penstock.server.event_loop import LoopCalls
from penstock.server.grpc.calls import UNIMPLEMENTED, LoopCall
from penstock.server.grpc.closed_calls import TokenForServices
from penstock.slogd.errors import Code

Direct = Callable[[bytes, Call], None]
"""Handles a request on the server's thread, where it must not wait; may answer the call on any thread."""
POLLS_BEFORE_COMMIT = 4
"""Polls without an event before a commit runs: a single poll may miss data that has already arrived."""
MAX_COMMIT_S, COMMITTERS_ONLY_S = 0.005, 1.0
"""Longest time that all calls wait for a commit on this thread; after a longer one, committers run them this long."""
MAX_SILENT_CALLS = 2000
"""Limit: calls that have sent headers and no request yet, of all connections; about 15 KB each."""
MAX_STREAMS = 4096
"""Limit: calls served by coroutines at once, of all connections; about 30 KB each."""
STREAM_GRACE_S = 0.5
"""Time for streams to end by themselves when the server stops, if none of their requests waits for its outcome."""
NOTED_CALL_S = 0.5
"""The end of a call that takes longer counts as a call for the limit of connections."""
_LOGGER = logging.getLogger(__name__)


class CallServer(CallQueue):
    """Server of ``direct`` methods, by full name, and of coroutine handlers that are added as to a grpc.aio server."""

    def __init__(
        self,
        options: list[tuple[str, int]],
        direct: Mapping[str, Direct],
        tokens: TokenForServices,
        committers: Committers,
        connections: ConnectionLimit,
    ) -> None:
        super().__init__(options, self._accept_call, connections)
        self._direct, self._tokens, self._committers = direct, tokens, committers
        self._handlers: dict[str, Any] = {}
        self._silent = BoundedCalls(MAX_SILENT_CALLS, "no request came, and others wait")
        self._streams: dict[Any, LoopCall] = {}
        self._answering: dict[Any, float] = {}
        """Calls of direct methods whose request has arrived and that are not answered yet, and when it arrived."""
        connections.answering.append(self._answered_peers)
        connections.streams.append(self._last_messages)
        self._threads = [threading.Thread(target=self._run, name=f"grpc-{n}", daemon=True) for n in range(2)]
        self._leader, self._handover_lock, self._wake_standby = self._threads[0], threading.Lock(), threading.Event()
        self._commits_done, self._busy_since, self._slow_until = 0, 0.0, 0.0

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Serve these methods of a service; their functions are coroutines."""
        self._handlers |= {f"/{service}/{name}": handler for name, handler in handlers.items()}

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """Ignore them: generated code adds the same methods by ``add_registered_method_handlers``."""

    async def start(self) -> None:
        """Start serving; coroutines run on the caller's event loop."""
        self._loop = LoopCalls(asyncio.get_running_loop())
        self.begin()
        for thread in self._threads:
            thread.start()

    async def stop(self, grace: float) -> None:
        """Accept no more calls; cancel calls that are still open after ``grace`` seconds."""
        if any(thread.is_alive() for thread in self._threads) and not self._stopping:
            self.shut_down()
            deadline = time.monotonic() + grace
            while not await asyncio.to_thread(self._join_threads, min(grace, STREAM_GRACE_S)):
                if time.monotonic() >= deadline:
                    # Calls that are still open are cut off; appends that the log has are stored.
                    self.cancel_all()
                    await asyncio.to_thread(self._join_threads, grace)
                    return
                self._cut_off_silent()

    def _cut_off_silent(self) -> None:
        """Cut off streams whose client reads or sends nothing; it repeats its call elsewhere."""
        silent_since = time.monotonic() - STREAM_GRACE_S
        for stream in list(self._streams.values()):
            if not stream.unanswered and stream.last_message_s <= silent_since:
                stream.cut_off("the server stops")

    def _join_threads(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while not self._is_over:
            if self._leader is threading.current_thread():
                with self._committers.scheduling_locally() as commits:
                    self._lead(commits)
            else:
                self._wait_to_take_over()

    def _lead(self, commits: list[Work]) -> None:
        """Handle events, and run waiting ``commits`` when there are none, until another thread takes over."""
        waiting_since = 0.0
        while self._leader is threading.current_thread() and not self._is_over:
            event = self._next_event(bool(commits))
            if event.completion_type != cygrpc.CompletionType.queue_timeout:
                self.handle(event)
            elif commits:
                self._commit(commits.pop())
            else:
                self.finish_if_drained()
                if self._is_over:
                    self._wake_standby.set()
            # Workaround: grpc spins while a reference to an event of a finished call is held during the next poll.
            event = None
            waiting_since = self._hand_over_if_slow(commits, waiting_since)

    def _next_event(self, busy: bool) -> Any:
        """Return the next event; if ``busy``, only one that has already happened."""
        for _ in range(POLLS_BEFORE_COMMIT if busy else 1):
            # No deadline: it would be by the wall clock, which may be set during the wait. 0 is always in the past.
            event = self._queue.poll(0.0 if busy or self._at_rest else None)
            if event.completion_type != cygrpc.CompletionType.queue_timeout:
                break
        return event

    def _hand_over_if_slow(self, commits: list[Work], waiting_since: float) -> float:
        """Give a commit to the committers if it waits too long or they must run it; return since when one waits."""
        if not commits:
            return 0.0
        now = time.monotonic()
        if self._busy_since or now < self._slow_until or now - (waiting_since or now) > MAX_COMMIT_S:
            self._committers.hand_over(commits.pop())
        return waiting_since or now

    def _commit(self, work: Work) -> None:
        self._busy_since = time.monotonic()
        if not self._wake_standby.is_set():
            self._wake_standby.set()
        has_more = False
        try:
            has_more = work()
        except Exception:
            _LOGGER.exception("a commit failed")
        with self._handover_lock:
            self._busy_since = 0.0
            self._commits_done += 1
        if has_more:
            self._committers.hand_over(work)

    def _wait_to_take_over(self) -> None:
        """Take over the events if a commit blocks the leader for too long; sleep while no commits run."""
        commits_before = self._commits_done
        self._wake_standby.wait()
        time.sleep(MAX_COMMIT_S)
        with self._handover_lock:
            now = time.monotonic()
            if self._busy_since and now - self._busy_since > MAX_COMMIT_S:
                self._leader, self._slow_until = threading.current_thread(), now + COMMITTERS_ONLY_S
            elif self._commits_done == commits_before and not self._busy_since and not self._is_over:
                self._wake_standby.clear()
        # Order: tested after the flag is cleared. A commit that began in between has not seen the cleared flag.
        if self._busy_since:
            self._wake_standby.set()

    def _accept_call(self, event: Any) -> None:
        method = event.call_details.method.decode(errors="replace")
        metadata = event.invocation_metadata
        refusal = self._tokens(method, metadata)
        self.connections.note_call(event.call.peer(), lambda: self._tokens.admits(metadata))
        # Order: refused callers first, so that they occupy neither a slot for silent calls nor a stream.
        if refusal is not None:
            Call(event.call, metadata).refuse(Code.UNAUTHENTICATED, refusal)
        elif (direct := self._direct.get(method)) is not None:
            self._silent.progress(event.call)
            call = Call(event.call, metadata)
            call.on_answered = self._note_answer
            call.receive(partial(self._begin_answer, direct), partial(self._silent.discard, event.call))
        elif (handler := self._handlers.get(method)) is None:
            Call(event.call, metadata).refuse(UNIMPLEMENTED, "Method not found!")
        elif len(self._streams) >= MAX_STREAMS:
            Call(event.call, metadata).refuse(Code.RESOURCE_EXHAUSTED, f"more than {MAX_STREAMS} streams are open")
        else:
            self._silent.progress(event.call)
            on_request = partial(self._silent.discard, event.call)
            on_end = partial(self._forget_stream, event.call)
            stream = LoopCall(event.call, metadata, self._loop, on_request, on_end)
            self._streams[event.call] = stream
            stream.serve(handler)

    def _begin_answer(self, direct: Direct, data: bytes, call: Call) -> None:
        self._answering[call.raw] = time.monotonic()
        direct(data, call)

    def _note_answer(self, call: Any) -> None:
        began_s = self._answering.pop(call, None)
        # Fast path: the start of a usual call is near enough to its end.
        if began_s is not None and time.monotonic() - began_s > NOTED_CALL_S:
            self.connections.note_end(call.peer())

    def _forget_stream(self, call: Any) -> None:
        if self._streams.pop(call, None) is not None:
            self.connections.note_end(call.peer())

    def _last_messages(self) -> list[tuple[bytes | str, float]]:
        return [(call.peer(), call.last_message_s) for call in list(self._streams.values())]

    def _answered_peers(self) -> list[bytes | str]:
        """Return the peers whose requests are being answered. On any thread."""
        streams = [call.peer() for call in list(self._streams.values()) if call.unanswered]
        return [*streams, *(call.peer() for call in list(self._answering))]
