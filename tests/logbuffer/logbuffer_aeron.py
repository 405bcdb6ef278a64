"""The real Aeron: fetched once with the Ivy that pyspark ships, and spoken to through AeronPeer.java."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import queue
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.spark.java import NoJava, cache_folder, find_java

VERSION = "1.51.0"
SOURCE = Path(__file__).with_name("AeronPeer.java")
OPENED = ("java.base/jdk.internal.misc", "java.base/sun.nio.ch", "java.base/java.util.zip")
FLAGS = ["-Xmx96m", *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENED)]
ANSWER_SECONDS = 30.0


def java(name: str = "java") -> str:
    """A program of the Java at hand; the test is skipped where there is none."""
    try:
        home = find_java().home
    except NoJava as error:
        pytest.skip(str(error))
    found = home / "bin" / name
    if not found.exists():
        pytest.skip(f"{home} has no {name}: a JDK is needed to compile {SOURCE.name}")
    return str(found)


def class_path() -> str:
    """Aeron and our own class, fetched and compiled if they are not in the cache folder yet."""
    folder = cache_folder() / "aeron"
    jar = folder / f"aeron-all-{VERSION}.jar"
    if not jar.exists():
        _fetch(folder, jar)
    classes = folder / hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    if not classes.exists():
        _compile(jar, classes)
    return f"{classes}{os.pathsep}{jar}"


def _fetch(folder: Path, jar: Path) -> None:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        pytest.skip("pyspark, whose Ivy fetches Aeron, is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        what = ["-dependency", "io.aeron", "aeron-all", VERSION, "-confs", "default"]
        where = ["-cache", f"{scratch}/cache", "-retrieve", f"{scratch}/[artifact]-[revision].[ext]"]
        ivy = [java(), "-cp", str(Path(found.origin).parent / "jars" / "*"), "org.apache.ivy.Main"]
        answer = subprocess.run([*ivy, *where, *what], capture_output=True, text=True, timeout=240)
        fetched = Path(scratch, jar.name)
        if not fetched.exists():
            pytest.skip(f"Aeron {VERSION} could not be fetched: {answer.stdout.strip()[-300:]}")
        fetched.replace(jar)


def _compile(jar: Path, classes: Path) -> None:
    with tempfile.TemporaryDirectory(dir=jar.parent) as scratch:
        command = [java("javac"), "-cp", str(jar), "-d", f"{scratch}/classes", str(SOURCE)]
        subprocess.run(command, check=True, timeout=120)
        if not classes.exists():
            shutil.move(f"{scratch}/classes", classes)


def run(*arguments: str, properties: Sequence[str] = ()) -> str:
    """What AeronPeer prints."""
    command = [java(), *FLAGS, *(f"-D{given}" for given in properties), "-cp", class_path(), "AeronPeer", *arguments]
    return subprocess.run(command, check=True, capture_output=True, timeout=60).stdout.decode("utf-8")


class Driver:
    """A media driver in a process of its own."""

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

    def say(self, *words: object) -> None:
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin, flush=True)

    def answer(self) -> list[str]:
        return self._lines.get(timeout=ANSWER_SECONDS).split()

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
