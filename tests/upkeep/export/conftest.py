"""Fixtures: one PostgreSQL for all tests of exports, and unchanged signals."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.landing.table_paths import Layout
from tests.landing.typed import typed_life
from tests.upkeep.export.exported import postgresql_server
from tests.upkeep.test_changes import land


@pytest.fixture(autouse=True)
def same_signals() -> Iterator[None]:
    """Undo what an embedded ClickHouse changes in its process: it blocks SIGPIPE, and children inherit that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """Return the address of a server."""
    with postgresql_server() as address:
        yield address


@pytest.fixture
def life(tmp_path: Path) -> typed_life.Life:
    """A table with a typed table of clicks, and two batches."""
    life = typed_life.Life(Layout.for_tables(tmp_path / "tables"))
    land(life, 0)
    land(life, 1)
    return life
