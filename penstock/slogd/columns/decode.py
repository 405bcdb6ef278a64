"""Requests and answers from protobuf's bytes to record batches, one loop over protobuf's messages for each column.

Measured, 1,000 entries of 256 bytes a request: 0.4 us an entry; reading the bytes whole columns at a time with numpy
took 0.3, but for 100 entries three times as long as this, and for payloads of many KiB five times.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from google.protobuf.message import DecodeError

from penstock import records
from penstock.slogd.columns.entries import to_body
from penstock.slogd.errors import BadRequest
from penstock.slogd.slogd_pb2 import AppendRequest, GetLogsResponse


@dataclass(frozen=True, slots=True)
class Append:
    """An AppendRequest: its plain fields, and the BODY batch of its entries."""

    topic: str
    body: pa.RecordBatch
    transaction_id: str = ""
    producer_id: str = ""
    sequence: int = 0
    unknown: str = ""
    """Name of a field that was passed over (JSON alone)."""


def parse_append(data: bytes) -> Append:
    """Returns the request in ``data``. Raises BadRequest when it is not one."""
    try:
        request = AppendRequest.FromString(data)
    except DecodeError as error:
        raise BadRequest(f"error unmarshalling request: {error}") from None
    body = to_body(request.logs)
    return Append(request.topic, body, request.transaction_id, request.producer_id, request.sequence)


def parse_logs(data: bytes) -> tuple[pa.RecordBatch, int]:
    """Returns the SCHEMA batch of a GetLogsResponse, and its next_offset. Raises ValueError when it is not one."""
    try:
        answer = GetLogsResponse.FromString(data)
        entries = list(answer.logs)
        offsets = pa.array([entry.offset for entry in entries], pa.int64())
        stamps = [entry.timestamp for entry in entries]
        micros = pa.array([stamp.seconds * 1_000_000 + stamp.nanos // 1000 for stamp in stamps], pa.int64())
    except (DecodeError, OverflowError) as error:
        raise ValueError(f"not a GetLogsResponse: {error}") from None
    columns = [offsets, micros.view(records.SCHEMA.field("timestamp").type), *to_body(entries).columns]
    return pa.RecordBatch.from_arrays(columns, schema=records.SCHEMA), answer.next_offset
