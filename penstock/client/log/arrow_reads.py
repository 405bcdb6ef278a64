"""Reads of entries as Arrow batches, a part of the client of the log."""

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
"""Entries per answer; the server returns fewer if they are large."""
LAST = 2**63 - 1


class ArrowReading(ClientPart):
    """The operations that return record batches."""

    async def batches(
        self,
        topic: str,
        offset: Start = "earliest",
        end: int | None = None,
        *,
        filter: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> AsyncGenerator[pa.RecordBatch]:
        """Yield the entries in [offset, end), to the end of the topic for None, as Arrow batches of ``columns``.

        The columns are named as in ``penstock.records.SCHEMA``; None selects all. Raises NoSuchTopic, Refused,
        Unavailable; KeyError for a column that does not exist.
        """
        schema_of(columns)
        pages = _Pages(topic, await self._caller.resolve_latest(topic, offset), end, filter)
        if self._caller.link.flight and pages.more and not isinstance(pages.next, AtCursor):
            # Flight's client blocks, so only `Log` is ever given a Flight address.
            for batch in self._over_flight(pages, columns or SCHEMA.names):
                yield batch.select(columns or SCHEMA.names)
        while pages.more:
            batch = pages.accept(await self._caller.do(pages.call()))
            if batch.num_rows:
                yield batch.select(columns or SCHEMA.names)

    def _over_flight(self, pages: _Pages, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield batches over Flight until the end of the range, or until Flight fails."""
        # The offset is read in any case: it tells where to continue if the stream breaks.
        selected = ["offset", *(name for name in columns if name != "offset")]
        try:
            for batch in flight_batches(self._caller.link, pages.topic, pages.next, pages.end, pages.filter, selected):
                pages.next = batch.column("offset")[-1].as_py() + 1
                yield batch
            pages.more = False
        except Gone:
            # The caller continues over gRPC from `pages.next`, the row after the last one that arrived.
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
        """Return the entries in [offset, end) as one table; arguments and errors as for ``batches``."""
        batches = self.batches(topic, offset, end, filter=filter, columns=columns)
        return pa.Table.from_batches([batch async for batch in batches], schema_of(columns))


def schema_of(columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema of these columns, of all for None. Raises KeyError for a column that does not exist."""
    return SCHEMA if columns is None else pa.schema([SCHEMA.field(name) for name in columns])


class _Pages:
    """The progress of a read by pages: the next offset, and whether more may follow."""

    def __init__(self, topic: str, start: Start, end: int | None, filter: str | None) -> None:
        self.topic, self.filter, self.end = topic, filter, end
        self.next, self.limit = start, LAST if end is None else end
        self.more = not isinstance(start, int) or start < self.limit

    def call(self) -> Call[tuple[pa.RecordBatch, int] | None]:
        max_messages = min(PAGE, self.limit - self.next) if isinstance(self.next, int) and not self.filter else PAGE
        return calls.get_batch(self.topic, self.next, max_messages, self.filter)

    def accept(self, page: tuple[pa.RecordBatch, int] | None) -> pa.RecordBatch:
        """Advance past a page; return its rows before the limit."""
        if page is None:
            self.more = False
            return pa.RecordBatch.from_pylist([], SCHEMA)
        batch, next_offset = page
        self.next, self.more = next_offset, next_offset < self.limit
        # With a filter the server cannot be asked for the rows before the limit alone, so a page may go beyond it.
        rows = int(np.searchsorted(batch.column("offset").to_numpy(), self.limit))
        return batch.slice(0, rows)
