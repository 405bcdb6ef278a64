"""Counts as Prometheus text and for OpenTelemetry. Read ``prometheus``, ``topic_metrics``, ``opentelemetry``.

Imports ``counts`` and ``log``.
"""
