"""A Spark with Delta that knows nothing of Penstock, in a process of its own: statements in, rows out, line by line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SCRIPT = """
import json, os, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]")
for name, value in json.loads(os.environ["SPARK_SETTINGS"]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
assert "penstock" not in sys.modules
answers = os.fdopen(int(sys.argv[1]), "w")
for line in sys.stdin:
    try:
        answer = {"rows": [row.asDict() for row in spark.sql(json.loads(line)).collect()]}
    except Exception as error:
        answer = {"error": str(error)}
    print(json.dumps(answer, default=str), file=answers, flush=True)
spark.stop()
"""


class ForeignSpark:
    """A running session; close it, or use it in a ``with``. It costs ten seconds: the fixture shares it."""

    def __init__(self) -> None:
        from penstock.java.runtime import find_java
        from penstock.testing.spark_extensions import DELTA, package_settings

        self._databases = 0
        self._folder = tempfile.TemporaryDirectory(prefix="foreign-spark-")
        settings = {
            **package_settings([DELTA]),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "1",
            "spark.databricks.delta.snapshotPartitions": "1",
            # VACUUM lists folders in 10,000 tasks by default: a minute of CPU for a table of ten files.
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
            # Each of some hundred statements handles forty rows: to compile it and to plan it again from statistics of
            # its stages takes longer than to run it, a third of the JVM's CPU.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.warehouse.dir": f"{self._folder.name}/warehouse",
        }
        environment = {**os.environ, "SPARK_SETTINGS": json.dumps(settings), "JAVA_HOME": str(find_java().home)}
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        read, write = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(write)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[write],
            env=environment,
            cwd=self._folder.name,
            text=True,
        )
        os.close(write)
        self._answers = os.fdopen(read)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        finally:
            self._process.kill()
            self._answers.close()
            self._folder.cleanup()

    def sql(self, statement: str, table: Path | None = None) -> list[dict[str, Any]]:
        """Return the rows of a statement; ``{}`` in it is the table. Raises AssertionError where it fails."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(statement.replace("{}", f"delta.`{table}`")) + "\n")
        self._process.stdin.flush()
        line = self._answers.readline()
        assert line, "Spark has ended"
        answer = json.loads(line)
        assert "rows" in answer, answer["error"]
        rows: list[dict[str, Any]] = answer["rows"]
        return rows

    def use_tables(self, statements: list[str]) -> None:
        """Enter tables in the catalog, each call in a database of its own."""
        self._databases += 1
        for statement in (f"CREATE DATABASE d{self._databases}", f"USE d{self._databases}", *statements):
            self.sql(statement)
