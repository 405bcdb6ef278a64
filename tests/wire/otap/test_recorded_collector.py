"""Batches of the OpenTelemetry Collector (contrib 0.145, exporter otelarrow), recorded byte by byte.

One gRPC stream: ``compression: none``, ``arrow: {num_streams: 1}``; each of ``REQUESTS`` was sent to it by OTLP.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

from penstock.records import as_batch
from penstock.wire.otap.batches import logs_of
from penstock.wire.otap.streams import BatchArrowRecords, OtapStream
from penstock.wire.otlp.records import Logs, read_logs
from tests.wire.otap.otap_requests import REQUESTS

RECORDED = json.loads((Path(__file__).parents[1] / "vectors" / "otap_collector.json").read_text())
LIMIT = 1 << 20


def rows(logs: Logs) -> list[tuple[bytes, list[tuple[str, str]]]]:
    """Return the messages without their order: a sender of Arrow sorts records and attributes."""
    return sorted((row["payload"], sorted(row["annotations"] or [])) for row in as_batch(logs.body).to_pylist())


def test_messages_are_those_of_the_same_requests_by_otlp() -> None:
    stream = OtapStream(LIMIT)
    for recorded, sent in zip(RECORDED, REQUESTS, strict=True):
        message = BatchArrowRecords.FromString(base64.b64decode(recorded))
        decoded = logs_of(stream.read(message.arrow_payloads), LIMIT, 1000)
        assert rows(decoded) == rows(read_logs(sent.SerializeToString(), LIMIT))
