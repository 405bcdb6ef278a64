"""Export of metrics as an OpenTelemetry collector receives them."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from penstock.config import ConfigError, OtelConfig, load
from penstock.config.explain import explain
from penstock.config.keys.secrets import MASK
from penstock.server.daemon import start_export
from penstock.server.metrics.opentelemetry import OtelExport
from penstock.server.metrics.prometheus import Family

ENDPOINT = "otel.endpoint=http://127.0.0.1:4318/v1/metrics"
FAMILIES = [
    Family("penstock_unaccounted", "gauge", "Messages unaccounted for", [({}, 0)]),
    Family("penstock_topic_fate_total", "counter", "Fates", [({"topic": "a"}, 5), ({"topic": "b"}, 7.5)]),
    Family("penstock_route_in_buffer", "gauge", "Nothing", []),
]


class Collector:
    """A receiver of OTLP over HTTP that records requests and answers with ``status``."""

    def __init__(self) -> None:
        self.requests: Queue[tuple[str, dict[str, str], ExportMetricsServiceRequest]] = Queue()
        self.status = 200
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.requests.put((self.path, dict(self.headers), ExportMetricsServiceRequest.FromString(body)))
                self.send_response(outer.status)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}/v1/metrics"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Collector()
    yield server
    server.close()


def config(collector: Collector, **keys: Any) -> OtelConfig:
    return OtelConfig(endpoint=collector.endpoint, every=0.1, timeout=5, **keys)


def test_collector_receives_counters_gauges_and_resource(collector: Collector) -> None:
    export = start_export(config(collector, headers={"x-key": "mine"}), lambda: FAMILIES)
    assert export
    path, headers, request = collector.requests.get(timeout=30)
    export.stop()
    assert (path, headers["x-key"]) == ("/v1/metrics", "mine")
    (resource,) = request.resource_metrics
    assert {"service.name": "penstock"}.items() <= {
        each.key: each.value.string_value for each in resource.resource.attributes
    }.items()
    gauge, counter = resource.scope_metrics[0].metrics
    assert (gauge.name, gauge.description) == ("penstock_unaccounted", "Messages unaccounted for")
    assert [point.as_int for point in gauge.gauge.data_points] == [0]
    assert (counter.name, counter.sum.is_monotonic, counter.sum.aggregation_temporality) == (FAMILIES[1].name, True, 2)
    points = {point.attributes[0].value.string_value: point for point in counter.sum.data_points}
    assert (points["a"].as_int, points["b"].as_double) == (5, 7.5)
    assert points["a"].time_unix_nano > 0


def test_stop_sends_the_last_counts(collector: Collector) -> None:
    export = start_export(OtelConfig(endpoint=collector.endpoint, every=3600), lambda: FAMILIES)
    assert export
    export.stop()
    assert collector.requests.get(timeout=30)


def test_refusal_of_the_collector_is_logged_and_export_continues(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.status = 403
    export = OtelExport(config(collector), lambda: FAMILIES)
    export.start()
    for _ in range(3):
        collector.requests.get(timeout=30)
    export.stop()
    reported = set(caplog.messages)
    assert len(reported) == 1
    assert reported.pop().startswith(f"otel.endpoint: {collector.endpoint} does not accept metrics: ")
    assert "403" in caplog.text


def test_failure_while_collecting_metrics_is_logged(collector: Collector, caplog: pytest.LogCaptureFixture) -> None:
    export = OtelExport(config(collector), lambda: [][1])
    export.start()
    export.stop()
    assert caplog.messages == [f"otel.endpoint: {collector.endpoint}: list index out of range"]


def test_export_is_off_without_an_endpoint() -> None:
    assert start_export(OtelConfig(), lambda: FAMILIES) is None


def test_missing_packages_are_refused_with_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert load(None, [ENDPOINT], {}).otel.endpoint
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError) as refused:
        load(None, [ENDPOINT], {})
    assert str(refused.value) == "otel.endpoint: endpoint needs OpenTelemetry: pip install 'penstock-pipe[otel]'"


def test_invalid_endpoint_is_refused_and_headers_are_masked() -> None:
    with pytest.raises(ConfigError, match=r"otel\.endpoint: 'collector' is not an address"):
        load(None, ["otel.endpoint=collector"], {})
    explained = {key.name: key.value for key in explain(None, ["otel.headers.authorization=Bearer x"], {})}
    assert explained["otel.headers.authorization"] == MASK
    assert {key.name: key.value for key in explain(None, [], {})}["otel.headers"] == ""
