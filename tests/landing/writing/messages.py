"""Messages for tasks, as the landing's source gives them."""

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
    """A valid event."""
    return json.dumps({"type": kind, "uuid": uuid, "timestamp": 1}).encode()


def source(
    rows: Iterable[tuple[int, bytes]],
    *,
    at: Sequence[int] | int = AT,
    topic: str = "t",
    partition: int | None = None,
    codec: str = "plog",
    again: bool = False,
    annotations: Sequence[dict[str, str]] | None = None,
) -> MessageBatch:
    """Offsets with payloads, all stored ``at`` (microseconds) or each at its own time."""
    listed = list(rows)
    times = [at] * len(listed) if isinstance(at, int) else at
    records = [
        {"topic": topic, "partition": partition, "offset": offset, "payload": payload, "codec": codec, "source": "s"}
        | {"timestamp": stamp(micros), "received": stamp(micros), "bucket": stamp(micros)}
        | {"annotations": list(said.items())}
        for (offset, payload), micros, said in zip(listed, times, annotations or [{}] * len(listed), strict=True)
    ]
    return MessageBatch(pa.RecordBatch.from_pylist(records, schema=ROW), again)


def known_by(rows: Iterable[tuple[int, str | None]], topic: str = "t", codec: str = "forward") -> MessageBatch:
    """Offsets with uuids that the protocol gives, not the message."""
    listed = list(rows)
    said = [{"uuid": uuid} if uuid else {} for _, uuid in listed]
    return source([(offset, b'{"m":1}') for offset, _ in listed], topic=topic, codec=codec, annotations=said)


def stamp(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)
