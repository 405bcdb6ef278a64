"""What a client of the log does: the coroutines of ``AsyncLog``, which ``Log`` has as methods that block."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing

import pyarrow as pa

from penstock.client.log import calls
from penstock.client.log.admin import Administration
from penstock.client.log.arrow_reads import ArrowReading
from penstock.client.log.calls import PAGE, Call
from penstock.client.log.connection import RetryBackoff
from penstock.client.log.types import Entry, OutOfSequence, Page, Payload, Start
from penstock.slogd.slogd_pb2 import LogEntry


class Operations(Administration, ArrowReading):
    """Appending, reading and following; looking after topics and reading as Arrow are inherited."""

    async def append(
        self, topic: str, payloads: Iterable[Payload], annotations: Mapping[str, str] | None = None
    ) -> Sequence[int]:
        """Append one entry for each payload, all or none; their offsets, when they are as durable as the topic says.

        ``annotations`` go with each of them. Raises Refused, Exhausted, Unavailable.
        """
        return await self.append_entries(topic, calls.log_entries(payloads, annotations))

    async def append_entries(self, topic: str, entries: Sequence[LogEntry]) -> list[int]:
        """As ``append``, with entries as the API has them."""
        if not entries:
            return await self._caller.do(calls.append(topic, entries))
        return await self._append(topic, lambda producer: calls.append(topic, entries, producer))

    async def append_batch(
        self, topic: str, body: pa.RecordBatch, producer: tuple[str, int] | None = None
    ) -> list[int]:
        """As ``append``, the rows of an Arrow batch with the columns of ``penstock.records.BODY``.

        ``producer``: an id and a sequence number (from 0, one more each time) of the caller's own, so that what it
        appends again after a crash of its own is not stored twice either.
        """
        if producer is not None:
            return await self._caller.do(calls.append_batch(topic, body, producer))
        return await self._append(topic, lambda producer: calls.append_batch(topic, body, producer))

    async def _append(self, topic: str, call: Callable[[tuple[str, int]], Call[list[int]]]) -> list[int]:
        lanes = self._caller.lanes
        try:
            with lanes.producer(topic) as producer:
                return await self._caller.do(call(producer))
        except OutOfSequence:  # the server lost what it knew of us; it has stored nothing of this
            lanes.forget(topic)
            with lanes.producer(topic) as producer:
                return await self._caller.do(call(producer))

    async def read(
        self, topic: str, offset: Start = "earliest", max_messages: int = PAGE, *, filter: str | None = None
    ) -> list[Entry]:
        """Up to ``max_messages`` entries from ``offset`` on; with ``"latest"`` the last ones.

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
        """Entries from ``offset`` to the end of the topic, as they come. Raises as ``read``."""
        start = await self._caller.settled(topic, offset)
        while (page := await self._caller.do(calls.get(topic, start, PAGE, filter))) is not None:
            yield page
            start = page.next

    async def follow(self, topic: str, offset: Start = "latest", *, filter: str | None = None) -> AsyncGenerator[Entry]:
        """Entries from ``offset`` on, then those that are appended, without end; close the iterator to leave.

        Where it starts is settled by the first entry that is asked for. A connection that breaks is made again, and
        goes on where it was. Raises NoSuchTopic, Refused, Unavailable.
        """
        async with aclosing(self.follow_pages(topic, offset, filter=filter)) as pages:
            async for page in pages:
                for entry in page.entries:
                    yield entry

    async def follow_pages(
        self, topic: str, offset: Start = "latest", *, filter: str | None = None
    ) -> AsyncGenerator[Page]:
        """As ``follow``, the entries as they come together; with a filter also pages without any."""
        start, patience = await self._caller.settled(topic, offset), self._caller.patience()
        while True:
            request = calls.logs_request(topic, start, filter=filter)
            async with aclosing(self._caller.stream("StreamLogs", request, patience)) as answers:
                async for answer in answers:
                    with calls.understood("StreamLogs"):
                        page = calls.page(answer, start)
                    if page is not None:
                        yield page
                        start = page.next

    async def check(self) -> None:
        """Whether the daemon answers, now. Raises Unavailable, NotAllowed."""
        await self._caller.attempt(calls.names(), RetryBackoff(0))

    async def close(self) -> None:
        """Close the connection; calls under way end with Unavailable."""
        await self._caller.close()
