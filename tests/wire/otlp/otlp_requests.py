"""OTLP requests for tests."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest


def request(count: int = 1, resource: int = 5, **record: Any) -> ExportLogsServiceRequest:
    """Return a request of ``count`` records as an SDK sends it, each with ``record`` as further fields."""
    built = ExportLogsServiceRequest()
    logs = built.resource_logs.add()
    for number in range(resource):
        attribute = logs.resource.attributes.add()
        attribute.key, attribute.value.string_value = f"service.part{number}", f"value {number}"
    scope = logs.scope_logs.add()
    scope.scope.name, scope.scope.version = "my.logger", "1.2"
    for number in range(count):
        log = scope.log_records.add(**record)
        log.time_unix_nano, log.observed_time_unix_nano = 1_700_000_000_000_000_000 + number, 1_700_000_000_000_000_001
        log.severity_number, log.severity_text = 9, "INFO"
        log.body.string_value = f"a message of some length, as applications write them, number {number}"
        file, line = log.attributes.add(), log.attributes.add()
        file.key, file.value.string_value = "code.file.path", "/srv/app/main.py"
        line.key, line.value.int_value = "code.line.number", 17
        log.trace_id, log.span_id, log.flags = bytes(range(16)), bytes(range(1, 9)), 1
    return built
