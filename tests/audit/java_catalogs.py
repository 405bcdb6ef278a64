"""Catalogs of Iceberg that are Java servers: Hive's Metastore, which pyspark contains, and Iceberg's REST catalog.

Iceberg's server is in the test jar of ``iceberg-core`` at Maven Central; it is fetched once into the user's cache
folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyspark

from penstock.java.runtime import cache_folder, find_java
from penstock.testing.pipe import free_ports
from tests.object_store import wait_for_port

SERVERS = Path(__file__).parent / "java"
VERSION = "1.10.1"
ICEBERG = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="penstock" module="tests"/>
  <dependencies>
    <dependency org="org.apache.iceberg" name="iceberg-core" rev="{VERSION}" conf="default">
      <artifact name="iceberg-core" type="jar"/>
      <artifact name="iceberg-core" type="jar" m:classifier="tests"/>
    </dependency>
  </dependencies>
</ivy-module>
"""
HIVE, REST = "hive", "rest"


@contextlib.contextmanager
def java_catalog(kind: str, folder: Path) -> Iterator[dict[str, str]]:
    """Yield PyIceberg's properties of a running catalog whose tables are below ``folder``."""
    (port,) = free_ports(1)
    main, address = {HIVE: ("HiveMetastore", "thrift"), REST: ("IcebergRest", "http")}[kind]
    jars = [f"{Path(pyspark.__file__).parent}/jars/*"]
    if kind == REST:
        # Before Spark's: Iceberg needs its own versions.
        jars.insert(0, f"{_iceberg_jars()}/*")
    options = ["-Xmx512m", "-XX:TieredStopAtLevel=1", f"-Dderby.stream.error.file={folder}/derby.log"]
    command = [_java(), *options, "-cp", os.pathsep.join(jars), str(SERVERS / f"{main}.java"), str(port), str(folder)]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        wait_for_port(port, 300)
        yield {"type": kind, "uri": f"{address}://127.0.0.1:{port}", "warehouse": f"file://{folder}/warehouse"}
    finally:
        process.kill()
        process.wait()


def delete_row_of_files(uri: str, row: int) -> None:
    """Delete a row of each file of ``shop.orders`` by a deletion vector, as Iceberg's own library writes it."""
    jars = f"{_iceberg_jars()}/*{os.pathsep}{Path(pyspark.__file__).parent}/jars/*"
    command = [_java(), "-XX:TieredStopAtLevel=1", "-cp", jars, str(SERVERS / "IcebergDelete.java"), uri, str(row)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)


def _java() -> str:
    return str(find_java().home / "bin" / "java")


def _iceberg_jars() -> Path:
    """Return the folder with the server and its dependencies. Ivy, which pyspark contains, fetches them."""
    folder = cache_folder() / "jars" / f"iceberg-rest-{VERSION}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            draft = folder.with_suffix(".draft")
            draft.mkdir(exist_ok=True)
            (draft / "ivy.xml").write_text(ICEBERG)
            ivy = [_java(), "-cp", f"{Path(pyspark.__file__).parent}/jars/*", "org.apache.ivy.Main"]
            ivy += ["-ivy", "ivy.xml", "-cache", "cache", "-confs", "default"]
            pattern = "[artifact]-[revision](-[classifier]).[ext]"
            subprocess.run([*ivy, "-retrieve", pattern], cwd=draft, check=True, capture_output=True, timeout=600)
            draft.rename(folder)
    return folder
