"""Java libraries, fetched once into the user's cache folder by the Ivy that pyspark contains."""

from __future__ import annotations

import fcntl
import importlib.util
import logging
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import PenstockError
from penstock.java.runtime import cache_folder, find_java

FETCH_TIMEOUT_S = 600.0
_LOGGER = logging.getLogger(__name__)


class CannotFetch(PenstockError, RuntimeError):
    """A library could not be fetched; the text names the library and the cause."""


@dataclass(frozen=True, slots=True)
class Library:
    """A library by its coordinates.

    ``keep`` lists name prefixes of the jars in use (empty: all). ``alone`` fetches it without its dependencies.
    """

    group: str
    name: str
    version: str
    keep: tuple[str, ...] = ()
    alone: bool = False

    def __str__(self) -> str:
        return f"{self.group}:{self.name}:{self.version}"


KAFKA_BROKER = (
    Library("org.apache.kafka", "kafka_2.13", "4.3.1"),
    Library("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4", alone=True),
)
"""A broker and a log4j binding: without the binding, which is not a dependency of the broker, it writes no log."""


def _spark_kafka(connector: str, tokens: str, client: str, pool: str) -> tuple[Library, ...]:
    return (
        Library("org.apache.spark", "spark-sql-kafka-0-10_2.13", connector, alone=True),
        Library("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", tokens, alone=True),
        Library("org.apache.kafka", "kafka-clients", client, alone=True),
        Library("org.apache.commons", "commons-pool2", pool, alone=True),
    )


SPARK_KAFKA = {
    "4.0": _spark_kafka("4.0.4", "4.0.0", "3.9.1", "2.12.0"),
    "4.1": _spark_kafka("4.1.3", "4.1.1", "3.9.1", "2.12.1"),
    "4.2": _spark_kafka("4.2.0", "4.0.0", "3.9.2", "2.13.1"),
}
"""Spark's Kafka connector by the minor version of Spark, artifact by artifact.

Workaround: Ivy cannot resolve all of its transitive dependencies.
"""
SPARK_DELTA = {
    minor: (Library("io.delta", f"delta-spark_{minor}_2.13", "4.4.0", keep=("delta-", "unitycatalog-client")),)
    for minor in ("4.0", "4.1", "4.2")
}
"""Delta by the minor version of Spark, which contains its other dependencies."""


def fetch(library: Library, *, cache: Path | None = None) -> list[Path]:
    """Return the jars of a library, sorted; fetch them first if they are not cached. Raises CannotFetch, NoJava."""
    folder = (cache or cache_folder()) / "jars" / str(library).replace(":", "_")
    if not folder.is_dir():
        # Tested again under the lock: another process may have fetched it during the wait.
        with _exclusive_fetch(folder):
            if not folder.is_dir():
                _LOGGER.info("fetching %s (once)", library)
                _fetch(library, folder)
    return sorted(folder.glob("*.jar"))


def fetch_all(libraries: Sequence[Library]) -> list[Path]:
    """Return the jars of several libraries. Raises CannotFetch, NoJava."""
    return [jar for library in libraries for jar in fetch(library)]


def _fetch(library: Library, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        jars = Path(scratch, "jars")
        command = [*_ivy_command(), "-cache", f"{scratch}/cache", "-confs", "master" if library.alone else "default"]
        command += ["-dependency", library.group, library.name, library.version]
        command += ["-retrieve", f"{jars}/[artifact]-[revision](-[classifier]).[ext]"]
        status, output = _run(command, library)
        used_jars = [jar for jar in jars.glob("*.jar") if not library.keep or jar.name.startswith(library.keep)]
        if status or not used_jars:
            raise CannotFetch(
                f"{library} cannot be fetched (is Maven's repository reachable?){_first_complaint(output)}"
            )
        for jar in set(jars.glob("*.jar")) - set(used_jars):
            jar.unlink()
        # Crash: the folder appears with all its jars or not at all, so its existence means a complete library.
        shutil.move(jars, folder)


def _run(command: list[str], library: Library) -> tuple[int, list[str]]:
    """Run Ivy and log each download; return its exit status and output. Raises CannotFetch after FETCH_TIMEOUT_S."""
    output: list[str] = []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    # Limit: Ivy retries slow servers without end, so a timer kills it.
    killer = threading.Timer(FETCH_TIMEOUT_S, process.kill)
    killer.start()
    try:
        with process:
            for line in process.stdout or ():
                output.append(line.strip())
                if download := re.search(r"downloading \S*?([^/\s]+\.jar)", line):
                    _LOGGER.info("fetching %s", download[1])
    finally:
        killer.cancel()
    if process.returncode == -signal.SIGKILL:
        raise CannotFetch(f"{library}: not fetched within {FETCH_TIMEOUT_S:.0f} s")
    return process.returncode, output


def _first_complaint(output: list[str]) -> str:
    # Causes in the network come first: Ivy reports a missing library after each of them, too.
    for complaint in ("UnknownHost", "timed out", "refused", "Exception", "not found", "ERROR"):
        if lines := [line for line in output if complaint in line]:
            return f": {lines[0]}"
    return ""


def _ivy_command() -> list[str]:
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise CannotFetch("fetching Java libraries needs the Ivy of pyspark: pip install 'penstock-pipe[spark]'")
    jars = Path(pyspark.origin).parent / "jars" / "*"
    return [str(find_java().home / "bin" / "java"), "-cp", str(jars), "org.apache.ivy.Main"]


@contextmanager
def _exclusive_fetch(folder: Path) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder.with_name(f"{folder.name}.lock"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
