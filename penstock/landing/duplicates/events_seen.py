"""The keys of events with what a decision needs of them, as columns."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.landing.rows.key_hashes import key_hashes

Array = np.ndarray[tuple[int], np.dtype[Any]]
COLUMNS = {"high": np.uint64, "low": np.uint64, "micros": np.int64, "partition": np.int32, "offset": np.int64}
_SIZES = struct.Struct("<II")


@dataclass(frozen=True, slots=True)
class EventsSeen:
    """Events in the order of their rows: halves of the key, the log's timestamp (microseconds), partition (-1 for none),
    offset, and the topic as a number into ``topics``.
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
        columns = (getattr(self, one.name)[rows] for one in fields(self)[:-1])
        return EventsSeen(*columns, self.topics)

    def newest(self) -> dict[str, int]:
        """For each topic the newest timestamp."""
        newest = np.full(len(self.topics), np.iinfo(np.int64).min)
        np.maximum.at(newest, self.topic, self.micros)
        here = np.unique(self.topic)
        return {self.topics[number]: int(newest[number]) for number in here.tolist()}

    def encode(self) -> bytes:
        """As bytes, for ``decode``."""
        names = json.dumps(self.topics).encode()
        columns = (getattr(self, name).astype(kind).tobytes() for name, kind in [*COLUMNS.items(), ("topic", np.uint32)])
        return b"".join([_SIZES.pack(len(self), len(names)), names, *columns])

    @classmethod
    def decode(cls, encoded: bytes) -> EventsSeen:
        """What ``encode`` made."""
        rows, size = _SIZES.unpack_from(encoded)
        at = _SIZES.size + size
        topics = tuple(json.loads(encoded[_SIZES.size : at]))
        columns = []
        for kind in (*COLUMNS.values(), np.uint32):
            columns.append(np.frombuffer(encoded, kind, rows, at))
            at += rows * np.dtype(kind).itemsize
        return cls(*columns, topics)

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> EventsSeen:
        """Of rows of the table that are events: ``topic``, ``partition``, ``offset``, ``timestamp`` and ``uuid``."""
        high, low = key_hashes(rows["topic"], rows["uuid"])
        encoded = rows["topic"].dictionary_encode()
        micros = rows["timestamp"].cast(pa.int64()).to_numpy()
        partition = rows["partition"].fill_null(-1).to_numpy()
        codes = encoded.indices.to_numpy().astype(np.uint32)
        return cls(high, low, micros, partition, rows["offset"].to_numpy(), codes, tuple(encoded.dictionary.to_pylist()))

    @classmethod
    def concat(cls, parts: Sequence[EventsSeen]) -> EventsSeen:
        """All of them, one after the other."""
        topics = tuple(dict.fromkeys(name for part in parts for name in part.topics))
        number = {name: at for at, name in enumerate(topics)}
        codes = [np.array([number[name] for name in part.topics], np.uint32)[part.topic] for part in parts]
        columns = [
            np.concatenate([np.empty(0, kind), *(getattr(part, name) for part in parts)])
            for name, kind in COLUMNS.items()
        ]
        return cls(*columns, np.concatenate([np.empty(0, np.uint32), *codes]), topics)
