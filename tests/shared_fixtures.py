"""Fixtures of several rooms: a running daemon, and the one Spark session of the whole run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.server.running import Running
    from tests.spark.spark_helpers import HandWritten


@pytest.fixture
def topics(tmp_path: Path) -> Path:
    """The folder of a log's topics, not made yet."""
    return tmp_path / "topics"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """The servers of a log daemon in this process, on free ports, over ``tmp_path / "topics"``."""
    from tests.server.running import Running

    server = Running(tmp_path / "topics")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One real Spark session; it starts with the first test that asks for it."""
    from penstock.spark.extensions import KAFKA, package_settings
    from penstock.spark.session import build_session
    from penstock.spark.source.data_source import register
    from tests.spark.spark_helpers import QUICK_START

    settings = {"master": "local[2,3]", "driver.memory": "1g", "driver.extraJavaOptions": QUICK_START}
    session = build_session({**package_settings([KAFKA]), **settings}, name="tests")
    register(session)
    yield session
    session.stop()


@pytest.fixture
def table(tmp_path: Path) -> HandWritten:
    """A table whose files and lists are written by hand."""
    from penstock.landing.table_paths import Layout
    from tests.spark.spark_helpers import HandWritten

    return HandWritten(Layout.of(tmp_path / "tables"))
