"""Tables of the latest row per key that Iceberg's own library writes, with equality deletes as Flink's, and reads."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pyspark

from penstock.java.jars import Library, fetch_all
from penstock.java.runtime import find_java

ICEBERG = (
    Library("org.apache.iceberg", "iceberg-kafka-connect", "1.10.1"),
    Library("org.apache.iceberg", "iceberg-parquet", "1.10.1", alone=True),
)
"""Iceberg's library with its dependencies, as Kafka Connect's sink has them."""
PROGRAM = Path(__file__).parent / "java" / "IcebergUpserts.java"


def write_upserts(folder: Path, steps: Iterable[str], *, is_partitioned: bool = False) -> list[int]:
    """Write a table from lines of the program's input, and return the offsets that Iceberg's library reads from it."""
    hadoop = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar")
    jars = os.pathsep.join(map(str, [*fetch_all(ICEBERG), *hadoop]))
    kind = "partitioned" if is_partitioned else "whole"
    java = str(find_java().home / "bin" / "java")
    command = [java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", jars, str(PROGRAM), str(folder), kind]
    written = subprocess.run(command, input="\n".join(steps), text=True, capture_output=True, timeout=300, check=False)
    assert written.returncode == 0, written.stderr
    return sorted(map(int, written.stdout.split()))
