"""Kafka records as a landing task receives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from penstock.landing.from_kafka.rows import RECORD

TIMESTAMP = datetime(2026, 1, 1, 12, 0, 59, tzinfo=UTC)


def record(value: bytes | None, key: bytes | None = None, headers: Mapping[str, bytes] | None = None) -> dict[str, Any]:
    header_list = None if headers is None else [{"key": k, "value": v} for k, v in headers.items()]
    return {"topic": "t", "partition": 0, "timestamp": TIMESTAMP, "key": key, "value": value, "headers": header_list}


def batch(records: Sequence[dict[str, Any]], begin: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{**r, "offset": begin + n} for n, r in enumerate(records)], schema=RECORD)
