from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from running import Running

settings.register_profile("loaded", deadline=None)  # the machine may be busy
settings.load_profile("loaded")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    server = Running(tmp_path / "topics")
    yield server
    server.stop()
