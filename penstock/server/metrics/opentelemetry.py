"""The metrics of /metrics, sent to an OpenTelemetry collector now and then (OTLP over HTTP).

Certificates, proxies and attributes of the resource are told by OpenTelemetry's own variables, such as
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
"""Counts are kept over restarts, and those of the receivers begin with each of them: when is not said here."""
LAST_SENDING = 2.0
"""Seconds that the end waits for what is being sent."""
_LOGGER = logging.getLogger(__name__)


class OtelExport(threading.Thread):
    """Sends ``families`` every ``config.every`` seconds."""

    def __init__(self, config: OtelConfig, families: Callable[[], Iterable[Family]]) -> None:
        super().__init__(name="otel", daemon=True)
        self._config, self._families = config, families
        self._resource = Resource.create({"service.name": "penstock", "service.version": __version__})
        self._exporter = OTLPMetricExporter(
            endpoint=config.endpoint, headers=dict(config.headers) or None, timeout=config.timeout
        )
        self._reason = _Reason()
        self._stopping = threading.Event()

    def run(self) -> None:
        """Until stopped; what cannot be sent is reported, and the next sending has the newer numbers."""
        while True:
            last = self._stopping.wait(self._config.every)
            self._send()
            if last:
                return

    def stop(self) -> None:
        """Send once more, then end; a collector that is away is not waited for."""
        self._stopping.set()
        self.join(LAST_SENDING)
        self._exporter.shutdown()

    def _send(self) -> None:
        try:
            sent = self._exporter.export(self._data(), timeout_millis=self._config.timeout * 1000)
        except Exception as error:  # noqa: BLE001 - whatever the exporter or the log raises: the daemon goes on
            _LOGGER.warning("otel.endpoint: %s: %s", self._config.endpoint, error)
            return
        if sent is not MetricExportResult.SUCCESS:
            reason = self._reason.text
            _LOGGER.warning("otel.endpoint: %s takes no metrics: %s", self._config.endpoint, reason)

    def _data(self) -> MetricsData:
        now = time.time_ns()
        metrics = [_metric(family, now) for family in self._families() if family.samples]
        scope = ScopeMetrics(InstrumentationScope("penstock", __version__), metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])


class _Reason(logging.Handler):
    """Keeps the last thing that OpenTelemetry had to say, in the place of its own lines and tracebacks."""

    def __init__(self) -> None:
        super().__init__()
        self.text = "no reason is given"
        logger = logging.getLogger("opentelemetry")
        logger.handlers, logger.propagate = [self], False

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage().splitlines()[0]


def _metric(family: Family, now: int) -> Metric:
    points = [NumberDataPoint(dict(labels), UNKNOWN_START, now, value) for labels, value in family.samples]
    if family.kind == "counter":
        return Metric(family.name, family.help, "", Sum(points, AggregationTemporality.CUMULATIVE, True))
    return Metric(family.name, family.help, "", Gauge(points))
