"""Kafka: messages of any size, encryption, and auditing of what clients send and read.

Read ``errors``, then ``large/`` and ``records/`` (formats, without I/O), ``client/``, ``auditing/``, ``absent_offsets``
(why a consumer sees no message at an offset), ``origin_header`` (the host and minute of a record),
``broker_connection`` (requests to a broker without confluent-kafka), and ``broker`` (one node, for trying out).
``Producer`` and ``Consumer`` are imported on first use, because they need confluent-kafka, an extra.
Imports ``errors``, ``counts``, ``process``, ``java`` and ``wire``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.kafka.errors import (
    InvalidChunk,
    InvalidOffset,
    LargeMessageError,
    MessageDropped,
    NoCommittedOffset,
    OffsetNotTracked,
    Partition,
    RecordFailed,
    RecordsFailed,
    SendFailed,
    Skip,
)
from penstock.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.kafka.client.consumer import Consumer
    from penstock.kafka.client.producer import Producer
else:
    __getattr__ = lazy_names(__name__, {"Consumer": "client.consumer", "Producer": "client.producer"})

__all__ = [
    "Consumer",
    "InvalidChunk",
    "InvalidOffset",
    "LargeMessageError",
    "MessageDropped",
    "NoCommittedOffset",
    "OffsetNotTracked",
    "Partition",
    "Producer",
    "RecordFailed",
    "RecordsFailed",
    "SendFailed",
    "Skip",
]
