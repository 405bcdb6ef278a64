"""The protocols of an HTTP listener: a protocol is one file here in ``wire`` and one entry in this table."""

from __future__ import annotations

from collections.abc import Callable

from penstock.wire.http.bulk import BulkProtocol
from penstock.wire.http.hec import HecProtocol
from penstock.wire.http.json_documents import JsonProtocol
from penstock.wire.http.loki import LokiProtocol
from penstock.wire.otlp.protocol import OtlpProtocol
from penstock.wire.requests import RequestProtocol

REQUEST_PROTOCOLS: tuple[Callable[[], RequestProtocol], ...] = (
    OtlpProtocol,
    HecProtocol,
    LokiProtocol,
    BulkProtocol,
    JsonProtocol,
)
PATHS = (
    "/",
    "/v1/logs",
    "/services/collector/event",
    "/services/collector/raw",
    "/loki/api/v1/push",
    "/_bulk",
    "/INDEX/_doc",
)
"""Paths to which messages are posted, as an error names them."""
