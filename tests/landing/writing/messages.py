"""Messages for tasks, as the source of the landing yields them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from penstock.landing.from_kafka.rows import ROW
from penstock.landing.writing.part_writer import MessageBatch

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
AT = 1_770_000_000_000_000
"""Microseconds: 2026-02-02."""
DAY = 86_400_000_000


def event(uuid: str, kind: str = "click") -> bytes:
    """Return a valid event."""
    return json.dumps({"type": kind, "uuid": uuid, "timestamp": 1}).encode()


def source(
    rows: Iterable[tuple[int, bytes]],
    *,
    at: Sequence[int] | int = AT,
    topic: str = "t",
    partition: int | None = None,
    codec: str = "plog",
    relands: bool = False,
    annotations: Sequence[dict[str, str]] | None = None,
) -> MessageBatch:
    """Return offsets with payloads, all stored ``at`` (microseconds) or each at its own time."""
    listed_rows = list(rows)
    times = [at] * len(listed_rows) if isinstance(at, int) else at
    records = [
        {"topic": topic, "partition": partition, "offset": offset, "payload": payload, "codec": codec, "source": "s"}
        | {"timestamp": stamp(micros), "received": stamp(micros), "bucket": stamp(micros)}
        | {"annotations": list(pairs.items())}
        for (offset, payload), micros, pairs in zip(
            listed_rows, times, annotations or [{}] * len(listed_rows), strict=True
        )
    ]
    return MessageBatch(pa.RecordBatch.from_pylist(records, schema=ROW), relands)


def with_protocol_ids(rows: Iterable[tuple[int, str | None]], topic: str = "t", codec: str = "forward") -> MessageBatch:
    """Return offsets with uuids that the protocol gives, not the message."""
    listed_rows = list(rows)
    annotations = [{"uuid": uuid} if uuid else {} for _, uuid in listed_rows]
    return source(
        [(offset, b'{"m":1}') for offset, _ in listed_rows], topic=topic, codec=codec, annotations=annotations
    )


def stamp(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)
