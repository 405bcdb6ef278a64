"""Spark for commands on the tables: imported, and started, only by those that need it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.cli.common import fail
from penstock.config import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def need_spark() -> None:
    """End the command where Spark is not installed."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        fail("this needs Spark: pip install 'penstock[spark]'")


@contextlib.contextmanager
def tables_session(settings: Settings) -> Iterator[SparkSession]:
    """A session for the tables' format, with their views."""
    need_spark()
    from penstock.spark.session import build_session
    from penstock.spark.views import register_views

    session = build_session(settings.pipeline.spark)
    try:
        register_views(session, settings.tables)
        yield session
    finally:
        session.stop()
