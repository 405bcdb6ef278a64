"""Requests of OpenTelemetry's SDKs for Go and Node, recorded byte by byte by ``vectors/otlp_sdk.go`` and ``.js``."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from penstock.ingest.requests.body_decompression import decompress
from penstock.records import as_batch
from penstock.wire.otlp.protocol import OtlpProtocol, logs_of
from penstock.wire.requests import Received
from tests.wire.sample_requests import make_request, rows

RECORDED = json.loads((Path(__file__).parents[1] / "vectors" / "otlp_sdks.json").read_text())
RESOURCE = {"resource.service.name": "shop", "resource.host.name": "web-1", "resource.process.pid": "77"}
SHARED = RESOURCE | {"scope.name": "orders", "scope.version": "1.2"}
FIRST = {
    "time": "1795369000123456789",
    "observed_time": "1795369001000000005",
    "severity_number": "13",
    "severity_text": "WARN",
    "trace_id": "0af7651916cd43dd8448eb211c80319c",
    "span_id": "b7ad6b7169203331",
    "flags": "1",
    "attributes.basket": "7",
    "attributes.price": "1.5",
    "attributes.paid": "true",
    "attributes.names": '["a","b"]',
    "attributes.deep": '{"x":{"y":1}}',
    "attributes.log.record.uid": "01JD",
}
SECOND = {"time": "1795369002000000000", "severity_number": "17", "event_name": "order.failed"}
THIRD = {"time": "1795369003000000000", "attributes.none": ""}


def messages(sent: dict[str, str]) -> list[tuple[bytes, dict[str, Any]]]:
    data = base64.b64decode(sent["body"])
    if sent["type"] == "grpc":
        return [(row["payload"], dict(row["annotations"])) for row in as_batch(logs_of(data, 1 << 20).body).to_pylist()]
    plain = decompress(data, sent["encoding"], 1 << 20)
    received = OtlpProtocol().receive(make_request("/v1/logs", plain, headers={"content-type": sent["type"]}))
    assert isinstance(received, Received)
    return rows(received)


@pytest.mark.parametrize("sent", RECORDED, ids=lambda sent: sent["sender"])
def test_every_field_of_every_record_is_there(sent: dict[str, str]) -> None:
    first, second, third = messages(sent)
    assert first == ("first message, grüße".encode(), SHARED | FIRST)
    assert json.loads(second[0]) == {"order": 8, "lines": ["x"]}
    assert second[1] == SHARED | SECOND | {"observed_time": SECOND["time"]}
    assert (base64.b64decode(third[0]), third[1]) == (b"bytes", SHARED | THIRD | {"observed_time": THIRD["time"]})
