from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def topics(tmp_path: Path) -> Path:
    return tmp_path / "topics"
