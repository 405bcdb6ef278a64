from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "server"))

from client_proxy import Proxy
from running import Running


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    server = Running(tmp_path / "topics")
    yield server
    server.stop()


@pytest.fixture
def proxy(running: Running) -> Iterator[Proxy]:
    proxy = Proxy(running.bound.grpc)
    yield proxy
    proxy.close()
