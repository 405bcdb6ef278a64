"""The offsets that are not in the table, read again from where they came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.counts import SourceBucket
from penstock.landing.event_rules import Event, MessageKind
from penstock.landing.journal import PARTITION_MARK
from penstock.landing.offset_runs import Offsets, Runs, offsets_of
from penstock.landing.rows.engine import pc
from penstock.landing.rows.json_events import EventRules, events_in
from penstock.landing.rows.table_rows import is_of, uuids_said
from penstock.log.errors import CorruptBatch
from penstock.log.read.segment_view import StoredBatch
from penstock.log.read.topic_reader import TopicReader
from penstock.log.store.gaps import Gap

AT_ONCE, BYTES_AT_ONCE = 16_384, 16 << 20
"""Rows, and their bytes, that are parsed together: a call of the JSON engine costs as much as some thousand rows."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """An offset that is neither in the table nor in a gap, and what the log has there, stored at ``micros``."""

    offset: int
    place: SourceBucket
    event: Event | None
    micros: int = 0


@dataclass(slots=True)
class Reread:
    """What was found at some offsets: messages, ranges that are ``corrupt``, and in a partition of Kafka records that
    are ``segments`` of a message only, and offsets that are ``gone``.
    """

    suspects: list[Suspect] = field(default_factory=list)
    corrupt: list[tuple[int, int]] = field(default_factory=list)
    segments: Mapping[int, SourceBucket] = field(default_factory=dict)
    gone: Sequence[Gap] = ()


class RereadSource(Protocol):
    """Where messages can be read again."""

    def gaps(self, topic: str) -> list[Gap]:
        """The gaps that are known of a topic."""

    def again(self, topic: str, runs: Runs) -> Reread:
        """What is at these offsets."""

    def end(self, topic: str) -> int:
        """Where the topic ends, if only these records know it; else 0."""


def is_partition(topic: str) -> bool:
    """Whether it is a partition of Kafka (``events/0``) and no topic of the log."""
    return PARTITION_MARK in topic


def event_of(row: pa.RecordBatch, codec: str | None) -> Event | None:
    """What the message of one row is known by; None where by nothing."""
    return events_of(row, codec, ())[0]


def events_of(rows: pa.RecordBatch, codec: str | None, event_types: Sequence[str]) -> list[Event | None]:
    """The same for several of one codec."""
    return events_of_rows(of_codec(rows, codec), event_types)


def of_codec(rows: pa.RecordBatch, codec: str | None) -> pa.RecordBatch:
    """Rows with a column ``codec`` that is the same for all."""
    return rows.append_column("codec", pa.repeat(pa.scalar(codec, pa.string()), len(rows)))


def events_of_rows(rows: pa.RecordBatch, event_types: Sequence[str]) -> list[Event | None]:
    """The same for rows with a column ``codec``: the event that each is, or a message with the id of its protocol."""
    payloads = pc.if_else(is_of(rows, MessageKind.SYSLOG), pa.scalar(None, pa.binary()), rows["payload"])
    events = events_in(payloads, EventRules(tuple(event_types)))
    said = uuids_said(rows).to_pylist()
    return [event or (Event("", uuid) if uuid else None) for event, uuid in zip(events, said, strict=True)]


def suspects_in(rows: pa.RecordBatch, places: Sequence[SourceBucket], event_types: Sequence[str]) -> Iterator[Suspect]:
    """What rows are, with columns ``offset``, ``timestamp``, ``payload``, ``annotations`` and ``codec``."""
    events, micros = events_of_rows(rows, event_types), rows["timestamp"].cast(pa.int64()).to_numpy().tolist()
    for offset, place, event, at in zip(rows["offset"].to_numpy().tolist(), places, events, micros, strict=True):
        yield Suspect(offset, place, event, at)


class LogRecords:
    """The topics of a log, by their files."""

    def __init__(self, topics: Path, event_types: Sequence[str] = ()) -> None:
        self._topics, self._event_types = topics, tuple(event_types)

    def gaps(self, topic: str) -> list[Gap]:
        try:
            return list(TopicReader(self._topics / topic).gaps())
        except FileNotFoundError:
            return []

    def end(self, topic: str) -> int:
        return 0

    def again(self, topic: str, runs: Runs) -> Reread:
        found, offsets, sought = Reread(), offsets_of(runs), _Sought(self._event_types)
        reader = TopicReader(self._topics / topic)
        begin, end = (int(offsets[0]), int(offsets[-1]) + 1) if len(offsets) else (0, 0)
        while begin < end:
            try:
                for stored in reader.read(begin, end=end):
                    found.suspects += sought.take(stored, offsets)
                    begin = stored.base + stored.rows
                break
            except CorruptBatch as error:
                found.corrupt.append((error.begin, error.end))
                begin = max(error.end, begin + 1)
            except FileNotFoundError:
                break
        found.suspects += sought.rest()
        return found


class _Sought:
    """Rows of many batches that are looked at together."""

    def __init__(self, event_types: Sequence[str]) -> None:
        self._event_types = event_types
        self._rows: list[pa.RecordBatch] = []
        self._places: list[SourceBucket] = []
        self._size = 0

    def take(self, stored: StoredBatch, offsets: Offsets) -> Sequence[Suspect]:
        """Take those of a batch that are among ``offsets`` (ascending); what has come together, when it is enough."""
        mine = offsets[np.searchsorted(offsets, stored.base) : np.searchsorted(offsets, stored.base + stored.rows)]
        if not len(mine):
            return ()
        codec = pa.repeat(pa.scalar(stored.origin.codec, pa.string()), len(mine))
        rows = stored.batch.take(mine - stored.base).append_column("codec", codec)
        is_enough = len(self._places) + len(mine) > AT_ONCE or self._size + rows.nbytes > BYTES_AT_ONCE
        done = self.rest() if is_enough else ()
        self._rows.append(rows)
        self._places += [(stored.origin.source, stored.origin.bucket)] * len(mine)
        self._size += rows.nbytes
        return done

    def rest(self) -> list[Suspect]:
        """What has come together since."""
        if not self._rows:
            return []
        rows: pa.RecordBatch = pa.concat_batches(self._rows)  # type: ignore[attr-defined]  # the stub leaves it out
        places, self._rows, self._places, self._size = self._places, [], [], 0
        return list(suspects_in(rows, places, self._event_types))
