"""Fixtures of several rooms: a running daemon, and one Spark session for the whole run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.landing.table_paths import Layout
    from tests.engines.foreign_spark import ForeignSpark
    from tests.object_store import S3Server
    from tests.server.running import Running
    from tests.spark.spark_helpers import HandWritten


@pytest.fixture
def topics(tmp_path: Path) -> Path:
    """The folder of a log's topics, which does not exist yet."""
    return tmp_path / "topics"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """The servers of a log daemon in this process, on free ports, with the topics in ``tmp_path / "topics"``."""
    from tests.server.running import Running

    server = Running(tmp_path / "topics")
    yield server
    server.stop()


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name a proxy that answers nothing in this process's environment, for all addresses."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A real Spark session, started by the first test that needs it."""
    from penstock.spark import class_archive
    from penstock.spark.session import build_session
    from penstock.spark.source.data_source import register
    from penstock.testing.spark_extensions import KAFKA, package_settings

    # Without an archive each start of a pipeline takes 14 s of CPU instead of 8. At the lowest priority a build next to
    # a busy suite would end after it.
    class_archive.BUILD_DELAY_S, class_archive.BUILD_NICENESS = 20.0, 0
    settings = {"master": "local[2,3]", "driver.memory": "1g"}
    session = build_session({**package_settings([KAFKA]), **settings}, name="tests")
    register(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def foreign_spark() -> Iterator[ForeignSpark]:
    """A Spark with Delta that knows nothing of Penstock, in a process of its own."""
    from tests.engines.foreign_spark import ForeignSpark

    with ForeignSpark() as session:
        yield session


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A running S3 server with an empty bucket; a test that stops it starts it again."""
    from tests.object_store import S3Server

    server = S3Server(tmp_path_factory.mktemp("s3"))
    yield server
    server.end()


@pytest.fixture
def at_url(s3: S3Server, tmp_path: Path) -> Layout:
    """A layout of tables at a separate URL in that bucket."""
    from penstock.config.syntax.tables_url import TablesUrl
    from penstock.landing.table_paths import Layout
    from tests.object_store import BUCKET

    return Layout.for_tables(TablesUrl(f"s3://{BUCKET}/{tmp_path.name}", tmp_path / "state", s3.options()))


@pytest.fixture
def table(tmp_path: Path) -> HandWritten:
    """A table with files and lists written by the test."""
    from penstock.landing.table_paths import Layout
    from tests.spark.spark_helpers import HandWritten

    return HandWritten(Layout.for_tables(tmp_path / "tables"))
