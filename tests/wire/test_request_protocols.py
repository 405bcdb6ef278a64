"""Table of the request protocols: each request belongs to at most one of them."""

from __future__ import annotations

import pytest

from penstock.wire.request_protocols import REQUEST_PROTOCOLS
from penstock.wire.requests import find_protocol


@pytest.mark.parametrize(
    ("method", "path", "codec"),
    [
        ("POST", "/v1/logs", "otlp"),
        ("POST", "/services/collector", "hec"),
        ("POST", "/services/collector/raw", "hec"),
        ("GET", "/services/collector/health", "hec"),
        ("POST", "/_bulk", "bulk"),
        ("PUT", "/logs/_bulk", "bulk"),
        ("GET", "/", "bulk"),
        ("POST", "/loki/api/v1/push", "loki"),
        ("GET", "/ready", "loki"),
        ("POST", "/", "json"),
    ],
)
def test_each_path_belongs_to_one_protocol(method: str, path: str, codec: str) -> None:
    taking = [protocol.codec for make in REQUEST_PROTOCOLS if (protocol := make()).takes(method, path)]
    assert taking == [codec]


@pytest.mark.parametrize(("method", "path"), [("POST", "/elsewhere"), ("GET", "/v1/logs"), ("POST", "/a/b/c/_bulk")])
def test_other_paths_belong_to_no_protocol(method: str, path: str) -> None:
    assert find_protocol([make() for make in REQUEST_PROTOCOLS], method, path) is None
