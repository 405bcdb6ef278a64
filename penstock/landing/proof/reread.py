"""The offsets that are not in the table, read again from where they came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.counts import SourceBucket
from penstock.landing.event_rules import Event, MessageKind
from penstock.landing.journal import PARTITION_MARK
from penstock.landing.proof.evidence import Offsets
from penstock.landing.rows.engine import pc
from penstock.landing.rows.json_events import EventRules, events_in
from penstock.landing.rows.table_rows import is_syslog
from penstock.log.errors import CorruptBatch
from penstock.log.read.segment_view import Stored
from penstock.log.read.topic_reader import TopicReader
from penstock.log.store.gaps import Gap


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

    def again(self, topic: str, offsets: Offsets) -> Reread:
        """What is at these offsets (ascending)."""

    def end(self, topic: str) -> int:
        """Where the topic ends, if only these records know it; else 0."""


def is_partition(topic: str) -> bool:
    """Whether it is a partition of Kafka (``events/0``) and no topic of the log."""
    return PARTITION_MARK in topic


def event_of(payload: bytes | None, codec: str | None, event_types: Sequence[str]) -> Event | None:
    """The valid event that a message is; None where it is none."""
    return events_of(pa.array([payload], pa.binary()), codec, event_types)[0]


def events_of(payloads: pa.Array[Any], codec: str | None, event_types: Sequence[str]) -> list[Event | None]:
    """The same for several of one codec."""
    if codec == MessageKind.SYSLOG:
        return [None] * len(payloads)
    return events_in(payloads, EventRules(tuple(event_types)))


def events_of_rows(rows: pa.RecordBatch, event_types: Sequence[str]) -> list[Event | None]:
    """The same for rows with a column ``codec``."""
    return events_of(pc.if_else(is_syslog(rows), pa.scalar(None, pa.binary()), rows["payload"]), None, event_types)


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

    def again(self, topic: str, offsets: Offsets) -> Reread:
        found = Reread()
        reader = TopicReader(self._topics / topic)
        begin, end = (int(offsets[0]), int(offsets[-1]) + 1) if len(offsets) else (0, 0)
        while begin < end:
            try:
                for stored in reader.read(begin, end=end):
                    found.suspects += self._suspects(stored, offsets)
                    begin = stored.base + stored.rows
                return found
            except CorruptBatch as error:
                found.corrupt.append((error.begin, error.end))
                begin = max(error.end, begin + 1)
            except FileNotFoundError:
                break
        return found

    def _suspects(self, stored: Stored, offsets: Offsets) -> Iterator[Suspect]:
        mine = offsets[np.searchsorted(offsets, stored.base) : np.searchsorted(offsets, stored.base + stored.rows)]
        if not len(mine):
            return
        rows = stored.batch.take(mine - stored.base)
        place = (stored.origin.source, stored.origin.bucket)
        micros = rows["timestamp"].cast(pa.int64()).to_numpy().tolist()
        events = events_of(rows["payload"], stored.origin.codec, self._event_types)
        for offset, event, at in zip(mine.tolist(), events, micros, strict=True):
            yield Suspect(offset, place, event, at)
