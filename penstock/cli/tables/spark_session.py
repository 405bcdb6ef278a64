"""Spark sessions for commands on the tables; Spark is imported only when a session starts."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import signal
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

from penstock.cli.common import errors, fail
from penstock.process.process_end import INTERRUPTED, end_process
from penstock.spark.versions import UnknownSpark, check_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.config import Settings


MAX_ERROR_LINES = 3
"""Lines of a JVM's output in the error of a failed start."""


def missing_spark() -> str:
    """Return what Spark lacks here, with the remedy; empty if a tested version is installed and can run."""
    if not importlib.util.find_spec("pyspark"):
        return "this needs Spark: pip install 'penstock-pipe[spark]'"
    try:
        check_version()
    except UnknownSpark as error:
        return str(error)
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        # Java has no home folder then, and Hadoop's libraries no user.
        return f"Spark needs a user with a name, and user id {os.getuid()} has none: add a line for it to /etc/passwd"
    return ""


def require_spark(alternative: str = "") -> None:
    """End the command if no tested Spark is installed; ``alternative`` is another way to reach the goal."""
    if instruction := missing_spark():
        fail(f"{instruction}{alternative}")


@contextlib.contextmanager
def tables_session(settings: Settings) -> Iterator[SparkSession]:
    """Yield a session with the views of the tables. The JVM's output is printed only if it fails to start."""
    require_spark()
    from pyspark.errors import PySparkException

    from penstock.landing.table_paths import Layout
    from penstock.landing.typed.typed_delta import existing_typed_tables
    from penstock.spark.session import SparkNotStarted, build_session
    from penstock.spark.views import register_views

    # Order: tables that cannot be read are an error at once, and not after five seconds in which Spark starts.
    existing_typed_tables(Layout.for_tables(settings.tables))
    # An exception in the midst of a call into the JVM would print tracebacks of PySpark.
    signal.signal(signal.SIGINT, _end_at_once)
    with tempfile.TemporaryFile() as jvm_output:
        try:
            session = build_session(settings.pipeline.spark, stderr=jvm_output.fileno())
        except (PySparkException, SparkNotStarted) as error:
            jvm_output.seek(0)
            title = [] if isinstance(error, SparkNotStarted) else ["Spark does not start:"]
            fail("\n".join([*title, *_last_lines(jvm_output.read().decode(errors="replace")), str(error)]))
        try:
            register_views(session, settings.tables)
            yield session
        finally:
            session.stop()


def _end_at_once(*_: object) -> NoReturn:
    """End this command; its JVM ends, too, as their connection closes."""
    errors.show_cursor()
    end_process(INTERRUPTED)


def _last_lines(text: str) -> list[str]:
    """Return the last lines of a JVM's output without stack traces."""
    return [line for line in text.splitlines() if line.strip() and not line.startswith(("\t", " "))][-MAX_ERROR_LINES:]
