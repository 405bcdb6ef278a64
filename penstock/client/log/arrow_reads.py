"""Reading entries as Arrow, as a part of the client of the log."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.client.log import calls
from penstock.client.log.calls import Call
from penstock.client.log.flight_reads import Gone, flight_batches
from penstock.client.log.retrying_caller import ClientPart
from penstock.client.log.types import AtCursor, Start
from penstock.records import SCHEMA

PAGE = 20_000
"""Entries of one answer; it holds fewer where they are large."""
LAST = 2**63 - 1


class ArrowReading(ClientPart):
    """The operations that give record batches."""

    async def batches(
        self,
        topic: str,
        offset: Start = "earliest",
        end: int | None = None,
        *,
        filter: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> AsyncGenerator[pa.RecordBatch]:
        """The entries in [offset, end), to the end of the topic for None, as Arrow batches of ``columns``.

        All columns are those of ``penstock.records.SCHEMA``. Raises NoSuchTopic, Refused, Unavailable; KeyError for
        a column that does not exist.
        """
        schema_of(columns)
        pages = _Pages(topic, await self._caller.settled(topic, offset), end, filter)
        if self._caller.link.flight and pages.more and not isinstance(pages.next, AtCursor):
            for batch in self._over_flight(pages, columns or SCHEMA.names):  # it blocks: only ``Log`` has the address
                yield batch.select(columns or SCHEMA.names)
        while pages.more:
            batch = pages.taken(await self._caller.do(pages.call()))
            if batch.num_rows:
                yield batch.select(columns or SCHEMA.names)

    def _over_flight(self, pages: _Pages, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """As far as Flight gives them."""
        wanted = ["offset", *(name for name in columns if name != "offset")]
        try:
            for batch in flight_batches(self._caller.link, pages.topic, pages.next, pages.end, pages.filter, wanted):
                pages.next = batch.column("offset")[-1].as_py() + 1
                yield batch
            pages.more = False
        except Gone:  # gRPC goes on from there
            pages.more = not isinstance(pages.next, int) or pages.next < pages.limit

    async def table(
        self,
        topic: str,
        offset: Start = "earliest",
        end: int | None = None,
        *,
        filter: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """As ``batches``, all in one table."""
        batches = self.batches(topic, offset, end, filter=filter, columns=columns)
        return pa.Table.from_batches([batch async for batch in batches], schema_of(columns))


def schema_of(columns: Sequence[str] | None) -> pa.Schema:
    """The schema of these columns, of all for None. Raises KeyError for one that does not exist."""
    return SCHEMA if columns is None else pa.schema([SCHEMA.field(name) for name in columns])


class _Pages:
    """How far a reader of pages has come."""

    def __init__(self, topic: str, start: Start, end: int | None, filter: str | None) -> None:
        self.topic, self.filter, self.end = topic, filter, end
        self.next, self.limit = start, LAST if end is None else end
        self.more = not isinstance(start, int) or start < self.limit

    def call(self) -> Call[tuple[pa.RecordBatch, int] | None]:
        most = min(PAGE, self.limit - self.next) if isinstance(self.next, int) and not self.filter else PAGE
        return calls.get_batch(self.topic, self.next, most, self.filter)

    def taken(self, page: tuple[pa.RecordBatch, int] | None) -> pa.RecordBatch:
        """The rows of an answer that were asked for."""
        if page is None:
            self.more = False
            return pa.RecordBatch.from_pylist([], SCHEMA)
        batch, following = page
        self.next, self.more = following, following < self.limit
        rows = int(np.searchsorted(batch.column("offset").to_numpy(), self.limit))
        return batch.slice(0, rows)
