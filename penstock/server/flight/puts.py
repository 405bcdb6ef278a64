"""DoPut: batches are decoded on threads, appended in their order, and each is answered once it is stored."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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
MAX_DECODED_BYTES = 64 << 20
"""Limit: of the texts of a column of a dictionary or of views, which repeat a text that was sent once."""
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
        for column in batch.columns:
            _check_decoded_size(column)
        columns = [
            batch.column(field.name).cast(field.type) if field.name in names else pa.nulls(batch.num_rows, field.type)
            for field in BODY
        ]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BadRequest(f"columns do not have the types of the log: {error}") from None
    body = pa.RecordBatch.from_arrays(columns, schema=BODY)
    # Fast path: the decoder has validated the batch, so only columns of other types may have become invalid.
    if any(field.name in names and batch.column(field.name).type != field.type for field in BODY):
        try:
            body.validate(full=True)
        except pa.ArrowInvalid as error:
            raise BadRequest(str(error)) from None
    return body


def _check_decoded_size(column: Any) -> None:
    """Raise BadRequest for a column that a cast would decode to more than MAX_DECODED_BYTES."""
    decoded_bytes = 0
    if pa.types.is_dictionary(column.type):
        decoded_bytes = pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0
    elif _is_view(column.type):
        # A view is four numbers of four bytes, and the first one is the length.
        views = column.buffers()[1].slice(16 * column.offset, 16 * len(column)) if len(column) else b""
        lengths = np.frombuffer(views, np.int32)[::4]
        decoded_bytes = int(lengths.sum(dtype=np.int64, where=column.is_valid().to_numpy(zero_copy_only=False)))
    elif _repeats_texts(column.type):
        raise BadRequest(f"dictionaries and views inside of a column are not supported: {column.type}")
    if decoded_bytes > MAX_DECODED_BYTES:
        raise BadRequest(f"the texts of a column would have {decoded_bytes} bytes: put fewer rows at a time")


def _is_view(data_type: pa.DataType) -> bool:
    return pa.types.is_binary_view(data_type) or pa.types.is_string_view(data_type)


def _repeats_texts(data_type: pa.DataType) -> bool:
    fields = (data_type.field(index).type for index in range(data_type.num_fields))
    return pa.types.is_dictionary(data_type) or _is_view(data_type) or any(map(_repeats_texts, fields))


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
