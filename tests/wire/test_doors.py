"""The table of doors: each request is for one of them at most."""

from __future__ import annotations

import pytest

from penstock.wire.doors import DOORS
from penstock.wire.requests import first_door


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
def test_each_path_is_one_doors(method: str, path: str, codec: str) -> None:
    taking = [door.codec for make in DOORS if (door := make()).takes(method, path)]
    assert taking == [codec]


@pytest.mark.parametrize(("method", "path"), [("POST", "/elsewhere"), ("GET", "/v1/logs"), ("POST", "/a/b/c/_bulk")])
def test_others_are_nobodys(method: str, path: str) -> None:
    assert first_door([make() for make in DOORS], method, path) is None
