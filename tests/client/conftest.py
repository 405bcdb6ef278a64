from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.client_proxy import Proxy
from tests.server.running import Running


@pytest.fixture
def proxy(running: Running) -> Iterator[Proxy]:
    proxy = Proxy(running.bound.grpc)
    yield proxy
    proxy.close()
