"""What a receiver of requests does: OTLP from clients that wait, in small and large requests; and who does it.

The Collector is a build that has the ``file`` exporter, such as ``otelcol-contrib``; it does not sync its file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.peers.peer import Started, told
from bench.peers.penstock import Penstock

LOADS = ((1, 1), (16, 1), (4, 100), (4, 1000))
"""Callers, and records of a request."""
OTLP = ("otlp_grpc", "otlp")
LISTENERS = """
[[listener]]
name = "web"
protocol = "http"
port = 0
[[listener]]
name = "otel"
protocol = "otlp_grpc"
port = 0
"""
COLLECTOR_CONFIG = """
receivers:
  otlp:
    protocols:
      grpc: {{endpoint: "127.0.0.1:{grpc}"}}
      http: {{endpoint: "127.0.0.1:{http}"}}
exporters:
  file: {{path: "{folder}/records"}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    logs: {{receivers: [otlp], exporters: [file]}}
"""


class PenstockRequests(Penstock):
    """Receivers of requests, which answer once the log has synced them."""

    listeners = LISTENERS

    def endpoint(self, protocol: str) -> str:
        """Return host and port of a protocol of ``bench.request_load``."""
        host, port = self._pipe.address("otel" if protocol == "otlp_grpc" else "web")
        return f"{host}:{port}"


class Collector(Started):
    """The OpenTelemetry Collector: from OTLP to a file that is not synced."""

    name, program = "collector", "otelcol-contrib"

    def command(self) -> list[str]:
        config = self.folder / "collector.yaml"
        config.write_text(COLLECTOR_CONFIG.format(grpc=self.port, http=self.other_port, folder=self.folder))
        return [str(self.path()), "--config", str(config)]

    def endpoint(self, protocol: str) -> str:
        """Return host and port of a protocol of ``bench.request_load``."""
        return self.address if protocol == "otlp_grpc" else f"127.0.0.1:{self.other_port}"


def exports(peer: Any, seconds: float, protocols: Sequence[str] = OTLP) -> dict[str, float]:
    """Return CPU a record (us, all processes of the peer), records a second and times of answers of each load."""
    figures: dict[str, float] = {}
    for protocol in protocols:
        for callers, records in LOADS:
            name = f"{protocol}_{callers}_callers_{records}_records"
            figures |= {f"{name}_{key}": value for key, value in _load(peer, protocol, callers, records, seconds)}
    return figures


def _load(peer: Any, protocol: str, callers: int, records: int, seconds: float) -> list[tuple[str, float]]:
    before = peer.cpu()
    sent = told("request_load", protocol, peer.endpoint(protocol), callers, records, seconds)
    spent = peer.cpu() - before
    return [
        ("cpu_us_per_record", 1e6 * spent / max(sent["requests"] * records, 1)),
        ("records_per_s", sent["requests"] * records / sent["seconds"]),
        ("p50_ms", sent["p50_ms"]),
        ("p99_ms", sent["p99_ms"]),
        ("failed", sent["failed"]),
        ("client_cores", sent["cores"]),
    ]
