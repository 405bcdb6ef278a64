"""OTLP's logs into the synced log, over HTTP and gRPC: CPU a record, against protobuf's own reading in the same run.

Rates are those of one core: records by the seconds of CPU that receiver and daemon took, as senders share the machine.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import httpx
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from penstock.testing.pipe import Pipe
from penstock.testing.processes import cpu
from penstock.wire.otlp.records import read_logs
from tests.wire.otlp.otlp_requests import request

CONFIG = """
[[listener]]
name = "web"
protocol = "http"
port = 0
[[listener]]
name = "otel"
protocol = "otlp_grpc"
port = 0
"""
SENDERS = 4
EXPORT = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"


def measure() -> dict[str, Any]:
    """All figures."""
    figures: dict[str, Any] = {}
    for records in (512, 8192):
        data = request(records).SerializeToString()
        figures[f"otlp_bytes_per_record_{records}"] = round(len(data) / records)
        figures[f"otlp_protobuf_reads_us_per_record_{records}"] = _us(lambda data=data: _loop(data), records)
        figures[f"otlp_columns_us_per_record_{records}"] = _us(lambda data=data: read_logs(data, 1 << 20), records)
    with tempfile.TemporaryDirectory() as folder:
        pipe = Pipe(Path(folder))
        pipe.configure(CONFIG)
        pipe.start()
        try:
            for records in (512, 8192):
                data = request(records).SerializeToString()
                for listener, sender in (("web", _by_http), ("otel", _by_grpc)):
                    _run(pipe, listener, sender, data, records, 100_000)
                    figures |= _run(pipe, listener, sender, data, records, 1_000_000)
        finally:
            pipe.stop()
    return figures


def _run(
    pipe: Pipe, listener: str, sender: Callable[..., None], data: bytes, records: int, wanted: int
) -> dict[str, Any]:
    pids = {"receiver": pipe.pid(f"receiver {listener}"), "daemon": pipe.pid("log daemon")}
    before, began = {name: cpu(pid) for name, pid in pids.items()}, time.monotonic()
    times = max(wanted // records // SENDERS, 1)
    host, port = pipe.address(listener)
    threads = [threading.Thread(target=sender, args=(f"{host}:{port}", data, times)) for _ in range(SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sent = times * SENDERS * records
    seconds = time.monotonic() - began
    used = {name: (cpu(pid) - before[name]) / sent * 1e6 for name, pid in pids.items()}
    name = f"otlp_{'http' if listener == 'web' else 'grpc'}_{records}"
    return {
        f"{name}_receiver_cpu_us_per_record": round(used["receiver"], 2),
        f"{name}_daemon_cpu_us_per_record": round(used["daemon"], 2),
        f"{name}_records_per_s_a_core": round(1e6 / sum(used.values())),
        f"{name}_records_per_s": round(sent / seconds),
    }


def _by_http(address: str, data: bytes, times: int) -> None:
    headers = {"content-type": "application/x-protobuf"}
    with httpx.Client(timeout=60) as client:
        for _ in range(times):
            while not client.post(f"http://{address}/v1/logs", content=data, headers=headers).is_success:
                time.sleep(0.01)


def _by_grpc(address: str, data: bytes, times: int) -> None:
    with grpc.insecure_channel(address) as channel:
        export = channel.unary_unary(EXPORT)
        sent = 0
        while sent < times:
            try:
                export(data, timeout=60)
                sent += 1
            except grpc.RpcError:
                time.sleep(0.01)


def _us(call: Callable[[], object], records: int) -> float:
    """Microseconds of CPU that a record takes; the least of several attempts."""
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
                pairs = [(one.key, getattr(one.value, one.value.WhichOneof("value"))) for one in record.attributes]
                body = record.body.string_value
                found.append((body, record.time_unix_nano, record.severity_number, record.trace_id.hex(), pairs))
    return found
