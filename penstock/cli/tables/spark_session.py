"""Spark for commands on the tables: imported, and started, only by those that need it."""

from __future__ import annotations

import contextlib
import importlib.util
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.cli.common import fail
from penstock.config import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


WORDS = 3
"""Lines shown of a JVM that does not start."""


def spark_lacking() -> str:
    """What to do where Spark is not installed; empty where it is."""
    return "" if importlib.util.find_spec("pyspark") else "this needs Spark: pip install 'penstock-pipe[spark]'"


def need_spark(otherwise: str = "") -> None:
    """End the command where Spark is not installed; ``otherwise`` says what else there is to do."""
    if lacking := spark_lacking():
        fail(f"{lacking}{otherwise}")


@contextlib.contextmanager
def tables_session(settings: Settings) -> Iterator[SparkSession]:
    """A session for the tables' format, with their views. What the JVM prints is seen where it does not start only."""
    need_spark()
    from pyspark.errors import PySparkException

    from penstock.spark.session import build_session
    from penstock.spark.views import register_views

    with tempfile.TemporaryFile() as said:
        try:
            session = build_session(settings.pipeline.spark, errors=said.fileno())
        except PySparkException as error:
            said.seek(0)
            fail("\n".join(["Spark does not start:", *_last_words(said.read().decode(errors="replace")), str(error)]))
        try:
            register_views(session, settings.tables)
            yield session
        finally:
            session.stop()


def _last_words(text: str) -> list[str]:
    """The last lines of a JVM, without where in its code that was."""
    return [line for line in text.splitlines() if line.strip() and not line.startswith(("\t", " "))][-WORDS:]
