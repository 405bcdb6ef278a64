"""Rows of ``landed`` rebuilt from the messages at their offsets, as the landing makes them.

Start with ``RereadRows``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.landing.event_rules import MessageKind
from penstock.landing.from_kafka.rows import LOG_ROW, with_null_partition
from penstock.landing.offset_runs import Offsets, Runs, difference, is_inside, runs_of
from penstock.landing.rows.table_rows import Rules
from penstock.landing.table_schema import FILE_SCHEMA
from penstock.landing.topics.topic_store import Range, TopicStore
from penstock.landing.transform.rules import Transformation, TransformRules
from penstock.landing.typed.columns import TypedTable
from penstock.landing.writing.part_writer import MessageBatch, join_small_batches, rows_to_land
from penstock.qualified_names import is_partition
from penstock.records import concatenated
from penstock.upkeep.typed.fill import CannotRestore

MAX_LISTED_RUNS = 1000
"""Limit: runs of offsets that a report lists one by one."""
MAX_REREAD_BYTES = 512 << 20
"""Limit: rows of a row group that are held at once. A written row group has 64 MB, or 131,072 rows."""
NOT_IN_LOG = "not in the log"
MAKES_ANOTHER_ROW = "the record exists, but makes no such row"


class MessageSource(Protocol):
    """A log or a Kafka cluster from which whole messages can be read again."""

    def messages(self, topic: str, runs: Runs) -> Iterator[pa.RecordBatch]:
        """Yield the existing messages (``from_kafka.rows.ROW``) at these offsets. Raises PenstockError."""

    def absences(self, topic: str, runs: Runs) -> list[tuple[int, int, str]]:
        """Return why ranges [begin, end) have no message; an empty reason if there is one. Raises PenstockError."""


class LogMessages:
    """The messages of the log's topics."""

    def __init__(self, store: TopicStore) -> None:
        self._store = store

    def messages(self, topic: str, runs: Runs) -> Iterator[pa.RecordBatch]:
        """Yield the existing messages; see MessageSource."""
        if not len(runs):
            return
        for rows in self._store.read(Range(topic, int(runs[0, 0]), int(runs[-1, 1])), LOG_ROW):
            is_wanted = is_inside(rows["offset"].to_numpy(), runs)
            yield with_null_partition(rows if is_wanted.all() else rows.filter(pa.array(is_wanted)))

    def absences(self, topic: str, runs: Runs) -> list[tuple[int, int, str]]:
        """Return why offsets have no message; see MessageSource."""
        present = [rows["offset"].to_numpy() for rows in self.messages(topic, runs)]
        absent = difference(runs, runs_of(np.concatenate([np.zeros(0, np.int64), *present])))
        return [(begin, end, NOT_IN_LOG) for begin, end in absent.tolist()]


@dataclass(frozen=True, slots=True)
class RowSources:
    """The sources of messages, and the settings by which the landing makes rows of them.

    ``log``: None if it is on another machine. ``rules`` depend on the typed tables; they may raise PenstockError.
    ``window`` of duplicates is in microseconds.
    """

    kafka: MessageSource
    log: MessageSource | None
    rules: Callable[[Sequence[TypedTable]], Rules]
    transform: TransformRules
    window: int

    def of_topic(self, topic: str) -> MessageSource:
        """Return the source of a topic, or of a partition of Kafka. Raises CannotRestore."""
        source = self.kafka if is_partition(topic) else self.log
        if source is None:
            raise CannotRestore(f"some of its rows are from topic {topic} of the log, which is not on this machine")
        return source


@dataclass(frozen=True, slots=True)
class RereadRows:
    """The rows of one kind and day of receipt, rebuilt."""

    sources: RowSources
    typed: Sequence[TypedTable]
    kind: MessageKind
    day: date

    def read(self, runs_by_topic: Mapping[str, Runs]) -> pa.RecordBatch:
        """Return the rows (FILE_SCHEMA; ``landed_at`` is 0) of the messages at these offsets that are of the kind and
        day. Raises PenstockError.
        """
        rules, transformation = self.sources.rules(self.typed), Transformation(self.sources.transform.steps())
        parts, size = [pa.RecordBatch.from_pylist([], schema=FILE_SCHEMA)], 0
        for topic, runs in runs_by_topic.items():
            messages = (
                MessageBatch(rows, relands=False) for rows in self.sources.of_topic(topic).messages(topic, runs)
            )
            for batch in join_small_batches(messages):
                for kind, rows in rows_to_land(batch.rows, rules, transformation, 0):
                    if kind is self.kind:
                        is_of_day = pc.equal(rows["timestamp"].cast(pa.date32()), pa.scalar(self.day))
                        parts.append(rows.filter(is_of_day))
                        if (size := size + parts[-1].nbytes) > MAX_REREAD_BYTES:
                            raise CannotRestore("too many bytes of it have to be read again at once")
        return concatenated(parts)

    def explain(self, absent: Mapping[str, Runs]) -> str:
        """Return a text that names the offsets and why they have no such row."""
        texts = []
        for topic, runs in absent.items():
            by_reason: dict[str, list[str]] = {}
            for begin, end, reason in self.sources.of_topic(topic).absences(topic, runs)[:MAX_LISTED_RUNS]:
                span = str(begin) if end - begin == 1 else f"{begin}-{end - 1}"
                by_reason.setdefault(reason or MAKES_ANOTHER_ROW, []).append(span)
            texts += [f"{topic}: {', '.join(spans)} ({reason})" for reason, spans in by_reason.items()]
        return "; ".join(texts)


def offsets_by_topic(topics: Sequence[str], codes: Offsets, offsets: Offsets) -> dict[str, Runs]:
    """Return the offsets of each topic as runs; ``codes``: the index of each offset's topic."""
    return {
        topic: runs_of(np.unique(offsets[codes == code])) for code, topic in enumerate(topics) if (codes == code).any()
    }
