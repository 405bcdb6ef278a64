"""A server for all tests of the room that only read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.sql.postgres.server import Server
from tests.sql.postgres.postgres_server import fill, serving


@pytest.fixture(scope="session")
def sql_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("postgres")
    fill(folder / "topics")
    with serving(folder) as server:
        yield server
