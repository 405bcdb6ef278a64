"""The keys of events as columns, with the columns that the decision about duplicates needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.landing.rows.engine import compute
from penstock.qualified_names import partition_name

Array = np.ndarray[tuple[int], np.dtype[Any]]
COLUMNS = {"high": np.uint64, "low": np.uint64, "micros": np.int64, "partition": np.int32, "offset": np.int64}


@dataclass(frozen=True, slots=True)
class EventsSeen:
    """Events in the order of their rows, as parallel columns.

    ``high`` and ``low`` are the halves of the key, ``micros`` is the log's timestamp, ``partition`` is -1 for a topic
    of the log, ``topic`` is an index into ``topics``.
    """

    high: Array
    low: Array
    micros: Array
    partition: Array
    offset: Array
    topic: Array
    topics: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.high)

    def select_rows(self, rows: Array) -> EventsSeen:
        """Return the events of some rows, by number or by mask."""
        return _from_columns([getattr(self, column.name)[rows] for column in fields(self)[:-1]], self.topics)

    def streams(self) -> tuple[list[str], Array]:
        """Return the names of the streams, and each event's index into them.

        A stream is a topic or a partition of Kafka. Its timestamps grow independently of other streams.
        """
        width = int(self.partition.max(initial=-1)) + 2
        # Fast path: topic and partition as one number, so that numpy finds the distinct pairs without a row in Python.
        codes = self.topic.astype(np.int64) * width + self.partition + 1
        present = np.flatnonzero(np.bincount(codes))
        stream_index = np.zeros(len(self.topics) * width, np.int64)
        stream_index[present] = np.arange(len(present))
        streams = [(self.topics[code // width], code % width - 1) for code in present.tolist()]
        names = [partition_name(topic, partition if partition >= 0 else None) for topic, partition in streams]
        return names, stream_index[codes]

    def newest_by_stream(self) -> dict[str, int]:
        """Return the newest timestamp of each stream."""
        names, stream = self.streams()
        newest_by_stream = np.full(len(names), np.iinfo(np.int64).min)
        np.maximum.at(newest_by_stream, stream, self.micros)
        return dict(zip(names, newest_by_stream.tolist(), strict=True))

    @classmethod
    def from_rows(cls, rows: pa.RecordBatch) -> EventsSeen:
        """Read events from rows of the table: ``topic``, ``partition``, ``offset``, ``timestamp`` and ``uuid``."""
        high, low = key_hashes(rows["topic"], rows["uuid"])
        encoded: Any = rows["topic"].dictionary_encode()
        micros, partition = rows["timestamp"].cast(pa.int64()), rows["partition"].fill_null(-1)
        columns = [high, low, micros.to_numpy(), partition.to_numpy(), rows["offset"].to_numpy()]
        return _from_columns(
            [*columns, encoded.indices.to_numpy().astype(np.uint32)], tuple(encoded.dictionary.to_pylist())
        )

    @classmethod
    def concat(cls, parts: Sequence[EventsSeen]) -> EventsSeen:
        """Concatenate events; each topic is listed once."""
        topics, numbers = unify_topics([part.topics for part in parts])
        codes = [number[part.topic] for number, part in zip(numbers, parts, strict=True)]
        columns = [
            np.concatenate([np.empty(0, kind), *(getattr(part, name) for part in parts)])
            for name, kind in COLUMNS.items()
        ]
        return _from_columns([*columns, np.concatenate([np.empty(0, np.uint32), *codes])], topics)


def unify_topics(topic_lists: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], list[Array]]:
    """Return the union of topic lists, and for each list the indexes of its topics in the union."""
    topics = tuple(dict.fromkeys(name for names in topic_lists for name in names))
    index = {name: position for position, name in enumerate(topics)}
    return topics, [np.array([index[name] for name in names], np.uint32) for names in topic_lists]


def _from_columns(columns: Sequence[Array], topics: tuple[str, ...]) -> EventsSeen:
    high, low, micros, partition, offset, topic = columns
    return EventsSeen(high, low, micros, partition, offset, topic, topics)


_KEY_HASH = {"hash": "md5_number('u:' || topic || ':' || uuid)"}
_KEY_HALVES = {"high": "(hash >> 64)::UBIGINT", "low": "(hash & 18446744073709551615::UHUGEINT)::UBIGINT"}


def key_hashes(topics: pa.Array[Any], uuids: pa.Array[Any]) -> tuple[Array, Array]:
    """Return the halves of the keys: 128 bits of MD5 of topic (of Kafka without the partition) and uuid; no nulls."""
    halves = compute(_KEY_HALVES, _KEY_HASH, topic=topics, uuid=uuids)
    return halves["high"].to_numpy(), halves["low"].to_numpy()
