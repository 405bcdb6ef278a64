from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Running


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    server = Running(tmp_path / "topics")
    yield server
    server.stop()
