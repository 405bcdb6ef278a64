"""The operations of a client: the coroutines of ``AsyncLog``, which ``Log`` offers as blocking methods."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress

import pyarrow as pa

from penstock.client.log import calls
from penstock.client.log.admin import Administration
from penstock.client.log.arrow_reads import ArrowReading
from penstock.client.log.calls import PAGE, Call
from penstock.client.log.connection import RetryBackoff
from penstock.client.log.types import ClientError, Entry, OutOfSequence, Page, Payload, Start, StoredAlready
from penstock.counts import Origin
from penstock.slogd.columns.decode import MAX_LOOP_ENTRIES
from penstock.slogd.columns.encode import append_request, columns_request
from penstock.slogd.slogd_pb2 import LogEntry

COLUMNS_RETRY_S = 60.0
"""Interval at which a server of an earlier version is sent columns again, because it may have been upgraded."""


class Operations(Administration, ArrowReading):
    """Appending, reading and following; administration and Arrow reads are inherited."""

    _columns_from = 0.0
    """Monotonic time from which relayed rows are sent as Arrow columns, which cost the receiving side almost
    nothing."""

    async def append(
        self, topic: str, payloads: Iterable[Payload], annotations: Mapping[str, str] | None = None
    ) -> Sequence[int]:
        """Append one entry per payload, all or none; return the offsets once they are as durable as the topic
        requires.

        ``annotations`` go with each entry. Raises Refused, Exhausted, Unavailable.
        """
        return await self.append_entries(topic, calls.log_entries(payloads, annotations))

    async def append_entries(self, topic: str, entries: Sequence[LogEntry]) -> list[int]:
        """Append entries in the API's form; otherwise like ``append``."""
        if not entries:
            # An empty request needs no number. It only tests the topic.
            return await self._caller.do(calls.append(topic, entries))
        return await self._append(topic, lambda producer: calls.append(topic, entries, producer))

    async def append_batch(
        self,
        topic: str,
        body: pa.RecordBatch,
        producer: tuple[str, int] | None = None,
        origin: Origin | None = None,
    ) -> list[int]:
        """Append the rows of an Arrow batch with the columns of ``penstock.records.BODY``; otherwise like
        ``append``.

        ``producer``: the caller's own id and sequence number (from 0, one more for each append). The caller may then
        repeat an append after its own crash without storing it twice. ``origin``: where another Penstock received the
        rows, ``HOST/SOURCE`` and its minute, under which the daemon counts them; needs the right relay. With both, an
        empty batch returns the offsets that are stored under the number; none also from a daemon of an earlier version.
        """
        if producer is not None and origin is not None:
            return await self._append_relayed(topic, body, producer, origin)
        if producer is not None:
            return await self._caller.do(calls.append_batch(topic, body, producer))
        return await self._append(topic, lambda producer: calls.append_batch(topic, body, producer, origin))

    async def append_batches(
        self, topic: str, batches: Sequence[tuple[pa.RecordBatch, tuple[str, int], Origin]]
    ) -> list[list[int]]:
        """Append relayed batches of one producer, whose numbers follow each other; return their offsets.

        The list ends before a batch that is refused, or whose answer is lost. The batches from there on may be stored:
        repeat them with ``append_batch``. Raises as ``append_batch`` if no batch is stored.
        """
        requests = [
            calls.append_batch(topic, *batch, columns_request if self._sends_columns(batch[0]) else append_request)
            for batch in batches
        ]
        # Order: the others in one stream behind the answer to the first one. If the server did not expect the first
        # number, it might take a later one for the next: of a producer that it knows from before a backup was restored
        # here, or for the first of one that it forgot. A server of an earlier version reorders what waits for a commit.
        first = Call(requests[0].method, requests[0].request, calls.decode_relayed)
        offsets, is_in_step = await self._caller.do(first)
        stored = [offsets] if offsets else []
        if not is_in_step:
            return stored
        with suppress(ClientError):
            stream = self._caller.pipeline("AppendStream", [each.request for each in requests[1:]])
            async with aclosing(stream) as answers:
                async for answer in answers:
                    # A refusal has no offsets, nor has the answer of an earlier version to columns.
                    if not (offsets := requests[len(stored)].answered(answer)):
                        break
                    stored.append(offsets)
        return stored

    def _sends_columns(self, body: pa.RecordBatch) -> bool:
        # Few entries are rows on the server, in another order of annotations than columns.
        return body.num_rows > MAX_LOOP_ENTRIES and time.monotonic() >= self._columns_from

    async def _append_relayed(
        self, topic: str, body: pa.RecordBatch, producer: tuple[str, int], origin: Origin
    ) -> list[int]:
        if self._sends_columns(body):
            # Compatibility: the relay's earlier version, which died before its position was stored, has sent these rows
            # as entries. The number knows their form, in which the server answers with their offsets.
            with suppress(StoredAlready):
                offsets = await self._caller.do(calls.append_batch(topic, body, producer, origin, columns_request))
                if offsets:
                    return offsets
                # Compatibility: a server of an earlier version does not have the field. It stores nothing, does not use
                # up the number, and answers without offsets.
                self._columns_from = time.monotonic() + COLUMNS_RETRY_S
        return await self._caller.do(calls.append_batch(topic, body, producer, origin))

    async def _append(self, topic: str, call: Callable[[tuple[str, int]], Call[list[int]]]) -> list[int]:
        lanes = self._caller.lanes
        try:
            with lanes.producer(topic) as producer:
                return await self._caller.do(call(producer))
        except OutOfSequence:
            # The server forgot these producers after their retention, and stored nothing of this request.
            lanes.forget(topic)
            with lanes.producer(topic) as producer:
                return await self._caller.do(call(producer))

    async def read(
        self, topic: str, offset: Start = "earliest", max_messages: int = PAGE, *, filter: str | None = None
    ) -> list[Entry]:
        """Return up to ``max_messages`` entries from ``offset``; with ``"latest"`` the last ones.

        Fewer only at the end of the topic. ``filter``: only entries whose annotations match. Raises NoSuchTopic,
        Refused, Unavailable.
        """
        entries: list[Entry] = []
        start = offset
        while len(entries) < max_messages:
            page = await self._caller.do(calls.get(topic, start, max_messages - len(entries), filter))
            if page is None:
                break
            entries += page.entries
            start = page.next
        return entries

    async def pages(self, topic: str, offset: Start = "earliest", *, filter: str | None = None) -> AsyncGenerator[Page]:
        """Yield the entries from ``offset`` to the end of the topic, page by page. Raises as ``read``."""
        start = await self._caller.resolve_latest(topic, offset)
        while (page := await self._caller.do(calls.get(topic, start, PAGE, filter))) is not None:
            yield page
            start = page.next

    async def follow(self, topic: str, offset: Start = "latest", *, filter: str | None = None) -> AsyncGenerator[Entry]:
        """Yield the entries from ``offset``, then new ones, without end; close the iterator to stop.

        The start is fixed when the first entry is requested. A broken connection is restored, and the iteration
        continues at its offset. Raises NoSuchTopic, Refused, Unavailable.
        """
        async with aclosing(self.follow_pages(topic, offset, filter=filter)) as pages:
            async for page in pages:
                for entry in page.entries:
                    yield entry

    async def follow_pages(
        self, topic: str, offset: Start = "latest", *, filter: str | None = None
    ) -> AsyncGenerator[Page]:
        """Yield pages like ``follow`` yields entries; with a filter some pages are empty."""
        start, patience = await self._caller.resolve_latest(topic, offset), self._caller.patience()
        while True:
            request = calls.logs_request(topic, start, filter=filter)
            async with aclosing(self._caller.stream("StreamLogs", request, patience)) as responses:
                async for response in responses:
                    with calls.understood("StreamLogs"):
                        page = calls.page(response, start)
                    if page is not None:
                        yield page
                        start = page.next

    async def check(self) -> None:
        """Call the daemon once, without retries. Raises Unavailable, NotAllowed."""
        await self._caller.attempt(calls.names(), RetryBackoff(0))

    async def close(self) -> None:
        """Close the connection; calls in flight end with Unavailable."""
        await self._caller.close()
