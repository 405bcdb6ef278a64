"""Streams of OTAP (OpenTelemetry Arrow protocol), which the receiver of OTLP over gRPC serves at the same port.

Each batch is answered by a BatchStatus once the log has its messages. After a batch that was not decoded the
dictionaries of its stream are unknown, so the stream ends, and the sender begins another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from penstock.handover.stored_waits import Fate
from penstock.ingest.requests.large_requests import LEFT
from penstock.ingest.requests.request_writer import BUSY, Sender, refusal_of
from penstock.process.servers.calls import StreamCall
from penstock.wire.otap import batches
from penstock.wire.otap.streams import (
    INTERNAL,
    INVALID_ARGUMENT,
    OK,
    UNAVAILABLE,
    BatchStatus,
    OtapStream,
    parse_batch,
)
from penstock.wire.otlp.protocol import response
from penstock.wire.otlp.records import Logs
from penstock.wire.protobuf import Malformed
from penstock.wire.requests import SYNTAX, Refused

METHOD = b"/opentelemetry.proto.experimental.arrow.v1.ArrowLogsService/ArrowLogs"
MAX_UNANSWERED = 4
"""Limit: batches of a stream that wait for the log, or whose answer the sender has not read.

No further batch is read until one is answered.
"""
STREAMS_PER_UNFINISHED_BODY = 8
"""Limit: open streams for each body that ``max_unfinished`` allows. An idle stream, and one whose batch arrives slowly,
look the same to gRPC's users.
"""


class BatchReader(Protocol):
    """The receiver as its streams use it."""

    limits: tuple[int, int]
    """Bytes of one message with its annotations, and messages of one batch."""

    def read(self, batch: ArrowBatch, data: bytes) -> None:
        """Decode a batch on a thread, and add its records."""

    def progress(self, stream: ArrowStream) -> None:
        """Note that a stream is open and used."""

    def discard(self, stream: ArrowStream) -> None:
        """Forget a stream that has ended."""

    def count_refusal(self, reason: str) -> None:
        """Count a refused batch."""


class ArrowStream:
    """A call of ArrowLogs. Owned by the receiver's thread."""

    def __init__(self, call: Any, receiver: BatchReader, sender: Sender, max_batch_bytes: int) -> None:
        self.receiver, self.sender = receiver, sender
        self.state = OtapStream(max_batch_bytes)
        self._call = StreamCall(call, (), self._leave, self._read_next)
        self.unanswered = 0
        """Batches whose outcome is not known yet."""
        self.on_left: Callable[[], None] | None = None
        """Called if the client disconnects while a batch waits to be decoded."""
        self._is_reading = self._is_complete = self._has_ended = False

    def begin(self) -> None:
        """Read the first batch."""
        self.receiver.progress(self)
        self._read_next()

    def peer(self) -> bytes:
        """Return gRPC's name of the peer; part of the interface of BoundedCalls."""
        name: bytes | str = self._call.raw.peer()
        return name if isinstance(name, bytes) else name.encode()

    def cancel(self, _: int, reason: str) -> None:
        """End the stream; part of the interface of BoundedCalls."""
        self.receiver.count_refusal(BUSY)
        self.end(UNAVAILABLE, reason)

    def complete(self) -> None:
        """Read no more batches; end once the batches read are answered."""
        self._is_complete = True
        self._end_if_answered()

    def end(self, code: int, text: str) -> None:
        """End the stream after the answers that were sent."""
        if not self._has_ended:
            self._has_ended = True
            self.receiver.discard(self)
            self._call.end(code, text)

    def answer(self, batch_id: int, code: int, text: str) -> None:
        """Send the status of a batch, and read the next one."""
        self.unanswered -= 1
        if not self._has_ended:
            self._call.send(BatchStatus(batch_id=batch_id, status_code=code, status_message=text).SerializeToString())
            self._read_next()
            self._end_if_answered()

    def decoded(self) -> None:
        """Read the next batch, after the one that is decoded."""
        self._is_reading = False
        self._read_next()

    def _read_next(self) -> None:
        # Invariant: one batch is decoded at a time, in order, as each depends on the dictionaries of those before.
        is_open = not (self._is_reading or self._is_complete or self._has_ended)
        if is_open and self.unanswered + self._call.unsent < MAX_UNANSWERED:
            self._is_reading = True
            self._call.receive_message(self._received)

    def _received(self, data: bytes | None) -> None:
        if self._has_ended or self._is_complete:
            return
        if data is None:
            self.complete()
            return
        self.receiver.progress(self)
        self.unanswered += 1
        self.receiver.read(ArrowBatch(self), data)

    def _end_if_answered(self) -> None:
        if self._is_complete and not self.unanswered:
            self.end(OK, "")

    def _leave(self) -> None:
        self._has_ended = True
        self.receiver.discard(self)
        if self.on_left is not None:
            self.on_left()


class ArrowBatch:
    """A batch of a stream: it is decoded, its records are stored, it is answered once."""

    def __init__(self, stream: ArrowStream) -> None:
        self.stream, self.sender = stream, stream.sender
        self._batch_id: int | None = None
        self._is_decoded = self._has_continued = False

    def decode(self, data: bytes) -> Logs:
        """Decode a BatchArrowRecords. Raises Refused."""
        try:
            message = parse_batch(data)
            self._batch_id = message.batch_id
            tables = self.stream.state.read(message.arrow_payloads)
            self._is_decoded = True
            return batches.logs_of(tables, *self.stream.receiver.limits)
        except Malformed as error:
            raise Refused(400, SYNTAX, f"the batch cannot be decoded: {error}") from None

    def watch(self, on_left: Callable[[], None]) -> None:
        """Call ``on_left`` if the client disconnects."""
        self.stream.on_left = on_left

    def leave(self) -> None:
        """Count the batch of a client that has disconnected, which is not decoded."""
        self.stream.unanswered -= 1
        self.stream.receiver.count_refusal(LEFT)

    def settle(self, logs: Logs) -> Callable[[Fate], None]:
        """Return the callback that answers the batch once the outcome of its records is known."""
        self._continue()
        text = response(logs).partial_success.error_message
        batch_id = self._batch_id or 0

        def answer_batch(fate: Fate) -> None:
            if fate is Fate.STORED:
                self.stream.answer(batch_id, OK, text)
            else:
                self.stream.answer(batch_id, UNAVAILABLE, str(refusal_of(fate)))

        return answer_batch

    def fail(self) -> None:
        """End the stream after an error of this program."""
        self.stream.end(INTERNAL, "Internal error")

    def refuse(self, refusal: Refused) -> None:
        """Answer that the batch is refused; end its stream unless its dictionaries are known."""
        self.stream.receiver.count_refusal(refusal.reason)
        code = UNAVAILABLE if refusal.is_retryable else INVALID_ARGUMENT
        if self._batch_id is not None:
            self.stream.answer(self._batch_id, code, str(refusal))
        if self._is_decoded:
            self._continue()
        else:
            self.stream.end(code, str(refusal))

    def _continue(self) -> None:
        """Read the next batch; once, as a batch may be refused after it was about to be stored."""
        if not self._has_continued:
            self._has_continued = True
            self.stream.decoded()


def max_streams(max_unfinished: int, max_body: int) -> int:
    """Return how many streams of a listener may be open."""
    return max(max_unfinished // max_body, 1) * STREAMS_PER_UNFINISHED_BODY
