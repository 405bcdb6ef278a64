"""Counts as Prometheus text and for OpenTelemetry.

Read ``prometheus``, ``topic_metrics`` and ``recorded_metrics``, then ``opentelemetry``. Imports ``config``,
``handover`` and ``log``.
"""

__all__ = ["opentelemetry", "prometheus", "recorded_metrics", "topic_metrics"]
