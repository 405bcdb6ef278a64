"""Messages at offsets that are not in the table, read again from the log or from Kafka.

The prover compares them with the table: a message whose uuid landed within the window is a duplicate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.counts import SourceBucket
from penstock.landing.event_rules import Event, MessageKind
from penstock.landing.offset_runs import Offsets, Runs, offsets_of
from penstock.landing.rows.engine import pc
from penstock.landing.rows.json_events import EventRules, parse_events
from penstock.landing.rows.table_rows import has_codec, protocol_uuids
from penstock.log.errors import CorruptBatch
from penstock.log.read.segment_view import StoredBatch
from penstock.log.read.topic_reader import TopicReader
from penstock.log.store.gaps import Gap
from penstock.records import concatenated

MAX_ROWS, MAX_BYTES = 16_384, 16 << 20
"""Limit: rows, and their bytes, that are held until they are parsed together."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A message at an offset that is neither in the table nor in a gap; the log stored it at ``micros``."""

    offset: int
    origin: SourceBucket
    event: Event | None
    micros: int = 0


@dataclass(slots=True)
class Reread:
    """Messages read again, and the offsets without one.

    ``corrupt``: ranges of damaged batches. Of a partition of Kafka: ``segments``, records that are a part of a large
    message only, and ``absent``, offsets without a record.
    """

    suspects: list[Suspect] = field(default_factory=list)
    corrupt: list[tuple[int, int]] = field(default_factory=list)
    segments: Mapping[int, SourceBucket] = field(default_factory=dict)
    absent: Sequence[Gap] = ()


class RereadSource(Protocol):
    """A log or a Kafka cluster from which messages can be read again."""

    def gaps(self, topic: str) -> list[Gap]:
        """Return the recorded gaps of a topic."""

    def read_again(self, topic: str, runs: Runs) -> Reread:
        """Read the messages at these offsets."""

    def end(self, topic: str) -> int:
        """Return the end of the topic if only this source knows it; else 0."""


def event_of(row: pa.RecordBatch, codec: str | None) -> Event | None:
    """Return the event of one row; None for a message without an identity."""
    return events_of(row, codec, ())[0]


def events_of(rows: pa.RecordBatch, codec: str | None, event_types: Sequence[str]) -> list[Event | None]:
    """Return the event of each row; all rows have one codec."""
    return events_of_rows(of_codec(rows, codec), event_types)


def of_codec(rows: pa.RecordBatch, codec: str | None) -> pa.RecordBatch:
    """Append a column ``codec`` with one codec."""
    return rows.append_column("codec", pa.repeat(pa.scalar(codec, pa.string()), len(rows)))


def events_of_rows(rows: pa.RecordBatch, event_types: Sequence[str]) -> list[Event | None]:
    """Return the event of each row (with a column ``codec``), or an event that holds the protocol's own message id."""
    payloads = pc.if_else(has_codec(rows, MessageKind.SYSLOG), pa.scalar(None, pa.binary()), rows["payload"])
    events = parse_events(payloads, EventRules(tuple(event_types)))
    message_ids = protocol_uuids(rows).to_pylist()
    return [event or (Event("", uuid) if uuid else None) for event, uuid in zip(events, message_ids, strict=True)]


def suspects_in(rows: pa.RecordBatch, origins: Sequence[SourceBucket], event_types: Sequence[str]) -> Iterator[Suspect]:
    """Yield a suspect for each row with columns ``offset``, ``timestamp``, ``payload``, ``annotations`` and
    ``codec``.
    """
    events, micros = events_of_rows(rows, event_types), rows["timestamp"].cast(pa.int64()).to_numpy().tolist()
    for offset, origin, event, stored_at in zip(
        rows["offset"].to_numpy().tolist(), origins, events, micros, strict=True
    ):
        yield Suspect(offset, origin, event, stored_at)


class LogRecords:
    """The topics of a log in a folder."""

    def __init__(self, topics: Path, event_types: Sequence[str] = ()) -> None:
        self._topics, self._event_types = topics, tuple(event_types)

    def gaps(self, topic: str) -> list[Gap]:
        try:
            # A topic that was deleted has no folder: its offsets are then unaccounted, not gaps.
            return list(TopicReader(self._topics / topic).gaps())
        except FileNotFoundError:
            return []

    def end(self, topic: str) -> int:
        return 0

    def read_again(self, topic: str, runs: Runs) -> Reread:
        reread, offsets, collected = Reread(), offsets_of(runs), _CollectedRows(self._event_types)
        reader = TopicReader(self._topics / topic)
        begin, end = (int(offsets[0]), int(offsets[-1]) + 1) if len(offsets) else (0, 0)
        while begin < end:
            try:
                for stored in reader.read(begin, end=end):
                    reread.suspects += collected.add(stored, offsets)
                    begin = stored.base + stored.rows
                break
            except CorruptBatch as error:
                reread.corrupt.append((error.begin, error.end))
                # Limit: each round skips at least one offset, so the loop ends for each range that an error names.
                begin = max(error.end, begin + 1)
            except FileNotFoundError:
                break
        reread.suspects += collected.parse()
        return reread


class _CollectedRows:
    """Rows of many batches, parsed together: a call of the JSON engine costs as much as some thousand rows."""

    def __init__(self, event_types: Sequence[str]) -> None:
        self._event_types = event_types
        self._rows: list[pa.RecordBatch] = []
        self._origins: list[SourceBucket] = []
        self._size = 0

    def add(self, stored: StoredBatch, offsets: Offsets) -> Sequence[Suspect]:
        """Add the rows of a batch at ``offsets`` (ascending); return the suspects of the rows before if enough are
        collected.
        """
        wanted_offsets = offsets[
            np.searchsorted(offsets, stored.base) : np.searchsorted(offsets, stored.base + stored.rows)
        ]
        if not len(wanted_offsets):
            return ()
        codec = pa.repeat(pa.scalar(stored.origin.codec, pa.string()), len(wanted_offsets))
        rows = stored.batch.take(wanted_offsets - stored.base).append_column("codec", codec)
        is_enough = len(self._origins) + len(wanted_offsets) > MAX_ROWS or self._size + rows.nbytes > MAX_BYTES
        suspects = self.parse() if is_enough else ()
        self._rows.append(rows)
        self._origins += [(stored.origin.source, stored.origin.bucket)] * len(wanted_offsets)
        self._size += rows.nbytes
        return suspects

    def parse(self) -> list[Suspect]:
        """Return the suspects of all collected rows, and forget the rows."""
        if not self._rows:
            return []
        rows = concatenated(self._rows)
        origins, self._rows, self._origins, self._size = self._origins, [], [], 0
        return list(suspects_in(rows, origins, self._event_types))
