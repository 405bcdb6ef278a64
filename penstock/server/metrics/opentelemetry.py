"""Export of the metrics to an OpenTelemetry collector (OTLP over HTTP).

Certificates, proxies and attributes of the resource come from OpenTelemetry's own variables, such as
OTEL_EXPORTER_OTLP_CERTIFICATE and OTEL_RESOURCE_ATTRIBUTES.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from penstock import __version__
from penstock.config import OtelConfig
from penstock.server.metrics.prometheus import Family

UNKNOWN_START = 0
"""OTLP's code for an unknown start: some counts survive restarts, others begin with each start of a receiver."""
FINAL_EXPORT_TIMEOUT_S = 2.0
"""Limit: of the wait for the last export when the daemon stops."""
_LOGGER = logging.getLogger(__name__)


class OtelExport(threading.Thread):
    """Thread that sends ``families`` every ``config.every`` seconds."""

    def __init__(self, config: OtelConfig, families: Callable[[], Iterable[Family]]) -> None:
        super().__init__(name="otel", daemon=True)
        self._config, self._families = config, families
        self._resource = Resource.create({"service.name": "penstock", "service.version": __version__})
        self._exporter = OTLPMetricExporter(
            endpoint=config.endpoint, headers=dict(config.headers) or None, timeout=config.timeout
        )
        self._last_message = _LastMessage()
        self._stopping = threading.Event()

    def run(self) -> None:
        """Send until stopped. A failed export is logged and not repeated: the next one carries newer totals."""
        while True:
            # Order: send once more after the order to stop, so that the last counts reach the collector.
            is_stopping = self._stopping.wait(self._config.every)
            self._send()
            if is_stopping:
                return

    def stop(self) -> None:
        """Send once more and end, without waiting long for a collector that does not answer."""
        self._stopping.set()
        self.join(FINAL_EXPORT_TIMEOUT_S)
        self._exporter.shutdown()

    def _send(self) -> None:
        try:
            outcome = self._exporter.export(self._data(), timeout_millis=self._config.timeout * 1000)
        except Exception as error:  # noqa: BLE001 - an export must not stop the daemon
            _LOGGER.warning("otel.endpoint: %s: %s", self._config.endpoint, error)
            return
        if outcome is not MetricExportResult.SUCCESS:
            reason = self._last_message.text
            _LOGGER.warning("otel.endpoint: %s does not accept metrics: %s", self._config.endpoint, reason)

    def _data(self) -> MetricsData:
        now = time.time_ns()
        metrics = [_metric(family, now) for family in self._families() if family.samples]
        scope = ScopeMetrics(InstrumentationScope("penstock", __version__), metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])


class _LastMessage(logging.Handler):
    """Log handler that keeps OpenTelemetry's last message, instead of its own lines and tracebacks."""

    def __init__(self) -> None:
        super().__init__()
        self.text = "no reason is given"
        logger = logging.getLogger("opentelemetry")
        # Workaround: the exporter reports reasons of failures only in its log, with tracebacks.
        logger.handlers, logger.propagate = [self], False

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage().splitlines()[0]


def _metric(family: Family, now: int) -> Metric:
    points = [NumberDataPoint(dict(labels), UNKNOWN_START, now, value) for labels, value in family.samples]
    if family.kind == "counter":
        return Metric(family.name, family.help, "", Sum(points, AggregationTemporality.CUMULATIVE, True))
    return Metric(family.name, family.help, "", Gauge(points))
