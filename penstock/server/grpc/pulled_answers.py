"""A call with one request and any number of answers, each encoded on a thread while the previous one is being sent.

Invariant: no thread waits for the client. If the client does not read, no further answer is produced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from grpc._cython import cygrpc  # type: ignore[attr-defined]  # the stubs know public names

from penstock.process.servers.bounded_calls import BoundedCalls
from penstock.process.servers.calls import OK, status_operation

_NO_FLAGS = 0
PAUSE = b""
"""Yielded instead of an answer by an iterator that has worked for a while, so that other calls get the thread."""


class PulledAnswers:
    """The answers of one call. At most one answer is produced and one is sent at a time, on any thread."""

    def __init__(
        self,
        call: Any,
        threads: ThreadPoolExecutor,
        answers: Iterator[bytes],
        status_of: Callable[[Exception], tuple[int, str]],
        open_calls: BoundedCalls,
    ) -> None:
        self._call, self._threads, self._answers, self._status_of = call, threads, answers, status_of
        self._open_calls = open_calls
        self._lock = threading.Lock()
        self._next_operation: Any = None
        """Operation of the answer that was produced while the previous one is still being sent."""
        self._metadata: tuple[Any, ...] = (cygrpc.SendInitialMetadataOperation(None, _NO_FLAGS),)
        self._is_sending = self._client_left = False

    def start(self) -> None:
        """Produce and send all answers, then the status."""
        self._open_calls.progress(self._call)
        self._call.start_server_batch((cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS),), self._closed)
        self._make_next()

    def _closed(self, event: Any) -> None:
        self._open_calls.discard(self._call)
        # The iterator is not closed here: another thread may be running it. It goes with this object.
        self._client_left = event.batch_operations[0].cancelled()

    def _make_next(self) -> None:
        try:
            self._threads.submit(self._make)
        except RuntimeError:  # the pool is shut down with the server, which cancels all calls
            self._client_left = True

    def _make(self) -> None:
        if self._client_left:
            return
        try:
            answer = next(self._answers, None)
            operation = status_operation(OK, "") if answer is None else cygrpc.SendMessageOperation(answer, _NO_FLAGS)
        except Exception as error:  # noqa: BLE001 - every call ends with a code
            answer, operation = None, status_operation(*self._status_of(error))
        if answer == PAUSE:
            self._make_next()
            return
        with self._lock:
            if self._is_sending:
                self._next_operation = operation
                return
            self._is_sending = True
        self._send(operation)

    def _send(self, operation: Any) -> None:
        is_last = not isinstance(operation, cygrpc.SendMessageOperation)
        begin, self._metadata = self._metadata, ()
        self._call.start_server_batch((*begin, operation), self._on_end if is_last else self._sent)
        if not is_last:
            self._make_next()

    def _sent(self, event: Any) -> None:
        if not event.success:
            self._client_left = True
            return
        self._open_calls.progress(self._call)
        with self._lock:
            operation, self._next_operation = self._next_operation, None
            if operation is None:
                self._is_sending = False
                return
        self._send(operation)

    def _on_end(self, _: Any) -> None:
        """Keep a reference to the call until grpc has finished it."""
