"""The keys of events with what a decision needs of them, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.landing.journal import PARTITION_MARK
from penstock.landing.rows.key_hashes import key_hashes

Array = np.ndarray[tuple[int], np.dtype[Any]]
COLUMNS = {"high": np.uint64, "low": np.uint64, "micros": np.int64, "partition": np.int32, "offset": np.int64}


@dataclass(frozen=True, slots=True)
class EventsSeen:
    """Events in the order of their rows: halves of the key, the log's timestamp (microseconds), partition (-1 for
    none), offset, and the topic as a number into ``topics``.
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

    def take(self, rows: Array) -> EventsSeen:
        """Some of them, by number or by mask."""
        return _made([getattr(self, one.name)[rows] for one in fields(self)[:-1]], self.topics)

    def places(self) -> tuple[list[str], Array]:
        """The topics, or partitions of Kafka, that clocks go on in each by itself; and for each event which."""
        width = int(self.partition.max(initial=-1)) + 2
        codes = self.topic.astype(np.int64) * width + self.partition + 1
        here = np.flatnonzero(np.bincount(codes))
        number = np.zeros(len(self.topics) * width, np.int64)
        number[here] = np.arange(len(here))
        named = [(self.topics[code // width], code % width - 1) for code in here.tolist()]
        return [f"{topic}{PARTITION_MARK}{at}" if at >= 0 else topic for topic, at in named], number[codes]

    def newest(self) -> dict[str, int]:
        """For each of the places the newest timestamp."""
        names, place = self.places()
        newest = np.full(len(names), np.iinfo(np.int64).min)
        np.maximum.at(newest, place, self.micros)
        return dict(zip(names, newest.tolist(), strict=True))

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> EventsSeen:
        """Of rows of the table that are events: ``topic``, ``partition``, ``offset``, ``timestamp`` and ``uuid``."""
        high, low = key_hashes(rows["topic"], rows["uuid"])
        encoded: Any = rows["topic"].dictionary_encode()
        micros, partition = rows["timestamp"].cast(pa.int64()), rows["partition"].fill_null(-1)
        columns = [high, low, micros.to_numpy(), partition.to_numpy(), rows["offset"].to_numpy()]
        return _made([*columns, encoded.indices.to_numpy().astype(np.uint32)], tuple(encoded.dictionary.to_pylist()))

    @classmethod
    def concat(cls, parts: Sequence[EventsSeen]) -> EventsSeen:
        """All of them, one after the other."""
        topics, numbers = together([part.topics for part in parts])
        codes = [number[part.topic] for number, part in zip(numbers, parts, strict=True)]
        columns = [
            np.concatenate([np.empty(0, kind), *(getattr(part, name) for part in parts)])
            for name, kind in COLUMNS.items()
        ]
        return _made([*columns, np.concatenate([np.empty(0, np.uint32), *codes])], topics)


def together(several: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], list[Array]]:
    """All topics of several, each once; and of each of the several the numbers that its topics have there."""
    topics = tuple(dict.fromkeys(name for each in several for name in each))
    number = {name: at for at, name in enumerate(topics)}
    return topics, [np.array([number[name] for name in each], np.uint32) for each in several]


def _made(columns: Sequence[Array], topics: tuple[str, ...]) -> EventsSeen:
    high, low, micros, partition, offset, topic = columns
    return EventsSeen(high, low, micros, partition, offset, topic, topics)
