"""Read topics directly from their folder: no daemon is needed.

Invariant: only synced rows are read, so a reader never sees a row that a crash could remove.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from penstock.landing.topics.topic_store import DataLoss, Range, TopicView, data_loss, refuse_gaps, to_schema
from penstock.log.errors import CorruptBatch, LogError
from penstock.log.read.filters import Filter
from penstock.log.read.segment_view import StoredBatch
from penstock.log.read.topic_reader import TopicReader, row_times
from penstock.log.store.gaps import CORRUPT
from penstock.log.store.provenance import PROVENANCE, with_provenance
from penstock.log.store.segment_files import stored_bytes
from penstock.log.topic_patterns import is_selected
from penstock.records import SCHEMA

_COLUMNS = pa.schema([*SCHEMA, *PROVENANCE])


def topic_names(folder: Path, patterns: Sequence[str]) -> list[str]:
    """Return the names of the topics in a folder that match the patterns, sorted."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    except FileNotFoundError:
        return []
    return [name for name in names if is_selected(name, patterns)]


class FolderStore:
    """The topics of a folder, which may be missing. Not thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._readers: dict[str, TopicReader] = {}

    def views(self, patterns: Sequence[str]) -> dict[str, TopicView]:
        """Return views by topic; see TopicStore. Deleted topics are dropped."""
        names = topic_names(self._folder, patterns)
        # Fast path: readers are reused, because each keeps the indexes of segments that it has read.
        self._readers = {name: self._reader(name) for name in names}
        return dict(self._readers)

    def _reader(self, topic: str) -> TopicReader:
        return self._readers.get(topic) or TopicReader(self._folder / topic)

    def waiting_since(self, topic: str, offset: int) -> int | None:
        with contextlib.suppress(LogError, OSError):
            for stored in self._reader(topic).read(offset, max_rows=1):
                return stored.first
        return None

    def row_times(self, rows: Mapping[str, Sequence[int]]) -> dict[str, list[int | None]]:
        return {topic: row_times(self._folder / topic, offsets) for topic, offsets in rows.items()}

    def row_bytes(self, topic: str) -> float:
        with contextlib.suppress(FileNotFoundError):
            reader = self._reader(topic)
            return stored_bytes(reader.path) / max(reader.end - reader.start, 1)
        return 0.0

    def read(
        self, part: Range, schema: pa.Schema, *, filter_text: str = "", fail: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows; see TopicStore. A corrupt batch is skipped: the proof of the range reports it as missing."""
        row_filter = Filter.parse(filter_text) if filter_text else None
        columns = pa.schema([_COLUMNS.field(field.name) for field in schema if field.name != "topic"])
        for stored in self._stored_batches(part, fail):
            batch = row_filter.apply(stored.batch) if row_filter else stored.batch
            yield to_schema(with_provenance(batch, stored.origin, columns), part.topic, schema)

    def _stored_batches(self, part: Range, fail: bool) -> Iterator[StoredBatch]:
        reader = TopicReader(self._folder / part.topic)
        begin = part.begin
        try:
            if fail:
                refuse_gaps(reader.gaps(), part)
            while begin < part.end:
                try:
                    yield from reader.read(begin, end=part.end)
                    return
                except CorruptBatch as error:
                    if fail:
                        raise data_loss(part.topic, error.begin, error.end, CORRUPT) from None
                    # At least one offset further, so that a batch with a damaged header cannot stop the loop.
                    begin = max(error.end, begin + 1)
        # Retention or an operator deleted the topic during the read.
        except FileNotFoundError:
            if fail:
                raise DataLoss(f"topic {part.topic} was deleted") from None
