"""One Spark session for all tests here that need one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark_helpers import QUICK_START, HandWritten

from penstock.spark.layout import Layout
from penstock.spark.packages import KAFKA, package_settings
from penstock.spark.session import build_session
from penstock.spark.source import register
from penstock.spark.tables import DELTA

sys.path.append(str(Path(__file__).parents[1] / "server"))  # for its certificates


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    settings = {"master": "local[2,3]", "driver.memory": "1g", "driver.extraJavaOptions": QUICK_START}
    session = build_session({**package_settings([DELTA, KAFKA]), **settings}, name="tests")
    register(session)
    yield session
    session.stop()


@pytest.fixture
def topics(tmp_path: Path) -> Path:
    return tmp_path / "topics"


@pytest.fixture
def table(tmp_path: Path) -> HandWritten:
    return HandWritten(Layout.of(tmp_path / "tables"))
