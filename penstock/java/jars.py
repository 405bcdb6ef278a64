"""Java libraries, fetched once by the Ivy that pyspark ships into the user's cache folder."""

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

FETCH_SECONDS = 600.0
_LOGGER = logging.getLogger(__name__)


class CannotFetch(PenstockError, RuntimeError):
    """A library could not be fetched; the text says which and why."""


@dataclass(frozen=True, slots=True)
class Library:
    """A library by its coordinates. ``keep``: the jars used, by the beginnings of their names; empty: all of them.

    ``alone``: without what it depends on.
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
"""A broker, and what makes it write its log: its own dependencies lack that."""
SPARK_KAFKA = (
    Library("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0", alone=True),
    Library("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", alone=True),
    Library("org.apache.kafka", "kafka-clients", "3.9.2", alone=True),
    Library("org.apache.commons", "commons-pool2", "2.13.1", alone=True),
)
"""Spark's Kafka connector: fetched with what it depends on, one of its artifacts cannot be found."""
SPARK_DELTA = (Library("io.delta", "delta-spark_4.2_2.13", "4.4.0", keep=("delta-", "unitycatalog-client")),)
"""Delta; the rest of what it depends on comes with Spark."""


def fetch(library: Library, *, cache: Path | None = None) -> list[Path]:
    """The library's jars, sorted; fetched when they are not in the cache folder yet. Raises CannotFetch, NoJava."""
    folder = (cache or cache_folder()) / "jars" / str(library).replace(":", "_")
    if not folder.is_dir():
        with _alone(folder):
            if not folder.is_dir():
                _LOGGER.info("fetching %s (once)", library)
                _fetch(library, folder)
    return sorted(folder.glob("*.jar"))


def fetch_all(libraries: Sequence[Library]) -> list[Path]:
    """The jars of several libraries. Raises CannotFetch, NoJava."""
    return [jar for library in libraries for jar in fetch(library)]


def _fetch(library: Library, folder: Path) -> None:
    """All jars at once: the folder appears when they are whole."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        jars = Path(scratch, "jars")
        command = [*_ivy(), "-cache", f"{scratch}/cache", "-confs", "master" if library.alone else "default"]
        command += ["-dependency", library.group, library.name, library.version]
        command += ["-retrieve", f"{jars}/[artifact]-[revision](-[classifier]).[ext]"]
        status, said = _run(command, library)
        kept = list(_kept(library, jars))
        if status or not kept:
            raise CannotFetch(f"{library} cannot be fetched (is there a way out to Maven's repository?){_why(said)}")
        for jar in set(jars.glob("*.jar")) - set(kept):
            jar.unlink()
        shutil.move(jars, folder)


def _run(command: list[str], library: Library) -> tuple[int, list[str]]:
    """Ivy's exit status and what it said; each jar is reported as it comes. Raises CannotFetch after FETCH_SECONDS."""
    said: list[str] = []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    late = threading.Timer(FETCH_SECONDS, process.kill)
    late.start()
    try:
        with process:
            for line in process.stdout or ():
                said.append(line.strip())
                if found := re.search(r"downloading \S*?([^/\s]+\.jar)", line):
                    _LOGGER.info("fetching %s", found[1])
    finally:
        late.cancel()
    if process.returncode == -signal.SIGKILL:
        raise CannotFetch(f"{library}: not fetched within {FETCH_SECONDS:.0f} s")
    return process.returncode, said


def _kept(library: Library, jars: Path) -> Iterator[Path]:
    for jar in jars.glob("*.jar"):
        if not library.keep or jar.name.startswith(library.keep):
            yield jar


def _why(said: list[str]) -> str:
    """Ivy's first complaint: of the network, else of the library."""
    for complaint in ("UnknownHost", "timed out", "refused", "Exception", "not found", "ERROR"):
        if found := [line for line in said if complaint in line]:
            return f": {found[0]}"
    return ""


def _ivy() -> list[str]:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise CannotFetch("Java libraries are fetched by what comes with Spark: pip install 'penstock[spark]'")
    jars = Path(found.origin).parent / "jars" / "*"
    return [str(find_java().home / "bin" / "java"), "-cp", str(jars), "org.apache.ivy.Main"]


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Only one process fetches a library at a time."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder.with_name(f"{folder.name}.lock"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
