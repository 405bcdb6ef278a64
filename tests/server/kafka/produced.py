"""Record batches as Kafka clients build them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from aiokafka.record.default_records import DefaultRecord, DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from penstock.records import SCHEMA
from penstock.server.kafka.records.encode import encode

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def produced(records: Sequence[Record], codec: str = "none", producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    """Return a batch of (key, value, headers)."""
    builder = DefaultRecordBatchBuilder(2, CODECS[codec], False, *producer, 1 << 30)
    for number, (key, value, headers) in enumerate(records):
        assert builder.append(number, 1_700_000_000_000 + number // 7, key, value, headers)
    return bytes(builder.build())


def plain(*values: bytes | None) -> bytes:
    return produced([(None, value, []) for value in values])


def in_topic(body: pa.RecordBatch, base: int = 0, micros: int = 1_700_000_000_000_000) -> pa.RecordBatch:
    """Return rows with offsets and timestamps."""
    count = np.arange(body.num_rows)
    stamps = pa.array(count + micros).view(SCHEMA.field("timestamp").type)
    return pa.RecordBatch.from_arrays([pa.array(count + base), stamps, *body.columns], schema=SCHEMA)


def records_of(data: memoryview) -> list[DefaultRecord]:
    """Return the records that a client reads."""
    records, batches = [], MemoryRecords(bytes(data))
    while (batch := batches.next_batch()) is not None:
        assert batch.validate_crc()
        records += list(batch)
    return records


def read_back(batch: pa.RecordBatch) -> list[Record]:
    """Encode rows and return the records that a client reads."""
    return [(record.key, record.value, record.headers) for record in records_of(encode(batch))]
