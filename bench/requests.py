"""Requests into the synced log: CPU of all processes a record, time of an answer; OTLP's decoding beside protobuf's.

``bench.request_load`` sends; ``make bench WITH=collector`` measures the OpenTelemetry Collector in turn.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from bench.peers.exports import PenstockRequests, exports
from bench.request_load import PROTOCOLS, otlp_request
from penstock.testing.pipe import wait_until
from penstock.wire.otlp.protocol import logs_of

DECODED_RECORDS = (1, 20, 100, 1000, 8192)
SECONDS = 2.0


def measure() -> dict[str, Any]:
    """Return all figures."""
    figures: dict[str, Any] = {}
    for records in DECODED_RECORDS:
        data = otlp_request(records)
        figures[f"otlp_bytes_per_record_{records}"] = round(len(data) / records)
        figures[f"otlp_protobuf_reads_us_per_record_{records}"] = _us(partial(_loop, data), records)
        figures[f"otlp_decoded_us_per_record_{records}"] = _us(partial(logs_of, data, 1 << 20), records)
    with tempfile.TemporaryDirectory() as folder:
        peer = PenstockRequests(Path(folder))
        try:
            wait_until(peer.ready, what="penstock listens")
            exports(peer, 0.5, PROTOCOLS)  # until all memory that a load takes is there
            measured = exports(peer, SECONDS, PROTOCOLS)
        finally:
            peer.stop()
    return figures | {name: round(value, 2) for name, value in measured.items()}


def _us(call: Callable[[], object], records: int) -> float:
    """Return the microseconds of CPU that a record takes; the least of several attempts."""
    best = float("inf")
    for _ in range(5):
        began, times = time.process_time(), max(8192 // records, 1)
        for _ in range(times):
            call()
        best = min(best, (time.process_time() - began) / times / records * 1e6)
    return round(best, 2)


def _loop(data: bytes) -> list[Any]:
    """Body, time, severity and attributes of each record by protobuf's own classes: without resource and scope."""
    found = []
    for resource in ExportLogsServiceRequest.FromString(data).resource_logs:
        for scope in resource.scope_logs:
            for record in scope.log_records:
                pairs = [
                    (one.key, getattr(one.value, one.value.WhichOneof("value") or "string_value"))
                    for one in record.attributes
                ]
                body = record.body.string_value
                found.append((body, record.time_unix_nano, record.severity_number, record.trace_id.hex(), pairs))
    return found
