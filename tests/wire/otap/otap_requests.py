"""Requests whose batches, encoded by the OpenTelemetry Collector, are in ``tests/wire/vectors/otap_collector.json``."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from tests.wire.otlp.otlp_requests import request


def _all_kinds() -> ExportLogsServiceRequest:
    """Return records with a value of each kind, of three resources and scopes, with absent and repeated fields."""
    sent = ExportLogsServiceRequest()
    for part in range(3):
        logs = sent.resource_logs.add()
        _set(logs.resource.attributes.add(key="service.name").value, string_value=f"shop {part // 2}")
        _set(logs.resource.attributes.add(key="process.pid").value, int_value=part)
        scope = logs.scope_logs.add()
        if part:
            scope.scope.name = "orders"
            _set(scope.scope.attributes.add(key="build").value, string_value="7")
        for number in range(8):
            log = scope.log_records.add(time_unix_nano=1_795_369_000_123_456_789 + number)
            _set(log.attributes.add(key="same").value, string_value="x")
            _set(log.attributes.add(key="empty text").value, string_value="")
            _set(log.attributes.add(key="number").value, int_value=number // 2 - (1 << 62))
            _set(log.attributes.add(key="price").value, double_value=number / 4 + 0.125)
            _set(log.attributes.add(key="paid").value, bool_value=number % 2 == 0)
            _set(log.attributes.add(key="octets").value, bytes_value=bytes([number % 2]))
            names = log.attributes.add(key="names").value.array_value
            _set(names.values.add(), string_value="a")
            _set(names.values.add(), int_value=-number)
            _set(log.attributes.add(key="deep").value.kvlist_value.values.add(key="x").value, bool_value=True)
            if number % 2:
                log.trace_id, log.span_id = bytes(range(16)), bytes([number] * 8)
                log.severity_number, log.severity_text = 17, "ERROR"
            if number == 3:
                log.event_name, log.flags, log.dropped_attributes_count = "order.failed", 1, 2
            kinds = ({"string_value": "grüße"}, {"int_value": 5}, {"double_value": 0.5}, {"bool_value": False})
            if number < len(kinds):
                _set(log.body, **kinds[number])
            elif number == 4:
                _set(log.body, bytes_value=b"bytes")
            elif number == 5:
                _set(log.body.kvlist_value.values.add(key="order").value, int_value=8)
    return sent


def _set(value: Any, **fields: Any) -> None:
    for name, content in fields.items():
        setattr(value, name, content)


REQUESTS = [request(1), request(50), _all_kinds(), request(3, resource=2), _all_kinds()]
