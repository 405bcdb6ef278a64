"""The real Aeron: downloaded once with the Ivy of pyspark, and called through two programs in Java."""

from __future__ import annotations

import hashlib
import os
import queue
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.java.jars import CannotFetch, Library, fetch
from penstock.java.runtime import NoJava, cache_folder, find_java

AERON = Library("io.aeron", "aeron-all", "1.51.0", alone=True)
SOURCES = [Path(__file__).with_name(name) for name in ("AeronPeer.java", "AeronScript.java")]
OPENED = ("java.base/jdk.internal.misc", "java.base/sun.nio.ch", "java.base/java.util.zip")
FLAGS = ["-Xmx96m", *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENED)]
ANSWER_SECONDS = 30.0


def java(name: str = "java") -> str:
    """Return a program of the installed Java; skips the test without one."""
    try:
        home = find_java().home
    except NoJava as error:
        pytest.skip(str(error))
    program = home / "bin" / name
    if not program.exists():
        pytest.skip(f"{home} has no {name}: a JDK is needed to compile {SOURCES[0].name}")
    return str(program)


def class_path() -> str:
    """Return the class path of Aeron and of our classes; downloads and compiles them into the cache folder on first
    use.
    """
    folder = cache_folder() / "aeron"
    try:
        (jar,) = fetch(AERON)
    except (CannotFetch, NoJava) as error:
        pytest.skip(str(error))
    folder.mkdir(parents=True, exist_ok=True)
    classes = folder / hashlib.sha256(b"".join(source.read_bytes() for source in SOURCES)).hexdigest()[:16]
    if not classes.exists():
        _compile(jar, classes)
    return f"{classes}{os.pathsep}{jar}"


def _compile(jar: Path, classes: Path) -> None:
    with tempfile.TemporaryDirectory(dir=classes.parent) as scratch:
        command = [java("javac"), "-cp", str(jar), "-d", f"{scratch}/classes", *map(str, SOURCES)]
        subprocess.run(command, check=True, timeout=120)
        if not classes.exists():
            shutil.move(f"{scratch}/classes", classes)


def run(*arguments: str, properties: Sequence[str] = ()) -> str:
    """Return the output of AeronPeer."""
    command = [java(), *FLAGS, *(f"-D{option}" for option in properties), "-cp", class_path(), "AeronPeer", *arguments]
    return subprocess.run(command, check=True, capture_output=True, timeout=60).stdout.decode("utf-8")


class Driver:
    """A media driver in its own process."""

    def __init__(self, folder: Path) -> None:
        command = [java(), *FLAGS, "-cp", class_path(), "AeronPeer", "serve", str(folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        assert self.answer() == ["ready"]

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def send(self, *words: object) -> None:
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin, flush=True)

    def answer(self) -> list[str]:
        return self._lines.get(timeout=ANSWER_SECONDS).split()

    def stop(self) -> None:
        stop(self._process)


def stop(process: subprocess.Popen[str]) -> None:
    """Stop a program that runs until its standard input is closed."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
