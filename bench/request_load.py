"""``python -m bench.request_load PROTOCOL ADDRESS CALLERS RECORDS SECONDS``: callers that send and wait; prints JSON.

Each caller has a connection of its own and sends its next request once the last one is answered. PROTOCOL is
``otlp_grpc``, or one of an HTTP listener's: ``otlp``, ``hec``, ``loki``, ``bulk``, ``json``. A record has 3 resource
attributes, a scope, time, severity, a body of 130 bytes and 2 attributes; the other protocols send the same fields.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import grpc
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from bench.timing import timed

EXPORT = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
TEXT = (
    "The order was accepted, stored and sent to the warehouse that is nearest to its customer, who hears of it by mail."
)
TEXT += " " * (130 - len(TEXT))
RESOURCE = {"service.name": "shop", "service.version": "1.4.2", "host.name": "web-17.example.net"}
ATTRIBUTES = {"http.route": "/orders/{id}", "user.tier": "gold"}
TIME_NS = 1_790_000_000_000_000_000
WARM_UP_S = 0.3
Send = Callable[[], object]


def otlp_request(records: int) -> bytes:
    """Return an OTLP request in protobuf."""
    request = ExportLogsServiceRequest()
    resource = request.resource_logs.add()
    for name, text in RESOURCE.items():
        resource.resource.attributes.add(key=name).value.string_value = text
    scope = resource.scope_logs.add()
    scope.scope.name, scope.scope.version = "shop.orders", "2.0"
    for number in range(records):
        log = scope.log_records.add(time_unix_nano=TIME_NS + number, severity_number=9, severity_text="INFO")
        log.body.string_value = TEXT
        for name, text in ATTRIBUTES.items():
            log.attributes.add(key=name).value.string_value = text
    return request.SerializeToString()


def _fields() -> dict[str, str]:
    return {**RESOURCE, **ATTRIBUTES, "scope": "shop.orders", "severity": "INFO"}


def _hec(records: int) -> bytes:
    event = {"time": TIME_NS / 1e9, "host": RESOURCE["host.name"], "event": TEXT, "fields": _fields()}
    return b"".join(json.dumps(event).encode() for _ in range(records))


def _loki(records: int) -> bytes:
    values = [[str(TIME_NS + number), TEXT, ATTRIBUTES] for number in range(records)]
    return json.dumps({"streams": [{"stream": RESOURCE, "values": values}]}).encode()


def _bulk(records: int) -> bytes:
    document = {"@timestamp": "2026-09-21T00:00:00Z", "message": TEXT, **_fields()}
    return b"".join(b'{"create":{"_index":"logs"}}\n' + json.dumps(document).encode() + b"\n" for _ in range(records))


def _json(records: int) -> bytes:
    return json.dumps([{"message": TEXT, **_fields()} for _ in range(records)]).encode()


HTTP: dict[str, tuple[str, str, Callable[[int], bytes]]] = {
    "otlp": ("/v1/logs", "application/x-protobuf", otlp_request),
    "hec": ("/services/collector/event", "application/json", _hec),
    "loki": ("/loki/api/v1/push", "application/json", _loki),
    "bulk": ("/_bulk", "application/x-ndjson", _bulk),
    "json": ("/", "application/json", _json),
}
"""Path, media type and body of each protocol of an HTTP listener."""
PROTOCOLS = ("otlp_grpc", *HTTP)


def main() -> None:
    """Send for so many seconds."""
    protocol, address, callers, records, seconds = sys.argv[1], sys.argv[2], *map(float, sys.argv[3:])
    print(json.dumps(load(protocol, address, int(callers), int(records), seconds)))


def load(protocol: str, address: str, callers: int, records: int, seconds: float) -> dict[str, float]:
    """Return requests, failures, seconds, the cores that this client used, and the times of answers."""
    durations: list[list[float]] = [[] for _ in range(callers)]
    failed = [0] * callers
    with ExitStack() as stack:
        sends = [_sender(protocol, address, records, stack) for _ in range(callers)]
        for send in sends:
            send()
        begin = time.perf_counter() + WARM_UP_S

        def call(caller: int) -> None:
            send = sends[caller]
            while (start := time.perf_counter()) < begin + seconds:
                try:
                    send()
                except (grpc.RpcError, OSError):
                    failed[caller] += 1
                durations[caller].append(time.perf_counter() - start)

        threads = [threading.Thread(target=call, args=(caller,)) for caller in range(callers)]
        with timed() as spent:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    times = sorted(duration for of_caller in durations for duration in of_caller)
    return {
        "requests": len(times) - sum(failed),
        "failed": sum(failed),
        "seconds": spent.seconds,
        "cores": spent.cores,
        "p50_ms": 1000 * times[len(times) // 2],
        "p99_ms": 1000 * times[len(times) * 99 // 100],
    }


def _sender(protocol: str, address: str, records: int, stack: ExitStack) -> Send:
    if protocol == "otlp_grpc":
        # Without the option all channels of a process share one connection.
        channel = stack.enter_context(grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]))
        export: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(EXPORT)
        data = otlp_request(records)
        return lambda: export(data, timeout=30)
    path, media_type, body = HTTP[protocol]
    connection, content = http.client.HTTPConnection(address, timeout=30), body(records)
    stack.callback(connection.close)

    def post() -> None:
        connection.request("POST", path, content, {"content-type": media_type})
        with connection.getresponse() as response:
            response.read()
            if response.status >= 300:
                raise OSError(f"status {response.status}")

    return post


if __name__ == "__main__":
    main()
