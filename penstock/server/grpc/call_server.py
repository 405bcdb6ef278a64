"""A gRPC server of the daemon: one thread handles the events of all calls (``call_threads``).

A call that the thread itself can handle needs no hand-off (``direct``); other calls run as coroutines on the event
loop, with handlers as in grpc.aio.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from penstock.process.servers.bounded_calls import BoundedCalls
from penstock.process.servers.call_queue import CallQueue
from penstock.process.servers.calls import Call
from penstock.process.servers.connection_limit import ConnectionLimit
from penstock.server.event_loop import LoopCalls
from penstock.server.grpc.call_threads import CallThreads
from penstock.server.grpc.calls import UNIMPLEMENTED, LoopCall
from penstock.server.grpc.closed_calls import TokenForServices
from penstock.slogd.errors import Code

Direct = Callable[[bytes, Call], None]
"""Handles a request on the server's thread, where it must not wait; may answer the call on any thread."""
MAX_SILENT_CALLS = 2000
"""Limit: calls that have sent headers and no request yet, of all connections; about 15 KB each."""
MAX_STREAMS = 4096
"""Limit: calls served by coroutines at once, of all connections; about 30 KB each."""
STREAM_GRACE_S = 0.5
"""Time for streams to end by themselves when the server stops, if none of their requests waits for its outcome."""
NOTED_CALL_S = 0.5
"""The end of a call that takes longer counts as a call for the limit of connections."""


class CallServer(CallQueue):
    """Server of ``direct`` methods, by full name, and of coroutine handlers that are added as to a grpc.aio server."""

    def __init__(
        self,
        options: list[tuple[str, int]],
        direct: Mapping[str, Direct],
        tokens: TokenForServices,
        threads: CallThreads,
        connections: ConnectionLimit,
    ) -> None:
        super().__init__(options, self._accept_call, connections, threads.queue)
        self.threads = threads
        self._direct, self._tokens, self._has_begun = direct, tokens, False
        self._handlers: dict[str, Any] = {}
        self._silent = BoundedCalls(MAX_SILENT_CALLS, "no request came, and others wait")
        self._streams: dict[Any, LoopCall] = {}
        self._answering: dict[Any, float] = {}
        """Calls of direct methods whose request has arrived and that are not answered yet, and when it arrived."""
        connections.answering.append(self._answered_peers)
        connections.streams.append(self._last_messages)

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Serve these methods of a service; their functions are coroutines."""
        self._handlers |= {f"/{service}/{name}": handler for name, handler in handlers.items()}

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """Ignore them: generated code adds the same methods by ``add_registered_method_handlers``."""

    async def start(self) -> None:
        """Start serving; coroutines run on the caller's event loop."""
        self._loop = LoopCalls(asyncio.get_running_loop())
        self.begin()
        self._has_begun = True
        self.threads.serve(self)

    async def stop(self, grace: float) -> None:
        """Accept no more calls; cancel calls that are still open after ``grace`` seconds."""
        if self._has_begun and not self._stopping:
            self.shut_down()
            deadline = time.monotonic() + grace
            while not await asyncio.to_thread(self.threads.wait_until_over, self, min(grace, STREAM_GRACE_S)):
                if time.monotonic() >= deadline:
                    # Calls that are still open are cut off; appends that the log has are stored.
                    self.cancel_all()
                    await asyncio.to_thread(self.threads.wait_until_over, self, grace)
                    return
                self._cut_off_silent()

    def _cut_off_silent(self) -> None:
        """Cut off streams whose client reads or sends nothing; it repeats its call elsewhere."""
        silent_since = time.monotonic() - STREAM_GRACE_S
        for stream in list(self._streams.values()):
            if not stream.unanswered and stream.last_message_s <= silent_since:
                stream.cut_off("the server stops")

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
