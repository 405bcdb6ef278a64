from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.config import SecurityConfig, TokenConfig
from tests.server import certificates
from tests.server.certificates import Pair
from tests.server.running import Running


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Running]:
    """A daemon's servers with the Kafka endpoint."""
    server = Running(tmp_path / "topics", kafka=True)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return certificates.make(tmp_path_factory.mktemp("tls"), "localhost")


@pytest.fixture
def closed(tmp_path: Path, pair: Pair) -> Iterator[Running]:
    """A daemon's servers with tokens and TLS."""
    tokens = {
        "writer": TokenConfig(token="the-long-secret-of-writer", write=("a*",)),
        "reader": TokenConfig(token="the-long-secret-of-reader", read=("a*",), cursor=("a*/mine-*",)),
        "looker": TokenConfig(token="the-long-secret-of-looker", read=("a*",)),
        "boss": TokenConfig(token="the-long-secret-of-boss", read=("*",), write=("*",), admin=True),
    }
    security = SecurityConfig(tokens=tokens, tls_cert=pair.cert, tls_key=pair.key)
    server = Running(tmp_path / "topics", security, kafka=True)
    yield server
    server.stop()
