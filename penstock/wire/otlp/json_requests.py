"""OTLP in JSON, as protobuf: few senders speak it, and so it needs no way of its own."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from penstock.wire.requests import MAX_MESSAGES, SYNTAX, Refused, check_message_count, parsed

_DEEPEST = 100


def as_protobuf(data: bytes, max_messages: int = MAX_MESSAGES) -> bytes:
    """A request in JSON as the same one in protobuf. Raises Refused."""
    document = parsed(data)
    if not isinstance(document, dict):
        raise Refused(400, SYNTAX, "the body is no object")
    try:
        for number, record in enumerate(_records(document), 1):
            check_message_count(number, max_messages)
            for name in ("traceId", "spanId", "trace_id", "span_id"):
                if name in record:  # hex here, and base64 in protobuf's own JSON
                    record[name] = base64.b64encode(bytes.fromhex(record[name])).decode()
        request = json_format.ParseDict(
            document, ExportLogsServiceRequest(), ignore_unknown_fields=True, max_recursion_depth=_DEEPEST
        )
        return request.SerializeToString()
    except Refused:
        raise
    except (json_format.ParseError, ValueError, TypeError, AttributeError, RecursionError, binascii.Error) as error:
        raise Refused(400, SYNTAX, f"the body is no request: {error}") from None


def _records(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in document.get("resourceLogs") or document.get("resource_logs") or ():
        for scope in resource.get("scopeLogs") or resource.get("scope_logs") or ():
            for record in scope.get("logRecords") or scope.get("log_records") or ():
                if isinstance(record, dict):
                    yield record
