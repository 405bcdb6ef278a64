"""DoPut: batches are decoded on threads, appended in their order, and each is answered once it is stored."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
import pyarrow.flight as flight

from penstock.files.json_values import parse_object
from penstock.log import Appended, LogError, ProducerSequence, Topic
from penstock.records import BODY, SCHEMA
from penstock.server.auth.permitted_topics import PermittedTopics, api_error
from penstock.server.auth.rights import Principal, TokenAuthenticator
from penstock.server.event_loop import LoopFutures
from penstock.server.flight.batch_messages import BatchDecoder, FlightData, bytes_field
from penstock.server.flight.tickets import topic_of_path
from penstock.server.grpc.call_errors import caller_of
from penstock.server.grpc.calls import LoopCall
from penstock.slogd.errors import BadRequest

MAX_PIPELINED = 16
"""Limit: batches of one put in flight; they share commits."""
_APP_METADATA = 1


class Puts:
    """The method DoPut."""

    def __init__(
        self,
        topics: PermittedTopics,
        guard: TokenAuthenticator,
        threads: ThreadPoolExecutor,
        status_of: Callable[[Exception], tuple[int, str]],
    ) -> None:
        self._topics, self._guard, self._threads, self._status_of = topics, guard, threads, status_of

    async def do_put(self, messages: AsyncIterator[bytes], context: LoopCall) -> AsyncIterator[bytes]:
        """Append batches, each all or none; batches before a refused one are stored and answered."""
        answers: asyncio.Queue[asyncio.Future[bytes] | None] = asyncio.Queue(MAX_PIPELINED)
        reading = asyncio.create_task(self._append_messages(messages, context, answers))
        try:
            while (stored := await answers.get()) is not None:
                yield await stored
            await reading
        except Exception as error:  # noqa: BLE001 - every call ends with a code
            await context.end(*self._status_of(error))
        finally:
            reading.cancel()

    async def _append_messages(
        self, messages: AsyncIterator[bytes], context: LoopCall, answers: asyncio.Queue[asyncio.Future[bytes] | None]
    ) -> None:
        loop = asyncio.get_running_loop()
        arrivals, put = LoopFutures(loop), _Put(self._topics)
        caller = caller_of(self._guard, context)
        try:
            async for message in messages:
                # The token is checked for each message: it may be revoked during a long put.
                current = self._guard.current(caller)
                context.unanswered += 1
                appended = None
                try:
                    appended = await loop.run_in_executor(self._threads, put.append, message, current)
                finally:
                    # A refused message has its outcome, although the client may never read the answers before it.
                    if appended is None:
                        context.unanswered -= 1
                if appended is not None:
                    outcome = asyncio.ensure_future(_encode_answer(arrivals, put.topic_name, *appended))
                    outcome.add_done_callback(context.count_outcome)
                    await answers.put(outcome)
        except Exception:
            # None ends the answers; `do_put` raises this error when it awaits the task.
            await answers.put(None)
            raise
        await answers.put(None)


class _Put:
    """State of one put. For one thread at a time."""

    def __init__(self, topics: PermittedTopics) -> None:
        self._topics, self._decoder = topics, BatchDecoder()
        self._topic: Topic | None = None
        self._producer, self._sequence = "", 0

    @property
    def topic_name(self) -> str:
        """Return the topic; empty before the first message."""
        return self._topic.name if self._topic else ""

    def append(self, message: bytes, caller: Principal) -> tuple[Future[Appended], int] | None:
        """Append the batch of a message; return its future and number of rows, or None without a batch.

        Raises ApiError, BadFlightData, pa.ArrowException.
        """
        fields = FlightData.parse(message)
        if self._topic is None:
            descriptor = flight.FlightDescriptor.deserialize(bytes(fields.descriptor))
            name, self._producer, self._sequence = destination_of(descriptor)
            self._topic = self._topics.writable(name, caller)
        else:
            self._topics.check_write(self._topic.name, caller)
        batch = self._decoder.decode(fields)
        if batch is None:
            return None
        body = body_of(batch)
        producer = ProducerSequence(self._producer, self._sequence) if self._producer else None
        # Counted even if the append is refused: the client numbers its batches in the same way.
        self._sequence += 1
        return self._topics.append(self._topic, body, "flight", producer), body.num_rows


async def _encode_answer(arrivals: LoopFutures, topic: str, appended: Future[Appended], rows: int) -> bytes:
    try:
        stored = await arrivals.wait(appended)
    except LogError as error:
        raise api_error(error, topic) from error
    document = {"first": stored.first, "rows": rows, "durability": stored.durability}
    return bytes_field(_APP_METADATA, json.dumps(document).encode())


def body_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert a received batch to BODY. Raises BadRequest."""
    names = batch.schema.names
    if set(names) - set(SCHEMA.names) or "payload" not in names or len(set(names)) < len(names):
        raise BadRequest(f"columns must be payload and of {', '.join(BODY.names)}; not {sorted(names)}")
    try:
        columns = [
            batch.column(field.name).cast(field.type) if field.name in names else pa.nulls(batch.num_rows, field.type)
            for field in BODY
        ]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BadRequest(f"columns do not have the types of the log: {error}") from None
    body = pa.RecordBatch.from_arrays(columns, schema=BODY)
    try:
        # Full validation: wrong offsets in a client's columns would let later reads leave their buffers.
        body.validate(full=True)
    except pa.ArrowInvalid as error:
        raise BadRequest(str(error)) from None
    return body


def destination_of(descriptor: flight.FlightDescriptor) -> tuple[str, str, int]:
    """Return topic, producer id and first sequence number. Raises BadRequest."""
    if descriptor.path:
        return topic_of_path(descriptor.path), "", 0
    try:
        command = parse_object(descriptor.command or b"null")
    except ValueError:
        command = {}
    if not isinstance(command.get("topic"), str):
        raise BadRequest('a descriptor is the path [topic] or a command {"topic": ...}')
    producer, sequence = command.get("producer_id", ""), command.get("sequence", 0)
    if not isinstance(producer, str) or type(sequence) is not int or not 0 <= sequence < 2**63:
        raise BadRequest("producer_id must be a text, sequence a number")
    return command["topic"], producer, sequence
