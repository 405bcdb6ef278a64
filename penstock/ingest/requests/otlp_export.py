"""Calls of Export, the OTLP requests over gRPC, and the limits of those whose message arrives slowly."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import grpc
from google.rpc.error_details_pb2 import RetryInfo

from penstock.handover.stored_waits import Fate
from penstock.ingest.requests.large_requests import LEFT
from penstock.ingest.requests.request_writer import BUSY, INCOMPLETE, LATE, Sender, refusal_of
from penstock.process.servers.bounded_calls import BoundedCalls
from penstock.process.servers.calls import Call
from penstock.wire.otlp.protocol import logs_of, response, status_of
from penstock.wire.otlp.records import Logs
from penstock.wire.requests import Refused

MAX_READS = 256
"""Limit: requests being read at once, of all connections; about 30 KB each while no byte arrives."""
QUICK_S = 2.0
"""Time after which a request being read counts as slow."""
_STATUS_DETAILS = "grpc-status-details-bin"
_UNKNOWN = int(grpc.StatusCode.UNKNOWN.value[0])


class ExportReceiver(Protocol):
    """The receiver as its calls use it."""

    limits: tuple[int, int]
    """Bytes of one message with its annotations, and messages of one request."""

    def begin_answer(self, export: Export) -> None:
        """Note that the message of a call has arrived: its connection stays open until ``end_answer``."""

    def end_answer(self, export: Export) -> None:
        """Note that a call is being answered, or is over."""

    def read(self, export: Export, data: bytes) -> None:
        """Parse the message of a call, and add its records."""

    def end_read(self, export: Export) -> None:
        """Note that the message of a call has arrived, or does not arrive."""

    def expect_cancellation(self, export: Export) -> None:
        """Refuse a call whose message did not come, unless gRPC cancels it."""

    def count_refusal(self, reason: str) -> None:
        """Count a refused call."""


class Export:
    """A call of Export: it is read, its records are stored, it is answered or refused once."""

    def __init__(self, call: Call, receiver: ExportReceiver) -> None:
        self.call, self._receiver = call, receiver
        self.sender: Sender | None = None
        self._has_ended = False

    def peer(self) -> bytes:
        """Return gRPC's name of the peer; part of the interface of BoundedCalls."""
        name: bytes | str = self.call.raw.peer()
        return name if isinstance(name, bytes) else name.encode()

    def cancel(self, _: int, reason: str) -> None:
        """Refuse the call; part of the interface of BoundedCalls."""
        self.refuse(Refused(503, BUSY, reason))

    def received(self, data: bytes | None) -> None:
        """Handle the message of the call, or its absence."""
        self._receiver.end_read(self)
        if self._has_ended:
            return
        if data is not None:
            self._receiver.begin_answer(self)
            self._receiver.read(self, data)
        else:
            # gRPC itself refuses a message over max_body, and then cancels the call. A client that leaves looks the
            # same. A call that is not cancelled has no message.
            self._receiver.expect_cancellation(self)
            self.call.watch(self._count_incomplete)

    def watch(self, on_left: Callable[[], None]) -> None:
        """Call ``on_left`` if the client disconnects."""
        self.call.watch(on_left)

    def leave(self) -> None:
        """Count the request of a client that has disconnected, which is not parsed."""
        self._end()
        self._receiver.count_refusal(LEFT)

    def _count_incomplete(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._receiver.count_refusal(INCOMPLETE)

    def decode(self, content: bytes) -> Logs:
        """Decode an ExportLogsServiceRequest. Raises Refused."""
        return logs_of(content, *self._receiver.limits)

    def settle(self, logs: Logs) -> Callable[[Fate], None]:
        """Return the callback that answers the call once the outcome of its records is known."""
        answer = b"" if not (logs.refused or logs.malformed_ids) else response(logs).SerializeToString()

        def settle(fate: Fate) -> None:
            if self._has_ended:
                return
            if fate is Fate.STORED:
                self._end()
                self.call.answer(answer)
            else:
                self.refuse(refusal_of(fate))

        return settle

    def fail(self) -> None:
        """End the call after an error of this program."""
        self._end()
        self.call.refuse(_UNKNOWN, "Internal error")

    def refuse(self, refusal: Refused) -> None:
        """Count a refusal, and end the call with a Status, and with the time to retry if the sender may."""
        if self._has_ended:
            return
        self._end()
        self._receiver.count_refusal(refusal.reason)
        status = status_of(refusal)
        trailers = None
        if refusal.is_retryable:
            retry_info = RetryInfo()
            retry_info.retry_delay.seconds = refusal.retry_s
            status.details.add().Pack(retry_info)
            trailers = ((_STATUS_DETAILS, status.SerializeToString()),)
        self.call.refuse(status.code, str(refusal), trailers)

    def _end(self) -> None:
        self._has_ended = True
        self._receiver.end_answer(self)


class Reads:
    """Calls whose message has not arrived yet, none of which blocks the others.

    Limit: gRPC does not report how many bytes of a request have arrived. Therefore MAX_READS are read at once, and
    only ``slow`` of them may take longer than QUICK_S, because each may hold ``max_body`` bytes.
    """

    def __init__(self, slow: int, timeout_s: float) -> None:
        self._slow, self._timeout_s = slow, timeout_s
        self._open: dict[Export, float] = {}
        self._bounded = BoundedCalls(MAX_READS, "too many requests are being read; retry")

    def begin(self, export: Export) -> None:
        """Enter a call."""
        self._open[export] = time.monotonic()
        self._bounded.progress(export)

    def end(self, export: Export) -> None:
        """Forget a call whose message has arrived or does not arrive."""
        self._bounded.discard(export)
        self._open.pop(export, None)

    def end_slow(self) -> None:
        """End requests that take longer than the timeout, and the oldest that take longer than QUICK_S, if there are
        too many.
        """
        now = time.monotonic()
        slow = [export for export, began in self._open.items() if began < now - QUICK_S]
        for export in slow[: max(len(slow) - self._slow, 0)]:
            self.end(export)
            export.refuse(Refused(503, BUSY, "too many requests arrive slowly (max_unfinished); retry"))
        for export in [export for export, began in self._open.items() if began < now - self._timeout_s]:
            self.end(export)
            text = f"the request did not arrive within {self._timeout_s:g} s (request_timeout)"
            export.refuse(Refused(408, LATE, text))
